"""``patchwright capture``: turn hand edits in installed packages into patches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchwright.commands import Invocation, json_option, print_json
from patchwright.commands._changed import open_project

if TYPE_CHECKING:
    from patchwright.capturing.capture import Capture


@click.command(short_help="Turn hand edits in installed packages into patches.")
@click.option("--env", "environment", type=click.Path(path_type=Path), metavar="DIR",
              help="The environment; default: the one that rebuild makes.")  # fmt: skip
@click.option("--upstream", "upstreams", multiple=True, metavar="NAME",
              help="Only this upstream; may be repeated.")  # fmt: skip
@click.option("--split-by", type=click.Choice(["file", "hunk", "none"]), default="none",
              help="How edits that no patch owns become patches.")  # fmt: skip
@click.option("--title", help="Of new patches. Default: which files were changed.")
@click.option("--author", metavar="'NAME <ADDRESS>'", help="Default: who you are to git.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation, environment: Path | None, upstreams: tuple[str, ...],
    split_by: str, title: str | None, author: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Compare the installed packages with the series, and take in what was edited by hand.

    Changed lines that one patch wrote go into that patch. All others become new patches,
    unproven until they name a smoke test. Lines of two patches are never folded into one
    of them. Where the edits went is printed; `patchwright undo` takes it back.
    """
    import datetime
    from email.utils import format_datetime

    from patchwright.capturing.capture import capture
    from patchwright.editing.identity import author as known

    project = open_project(invocation)
    where = environment.absolute() if environment is not None else project.state_dir / "env"
    done = capture(
        project, where, author or known(project.root),
        format_datetime(datetime.datetime.now().astimezone()),
        upstreams=upstreams, split_by=split_by, title=title,
    )  # fmt: skip
    _print(done, _next(where), as_json)
    return 0


def _next(environment: Path) -> str:
    """Return what gives the environment the versions and records of the new series.

    Its files have them already.
    """
    from patchwright.environment.record import read_record

    if read_record(environment) is not None:
        return "patchwright rebuild"
    return f"patchwright apply --env {environment}, once its packages are installed anew"


def _print(done: Capture, following: str, as_json: bool) -> None:
    assert done.changed is not None
    names = {patch.number: patch.path.name for patch in done.changed.series.patches}
    if as_json:
        print_json({
            "state": done.state,
            "patches": [
                {"number": t.number, "file": names[t.number], "new": t.new, "files": t.files,
                 "why": t.why} for t in done.told
            ],
            "outside": done.outside, "lock_stale": done.changed.lock_stale,
            "next": following,
        })  # fmt: skip
        return
    for name, state in done.state.items():
        click.echo(f"{name}: taken as {state}, edited by hand")
    for told in done.told:
        word = "new" if told.new else "refreshed"
        why = f" ({told.why})" if told.why else ""
        click.echo(f"{word} {names[told.number]}: {', '.join(told.files)}{why}")
    for path in done.outside:
        click.echo(f"not captured: {path}: the layout leads to no file of the repository", err=True)
    click.echo(f"Next: {following}")
    if done.changed.lock_stale:
        click.echo("upstream.lock is stale: `patchwright lock` says why or writes it", err=True)
