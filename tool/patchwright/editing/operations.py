"""The record of operations: what each command that changed the project's files did.

One zip archive per operation in ``.patchwright/operations``, named by its number:
``operation.json`` says the command and, for every file, what stood there before and what
stands there after; ``content/SHA256`` has the bytes of both. Nothing that a command
removed or overwrote is lost while its record is there.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from patchwright.editing import pending
from patchwright.errors import PatchwrightError

FORMAT = 1
PENDING = pending.FILE
_RECORD = re.compile(r"(\d{6,})\.zip")
_EPOCH = (1980, 1, 1, 0, 0, 0)

Kind = Literal["do", "undo", "redo"]


@dataclass(frozen=True)
class Content:
    """A file's bytes and its permissions (``0o644``, say)."""

    data: bytes = field(repr=False)
    mode: int

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class Change:
    """One file: what was there and what is there after; None is no file.

    ``path`` is relative to the project's root, with slashes; bytes that are not UTF-8
    are kept as surrogates.
    """

    path: str
    before: Content | None
    after: Content | None

    def reversed(self) -> Change:
        return Change(self.path, self.after, self.before)


@dataclass(frozen=True)
class Operation:
    """One operation. ``of`` is the operation that an undo or a redo is about.

    ``when`` is UTC, to the second, as in ``2026-01-31T12:00:00+00:00``.
    """

    number: int
    command: str
    when: str
    changes: tuple[Change, ...]
    kind: Kind = "do"
    of: int | None = None


def encode(operation: Operation) -> bytes:
    """Return the record's bytes."""
    contents: dict[str, bytes] = {}

    def side(content: Content | None) -> dict[str, object] | None:
        if content is None:
            return None
        contents[content.sha256] = content.data
        return {"sha256": content.sha256, "mode": f"{content.mode:04o}"}

    head = {
        "format": FORMAT, "number": operation.number, "command": operation.command,
        "when": operation.when, "kind": operation.kind, "of": operation.of,
        "changes": [
            {"path": c.path, "before": side(c.before), "after": side(c.after)}
            for c in operation.changes
        ],
    }  # fmt: skip
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(_member("operation.json"), json.dumps(head, indent=1))
        for digest, data in contents.items():
            archive.writestr(_member(f"content/{digest}"), data)
    return out.getvalue()


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o100644 << 16
    return member


def read(path: Path) -> Operation:
    """Read one record; PatchwrightError where it cannot be used.

    Contents are compared with their digests: what an undo writes is what was there.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            head = json.loads(archive.read("operation.json"))
            if head["format"] != FORMAT:
                raise ValueError(f"format {head['format']} is not known")

            def side(told: dict[str, str] | None) -> Content | None:
                if told is None:
                    return None
                content = Content(archive.read(f"content/{told['sha256']}"), int(told["mode"], 8))
                if content.sha256 != told["sha256"]:
                    raise ValueError("a content is not what its name says")
                return content

            changes = tuple(
                Change(str(c["path"]), side(c["before"]), side(c["after"])) for c in head["changes"]
            )
            return Operation(
                int(head["number"]), str(head["command"]), str(head["when"]), changes,
                head["kind"], head["of"],
            )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise PatchwrightError(
            f"the record of an operation cannot be read: {error}", where=str(path),
            next_step="move that file away: what it recorded can then not be undone",
        ) from error  # fmt: skip


def numbers(folder: Path) -> list[int]:
    """Return the numbers of all operations on record, in order."""
    if not folder.is_dir():
        return []
    found = (_RECORD.fullmatch(path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in found if match is not None)


def record_path(folder: Path, number: int) -> Path:
    """Return where the record of an operation stands."""
    return folder / f"{number:06d}.zip"


def operations(folder: Path) -> Iterator[Operation]:
    """Yield every operation on record, the oldest first."""
    for number in numbers(folder):
        yield read(record_path(folder, number))


def stacks(done: Sequence[Operation]) -> tuple[list[int], list[int]]:
    """Return the operations that can be undone and those that can be redone, last one first up.

    As in an editor: a new operation after an undo leaves nothing to redo.
    """
    undoable: list[int] = []
    redoable: list[int] = []
    for operation in done:
        if operation.kind == "do":
            undoable.append(operation.number)
            redoable.clear()
            continue
        source, target = undoable, redoable
        if operation.kind == "redo":
            source, target = redoable, undoable
        if operation.of in source:
            source.remove(operation.of)
            target.append(operation.of)
    return undoable, redoable
