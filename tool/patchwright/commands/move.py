"""``patchwright move``: put a patch elsewhere in the series."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from patchwright.commands import Invocation, json_option
from patchwright.commands._changed import change

if TYPE_CHECKING:
    from patchwright.editing.plans import Plan
    from patchwright.project import Project
    from patchwright.series import Series


@click.command(short_help="Put a patch elsewhere in the series.")
@click.argument("number", type=click.IntRange(min=1), metavar="N")
@click.option("--before", type=click.IntRange(min=1), metavar="M", help="Put it before M.")
@click.option("--after", type=click.IntRange(min=1), metavar="M", help="Put it behind M.")
@click.option("--first", is_flag=True, help="Put it in front of all others.")
@click.option("--last", is_flag=True, help="Put it behind all others.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation, number: int, before: int | None, after: int | None,
    first: bool, last: bool, as_json: bool,
) -> int:  # fmt: skip
    """Put patch N elsewhere; those that it passes are carried over.

    The numbers of the series stay the same: each patch between the two places takes the
    number of its neighbour. Depends and the names of smoke tests follow.
    """
    if (before is not None) + (after is not None) + first + last != 1:
        raise click.UsageError("say where: one of --before M, --after M, --first, --last")

    def make(project: Project, series: Series) -> Plan:
        from patchwright.editing import plans

        others = [p.number for p in series.patches if p.number != number]
        target = before if before is not None else after
        if target == number:
            raise click.UsageError("a patch cannot be put before or behind itself")
        if target is not None:
            series.check_numbers((target,))
            at = others.index(target) + (after is not None)
        else:
            at = 0 if first else len(others)
        return plans.move(series, number, at)

    return change(invocation, make, f"moved {number:04d}", as_json)
