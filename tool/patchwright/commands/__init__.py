"""One module per command, each with a click command named ``command``.

A command takes typed arguments and returns its exit code; only these modules print.
What they share stands here::

    @click.command(cls=SelectingCommand)      # adds --to, --only, --without
    @click.argument("numbers", nargs=-1, type=int)
    @json_option
    @click.pass_obj
    def command(invocation, numbers, as_json, selection) -> int:
        project = Project.open(invocation.directory)
        ...
        print_json(value)                     # or: console().print(table)
        return 0

Errors are raised (patchwright.errors); main.py says them and picks the exit code.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patchwright.errors import AnswerNo

if TYPE_CHECKING:
    from rich.console import Console

_NUMBERS = re.compile(r"\d+(,\d+)*,?")
_GREEDY = ("--only", "--without")


@dataclass(frozen=True)
class Invocation:
    """What stands before the command's name; ``ctx.obj`` of every command."""

    directory: Path


class SelectingCommand(click.Command):
    """A command that works on a part of the series.

    Its callback gets a ``selection``. ``--only`` and ``--without`` take one number or
    several, separated by commas or spaces, and may be repeated.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(
                ["--to"], type=click.IntRange(min=0), metavar="N", default=None,
                help="Patches up to N; 0 means none.",
            ),
            click.Option(
                ["--only"], multiple=True, callback=_numbers, metavar="N...",
                help="These patches and no others.",
            ),
            click.Option(
                ["--without"], multiple=True, callback=_numbers, metavar="N...",
                help="All but these patches.",
            ),
        ]  # fmt: skip

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let ``--only 1 4`` mean ``--only=1,4`` before click parses."""
        return super().parse_args(ctx, _joined(args))

    def invoke(self, ctx: click.Context) -> Any:
        """Hand the three options to the callback as one ``selection``."""
        from patchwright.series import Selection

        to, only = ctx.params.pop("to"), ctx.params.pop("only")
        self._tell_off(ctx, only)
        ctx.params["selection"] = Selection(
            to=to, only=only or None, without=ctx.params.pop("without")
        )
        return super().invoke(ctx)

    @staticmethod
    def _tell_off(ctx: click.Context, only: frozenset[int]) -> None:
        """Say, beside every table, what is off on this machine."""
        from patchwright.config import find_root
        from patchwright.editing.switches import read_off
        from patchwright.errors import InputError

        if not isinstance(ctx.obj, Invocation):
            return
        with contextlib.suppress(InputError):  # said when the project is opened
            off = read_off(find_root(ctx.obj.directory)) - only
            if off:
                numbers = ", ".join(f"{number:04d}" for number in sorted(off))
                click.echo(f"off on this machine: {numbers}", err=True)


def _joined(args: list[str]) -> list[str]:
    """Join the numbers that follow a greedy option to one word."""
    joined: list[str] = []
    greedy = False
    for at, word in enumerate(args):
        if word == "--":
            return joined + args[at:]
        if greedy and _NUMBERS.fullmatch(word):
            separator = "=" if joined[-1] in _GREEDY else ","
            joined[-1] += separator + word.rstrip(",")
            continue
        joined.append(word)
        greedy = word in _GREEDY
    return joined


def _numbers(
    ctx: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> frozenset[int]:
    if any(not _NUMBERS.fullmatch(value) for value in values):
        raise click.BadParameter("patch numbers are expected, as in 1,4", ctx, option)
    return frozenset(int(n) for value in values for n in value.split(",") if n)


def not_applied(numbers: Sequence[int], total: int, rest: str = "", where: str = "") -> AnswerNo:
    """Return the error that sums up the patches that do not apply, the first of them ahead."""
    return AnswerNo(
        f"{len(numbers)} of {total} patches {'does' if len(numbers) == 1 else 'do'} "
        f"not apply{rest}",
        where=where,
        next_step=f"see `patchwright show {numbers[0]}`; correct the patch, or leave it out "
        "with --without",
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: object) -> None:
    """Print ``value`` as JSON, keys in the order given, ASCII only: indented on a terminal.

    Elsewhere it is one line: of a thousand patches, indenting takes as long as all the rest.
    """
    click.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None))


def console(*, stderr: bool = False) -> Console:
    """Return a rich console for text that may hold anything; colour only on a terminal.

    Elsewhere lines are not folded to 80 columns: they are meant for grep.
    """
    import os

    from rich.console import Console

    class _Console(Console):
        def on_broken_pipe(self) -> None:
            # rich would exit with 1 here: "the answer is no".
            raise BrokenPipeError

    stream = sys.stderr if stderr else sys.stdout
    terminal = stream.isatty()
    return _Console(
        file=stream, markup=False, highlight=False, emoji=False,
        color_system="auto" if terminal and not os.environ.get("NO_COLOR") else None,
        force_terminal=terminal, width=None if terminal else 200,
    )  # fmt: skip


@contextmanager
def progress(text: str) -> Iterator[Callable[[str], None]]:
    """Show on standard error what takes its time; yield a function that changes the text.

    On a terminal it is one line that goes away; elsewhere each text is a line.
    """
    if sys.stderr.isatty():
        with console(stderr=True).status(text) as status:
            yield status.update
    else:
        click.echo(text, err=True)
        yield lambda new: click.echo(new, err=True)
