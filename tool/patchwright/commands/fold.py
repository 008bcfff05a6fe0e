"""``patchwright fold``: make one patch of several."""

from __future__ import annotations

import click

from patchwright.commands import Invocation, json_option
from patchwright.commands._changed import change


@click.command(short_help="Make one patch of several.")
@click.argument("into", type=click.IntRange(min=1), metavar="N")
@click.argument("others", nargs=-1, required=True, type=click.IntRange(min=1), metavar="M...")
@json_option
@click.pass_obj
def command(invocation: Invocation, into: int, others: tuple[int, ...], as_json: bool) -> int:
    """Fold patches M... into patch N, at the place of the first of them.

    The message is theirs one after the other, N's title stays; needs, gates, smoke tests
    and bugs are those of all. Whatever needed one of them needs the result.
    """
    from patchwright.editing import plans

    said = f"folded {', '.join(f'{n:04d}' for n in sorted(set(others)))} into {into:04d}"
    return change(
        invocation, lambda project, series: plans.fold(series, into, others), said, as_json
    )
