"""What the commands that change the series have in common: how they say what they did."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from patchwright.commands import Invocation, print_json

if TYPE_CHECKING:
    from patchwright.editing.changing import Changed
    from patchwright.editing.plans import Plan
    from patchwright.patch import Patch
    from patchwright.project import Project
    from patchwright.series import Series


def open_project(invocation: Invocation) -> Project:
    """Return the project; what takes its time is told on standard error."""
    from patchwright.project import Project

    project = Project.open(invocation.directory)
    project.progress = lambda text: click.echo(text, err=True)
    return project


def change(
    invocation: Invocation, make: Callable[[Project, Series], Plan], said: str, as_json: bool,
    *, stays_open: bool = False,
) -> int:  # fmt: skip
    """Carry out a plan and say what it did."""
    from patchwright.editing.changing import change_series

    project = open_project(invocation)
    done = change_series(project, lambda series: make(project, series), stays_open=stays_open)
    tell(done, said, as_json)
    return 0


def tell(done: Changed, said: str, as_json: bool, **extra: Any) -> None:
    """Say what a change of the series did: which diffs it wrote anew, and the lock."""
    if as_json:
        print_json({
            "done": said, **extra,
            "series": [{"number": p.number, "file": p.path.name} for p in done.series.patches],
            "rewritten": [p.number for p in done.rewritten], "lock_stale": done.lock_stale,
        })  # fmt: skip
        return
    click.echo(said)
    if done.rewritten:
        click.echo(f"carried over: {', '.join(_name(p) for p in done.rewritten)}")
    if done.lock_stale:
        click.echo("upstream.lock is stale: `patchwright lock` says why or writes it", err=True)


def _name(patch: Patch) -> str:
    return f"{patch.number:04d}"
