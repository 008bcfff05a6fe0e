"""``edit`` and ``refresh``: a patch opened as files, and written back with those behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.applying.chain import Chain
from patchwright.editing import plans
from patchwright.editing.carrying import Carrier, Item, Resolution
from patchwright.editing.changing import Changed, carry_out, digest, unsaved
from patchwright.editing.plans import Plan
from patchwright.editing.rewriting import diff_between, file_name, with_diff
from patchwright.editing.session import Bench, Session, Waiting
from patchwright.editing.transaction import begin
from patchwright.errors import AnswerNo, InputError
from patchwright.patch import Patch
from patchwright.quoting import display

if TYPE_CHECKING:
    from patchwright.project import Project

_NOT_OPEN = "open a patch with `patchwright edit N`, or start one with `patchwright new TITLE`"


@dataclass(frozen=True)
class Opened:
    """The work tree and what it is open for."""

    folder: Path
    number: int
    upstream: str


@dataclass(frozen=True)
class Refreshed:
    """What a refresh wrote: the patch, the files in it that changed, and what was left out."""

    patch: Patch
    changed: tuple[bytes, ...]
    junk: tuple[bytes, ...]
    series: Changed


def edit(project: Project, number: int) -> Opened:
    """Open the work tree with the series up to ``number``.

    Raises AnswerNo where it is open with changes that no patch has, or where a patch up
    to there does not apply.
    """
    with begin(project, f"edit {number}"):
        series = project.series
        patch = series.get(number)
        bench = Bench(project)
        _free(bench)
        carrier = Carrier(project, series)
        if number not in carrier.after:
            raise AnswerNo(
                f"{number:04d} does not apply, so there is no tree to edit",
                where=str(patch.path), next_step=f"see `patchwright show {number}`",
            )  # fmt: skip
        upstream = carrier.chain.upstream(patch)
        session = Session(
            "edit", number, upstream, carrier.before[number], carrier.after[number], patch.sha256
        )  # fmt: skip
        bench.open(session)
    return Opened(bench.tree, number, upstream)


def start(
    project: Project, number: int | None, upstream: str, title: str,
    make: Callable[[int, str], Patch], skeleton: Callable[[int], tuple[str, str]] | None,
) -> Opened:  # fmt: skip
    """Open the work tree for a new patch; the first refresh writes it.

    ``number`` is its place (None: the last); ``make`` gives its text without a diff,
    ``skeleton`` its smoke test's path and text.
    """
    with begin(project, f"new {title}"):
        bench = Bench(project)
        _free(bench)
        numbers = [patch.number for patch in project.series.patches]
        if number is None:
            number = max(numbers, default=0) + 1
        draft = make(number, file_name(number, upstream, title))
        chain = Chain(project)
        before = [p for p in project.series.patches if p.number < number]
        state, _ = chain.apply(before)
        tree = state.tree(project.upstream(upstream).name)
        smoke = skeleton(number) if skeleton is not None else None
        if smoke is not None and (project.root / smoke[0]).exists():
            raise InputError(
                "this smoke test is there already", where=str(project.root / smoke[0]),
                next_step="give it another name, or start the patch with --no-smoke",
            )  # fmt: skip
        bench.open(Session("new", number, upstream, tree, tree, None, draft, smoke))
    return Opened(bench.tree, number, upstream)


def close(project: Project, *, discard: bool) -> Path | None:
    """Leave the work tree. With ``discard`` its changes go to a diff, whose path is returned."""
    bench = Bench(project)
    with begin(project, "edit --close", resuming=True):
        session = _session(bench)
        aside = None
        if session.waiting is not None:
            raise AnswerNo(
                f"`{session.waiting.plan.command}` waits for a conflict to be resolved",
                where=str(bench.tree), next_step="give it up with `patchwright refresh --abort`",
            )  # fmt: skip
        if not bench.tree.is_dir():
            if not discard:
                bench.scan(session)  # says that it is gone
        elif (scan := bench.scan(session)).changed:
            if not discard:
                raise unsaved(bench, session, scan.changed)
            aside = bench.put_aside(session, scan.tree)
        bench.close()
    return aside


def _free(bench: Bench) -> None:
    session = bench.session()
    if session is not None and bench.tree.is_dir():
        changed = bench.scan(session).changed
        if session.kind == "new":
            changed = changed or (b"a new patch",)  # its words are nowhere else
        if changed:
            raise unsaved(bench, session, changed)


def _session(bench: Bench) -> Session:
    session = bench.session()
    if session is None:
        raise AnswerNo("no work tree is open", where=str(bench.path), next_step=_NOT_OPEN)
    return session


def refresh(project: Project) -> Refreshed:
    """Write the work tree back to its patch, and carry the later patches over it.

    Raises AnswerNo where nothing changed, where the patch would be empty, where it was
    changed since it was opened, and on a conflict (see ``carry_out``).
    """
    bench = Bench(project)
    with begin(project, "refresh") as change:
        session = _session(bench)
        scan = bench.scan(session)
        carrier = Carrier(project, project.series)
        if session.kind == "edit":
            session = _same(project, bench, session, carrier, scan.tree)
        if not scan.changed:
            raise AnswerNo(
                "nothing in the work tree differs from what it was opened with",
                where=str(bench.tree), next_step="change files there first",
            )  # fmt: skip
        if scan.tree == session.base:
            raise AnswerNo(
                f"{session.number:04d} would be empty: the work tree is as it was before it",
                where=str(bench.tree), next_step=f"drop it with `patchwright drop {session.number}`"
                " after `patchwright edit --close --discard`",
            )  # fmt: skip
        _check_layout(project, session, scan.changed, bench)
        diff = diff_between(project.store, session.base, scan.tree)
        plan = _plan(project, session, diff)
        change.command = plan.command
        changed = carry_out(project, change, plan, then=session.number)
        patch = changed.series.get(session.number)
        bench.save(_open_again(session, patch, session.base, scan.tree))
    return Refreshed(patch, scan.changed, scan.junk, changed)


def _open_again(session: Session, patch: Patch, base: str, tree: str) -> Session:
    return Session("edit", patch.number, session.upstream, base, tree, patch.sha256)


def _plan(project: Project, session: Session, diff: bytes) -> Plan:
    series = project.series
    if session.draft is None:
        patch = with_diff(series.get(session.number), diff)
        return plans.replace(series, session.number, [patch], f"refresh {session.number}")
    writes = {}
    if session.smoke is not None:
        name, text = session.smoke
        # Somebody may have written the test before the patch.
        if not (project.root / name).exists():
            writes[name] = text.encode()
    title = session.draft.title
    return plans.insert(series, with_diff(session.draft, diff), f"new {title}", writes)


def _same(project: Project, bench: Bench, session: Session, carrier: Carrier, tree: str) -> Session:
    """Return the session of a patch that is still what was opened. Raises AnswerNo."""
    known = {patch.number for patch in project.series.patches}
    number = session.number
    before, after = carrier.before.get(number), carrier.after.get(number)
    if number in known and before == session.base:
        patch = project.series.get(number)
        if after in (session.opened, tree):
            # Message or fields may have changed, or a refresh was killed after its change.
            session = replace(session, opened=after or "", sha256=patch.sha256)
            bench.save(session)
            return session
    raise AnswerNo(
        f"{number:04d}, or what stands before it, was changed since it was opened",
        where=str(bench.tree), next_step="set the changes aside with `patchwright edit --close "
        f"--discard` (it says where), run `patchwright edit {number}` and put them in again",
    )  # fmt: skip


def _check_layout(
    project: Project, session: Session, changed: Sequence[bytes], bench: Bench
) -> None:
    from patchwright.upstreams.layout import to_installed

    config = project.upstream(session.upstream)
    if config.source == "git":
        return
    bad = [path for path in changed if to_installed(config.layout, path) is None]
    if bad:
        raise InputError(
            f"{display(bad[0])} is not in the distribution: the layout of {session.upstream} does "
            "not carry it, so its change would not be installed",
            where=str(bench.tree), next_step="move the file away, or add a layout rule",
        )  # fmt: skip


# Conflicts


def go_on(project: Project) -> Changed:
    """Take the work tree as the resolution of its conflict and go on with the plan."""
    bench = Bench(project)
    with begin(project, "refresh --continue", resuming=True) as change:
        session, waiting = _waiting(project, bench)
        left = bench.unresolved(session)
        if left:
            raise AnswerNo(
                f"there are conflict markers in {', '.join(display(p) for p in left)}",
                where=str(bench.tree), next_step="resolve them, then run it again",
            )  # fmt: skip
        scan = bench.scan(session)
        if scan.tree == session.base:
            raise AnswerNo(
                f"{waiting.origin:04d} would change nothing any more", where=str(bench.tree),
                next_step="leave it out with `patchwright refresh --skip`",
            )  # fmt: skip
        diff = diff_between(project.store, session.base, scan.tree)
        resolved = {**waiting.resolved, waiting.origin: Resolution(session.base, diff)}
        change.command = waiting.plan.command
        changed = carry_out(project, change, waiting.plan, resolved=resolved, then=waiting.then)
        _afterwards(project, bench, session, waiting.then, changed)
    return changed


def skip(project: Project) -> Changed:
    """Leave the patch in conflict out of the series and go on; its file stays on record."""
    bench = Bench(project)
    with begin(project, "refresh --skip", resuming=True) as change:
        session, waiting = _waiting(project, bench)
        origin, plan = waiting.origin, waiting.plan
        stay = {n for item in plan.items for n in item.origins} - {origin}
        stay |= {i.patch.number for i in plan.items if not i.origins}
        needing = [n for n in project.series.dependants(origin) if n in stay]
        if needing:
            raise AnswerNo(
                f"{', '.join(f'{n:04d}' for n in needing)} need{'s' * (len(needing) == 1)} "
                f"{origin:04d}, so it cannot be left out", where=str(bench.tree),
                next_step="resolve the conflict, or give up with --abort",
            )  # fmt: skip
        if any(len(item.origins) > 1 and origin in item.origins for item in plan.items):
            raise AnswerNo(
                f"{origin:04d} is being folded into another patch, so it cannot be left out",
                where=str(bench.tree), next_step="resolve the conflict, or give up with --abort",
            )  # fmt: skip
        plan = _without(plan, project.series.get(origin))
        change.command = f"{plan.command}, without {origin}"
        changed = carry_out(project, change, plan, resolved=waiting.resolved, then=waiting.then)
        _afterwards(project, bench, session, waiting.then, changed)
    return changed


def _without(plan: Plan, patch: Patch) -> Plan:
    items = tuple(item for item in plan.items if item.origins != (patch.number,))
    used = {name for item in items for name in item.patch.smoke}
    renames = dict(plan.renames)
    for name in patch.smoke:
        if name.startswith("tests/smoke/") and renames.get(name, name) not in used:
            renames[name] = None
    return replace(plan, items=items, renames=renames)


def abort(project: Project) -> None:
    """Give up a plan that waits. The work tree has again what it had before it, if anything."""
    bench = Bench(project)
    with begin(project, "refresh --abort", resuming=True):
        session = _session(bench)
        waiting = session.waiting
        if waiting is None:
            raise AnswerNo(
                "no conflict waits", where=str(bench.path),
                next_step="leave the work tree with `patchwright edit --close`",
            )  # fmt: skip
        if waiting.of_bump:
            raise _bumps(waiting, bench)
        then = next((i for i in waiting.plan.items if i.patch.number == waiting.then), None)
        if then is None or waiting.series != digest(project.series):
            bench.close()
            return
        _reopen(project, bench, session, then, waiting.plan)


def _reopen(project: Project, bench: Bench, session: Session, item: Item, plan: Plan) -> None:
    """Open what a refresh was about again, with what was to be written."""
    carrier = Carrier(project, project.series)
    number = item.patch.number
    upstream = carrier.chain.upstream(item.patch)
    written = number in carrier.after and not plan.command.startswith("new ")
    if written:
        base, opened = carrier.before[number], carrier.after[number]
        own = Session("edit", number, upstream, base, opened, project.series.get(number).sha256)
    else:
        state, _ = carrier.chain.apply([p for p in project.series.patches if p.number < number])
        base = opened = state.tree(upstream)
        smoke = next(((n, d.decode()) for n, d in plan.writes.items()), None)
        own = Session("new", number, upstream, base, opened, None, item.patch, smoke)
    tree = carrier.own(item.patch, base, upstream)
    if session.upstream != upstream:
        bench.close()
    bench.open(replace(own, opened=tree))
    # It was opened with less: the rest is what the user did.
    bench.save(own)


def _afterwards(
    project: Project, bench: Bench, session: Session, then: int | None, changed: Changed
) -> None:
    if then is None:
        bench.close()
        return
    patch = changed.series.get(then)
    carrier = Carrier(project, changed.series)
    upstream = carrier.chain.upstream(patch)
    if upstream != session.upstream:
        bench.close()
    bench.open(
        Session("edit", then, upstream, carrier.before[then], carrier.after[then], patch.sha256)
    )


def _waiting(project: Project, bench: Bench) -> tuple[Session, Waiting]:
    session = _session(bench)
    waiting = session.waiting
    if waiting is None:
        raise AnswerNo(
            "no conflict waits", where=str(bench.path),
            next_step="write the work tree back with `patchwright refresh`",
        )  # fmt: skip
    if waiting.of_bump:
        raise _bumps(waiting, bench)
    if waiting.series != digest(project.series):
        raise AnswerNo(
            f"the series was changed while `{waiting.plan.command}` waited", where=str(bench.tree),
            next_step="give it up with `patchwright refresh --abort` and start again",
        )  # fmt: skip
    return session, waiting


def _bumps(waiting: Waiting, bench: Bench) -> AnswerNo:
    return AnswerNo(
        f"this conflict is one of `{waiting.plan.command}`", where=str(bench.tree),
        next_step="go on with `patchwright bump --continue`, or give up with `patchwright bump "
        "--abort`",
    )  # fmt: skip
