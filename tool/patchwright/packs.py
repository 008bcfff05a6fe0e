"""Whether trees are in the object store, without loading the object database.

A run that finds everything in its cache asks only this; importing GitPython for it
would take longer than all the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

_MAGIC = b"\xfftOc\x00\x00\x00\x02"
_FANOUT = len(_MAGIC)
_NAMES = _FANOUT + 4 * 256
_WIDTH = 20


def missing(store: Path, oids: Iterable[str]) -> set[str]:
    """Return those of ``oids`` that the git directory ``store`` does not hold."""
    left = {bytes.fromhex(oid) for oid in oids}
    objects = store / "objects"
    try:
        indexes = sorted(
            (objects / "pack").glob("*.idx"), key=lambda path: path.stat().st_mtime_ns, reverse=True
        )
    except OSError:
        indexes = []
    for path in indexes:
        if not left:
            break
        left -= _found(path, left)
    return {oid.hex() for oid in left} - _loose(objects, {oid.hex()[:2] for oid in left})


def _loose(objects: Path, folders: Iterable[str]) -> set[str]:
    """Return the objects that lie by themselves in some of the 256 folders."""
    found = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            found |= {folder + path.name for path in (objects / folder).iterdir()}
    return found


def _found(path: Path, oids: Iterable[bytes]) -> set[bytes]:
    """Return those of ``oids`` that a pack's index names (gitformat-pack, version 2)."""
    try:
        if not path.with_suffix(".pack").is_file():
            return set()
        data = path.read_bytes()
    except OSError:
        return set()
    if not data.startswith(_MAGIC):
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
