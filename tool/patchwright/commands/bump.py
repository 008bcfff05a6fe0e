"""``patchwright bump``: move a pin, with everything shown before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from patchwright.commands import Invocation, json_option, print_json, progress
from patchwright.quoting import printable

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.upstreaming.accepting import Accepted
    from patchwright.upstreaming.bump import Bump
    from patchwright.upstreaming.pins import Target


@click.command(short_help="Move a pin; show first what becomes of each patch.")
@click.argument("words", nargs=-1, metavar="[NAME VERSION | NAME@REV]...")
@click.option(
    "--to-latest", "latest", is_flag=True, help="To the newest release (all, or NAME...)."
)
@click.option("--accept", is_flag=True, help="Write it, as one change that `undo` takes back.")
@click.option("--without", multiple=True, metavar="N...", help="Leave these patches out.")
@click.option("--continue", "go_on", is_flag=True, help="The conflict is resolved: go on.")
@click.option("--abort", is_flag=True, help="Give up a bump that waits for a conflict.")
@click.option("--bisect", type=click.IntRange(min=1), metavar="N",
              help="Name the upstream commit at which patch N stops applying, or its smoke test "
              "changes sides.")  # fmt: skip
@click.option("--no-static", is_flag=True, help="Do not run the static tier on the new pin.")
@click.option("--no-gates", is_flag=True, help="Do not compare the gates of both pins.")
@click.option("--range-diff", "range_diffs", is_flag=True, help="Print the whole range-diff.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation, words: tuple[str, ...], latest: bool, accept: bool,
    without: tuple[str, ...], go_on: bool, abort: bool, bisect: int | None, no_static: bool,
    no_gates: bool, range_diffs: bool, as_json: bool,
) -> int:  # fmt: skip
    """Move the pin of an upstream, or of several, to another version.

    Prints for each patch what becomes of it and why, and writes nothing. With --accept
    the pin, the patches and the lock are written as one change; patches that upstream
    has by now leave the series. A conflict opens in the work tree, as in `edit`.
    """
    from patchwright.project import Project
    from patchwright.upstreaming.pins import targets

    if go_on + abort + accept + (bisect is not None) > 1:
        raise click.UsageError("give one of --accept, --bisect, --continue and --abort")
    project = Project.open(invocation.directory)
    if go_on or abort:
        if words or latest or without:
            raise click.UsageError("--continue and --abort are for the bump that waits, as it is")
        return _resume(project, as_json) if go_on else _abort(project, as_json)
    from patchwright.upstreaming.bump import NothingToDo

    wanted = targets(words, project, latest=latest)
    try:
        return _move(project, wanted, _numbers(without), bisect, accept, no_static, no_gates,
                     range_diffs, as_json)  # fmt: skip
    except NothingToDo as error:
        if not latest:
            raise
        # That there is no newer release is no bad news for whoever asks each night.
        click.echo(error.what, err=as_json)
        if as_json:
            print_json({"pins": [], "written": False, "patches": []})
        return 0


def _move(
    project: Project, wanted: Sequence[Target], left_out: frozenset[int], bisect: int | None,
    accept: bool, no_static: bool, no_gates: bool, range_diffs: bool, as_json: bool,
) -> int:  # fmt: skip
    from patchwright.upstreaming.bump import work_out

    if bisect is not None:
        return _bisect(project, wanted, bisect, no_static, as_json)
    if accept:
        return _accept(project, wanted, left_out, no_static, as_json)
    with progress("reading the pins and the series") as project.progress:
        bump = work_out(project, wanted, without=left_out, static=not no_static,
                        gates=not no_gates, say=project.progress)  # fmt: skip
    return _show(bump, range_diffs, as_json)


def _numbers(values: Sequence[str]) -> frozenset[int]:
    words = [word for value in values for word in value.replace(",", " ").split()]
    if not all(word.isdigit() and word.isascii() for word in words):
        raise click.BadParameter("patch numbers are expected, as in 1,4", param_hint="--without")
    return frozenset(map(int, words))


def _show(bump: Bump, range_diffs: bool, as_json: bool) -> int:
    from patchwright.commands import _bump as shown

    if as_json:
        print_json(shown.as_json(bump))
    else:
        for line in shown.lines(bump, range_diffs=range_diffs):
            click.echo(line)
    return 1 if bump.open or bump.held or bump.bad else 0


def _accept(
    project: Project, wanted: Sequence[Target], without: frozenset[int], no_static: bool,
    as_json: bool,
) -> int:  # fmt: skip
    from patchwright.editing.transaction import begin
    from patchwright.upstreaming.accepting import accept, check_unchanged, refuse, standing_files
    from patchwright.upstreaming.bump import work_out
    from patchwright.upstreaming.waiting import exact, open_conflict

    with progress("reading the pins and the series") as project.progress:
        # What forbids a change is told before the measuring, and that holds no lock.
        with begin(project, "bump"):
            before = standing_files(project)
        bump = work_out(
            project, wanted, without=without, static=not no_static, gates=False,
            say=project.progress,
        )  # fmt: skip
    with begin(project, "bump") as change:
        check_unchanged(project, before)
        change.command = "bump " + " ".join(map(str, exact(bump)))
        if any(move.conflict is not None for move in bump.open):
            raise open_conflict(bump, {})
        refuse(bump)
        done = accept(bump, change)
    return _told(bump, done, as_json)


def _resume(project: Project, as_json: bool) -> int:
    from patchwright.editing.transaction import begin
    from patchwright.upstreaming.accepting import accept, refuse
    from patchwright.upstreaming.bump import work_out
    from patchwright.upstreaming.waiting import exact, forget, open_conflict, pending, resolution

    with (
        begin(project, "bump --continue", resuming=True) as change,
        progress("reading the pins and the series") as project.progress,
    ):
        wanted, without, session = pending(project)
        resolved = resolution(project, session)
        bump = work_out(project, wanted, without=without, resolved=resolved, static=False,
                        gates=False, say=project.progress)  # fmt: skip
        change.command = "bump " + " ".join(map(str, exact(bump)))
        if any(move.conflict is not None for move in bump.open):
            raise open_conflict(bump, resolved)
        refuse(bump)
        done = accept(bump, change)
        forget(project)
    return _told(bump, done, as_json)


def _abort(project: Project, as_json: bool) -> int:
    from patchwright.editing.transaction import begin
    from patchwright.upstreaming.waiting import abort

    with begin(project, "bump --abort", resuming=True):
        abort(project)
    if as_json:
        print_json({"done": "aborted"})
    else:
        click.echo("given up; pins and series are as they were")
    return 0


def _told(bump: Bump, done: Accepted, as_json: bool) -> int:
    from patchwright.commands import _bump as shown

    if as_json:
        print_json({**shown.as_json(bump), "written": True, "rewritten": list(done.rewritten),
                    "removed": [*done.removed, *done.tests]})  # fmt: skip
        return 0
    for line in shown.brief(bump):
        click.echo(line)
    click.echo(f"written: {', '.join(map(str, bump.pins))}; {len(done.rewritten)} patches for the "
               f"new pin, {len(done.removed)} left the series; `patchwright undo` takes all of it "
               "back")  # fmt: skip
    if bump.needed:
        for needed in bump.needed:
            if needed.breaks:
                click.echo(f"environment: {needed.said}")
    stale = bump.project.lock is not None and bump.project.lock.environment
    click.echo(f"next: {'patchwright lock, then ' if stale else ''}patchwright verify")
    return 0


def _bisect(
    project: Project, wanted: Sequence[Target], number: int, no_static: bool, as_json: bool
) -> int:
    from patchwright.upstreaming.history import open_history
    from patchwright.upstreaming.pins import moved_config
    from patchwright.upstreaming.turning import turns

    patch = project.series.get(number)
    target = next((t for t in wanted if t.upstream == patch.upstream), None)
    if target is None:
        raise click.UsageError(f"patch {number} is for {patch.upstream}, which does not move here")
    with progress("reading the history") as project.progress:
        new = moved_config(project, target)
        old = project.upstream(target.upstream)
        ends = [config.revision or f"v{config.version}" for config in (old, new)]
        with open_history(project, target.upstream, fetch=True) as history:
            found = turns(project, history, number, *ends, smoke=not no_static)
    if as_json:
        print_json([
            {"what": t.what, "commit": t.commit.oid, "title": t.commit.title, "before": t.before,
             "after": t.after, "reason": t.reason, "probes": t.probes} for t in found
        ])  # fmt: skip
        return 0
    for turn in found:
        what = "the patch" if turn.what == "applies" else "its smoke test without it"
        click.echo(f"{number:04d} {what}: {turn.before} before, {turn.after} from {turn.commit} on "
                   f"({turn.probes} probes)")  # fmt: skip
        for line in turn.reason.splitlines()[:1]:
            click.echo(f"     {printable(line)}")
    return 0
