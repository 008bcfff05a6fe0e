"""``patchwright undo``: take back the last change of the project's files."""

from __future__ import annotations

import click

from patchwright.commands import Invocation, json_option
from patchwright.commands.log import turn


@click.command(short_help="Take back the last change of the series.")
@click.option(
    "-n", "--number", "count", type=click.IntRange(min=1), default=1, metavar="N",
    help="Take back the last N changes.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Take back all that is on record.")
@click.option("--force", is_flag=True, help="Overwrite files that were changed since.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation, count: int, everything: bool, force: bool, as_json: bool
) -> int:
    """Take back the last change that a command made to the project's files.

    Every file is as it was, bit for bit. A file that was changed since is not
    overwritten; with --force it is, and the record of this undo keeps it.
    """
    return turn(invocation, "undo", None if everything else count, force, as_json)
