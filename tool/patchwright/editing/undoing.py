"""Undo and redo: the inverse of an operation on record, as an operation of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from patchwright.editing.operations import Operation, operations, read, record_path, stacks
from patchwright.editing.transaction import FOLDER, begin
from patchwright.errors import AnswerNo

if TYPE_CHECKING:
    from patchwright.project import Project


def history(project: Project) -> tuple[Operation, ...]:
    """Return every operation on record, the oldest first."""
    return tuple(operations(project.state_dir / FOLDER))


def undo(project: Project, *, force: bool = False) -> Operation:
    """Undo the last operation that is not undone; return it.

    Raises AnswerNo where there is none, and (unless ``force``) where a file of it was
    changed since. What ``force`` overwrites is in the record of the undo.
    """
    return _turn(project, back=True, force=force)


def redo(project: Project, *, force: bool = False) -> Operation:
    """Redo the operation that was undone last; return it. Raises as ``undo`` does."""
    return _turn(project, back=False, force=force)


def _turn(project: Project, *, back: bool, force: bool) -> Operation:
    word: Literal["undo", "redo"] = "undo" if back else "redo"
    folder = project.state_dir / FOLDER
    with begin(project, word) as change:
        undoable, redoable = stacks(history(project))
        numbers = undoable if back else redoable
        if not numbers:
            raise AnswerNo(f"there is nothing to {word}", next_step="see `patchwright log`")
        operation = read(record_path(folder, numbers[-1]))
        change.command = f"{word} {operation.number} ({operation.command})"
        for item in operation.changes:
            here, there = (item.after, item.before) if back else (item.before, item.after)
            now = change.content(item.path)
            if now != here and not force:
                raise AnswerNo(
                    f"this file was changed since, so `{operation.command}` cannot be "
                    f"{'undone' if back else 'redone'} without losing that",
                    where=str(project.root / item.path),
                    next_step=f"set that change aside, or run `patchwright {word} --force`: what "
                    "it overwrites is kept in its own record",
                )
            change.put(item.path, there)
        change.commit(word, operation.number)
    return operation
