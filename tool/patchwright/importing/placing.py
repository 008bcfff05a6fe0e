"""Where GNU patch puts a hunk when fuzz is forbidden: what a quilt series means.

The tool's own applier stops where a moved hunk fits in two places. A series made for
quilt has an answer there: the nearest place, forward first, counted from where the hunk
before it went (locate_hunk in GNU patch's patch.c, with a fuzz of 0).
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from patchwright.applying.files import Content, PatchOnTree, Trouble
from patchwright.applying.verdicts import FileVerdict, Verdict
from patchwright.changes import FileChange, Hunk
from patchwright.store import DIRECTORY


class AsPatch(PatchOnTree):
    """Applies a patch's text as GNU patch does, all else as the tool does."""

    def _text(
        self, change: FileChange, source: Content
    ) -> tuple[Content, Verdict, str, tuple[int, ...]]:
        placed = place(self._bytes(source), change.hunks)
        if isinstance(placed, int):
            hunk = change.hunks[placed]
            raise Trouble(
                "conflict", f"hunk {placed + 1} (line {hunk.line} of the patch) fits nowhere "
                "without fuzz",
            )  # fmt: skip
        return Content(source.mode, None, placed), "clean", "", ()

    def step(self, change: FileChange) -> FileVerdict:
        """Apply one change on top of those before it, as GNU patch goes through a file."""
        self._by_git.clear()
        return self.apply((change,))[0]

    def _remove(self, path: bytes | None) -> None:
        super()._remove(path)
        self.written.pop(path or b"", None)

    def stands(self, path: bytes) -> bool:
        """Return whether a file stands at ``path`` after what was applied so far."""
        found = self._now(path)
        return found is not None and found.mode != DIRECTORY

    def is_empty(self, path: bytes) -> bool:
        """Return whether the file at ``path`` is empty."""
        found = self._now(path)
        return found is not None and found.mode != DIRECTORY and not self._bytes(found)


def place(content: bytes, hunks: Sequence[Hunk]) -> bytes | int:
    """Return the content after all hunks, or the index of the first that fits nowhere."""
    lines = io.BytesIO(content).readlines()
    out: list[bytes] = []
    done = 0  # lines of the file that are settled
    offset = 0  # how far the hunk before stood from its place
    for at, hunk in enumerate(hunks):
        old = hunk.old
        guess = hunk.old_start - (hunk.old_count > 0) + offset
        found = _nearest(lines, old, hunk, guess, done)
        if found is None:
            return at
        offset += found - guess
        out += lines[done:found]
        out += hunk.new
        done = found + len(old)
    return b"".join(out + lines[done:])


def _nearest(lines: list[bytes], old: list[bytes], hunk: Hunk, guess: int, done: int) -> int | None:
    """Return the 0-based line at which the hunk goes, not before line ``done``."""
    before, after = _context(hunk.lines), _context(hunk.lines[::-1])
    last = len(lines) - len(old)
    if not old:
        return guess if done <= guess <= len(lines) else None
    # Less context on one side ties the hunk to that end of the file.
    at_start = before < after and hunk.old_start <= 1
    at_end = after < before
    if at_start or at_end:
        only = 0 if at_start else last
        fits = only >= done and lines[only : only + len(old)] == old
        return only if fits and not (at_start and at_end and len(lines) != len(old)) else None
    for distance in range(max(abs(last - guess), abs(guess - done)) + 1):
        for at in (guess + distance, guess - distance):
            if done <= at <= last and lines[at : at + len(old)] == old:
                return at
    return None


def _context(lines: Sequence[bytes]) -> int:
    return next((n for n, line in enumerate(lines) if not line.startswith(b" ")), len(lines))
