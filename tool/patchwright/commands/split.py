"""``patchwright split``: make several patches of one."""

from __future__ import annotations

import click

from patchwright.commands import Invocation, json_option
from patchwright.commands._changed import change


@click.command(short_help="Make several patches of one.")
@click.argument("number", type=click.IntRange(min=1), metavar="N")
@click.argument("globs", nargs=-1, metavar="[PATH]...")
@click.option("--by", type=click.Choice(["file", "hunk"]), help="One patch per file or hunk.")
@click.option("--title", "titles", multiple=True, help="Of the parts, in order; may be repeated.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation, number: int, globs: tuple[str, ...], by: str | None,
    titles: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """Split patch N: the files PATH... (or folders, or globs) first, the rest behind them.

    The first part keeps all fields; the others have no smoke test and are unproven until
    they name one. Whatever needs N then needs all parts. Later patches move up where
    there is no gap.
    """
    from patchwright.editing.splitting import split

    if bool(globs) == (by is not None):
        raise click.UsageError("name the files of the first part, or give --by")
    return change(
        invocation,
        lambda project, series: split(project, number, by=by, globs=globs, titles=titles),
        f"split {number:04d}", as_json,
    )  # fmt: skip
