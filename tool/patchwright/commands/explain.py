"""patchwright explain: from a log or a traceback to the gate, the module and the patch."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from patchwright.commands import Invocation, SelectingCommand, json_option, print_json, progress
from patchwright.errors import InputError

if TYPE_CHECKING:
    from patchwright.audit.blame import Blame
    from patchwright.audit.explain import Failure
    from patchwright.series import Selection

_LONGEST = 64 << 20  # bytes that are read of a log, from its end
_CHUNK = 1 << 20


@click.command(cls=SelectingCommand, short_help="Say which patch led to an error in a log.")
@click.argument("log", metavar="LOG", default="-")
@json_option
@click.pass_obj
def command(invocation: Invocation, selection: Selection, log: str, as_json: bool) -> int:
    """Say what the innermost error of a server's log means and which patch led to it.

    LOG is a file; - is standard input. Exits with 1 where the log holds no error: then
    there is nothing to explain.
    """
    from patchwright.audit.blame import blame
    from patchwright.audit.explain import read_failure
    from patchwright.audit.series import Auditor
    from patchwright.project import Project

    text = _read(log)
    project = Project.open(invocation.directory)
    failure = read_failure(text)
    if failure is None:
        if as_json:
            print_json({"error": None, "why": "the text holds no error that is known"})
        else:
            click.echo("cannot tell: the text holds no traceback and no known error")
        return 1
    with progress("reading the pins and the series") as say:
        project.progress = say
        found = blame(Auditor(project, say), selection, failure)
    if as_json:
        print_json(_json(failure, found))
    else:
        _print(failure, found)
    return 0


def _read(log: str) -> str:
    if log == "-":
        return _tail(sys.stdin.buffer)
    try:
        with Path(log).open("rb") as stream:
            return _tail(stream)
    except OSError as error:
        raise InputError(
            f"the log cannot be read: {error.strerror}", where=log,
            next_step="name a file, or - for standard input",
        ) from error  # fmt: skip


def _tail(stream: BinaryIO) -> str:
    """Return the last part of a stream, without holding more of it than that."""
    parts: deque[bytes] = deque(maxlen=_LONGEST // _CHUNK)
    while part := stream.read(_CHUNK):
        parts.append(part)
    return b"".join(parts).decode("utf-8", "replace")


def _json(failure: Failure, found: Blame) -> dict[str, Any]:
    return {
        "error": {"type": failure.type, "message": failure.message, "class": failure.kind,
                  "meaning": failure.meaning, "wrapped": failure.wrapped},
        "route": [{"upstream": p.upstream, "path": p.path, "line": p.line, "function": p.function}
                  for p in found.route],
        "module": found.module,
        "gates": [gate.to_json() for gate in found.gates],
        "opened_by": [{"patch": n, "path": c.gate.path, "line": c.gate.line,
                       "condition": c.gate.condition, "opened": list(c.opened)}
                      for n, c in found.opened],
        "needs": list(found.needs),
        "stale": found.stale,
    }  # fmt: skip


def _print(failure: Failure, found: Blame) -> None:
    name = f"{failure.type}: " if failure.type else ""
    click.echo(f"error: {name}{failure.message}")
    click.echo(f"class: {failure.kind}" + (f", {failure.meaning}" if failure.meaning else ""))
    if failure.wrapped:
        click.echo("note: it came up in CUDA graph capture; the advice about memory there is not "
                   "about it")  # fmt: skip
    if found.route:
        click.echo("route:")
        for place in found.route:
            click.echo(f"  {place.upstream}: {place.path}:{place.line} {place.function}")
    if found.module:
        click.echo(f"module: {found.module}")
    for number in dict.fromkeys(n for n, _ in found.opened):
        own = [c for n, c in found.opened if n == number]
        # The condition itself says more than the function or name that holds it.
        change = min(own, key=lambda c: (c.gate.kind == "definition", not c.gate.function,
                                         c.before is None))  # fmt: skip
        gate = change.gate
        more = f" and {len(own) - 1} more" if len(own) > 1 else ""
        click.echo(f"opened by: {number:04d}, {gate.place} {gate.function}: {gate.condition} "
                   f"(newly lets {', '.join(change.opened)} through){more}")  # fmt: skip
    if not found.opened:
        click.echo("opened by: no selected patch opens a gate in a file of this route")
    for need in found.needs:
        click.echo(f"needs: {need}")
    if found.stale:
        click.echo(f"not this series: {found.stale}")
