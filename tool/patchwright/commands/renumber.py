"""``patchwright renumber``: other numbers in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from patchwright.commands import Invocation, json_option
from patchwright.commands._changed import change

if TYPE_CHECKING:
    from patchwright.editing.plans import Plan
    from patchwright.project import Project
    from patchwright.series import Series


@click.command(short_help="Give patches other numbers, in the same order.")
@click.argument("numbers", nargs=-1, type=click.IntRange(min=1), metavar="[OLD NEW]")
@click.option("--start", type=click.IntRange(min=1), default=1, help="The first number.")
@click.option("--step", type=click.IntRange(min=1), default=1, help="From number to number.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation, numbers: tuple[int, ...], start: int, step: int, as_json: bool
) -> int:
    """Number the series from 1 without gaps, or give patch OLD the number NEW.

    Files and smoke tests are renamed, Depends follows. The order stays: see `move`.
    """
    if len(numbers) not in (0, 2):
        raise click.UsageError("name no number, or the old one and the new one")

    def make(project: Project, series: Series) -> Plan:
        from patchwright.editing import plans

        if numbers:
            return plans.renumber_one(series, *numbers)
        return plans.renumber(series, start, step)

    said = f"{numbers[0]:04d} is {numbers[1]:04d} now" if numbers else "renumbered"
    return change(invocation, make, said, as_json, stays_open=False)
