"""What an import is made of, before anything is applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["quilt", "mail", "file", "commit"]


@dataclass(frozen=True)
class Item:
    """One patch as it was found.

    ``raw`` are the bytes that were there; ``text`` is the same with compression and the
    mail's transfer encoding undone: a head for people, then the diff. ``strip`` is None
    where nothing says how many leading folders of a name to drop. ``trouble`` says why
    it cannot be taken. ``line`` is its line in the series file.
    """

    name: str
    raw: bytes
    kind: Kind
    text: bytes
    strip: int | None = None
    reverse: bool = False
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    trailers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    trouble: str = ""
    line: str = ""
    upstream: str | None = None


@dataclass(frozen=True)
class Bundle:
    """All items of one source, in order.

    ``container`` holds the files that list them (``series``, ``patches.yml``) by name;
    ``trouble`` says why the whole cannot be taken.
    """

    name: str
    kind: Literal["quilt", "mail", "files", "git", "west"]
    items: tuple[Item, ...]
    container: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    trouble: tuple[str, ...] = ()


def free_name(name: str, taken: set[str]) -> str:
    """Return the name, with a number where it is in ``taken``; add it there."""
    stem, dot, suffix = name.rpartition(".")
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{stem}-{number}{dot}{suffix}" if stem else f"{suffix}-{number}"
    taken.add(free)
    return free
