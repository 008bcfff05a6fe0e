"""``patchwright lock``: resolve the pins and write upstream.lock, or check it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from patchwright.commands import Invocation, json_option, print_json, progress
from patchwright.errors import AnswerNo

if TYPE_CHECKING:
    from patchwright.applying.verdicts import ApplyVerdict
    from patchwright.project import Project


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; name each disagreement.")
@click.option("--upgrade", is_flag=True, help="Resolve anew what did not change, too.")
@json_option
@click.pass_obj
def command(invocation: Invocation, check: bool, upgrade: bool, as_json: bool) -> int:
    """Resolve the pins and write upstream.lock, with the tree after every patch.

    With --check: compare upstream.lock with pyproject.toml and the patch files.
    """
    from patchwright.project import Project

    if check and upgrade:
        raise click.UsageError("--check writes nothing, so there is nothing to --upgrade")
    project = Project.open(invocation.directory)
    return _check(project, as_json) if check else _write(project, upgrade, as_json)


def _write(project: Project, upgrade: bool, as_json: bool) -> int:
    from patchwright.editing.transaction import begin
    from patchwright.lock import FILE_NAME, format_lock
    from patchwright.locking import make_lock

    with progress("reading the pins and the series") as project.progress:
        outcome = make_lock(project, upgrade=upgrade)
    lock = outcome.lock
    if lock is None:
        if as_json:
            print_json({"written": False, "refused": [_verdict(v) for v in outcome.refused]})
        else:
            for verdict in outcome.refused:
                click.echo(f"{verdict.patch_number:04d} {verdict.verdict}: {verdict.reason}")
        count, first = len(outcome.refused), outcome.refused[0].patch_number
        raise AnswerNo(
            f"{count} of {len(outcome.verdicts)} patches {'does' if count == 1 else 'do'} "
            "not apply, so nothing was written",
            where=FILE_NAME, next_step=f"see `patchwright show {first}`, then correct the patch",
        )  # fmt: skip
    with begin(project, "lock", wait=True) as change:
        change.write(FILE_NAME, format_lock(lock))
        written = change.commit() is not None
    if as_json:
        print_json({"written": written, "refused": []})
        return 0
    for upstream in lock.upstreams:
        exact = upstream.file or f"commit {upstream.commit}"
        click.echo(f"{upstream.name} {upstream.version}: {exact}, tree {upstream.tree}")
    count = len(lock.patches)
    click.echo(
        f"{FILE_NAME} {'written' if written else 'is up to date'}: {len(lock.upstreams)} "
        f"upstream{'s' * (len(lock.upstreams) != 1)}, {count} patch{'es' * (count != 1)}"
    )
    return 0


def _check(project: Project, as_json: bool) -> int:
    from patchwright.lock import FILE_NAME
    from patchwright.locking import check_lock

    lock = project.lock
    if lock is None:
        raise AnswerNo(
            "there is no lock yet", where=str(project.lock_path), next_step="run `patchwright lock`"
        )
    found = check_lock(project, lock)
    if as_json:
        rows = [{"what": d.what, "locked": d.locked, "actual": d.actual} for d in found]
        print_json({"agrees": not found, "disagreements": rows})
    elif found:
        for disagreement in found:
            click.echo(f"{disagreement.what}")
            click.echo(f"  lock:    {disagreement.locked}")
            click.echo(f"  project: {disagreement.actual}")
    else:
        click.echo(f"{FILE_NAME} agrees with pyproject.toml and {len(lock.patches)} patches")
    if found:
        raise AnswerNo(
            f"the lock disagrees with the project in {len(found)} "
            f"place{'s' * (len(found) != 1)}",
            where=FILE_NAME, next_step="run `patchwright lock`, or undo the change",
        )  # fmt: skip
    return 0


def _verdict(verdict: ApplyVerdict) -> dict[str, object]:
    return {
        "number": verdict.patch_number,
        "apply": verdict.verdict,
        "reason": verdict.reason,
    }
