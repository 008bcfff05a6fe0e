"""Whether trees are in the object store, without loading the object database.

A run that finds everything in its cache asks only this; importing GitPython for it
would take longer than all the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_MAGIC = b"\xfftOc\x00\x00\x00\x02"
_FANOUT = len(_MAGIC)
_NAMES = _FANOUT + 4 * 256
_WIDTH = 20


@dataclass
class Indexes:
    """The packs of a store that were met, newest first, and the indexes of those that were read.

    For a caller who holds the store: no pack goes away meanwhile, but others may come.
    """

    read: dict[Path, bytes] = field(default_factory=dict)
    unread: list[Path] = field(default_factory=list)

    def look(self, folder: Path) -> bool:
        """Return whether there are packs that were not met yet."""
        with contextlib.suppress(OSError):
            new = [path for path in folder.glob("*.idx") if path not in self.read]
            self.unread = sorted(new, key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return bool(self.unread)

    def next(self) -> bytes:
        """Read one more index and return it."""
        path = self.unread.pop(0)
        self.read[path] = _read(path)
        return self.read[path]


def missing(store: Path, oids: Iterable[str], indexes: Indexes | None = None) -> set[str]:
    """Return those of ``oids`` that the git directory ``store`` does not hold.

    ``indexes`` keeps what was read for the next question.
    """
    indexes = indexes if indexes is not None else Indexes()
    left = {bytes.fromhex(oid) for oid in oids}
    for data in indexes.read.values():
        left -= _named(data, left)
    objects = store / "objects"
    while left and (indexes.unread or indexes.look(objects / "pack")):
        left -= _named(indexes.next(), left)
    return {oid.hex() for oid in left} - _loose(objects, {oid.hex()[:2] for oid in left})


def _loose(objects: Path, folders: Iterable[str]) -> set[str]:
    """Return the objects that lie by themselves in some of the 256 folders."""
    found = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            found |= {folder + path.name for path in (objects / folder).iterdir()}
    return found


def _read(path: Path) -> bytes:
    """Return the index of a pack (gitformat-pack, version 2), empty where it is of no use."""
    try:
        data = path.read_bytes() if path.with_suffix(".pack").is_file() else b""
    except OSError:
        return b""
    return data if data.startswith(_MAGIC) else b""


def _named(data: bytes, oids: Iterable[bytes]) -> set[bytes]:
    """Return those of ``oids`` that an index names."""
    if not data:
        return set()
    found = set()
    for oid in oids:
        fan = _FANOUT + 4 * oid[0]
        end = _NAMES + _WIDTH * int.from_bytes(data[fan : fan + 4], "big")
        low = int.from_bytes(data[fan - 4 : fan], "big") if oid[0] else 0
        start = _NAMES + _WIDTH * low
        at = data.find(oid, start, end)
        # A match across two names is none; the next one may be.
        while at >= 0 and (at - _NAMES) % _WIDTH:
            at = data.find(oid, at + 1, end)
        if at >= 0:
            found.add(oid)
    return found
