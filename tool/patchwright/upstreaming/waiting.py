"""A move of pins that waits for a conflict to be resolved, in the work tree of ``edit``.

``.patchwright/bump.json`` holds what was asked for; the conflict itself, and what was
resolved before, are the work tree's own record (editing/session.py).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.editing.carrying import Resolution
from patchwright.editing.changing import digest, unsaved
from patchwright.editing.plans import keep, numbered
from patchwright.editing.rewriting import diff_between
from patchwright.editing.session import Bench, Session, Waiting
from patchwright.errors import AnswerNo, PatchwrightError
from patchwright.files import write_atomically
from patchwright.quoting import display
from patchwright.upstreaming.pins import Target

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.upstreaming.bump import Bump

FILE = "bump.json"
_NEXT = (
    "resolve it there and run `patchwright bump --continue`, or give up with `patchwright bump "
    "--abort`; to leave patches out instead: `patchwright bump … --accept --without N`"
)


def exact(bump: Bump) -> tuple[Target, ...]:
    """Return the targets of a move, none of them "the latest" any more."""
    return tuple(
        Target(pin.new.name, revision=pin.new.revision) if pin.new.source == "git"
        else Target(pin.new.name, version=pin.new.version)
        for pin in bump.pins
    )  # fmt: skip


def open_conflict(bump: Bump, resolved: Mapping[int, Resolution]) -> AnswerNo:
    """Open the first conflict of a move in the work tree; return the error that says so."""
    project = bump.project
    move = next(move for move in bump.open if move.conflict is not None)
    assert move.conflict is not None
    bench = Bench(project)
    session = bench.session()
    if session is not None and session.waiting is None and bench.tree.is_dir():
        changed = bench.scan(session).changed
        if changed:
            return unsaved(bench, session, changed)
    if session is not None and session.upstream != move.upstream:
        bench.close()
    series = project.series
    command = "bump " + " ".join(str(target) for target in exact(bump))
    parts = keep(series)
    plan = numbered(command, series, parts, [part.patch.number for part in parts])
    _write(project, bump, bump.without)
    bench.open(Session(
        "conflict", move.number, move.upstream, move.on, move.conflict.tree,
        waiting=Waiting(plan, digest(series), move.number, move.on, move.conflict.stages, resolved),
    ))  # fmt: skip
    paths = ", ".join(display(path) for path in sorted(move.conflict.stages))
    left = len(bump.open) - 1
    more = f", {left} more after it" if left else ""
    return AnswerNo(
        f"{move.number:04d} ({move.patch.title}) conflicts in {paths}{more}; nothing is written "
        "yet",
        where=str(bench.tree), next_step=_NEXT,
    )  # fmt: skip


def pending(project: Project) -> tuple[tuple[Target, ...], frozenset[int], Session]:
    """Return what a move that waits was asked to do, and its conflict. Raises AnswerNo."""
    bench = Bench(project)
    session = bench.session()
    path = _path(project)
    if session is None or session.waiting is None or not path.is_file():
        raise AnswerNo(
            "no bump waits for a conflict", where=str(path),
            next_step="start one with `patchwright bump NAME VERSION --accept`",
        )  # fmt: skip
    if session.waiting.series != digest(project.series):
        raise AnswerNo(
            f"the series was changed while `{session.waiting.plan.command}` waited",
            where=str(bench.tree),
            next_step="give it up with `patchwright bump --abort` and start again",
        )  # fmt: skip
    try:
        record = json.loads(path.read_bytes())
        wanted = tuple(Target(*entry) for entry in record["targets"])
        without = frozenset(int(number) for number in record["without"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PatchwrightError(
            f"what the bump was asked to do cannot be read: {error}", where=str(path),
            next_step="give it up with `patchwright bump --abort` and start again",
        ) from error  # fmt: skip
    return wanted, without, session


def resolution(project: Project, session: Session) -> dict[int, Resolution]:
    """Return all that was resolved so far, the work tree included. Raises AnswerNo."""
    bench = Bench(project)
    waiting = session.waiting
    assert waiting is not None
    left = bench.unresolved(session)
    if left:
        raise AnswerNo(
            f"there are conflict markers in {', '.join(display(p) for p in left)}",
            where=str(bench.tree), next_step="resolve them, then run it again",
        )  # fmt: skip
    tree = bench.scan(session).tree
    diff = b"" if tree == session.base else diff_between(project.store, session.base, tree)
    return {**waiting.resolved, waiting.origin: Resolution(session.base, diff)}


def forget(project: Project) -> None:
    """Close the work tree of a conflict and forget the move that waited."""
    Bench(project).close()
    _path(project).unlink(missing_ok=True)


def abort(project: Project) -> None:
    """Give up a move that waits, whatever became of its record. Raises AnswerNo for none."""
    session = Bench(project).session()
    if session is None or session.waiting is None or not _path(project).is_file():
        pending(project)  # says that there is none
    forget(project)


def _write(project: Project, bump: Bump, without: Collection[int]) -> None:
    record = {
        "targets": [[t.upstream, t.version, t.revision] for t in exact(bump)],
        "without": sorted(without),
    }
    write_atomically(_path(project), json.dumps(record).encode())


def _path(project: Project) -> Path:
    return project.state_dir / FILE
