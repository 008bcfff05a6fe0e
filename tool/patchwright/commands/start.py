"""patchwright start: start a server on the patched tree once, and say what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patchwright.commands import (
    Invocation,
    SelectingCommand,
    json_option,
    print_json,
    progress,
)

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.project import Project
    from patchwright.series import Selection
    from patchwright.startup.judging import Started
    from patchwright.startup.settings import Settings

_CODES = {"started": 0, "failed": 1, "untestable": 3}


@click.command(cls=SelectingCommand, short_help="Start a server on the patched tree, once.")
@click.option("--probe", metavar="CMD",
              help="Run this shell command instead of the project's startup probe.")  # fmt: skip
@click.option("--log", "log", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write what it printed to FILE (128 KiB at most).")  # fmt: skip
@json_option
@click.pass_obj
def command(
    invocation: Invocation, selection: Selection, probe: str | None, log: Path | None, as_json: bool
) -> int:
    """Start the server once on the selected patches, in a fresh state of its own.

    Ready means what [tool.patchwright.startup] says: a line in the log, an address, an
    answer. Everything is killed at the end. Exits with 1 where it does not start, with 3
    where that could not be tested.
    """
    from patchwright.project import Project
    from patchwright.startup.records import StartRecords
    from patchwright.startup.starts import Starts

    project = Project.open(invocation.directory)
    settings = probe_settings(project, probe)
    with progress("reading the pins and the series") as say:
        project.progress = say
        state = _state(project, selection)
        say("starting")
        with Starts(project, settings, Path.cwd() if probe else None) as starts:
            started = starts.run(state)
            StartRecords(project, settings, starts.identity).keep(state, started)
    if log is not None:
        log.write_text(started.log, encoding="utf-8", errors="backslashreplace")
    if as_json:
        print_json(_json(started, state))
    else:
        _print(started)
    return _CODES[started.outcome]


def probe_settings(project: Project, probe: str | None) -> Settings:
    """Return the settings of the user's own command, or else the project's."""
    from patchwright.errors import PatchwrightError
    from patchwright.startup.settings import from_command, from_config
    from patchwright.startup.starts import blocked

    settings = from_command(project.config, probe) if probe else from_config(project.config)
    need = blocked(project, settings)
    if need:
        raise PatchwrightError(f"the start {need}", next_step="see docs/startup.md")
    return settings


def _state(project: Project, selection: Selection) -> State:
    from patchwright.applying.chain import Chain
    from patchwright.errors import AnswerNo

    patches = selection.pick(project.series)
    project.check_pins(patches)
    state, verdicts = Chain(project).apply(patches)
    refused = next((v for v in verdicts if not v.ok), None)
    if refused is not None:
        raise AnswerNo(
            f"{refused.patch_number:04d} does not apply: {refused.reason}",
            next_step="correct it, or leave it out with --without",
        )
    return state


def _json(started: Started, state: State) -> dict[str, Any]:
    return {
        "outcome": started.outcome,
        "class": started.kind,
        "signature": started.signature,
        "detail": started.detail,
        "stage": started.stage,
        "answer": started.answer,
        "imported": list(started.imported),
        "seconds": round(started.seconds, 3),
        "trees": dict(state.trees),
    }


def _print(started: Started) -> None:
    seconds = f"{started.seconds:.1f} s"
    if started.outcome == "started":
        click.echo(f"started in {seconds}")
        if started.imported:
            click.echo(f"  imported from the patched tree: {', '.join(started.imported)}")
        if started.answer:
            click.echo(f"  answered: {started.answer[:300]}")
        return
    what = "failed" if started.outcome == "failed" else "cannot be tested"
    click.echo(f"{what} after {seconds}: {started.kind}")
    for line in started.detail.splitlines()[:8]:
        click.echo(f"  {line}")
    click.echo(f"  signature: {started.signature}")
    if started.stage:
        click.echo(f"  last stage: {started.stage}")
    if started.outcome == "failed":
        click.echo("Next: `patchwright bisect` finds the patch; --log FILE keeps what it printed")
    else:
        click.echo("Next: correct what stands above; this says nothing about the patches")
