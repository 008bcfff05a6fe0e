"""``patchwright rebuild``: the environment from the lock, in the place of the old one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchwright.commands import (
    Invocation,
    SelectingCommand,
    json_option,
    not_applied,
    print_json,
    progress,
)

if TYPE_CHECKING:
    from patchwright.environment.rebuild import Rebuilt
    from patchwright.series import Selection


@click.command(cls=SelectingCommand)
@click.option("--env", "named", type=click.Path(path_type=Path), metavar="DIR",
              help="Where to make it; else .patchwright/env.")  # fmt: skip
@click.option("--offline", is_flag=True, help="Take everything from uv's cache and ours.")
@click.option("--bundle", type=click.Path(path_type=Path), metavar="FILE",
              help="Take everything from what `bundle` made; no network.")  # fmt: skip
@json_option
@click.pass_obj
def command(
    invocation: Invocation, selection: Selection, named: Path | None, offline: bool,
    bundle: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Make the environment from upstream.lock, hashes required, with the patched wheels in.

    It is built beside its place and put there at once. One that fails or is killed leaves
    the old environment as it was. Prints one digest of all that is installed.
    """
    from patchwright.applying.chain import Chain
    from patchwright.environment.bundle import opened_bundle
    from patchwright.environment.rebuild import Rebuild
    from patchwright.environment.record import environment_folder
    from patchwright.project import Project

    project = Project.open(invocation.directory)
    folder = environment_folder(project, named)
    patches = selection.pick(project.series)
    with (
        progress("reading the lock") as project.progress,
        opened_bundle(project, bundle) as finds,
    ):
        rebuild = Rebuild(project, folder, offline=offline, finds=finds)
        state, verdicts = Chain(project).apply(patches)
        refused = [v.patch_number for v in verdicts if not v.ok]
        if refused:
            raise not_applied(refused, len(verdicts), ", so nothing was rebuilt", str(folder))
        rebuilt = rebuild.run(patches, state)
    notes = [
        f"{patch.number:04d} needs {need.number:04d}, which is left out"
        for patch, need in selection.unmet(project.series)
    ]
    if as_json:
        print_json(_json(rebuilt, notes))
        return 0
    record = rebuilt.record
    for note in notes:
        click.echo(f"note: {note}")
    for name in sorted(project.config.upstreams):
        tree = record.trees[name]
        click.echo(f"{name}: tree {tree}")
    click.echo(
        f"{len(record.versions)} packages, {len(record.patches)} "
        f"patch{'es' * (len(record.patches) != 1)}, Python {record.python}, {record.machine}"
    )
    click.echo(f"environment: {rebuilt.folder}")
    click.echo(f"digest: {record.digest}")
    return 0


def _json(rebuilt: Rebuilt, notes: list[str]) -> dict[str, object]:
    record = rebuilt.record
    return {
        "environment": str(rebuilt.folder),
        "digest": record.digest,
        "python": record.python,
        "machine": record.machine,
        "trees": dict(record.trees),
        "patches": list(record.patches),
        "wheels": rebuilt.wheels,
        "versions": dict(sorted(record.versions.items())),
        "notes": notes,
    }
