"""``patchwright drop``: take patches out of the series."""

from __future__ import annotations

import click

from patchwright.commands import Invocation, json_option
from patchwright.commands._changed import change


@click.command(short_help="Take patches out of the series.")
@click.argument("numbers", nargs=-1, required=True, type=click.IntRange(min=1), metavar="N...")
@json_option
@click.pass_obj
def command(invocation: Invocation, numbers: tuple[int, ...], as_json: bool) -> int:
    """Take patches and their smoke tests out of the series; later ones are carried over.

    A patch that another one needs stays. `patchwright undo` brings all of it back;
    `patchwright off N` leaves a patch out on this machine only.
    """
    from patchwright.editing import plans

    said = f"dropped {', '.join(f'{n:04d}' for n in sorted(set(numbers)))}"
    return change(invocation, lambda project, series: plans.drop(series, numbers), said, as_json)
