"""What a diff says, as immutable objects: hunks and file changes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchwright.errors import InputError

Kind = Literal["modify", "add", "delete", "rename", "copy", "mode"]

# What mailsplit takes as the first line of another mail.
MAIL = re.compile(rb"^From .*\d.\d\d:\d\d\s*\d{2,}[^:\n]*$", re.MULTILINE)
REWRITE = "write the patch again with git format-patch --full-index --binary"


class CorruptPatch(InputError):
    """A patch file that is damaged at ``line`` (1-based) for ``reason``."""

    def __init__(
        self, line: int, reason: str, *, path: Path | None = None, next_step: str = REWRITE
    ) -> None:
        where = f"{path}:{line}" if path is not None else f"line {line}"
        super().__init__(reason, where=where, next_step=next_step)
        self.line = line
        self.reason = reason

    def at(self, path: Path) -> CorruptPatch:
        """Return the same error with the patch file named."""
        return CorruptPatch(self.line, self.reason, path=path, next_step=self.next_step)


@dataclass(frozen=True, slots=True)
class Hunk:
    """One hunk. ``line`` is the line of its header in the patch file, 1-based.

    ``lines`` keep their sign byte and their newline. ``\\ No newline at end of file``
    is folded in: the line before it then lacks its newline. An empty line, which git
    takes as an empty context line, is stored as ``b" \\n"``.
    """

    line: int
    old_start: int
    old_count: int
    new_start: int
    new_count: int
    lines: tuple[bytes, ...]

    @property
    def old(self) -> list[bytes]:
        """The lines that must stand in the file, without signs, with newlines."""
        return [line[1:] for line in self.lines if line[0] != 43]

    @property
    def new(self) -> list[bytes]:
        """The lines that stand there afterwards."""
        return [line[1:] for line in self.lines if line[0] != 45]


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a patch does to one file.

    ``old_path`` is None for an added file, ``new_path`` for a deleted one. The old side
    of a rename or a copy is the file as it was before the whole patch, in any order of
    the sections (git apply does the same). A file that becomes a symlink stands as two
    changes of one path: delete, then add. Modes are None where the diff does not say;
    ids are as written, full or short. ``kind`` "mode" changes the mode alone.
    ``binary`` is the text from ``GIT binary patch`` on; ``text`` the whole section.
    """

    old_path: bytes | None
    new_path: bytes | None
    kind: Kind
    old_mode: bytes | None
    new_mode: bytes | None
    old_oid: str | None
    new_oid: str | None
    hunks: tuple[Hunk, ...]
    binary: bytes | None
    similarity: int | None
    line: int
    text: bytes

    @property
    def path(self) -> bytes:
        """The file's path after the patch, or before it where it is deleted."""
        path = self.new_path if self.new_path is not None else self.old_path
        assert path is not None
        return path
