"""Hunks and binary content of a diff, read line by line."""

from __future__ import annotations

import base64
import re
import zlib

from patchwright.changes import REWRITE, CorruptPatch, Hunk

TRAILERS = (b"base-commit: ", b"prerequisite-patch-id: ")

_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_BINARY = re.compile(rb"(?:literal|delta) \d{1,12}$")
# How many lines of the old and of the new side a line with this sign is. git and GNU
# diff take an empty line as an empty context line.
_SIDES = {b" ": (1, 1), b"": (1, 1), b"-": (1, 0), b"+": (0, 1)}


class Lines:
    """The lines of a diff and the place that is read next.

    ``cut`` is true where the last line lacks its newline; ``first_line`` is the number
    of the first line in the patch file, 1-based.
    """

    def __init__(self, data: bytes, first_line: int) -> None:
        self.lines = data.split(b"\n")
        self.cut = self.lines[-1] != b""
        if not self.cut:
            self.lines.pop()
        self.end = len(self.lines)
        self.at = 0
        self.first_line = first_line

    def corrupt(self, at: int, reason: str, next_step: str = REWRITE) -> CorruptPatch:
        """Return the error for the line with index ``at``."""
        return CorruptPatch(self.first_line + at, reason, next_step=next_step)

    def starts(self, *words: bytes) -> bool:
        """Return whether there is a next line and it starts with one of ``words``."""
        return self.at < self.end and self.lines[self.at].startswith(words)

    def since(self, start: int) -> bytes:
        """Return the text from line index ``start`` up to the next line to be read."""
        return b"\n".join(self.lines[start : self.at]) + b"\n"

    def is_signature(self, at: int) -> bool:
        """Return whether ``-- `` here starts the mail's signature, not a removed line."""
        if at >= self.end or self.lines[at] not in (b"-- ", b"--"):
            return False
        if at + 1 == self.end:
            return True
        after = self.lines[at + 1]
        return after[:1] not in (b"", b" ", b"+", b"-", b"\\") and not after.startswith(
            (b"@@ ", b"diff --git ")
        )

    def is_another(self, at: int) -> bool:
        """Return whether this line, which looks like one of a hunk, stands outside of it."""
        return self.is_signature(at)


def read_hunk(source: Lines) -> Hunk:
    """Read the hunk whose header is the next line; raise CorruptPatch."""
    lines, start, end = source.lines, source.at, source.end
    match = _HUNK.match(lines[start])
    if match is None:
        raise source.corrupt(start, "this hunk header is damaged")
    old_count, new_count = (int(n) if n is not None else 1 for n in (match[2], match[4]))
    old_left, new_left = old_count, new_count
    body: list[bytes] = []
    at = start + 1
    while (old_left > 0 or new_left > 0) and at < end:
        line = lines[at]
        sides = _SIDES.get(line[:1])
        signature = line[:2] == b"--" and at + 1 < end and source.is_signature(at)
        if sides is not None and not signature:
            old_left -= sides[0]
            new_left -= sides[1]
            body.append((line or b" ") + b"\n")
        elif line[:1] == b"\\" and body:
            _fold(source, at, body)
        else:
            break
        at += 1
    if at < end and lines[at][:1] == b"\\" and body:
        _fold(source, at, body)
        at += 1
    more = at < end and lines[at][:1] in (b" ", b"+", b"-") and not source.is_another(at)
    if old_left or new_left or more or (at == end and source.cut):
        raise _bad_hunk(source, start, old_count, new_count)
    if not body:
        raise source.corrupt(start, "this hunk is empty")
    source.at = at
    hunk = Hunk(
        source.first_line + start, int(match[1]), old_count, int(match[3]), new_count, tuple(body)
    )
    if any(line[-1:] != b"\n" for line in body):
        _check_last_lines(source, hunk)
    return hunk


def _fold(source: Lines, at: int, body: list[bytes]) -> None:
    """Take the newline off the line that a ``\\ No newline`` marker belongs to."""
    if not body[-1].endswith(b"\n"):
        raise source.corrupt(at, "a second '\\ No newline at end of file' for one line")
    body[-1] = body[-1][:-1]


def _check_last_lines(source: Lines, hunk: Hunk) -> None:
    """Raise where a line without a newline is not the last of its side."""
    for side in (hunk.old, hunk.new):
        if any(not line.endswith(b"\n") for line in side[:-1]):
            raise CorruptPatch(hunk.line, "'\\ No newline at end of file' stands before the end")
    if source.starts(b"@@ "):
        raise source.corrupt(source.at, "a hunk stands after '\\ No newline at end of file'")


def _bad_hunk(source: Lines, start: int, old_count: int, new_count: int) -> CorruptPatch:
    """Say what is wrong with the hunk whose header has the index ``start``."""
    old = new = 0
    unsigned: list[int] = []
    at = start + 1
    while at < source.end and not _ends_hunk(source, at):
        line = source.lines[at]
        sides = _SIDES.get(line[:1])
        if sides is not None:
            old += sides[0]
            new += sides[1]
        elif line[:1] != b"\\":
            unsigned.append(at)
        at += 1
    if at == source.end and source.cut:
        return source.corrupt(
            at - 1, "the patch ends inside a hunk line: its last newline is missing"
        )
    if unsigned:
        reason = (
            "this line of a hunk starts with none of ' ', '+', '-': "
            "a mail client wrapped it, or it lost its leading space"
        )
        if (old + len(unsigned), new + len(unsigned)) == (old_count, new_count):
            reason = "this context line lost its leading space"
        elif (old, new) == (old_count, new_count):
            reason = "a mail client wrapped the line above: this one belongs to it"
        return source.corrupt(unsigned[0], reason)
    return source.corrupt(
        start,
        f"the hunk header says {old_count} old and {new_count} new lines, "
        f"the hunk has {old} and {new}",
    )


def _ends_hunk(source: Lines, at: int) -> bool:
    """Return whether the line is certainly no part of a hunk."""
    line = source.lines[at]
    if not line:
        # A blank line before what follows the diff of a mail.
        at += 1
        if at == source.end:
            return True
        return source.is_signature(at) or source.lines[at].startswith(TRAILERS)
    return line.startswith((b"diff --git ", b"@@ ", *TRAILERS)) or source.is_signature(at)


def read_binary(source: Lines) -> bytes:
    """Step over a ``GIT binary patch`` (forward, and backward where it is there)."""
    start = source.at
    source.at += 1
    hunks = 0
    while source.at < source.end and _BINARY.match(source.lines[source.at]):
        _read_binary_hunk(source)
        hunks += 1
    if hunks not in (1, 2):
        raise source.corrupt(start, "the binary patch has no content")
    return source.since(start)


def _read_binary_hunk(source: Lines) -> None:
    start = source.at
    source.at += 1
    packed = b""
    while source.at < source.end and (line := source.lines[source.at]):
        # The first letter is the number of bytes; each 4 bytes make 5 characters.
        first = line[0]
        size = first - 64 if 65 <= first <= 90 else first - 70 if 97 <= first <= 122 else 0
        if not size or len(line) != 1 + (size + 3) // 4 * 5:
            raise source.corrupt(source.at, "this line of a binary patch is damaged")
        try:
            packed += base64.b85decode(line[1:])[:size]
        except ValueError:
            raise source.corrupt(source.at, "this line of a binary patch is damaged") from None
        source.at += 1
    if source.at == source.end or not packed:
        raise source.corrupt(source.at - 1, "the binary patch is cut off")
    source.at += 1
    wanted = int(source.lines[start].split()[1])
    unpacking = zlib.decompressobj()
    try:
        # One byte more than is wanted: a small line must not unpack to gigabytes.
        found = len(unpacking.decompress(packed, wanted + 1))
    except zlib.error:
        found = -1
    if found != wanted or not unpacking.eof:
        raise source.corrupt(start, "the content of this binary patch is damaged")
