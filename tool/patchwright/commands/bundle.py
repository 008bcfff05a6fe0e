"""``patchwright bundle FILE``: what a rebuild without a network needs."""

from __future__ import annotations

from pathlib import Path

import click

from patchwright.commands import Invocation, json_option, not_applied, print_json, progress


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--machine", metavar="NAME", help="For x86_64 or aarch64; else for this machine.")
@json_option
@click.pass_obj
def command(invocation: Invocation, file: Path, machine: str | None, as_json: bool) -> int:
    """Write every file of the locked environment, patched wheels included, to FILE.

    There, `patchwright rebuild --bundle FILE` needs no network; Python is not in it.
    """
    from patchwright.applying.chain import Chain
    from patchwright.environment.bundle import write_bundle
    from patchwright.project import Project

    project = Project.open(invocation.directory)
    patches = project.series.patches
    with progress("reading the lock") as project.progress:
        state, verdicts = Chain(project).apply(patches)
        refused = [v.patch_number for v in verdicts if not v.ok]
        if refused:
            raise not_applied(refused, len(verdicts), ", so nothing was written", str(file))
        names = write_bundle(project, state, file, machine)
    size = file.stat().st_size
    if as_json:
        print_json({"bundle": str(file), "files": names, "bytes": size})
    else:
        click.echo(f"{file}: {len(names)} files, {size / 1e6:.1f} MB")
    return 0
