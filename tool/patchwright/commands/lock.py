"""``patchwright lock``: resolve the pins and write upstream.lock, or check it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from patchwright.commands import Invocation, json_option, print_json, progress
from patchwright.errors import AnswerNo

if TYPE_CHECKING:
    from patchwright.applying.verdicts import ApplyVerdict
    from patchwright.project import Project


# Stands for --upgrade without a name; no package can be called that.
_ALL = "*"


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; name each disagreement.")
@click.option("--upgrade", "upgraded", multiple=True, is_flag=False, flag_value=_ALL,
              metavar="[PACKAGE]", help="Resolve anew what did not change, too: this package, "
              "or without a name everything.")  # fmt: skip
@click.option("--export", "form", type=click.Choice(["requirements", "pylock"]),
              help="Print the locked environment for other installers; write nothing.")  # fmt: skip
@click.option("--machine", metavar="NAME", help="With --export: x86_64 or aarch64.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation, check: bool, upgraded: tuple[str, ...], form: str | None,
    machine: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Resolve the pins and write upstream.lock, with the tree after every patch.

    With --check: compare upstream.lock with pyproject.toml and the patch files.
    """
    from patchwright.project import Project

    if check and upgraded:
        raise click.UsageError("--check writes nothing, so there is nothing to --upgrade")
    if form and (check or upgraded or as_json):
        raise click.UsageError("--export prints what is locked; give it alone")
    if machine and not form:
        raise click.UsageError("--machine says for whom to export; add --export")
    project = Project.open(invocation.directory)
    if form:
        return _export(project, form, machine)
    return _check(project, as_json) if check else _write(project, upgraded, as_json)


def _write(project: Project, upgraded: tuple[str, ...], as_json: bool) -> int:
    from patchwright.editing.transaction import begin
    from patchwright.environment.locked import read_environment
    from patchwright.lock import FILE_NAME, format_lock
    from patchwright.locking import make_lock

    with progress("reading the pins and the series") as project.progress:
        outcome = make_lock(project, upgrade=_ALL in upgraded, packages=_names(upgraded))
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
        print_json({"written": written, "refused": [], "notes": list(outcome.notes)})
        return 0
    for upstream in lock.upstreams:
        exact = upstream.file or f"commit {upstream.commit}"
        click.echo(f"{upstream.name} {upstream.version}: {exact}, tree {upstream.tree}")
    environment = read_environment(lock.environment, FILE_NAME)
    if environment is not None:
        counts = environment.counts()
        shown = ", ".join(f"{machine} {counts[machine]}" for machine in environment.machines)
        click.echo(f"environment: Python {environment.python}, packages: {shown}")
    for note in outcome.notes:
        click.echo(f"note: {note}")
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


def _export(project: Project, form: str, machine: str | None) -> int:
    from patchwright.environment.exporting import pylock, requirements
    from patchwright.environment.locking import required_environment
    from patchwright.environment.machine import checked_machine

    environment = required_environment(project)
    machine = checked_machine(environment, machine)
    if form == "requirements":
        click.echo(requirements(project, environment, machine), nl=False)
    else:
        with progress("asking the index in use where the files are") as project.progress:
            text = pylock(project, environment, machine)
        click.echo(text, nl=False)
    return 0


def _names(upgraded: tuple[str, ...]) -> list[str]:
    from packaging.utils import canonicalize_name

    return sorted({canonicalize_name(name) for name in upgraded} - {_ALL})


def _verdict(verdict: ApplyVerdict) -> dict[str, object]:
    return {
        "number": verdict.patch_number,
        "apply": verdict.verdict,
        "reason": verdict.reason,
    }
