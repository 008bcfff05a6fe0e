"""The exact text applier: hunks onto bytes, without fuzz.

A hunk goes to its exact place, or to the one other place where its old text stands;
anything else is not decided here. Where git anchors a hunk, so does this: one that
starts on line 1 matches only at the beginning, one without trailing context only at
the end (git's apply.c, apply_one_fragment). Where git would pick the nearest of
several places, this stops.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from patchwright.changes import Hunk

_SHOWN_LINES = 5


@dataclass(frozen=True)
class HunkPlace:
    """Where one hunk stands in a file.

    ``index`` is the 0-based line at which its text begins (of a hunk without a place:
    at which it should), ``offset`` its distance in lines from the place that it names.
    """

    state: Literal["exact", "offset", "already", "missing", "ambiguous"]
    index: int
    offset: int = 0
    candidates: tuple[int, ...] = ()  # 1-based lines, where there are several


@dataclass(frozen=True)
class Placed:
    """Every hunk found its place; ``offsets`` has one number of lines per hunk."""

    content: bytes
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class NotPlaced:
    """Not every hunk found one place; ``places`` says for each how it stands."""

    lines: list[bytes]
    places: tuple[HunkPlace, ...]

    @property
    def already(self) -> tuple[int, ...]:
        """Numbers (from 1) of the hunks whose new text stands in the file."""
        return tuple(n for n, p in enumerate(self.places, 1) if p.state == "already")

    def standing(self, number: int) -> tuple[int, list[bytes]]:
        """Return the 1-based line where hunk ``number`` belongs, and what stands there."""
        index = max(self.places[number - 1].index, 0)
        return index + 1, self.lines[index : index + _SHOWN_LINES]


def apply_hunks(content: bytes, hunks: Sequence[Hunk]) -> Placed | NotPlaced:
    """Apply ``hunks`` (in the order of the file) to ``content``, all of them or none."""
    lines = io.BytesIO(content).readlines()
    places: list[HunkPlace] = []
    after = 0  # first line that no hunk has touched yet
    moved = False  # a hunk before stood elsewhere: exact places prove nothing any more
    present = 0  # lines that hunks already in the file have added to it
    delta = 0  # lines that the hunks before add, by their own headers
    for hunk in hunks:
        trusted = not moved and hunk.new_start - hunk.old_start == delta + _origin(hunk)
        named = hunk.old_start - (hunk.old_count > 0) + present
        place = _place(lines, hunk, named, after, trusted=trusted)
        places.append(place)
        if place.state in ("exact", "offset"):
            after = place.index + hunk.old_count
            moved = moved or place.state == "offset"
        elif place.state == "already":
            after = place.index + hunk.new_count
            present += hunk.new_count - hunk.old_count
            moved = moved or place.offset != 0
        delta += hunk.new_count - hunk.old_count
    if any(place.state not in ("exact", "offset") for place in places):
        return NotPlaced(lines, tuple(places))
    return Placed(_joined(lines, hunks, places), tuple(place.offset for place in places))


def _origin(hunk: Hunk) -> int:
    """Correct for an empty side: its start names the line before it, not its first line."""
    return (hunk.old_count == 0) - (hunk.new_count == 0)


@dataclass(frozen=True)
class _Wanted:
    """What a hunk asks of its place; ``first`` and ``last`` tie it to an end of the file."""

    old: list[bytes]
    after: int
    first: bool
    last: bool

    def fits(self, lines: list[bytes], at: int) -> bool:
        end = at + len(self.old)
        return (
            at >= self.after
            and end <= len(lines)
            and lines[at:end] == self.old
            and not (self.first and at)
            and not (self.last and end != len(lines))
        )


def _place(lines: list[bytes], hunk: Hunk, named: int, after: int, *, trusted: bool) -> HunkPlace:
    old, new = hunk.old, hunk.new
    wanted = _Wanted(old, after, hunk.old_start <= 1, not hunk.lines[-1].startswith(b" "))
    if trusted and wanted.fits(lines, named):
        return HunkPlace("exact", named)
    # Text that is there already must not be looked for elsewhere: a copy of the old
    # text further down would be changed in its stead.
    if new and named >= after and lines[named : named + len(new)] == new:
        return HunkPlace("already", named)
    found = _occurrences(lines, old)
    fitting = [at for at in found if wanted.fits(lines, at)]
    if len(found) == 1 and fitting:
        offset = fitting[0] - named
        return HunkPlace("offset" if offset else "exact", fitting[0], offset)
    if fitting:
        return HunkPlace("ambiguous", named, candidates=tuple(at + 1 for at in found))
    there = _occurrences(lines, new)
    if len(there) == 1 and there[0] >= after:
        return HunkPlace("already", there[0], there[0] - named)
    return HunkPlace("missing", named)


def _occurrences(lines: list[bytes], text: list[bytes]) -> list[int]:
    """Return every line (from 0) at which ``text`` stands; an empty text stands nowhere."""
    if not text:
        return []
    size, start = len(text), 0
    found: list[int] = []
    while True:
        try:
            at = lines.index(text[0], start)
        except ValueError:
            return found
        if lines[at : at + size] == text:
            found.append(at)
        start = at + 1


def _joined(lines: list[bytes], hunks: Sequence[Hunk], places: Sequence[HunkPlace]) -> bytes:
    parts: list[bytes] = []
    done = 0
    for hunk, place in zip(hunks, places, strict=True):
        parts += lines[done : place.index]
        parts += hunk.new
        done = place.index + hunk.old_count
    parts += lines[done:]
    return b"".join(parts)
