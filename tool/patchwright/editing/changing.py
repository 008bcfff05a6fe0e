"""Carries out a plan: the new series is worked out whole, then written as one change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchwright.applying.chain import Chain, State
from patchwright.editing.carrying import Carried, Carrier, Resolution, Stopped
from patchwright.editing.operations import Content
from patchwright.editing.plans import Plan
from patchwright.editing.session import Bench, Session, Waiting
from patchwright.editing.switches import write_off
from patchwright.editing.transaction import Transaction, begin
from patchwright.errors import AnswerNo
from patchwright.files import new_file_mode
from patchwright.lock import patch_file
from patchwright.patch import Patch
from patchwright.quoting import display
from patchwright.series import Series

if TYPE_CHECKING:
    from patchwright.project import Project


@dataclass(frozen=True)
class Changed:
    """What came of a plan: the series as it is now, and the patches with a new diff.

    ``lock_stale`` says that upstream.lock could not follow: ``lock`` tells why.
    """

    series: Series
    rewritten: tuple[Patch, ...]
    lock_stale: bool


def change_series(
    project: Project, make: Callable[[Series], Plan], *, stays_open: bool = False
) -> Changed:
    """Carry out the plan that ``make`` gives for the series.

    A work tree that is open is left, unless it ``stays_open`` because no diff changes.
    Raises AnswerNo where the edit work tree has changes that no patch has, and where a
    patch conflicts: the conflict is then in the work tree, and nothing else is changed.
    """
    with begin(project, "") as change:
        bench = Bench(project)
        session = bench.session()
        leaves = session is not None and not stays_open
        if session is not None and leaves:
            _leave(bench, session)
        plan = make(project.series)
        change.command = plan.command
        changed = carry_out(project, change, plan)
        if leaves:
            bench.close()
        return changed


def _leave(bench: Bench, session: Session) -> None:
    changed = bench.scan(session).changed if session.kind != "new" else (b"a new patch",)
    if changed:
        raise unsaved(bench, session, changed)


def unsaved(bench: Bench, session: Session, changed: tuple[bytes, ...]) -> AnswerNo:
    """Return the error for a work tree that has what no patch has."""
    shown = ", ".join(display(path) for path in changed[:3])
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    return AnswerNo(
        f"the work tree of {session.number:04d} has changes that no patch has: {shown}{more}",
        where=str(bench.tree),
        next_step="write them back with `patchwright refresh`, or leave them with `patchwright "
        "edit --close --discard`",
    )


def carry_out(
    project: Project, change: Transaction, plan: Plan, *,
    resolved: Mapping[int, Resolution] | None = None, then: int | None = None,
    after: Mapping[int, str] | None = None,
) -> Changed:  # fmt: skip
    """Work out the plan and commit it; on a conflict open it in the work tree and raise.

    ``after`` has other trees that present patches are to make from now on.
    """
    series = project.series
    carrier = Carrier(project, series)
    carrier.after |= after or {}
    carrier.changed |= (after or {}).keys()
    result = carrier.carry(plan.items, resolved)
    if isinstance(result, Stopped):
        waiting = Waiting(
            plan, digest(series), result.origin, result.base,
            result.conflict.stages if result.conflict else {}, resolved or {}, then,
        )  # fmt: skip
        raise _open(project, carrier, result, waiting)
    _write(project, change, series, plan, result)
    now = change.series()
    _check(project, series, carrier, now, result)
    relocked = change.relock() if project.lock is not None else True
    change.commit()
    return Changed(now, result.rewritten, not relocked)


def digest(series: Series) -> str:
    """Return what a series is, as one sha256: the names and bytes of its patches."""
    found = hashlib.sha256()
    for patch in series.patches:
        found.update(f"{patch.path.name}\0{patch.sha256}\n".encode(errors="surrogateescape"))
    return found.hexdigest()


def _write(
    project: Project, change: Transaction, series: Series, plan: Plan, result: Carried
) -> None:
    old = {patch_file(project.root, p.path): p for p in series.patches}
    new = {patch_file(project.root, p.path): p for p in result.patches}
    modes = {path: _mode(change, path) for path in old}
    tests = {name: change.content(name) for name in plan.renames}
    by_number = {patch.number: path for path, patch in old.items()}
    for path in old.keys() - new.keys():
        change.remove(path)
    origins = {item.patch.path.name: item.origins for item in plan.items}
    for path, patch in new.items():
        if path in old and old[path].raw == patch.raw:
            continue
        source = path if path in old else by_number.get(next(iter(origins[patch.path.name]), 0))
        change.put(path, Content(patch.raw, modes.get(source or "", new_file_mode())))
    for name in tests:
        change.remove(name)
    for name, now in plan.renames.items():
        content = tests[name]
        if now is not None and content is not None:
            change.put(now, content)
    for name, data in plan.writes.items():
        change.write(name, data)
    write_off(change, plan.off)


def _mode(change: Transaction, path: str) -> int:
    content = change.content(path)
    return content.mode if content is not None else new_file_mode()


def _check(
    project: Project, series: Series, carrier: Carrier, now: Series, result: Carried
) -> None:
    """The files must give the trees that were worked out: success is told by tree ids."""
    chain = Chain(project)
    state, verdicts = chain.apply(now.patches)
    bad = [v for v in verdicts if not v.ok]
    was_bad = len(series.patches) - len(carrier.after)
    if len(bad) > was_bad or (state != result.state and not was_bad):
        told = bad[0] if bad else None
        where = f"{told.patch_number:04d}" if told else "the series"
        reason = told.reason if told else f"it gives {_ids(state)}, not {_ids(result.state)}"
        raise AnswerNo(
            f"{where} would not apply: {reason}",
            next_step="nothing was changed; correct that first",
        )


def _ids(state: State) -> str:
    return ", ".join(f"{name} {tree[:12]}" for name, tree in state.trees)


def _open(project: Project, carrier: Carrier, stopped: Stopped, waiting: Waiting) -> AnswerNo:
    """Open the work tree on a conflict and return the error that says so."""
    bench = Bench(project)
    title = carrier.series.get(stopped.origin).title
    upstream = carrier.chain.upstream(stopped.item.patch)
    tree = stopped.conflict.tree if stopped.conflict else stopped.base
    session = Session(
        "conflict", stopped.origin, upstream, stopped.base, tree, waiting=waiting
    )  # fmt: skip
    previous = bench.session()
    if previous is not None and previous.upstream != upstream:
        bench.close()
    bench.open(session)
    name = f"{stopped.origin:04d} ({title})"
    if stopped.conflict is None:
        return AnswerNo(
            f"{name} would change nothing any more; nothing is written yet",
            where=str(bench.tree),
            next_step="leave it out with `patchwright refresh --skip`, or give up with --abort",
        )
    paths = ", ".join(display(path) for path in sorted(stopped.conflict.stages))
    return AnswerNo(
        f"{name} conflicts in {paths or 'its files'}; nothing is written yet",
        where=str(bench.tree),
        next_step="resolve it there and run `patchwright refresh --continue`; or leave that patch "
        "out with --skip, or give up with --abort",
    )
