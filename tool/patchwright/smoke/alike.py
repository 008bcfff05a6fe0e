"""Runs that answer for each other: one test on trees that differ in nothing it read.

A static run is decided by the test and by what it reads of the trees. Where another run of
the same test would have read the same bytes, at the same paths, it is not made: in `alone`
and in `without` most trees differ only in files that the test never opens. Which files a
run reads is watched (proof.py); which exist is taken to matter always, so trees with other
paths or modes are never alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchwright.smoke.sites import site_tree
from patchwright.store import DIRECTORY

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.project import Project
    from patchwright.smoke.runs import Run, RunResult
    from patchwright.store import ObjectStore


@dataclass(frozen=True)
class Reads:
    """The files that a run read, as installed paths: of the tree, and of the baseline."""

    tree: frozenset[bytes]
    baseline: frozenset[bytes]


class Alike:
    """Compares runs of one project; remembers which trees differ where."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._differences: dict[frozenset[State], frozenset[bytes] | None] = {}

    def same(self, made: Run, result: RunResult, other: Run) -> bool:
        """Return whether ``other`` would end as ``made`` did.

        Never where that broke, was blocked, or where nobody can tell what it read.
        """
        if result.read is None or result.outcome not in ("passed", "failed"):
            return False
        if (made.test, made.tier, "static") != (other.test, other.tier, other.tier):
            return False
        # In a control both are one folder: a test can see that.
        if (made.state == made.baseline) != (other.state == other.baseline):
            return False
        return self._untouched(made.state, other.state, result.read.tree) and self._untouched(
            made.baseline, other.baseline, result.read.baseline
        )

    def _untouched(self, one: State, two: State, read: frozenset[bytes]) -> bool:
        if one == two:
            return True
        pair = frozenset((one, two))
        if pair not in self._differences:
            trees = (site_tree(self._project, state) for state in (one, two))
            self._differences[pair] = changed_files(self._project.store, *trees)
        changed = self._differences[pair]
        return changed is not None and read.isdisjoint(changed)


def changed_files(store: ObjectStore, one: str, two: str) -> frozenset[bytes] | None:
    """Return the paths whose content differs; None where paths or modes differ as well."""
    found: set[bytes] = set()
    todo = [(b"", one, two)]
    while todo:
        prefix, left, right = todo.pop()
        before = {entry.name: entry for entry in store.tree(left)}
        after = {entry.name: entry for entry in store.tree(right)}
        if before.keys() != after.keys():
            return None
        for name, entry in after.items():
            was = before[name]
            if was == entry:
                continue
            if was.mode != entry.mode:
                return None
            if entry.mode == DIRECTORY:
                todo.append((prefix + name + b"/", was.oid, entry.oid))
            else:
                found.add(prefix + name)
    return frozenset(found)
