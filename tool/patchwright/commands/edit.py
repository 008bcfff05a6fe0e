"""``patchwright edit``: open a patch as files."""

from __future__ import annotations

import click

from patchwright.commands import Invocation, json_option, print_json
from patchwright.commands._changed import open_project


@click.command(short_help="Open a patch as files to change them.")
@click.argument("number", type=click.IntRange(min=1), required=False, metavar="[N]")
@click.option("--close", "closing", is_flag=True, help="Leave the work tree.")
@click.option("--discard", is_flag=True, help="With --close: set its changes aside.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation, number: int | None, closing: bool, discard: bool, as_json: bool
) -> int:
    """Open a work tree with the series up to patch N, and say where it is.

    Change files there with your own tools (it is a git work tree: git diff shows what
    you did), then run `patchwright refresh`. A work tree with changes that no patch has
    is never left by itself; --close --discard keeps them as a diff.
    """
    from patchwright.editing import refreshing

    if closing == (number is not None) or (discard and not closing):
        raise click.UsageError("name a patch, or give --close (with or without --discard)")
    project = open_project(invocation)
    if number is None:
        aside = refreshing.close(project, discard=discard)
        if as_json:
            print_json({"closed": True, "set_aside": str(aside) if aside else None})
        else:
            click.echo(f"closed; its changes are in {aside}" if aside else "closed")
        return 0
    opened = refreshing.edit(project, number)
    if as_json:
        print_json({
            "folder": str(opened.folder), "number": opened.number, "upstream": opened.upstream,
        })  # fmt: skip
    else:
        click.echo(f"{opened.number:04d} ({opened.upstream}) is open in {opened.folder}")
    return 0
