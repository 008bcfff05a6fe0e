"""Which files and lines are worth evaluating: those that ask, and those that ask one that does.

A name that the GPU decides counts where it is bound, and where it is imported from the
upstreams' own packages: another file's variable of the same name is another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from patchwright.audit.mentions import Facts, facts, named, words
from patchwright.audit.record import Record
from patchwright.audit.trees import StoredTrees
from patchwright.smoke.outcomes import SmokeError

Place = tuple[str, str]  # upstream and repository path


class Marks:
    """What the files of one state say; ``names`` holds, by upstream, who binds which name."""

    def __init__(self, trees: StoredTrees, cache_dir: Path | None = None) -> None:
        self.trees = trees
        self.names: dict[str, dict[bytes, set[str]]] = {}
        self.packages = sorted(p for name in trees.upstreams for p in trees.packages(name))
        path = None
        if cache_dir is not None:
            key = hashlib.sha256("\0".join((_digest(), *self.packages)).encode()).hexdigest()
            path = cache_dir / "audit" / "facts" / f"{key[:32]}.json"
        self.record = Record(path)
        self._facts: dict[str, Facts] = {}
        self._named: dict[Place, frozenset[bytes]] = {}
        self._lines: dict[Place, Sequence[int]] = {}
        self._stamps: dict[str, str] = {}

    def facts(self, place: Place) -> Facts:
        """Return what a file says."""
        oid = self.trees.oid(*place)
        found = self._facts.get(oid)
        if found is None:
            found = self._facts[oid] = _stored(self.record.get(oid)) or self._found(oid, place)
        return found

    def unknown(self, places: Iterable[Place]) -> list[Place]:
        """Return the files that were not looked at yet, one for each content."""
        found: dict[str, Place] = {}
        for place in places:
            oid = self.trees.oid(*place)
            if oid not in self._facts and self.record.get(oid) is None:
                found[oid] = place
        return list(found.values())

    def learn(self, found: Mapping[Place, Facts]) -> None:
        """Take over what was found elsewhere."""
        for place, one in found.items():
            oid = self.trees.oid(*place)
            self._facts[oid] = one
            self.record.keep(oid, _storable(one))

    def _found(self, oid: str, place: Place) -> Facts:
        one = facts(self.trees.peek(*place), self.packages)
        self.record.keep(oid, _storable(one))
        return one

    def add(self, upstream: str, names: Mapping[bytes, Iterable[str]]) -> bool:
        """Take down names that the GPU decides, with the files that bind them; True: some are new.

        Files that bind a name are told by repository path.
        """
        known = self.names.setdefault(upstream, {})
        fresh = False
        for name, paths in names.items():
            fresh = fresh or name not in known
            known.setdefault(name, set()).update(paths)
        self._named.clear()
        self._lines.clear()
        self._stamps.clear()
        return fresh

    def asks(self, place: Place) -> bool:
        """Return whether a file may ask for an architecture itself."""
        return bool(self.facts(place).lines)

    def named(self, place: Place) -> frozenset[bytes]:
        """Return the names in a file that the GPU decides."""
        found = self._named.get(place)
        if found is None:
            known, one = self.names.get(place[0], {}), self.facts(place)
            imported = words(self.trees.peek(*place)) if one.star else one.imported
            found = self._named[place] = frozenset(
                name for name, paths in known.items() if name in imported or place[1] in paths
            )
        return found

    def lines(self, place: Place) -> Sequence[int]:
        """Return the lines of a file that mention an architecture, or such a name."""
        found = self._lines.get(place)
        if found is None:
            found, names = self.facts(place).lines, self.named(place)
            if names:
                found = sorted({*found, *named(self.trees.peek(*place), names)})
            self._lines[place] = found
        return found

    def stamp(self, dotted: str) -> str:
        """Return what the values of a module rest on, beside other modules: content and names."""
        if dotted not in self._stamps:
            place = self.trees.module(dotted)
            self._stamps[dotted] = self.stamp_of(place) if place is not None else "-"
        return self._stamps[dotted]

    def stamp_of(self, place: Place) -> str:
        """Return what the values of a file rest on, beside other modules."""
        try:
            names = b",".join(sorted(self.named(place))).decode()
            return f"{self.trees.oid(*place)} {names}"
        except SmokeError:
            return "-"


def _storable(one: Facts) -> list[object]:
    return [list(one.lines), sorted(n.decode() for n in one.imported), one.star, one.size]


def _stored(value: object) -> Facts | None:
    match value:
        case [list(lines), list(imported), bool(star), int(size)]:
            return Facts(tuple(lines), frozenset(str(n).encode() for n in imported), star, size)
    return None


@cache
def _digest() -> str:
    path = Path(__file__).with_name("mentions.py")
    return hashlib.sha256(path.read_bytes()).hexdigest()
