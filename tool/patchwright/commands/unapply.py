"""patchwright unapply: give back an environment's files as they were installed."""

from __future__ import annotations

from pathlib import Path

import click

from patchwright.commands import Invocation, json_option, print_json, progress


@click.command(short_help="Take the patches off an environment again.")
@click.option("--env", "directory", required=True, metavar="DIR",
              type=click.Path(path_type=Path), help="The environment to give back.")  # fmt: skip
@json_option
@click.pass_obj
def command(invocation: Invocation, directory: Path, as_json: bool) -> int:
    """Give back every file that `patchwright apply --env` changed, byte for byte.

    Needs no project. A file that was edited since stops it, before anything changes.
    """
    from patchwright.environment.inplace import unapply
    from patchwright.environment.installed import find_site

    with progress("looking at the environment"):
        site = find_site(directory)
        done = unapply(site)
    if as_json:
        print_json({
            "environment": str(site.root),
            "files": [m.path.decode("utf-8", "backslashreplace") for m in done.moves],
        })  # fmt: skip
        return 0
    count = len(done.moves)
    click.echo(f"{site.root}: {count} file{'s' * (count != 1)} given back as installed")
    return 0
