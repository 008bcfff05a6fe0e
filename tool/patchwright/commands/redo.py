"""``patchwright redo``: do again what was undone."""

from __future__ import annotations

import click

from patchwright.commands import Invocation, json_option
from patchwright.commands.log import turn


@click.command(short_help="Do again what was undone last.")
@click.option(
    "-n", "--number", "count", type=click.IntRange(min=1), default=1, metavar="N",
    help="Do the last N undone changes again.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Do all that was undone again.")
@click.option("--force", is_flag=True, help="Overwrite files that were changed since.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation, count: int, everything: bool, force: bool, as_json: bool
) -> int:
    """Do again what was undone last. A new change after an undo leaves nothing to redo."""
    return turn(invocation, "redo", None if everything else count, force, as_json)
