"""``patchwright log``: what was done to the project's files, by which command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from patchwright.commands import Invocation, console, json_option, print_json

if TYPE_CHECKING:
    from patchwright.editing.operations import Change, Operation


@click.command(short_help="List what was done to the series.")
@click.argument("number", type=click.IntRange(min=1), required=False)
@json_option
@click.pass_obj
def command(invocation: Invocation, number: int | None, as_json: bool) -> int:
    """List the changes that commands made to the project's files, the latest last.

    With NUMBER: the files of that change.
    """
    from patchwright.editing.operations import stacks
    from patchwright.editing.undoing import history
    from patchwright.errors import InputError
    from patchwright.project import Project

    done = history(Project.open(invocation.directory))
    undoable, redoable = stacks(done)
    if number is not None:
        done = tuple(operation for operation in done if operation.number == number)
        if not done:
            raise InputError(
                f"no change has the number {number}", next_step="see `patchwright log`"
            )
    if as_json:
        print_json([
            _json(operation)
            | {"undoable": operation.number in undoable, "redoable": operation.number in redoable}
            for operation in done
        ])  # fmt: skip
    elif number is not None:
        click.echo(f"{done[0].number}  {done[0].when}  {done[0].command}")
        for change in done[0].changes:
            click.echo(f"  {_word(change)} {change.path}")
    elif done:
        _print(done, redoable)
    else:
        click.echo("no command has changed the project's files yet")
    return 0


def _print(done: tuple[Operation, ...], redoable: list[int]) -> None:
    from rich import box
    from rich.table import Table

    from patchwright.quoting import printable

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", justify="right")
    for heading in ("when", "command", "files"):
        table.add_column(heading)
    for operation in done:
        note = " (undone)" if operation.number in redoable else ""
        table.add_row(
            str(operation.number), operation.when.replace("T", " ")[:16],
            printable(operation.command) + note, str(len(operation.changes)),
        )  # fmt: skip
    console().print(table)


def _json(operation: Operation) -> dict[str, object]:
    return {
        "number": operation.number, "when": operation.when, "command": operation.command,
        "kind": operation.kind, "of": operation.of,
        "files": [{"path": c.path, "change": _word(c)} for c in operation.changes],
    }  # fmt: skip


def _word(change: Change) -> str:
    if change.before is None:
        return "made"
    return "removed" if change.after is None else "changed"


def turn(
    invocation: Invocation,
    word: Literal["undo", "redo"],
    count: int | None,
    force: bool,
    as_json: bool,
) -> int:
    """Undo or redo ``count`` operations, or all (None), and say which."""
    from patchwright.editing import undoing
    from patchwright.editing.operations import stacks
    from patchwright.project import Project

    project = Project.open(invocation.directory)
    if count is None:
        count = max(1, len(stacks(undoing.history(project))[word == "redo"]))
    step = undoing.undo if word == "undo" else undoing.redo
    done = []
    for _ in range(count):
        operation = step(project, force=force)
        done.append(operation)
        if not as_json:
            click.echo(f"{'undone' if word == 'undo' else 'redone'}: {operation.command}")
    if as_json:
        print_json({"done": [_json(operation) for operation in done]})
    return 0
