"""Which of some files an upstream renamed between two trees, by what git sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from patchwright.store import ObjectStore


def renames(store: ObjectStore, old: str, new: str, paths: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return old path to new path of each of ``paths`` that was renamed (half of it the same).

    Only files that are gone are looked for, and only among those that are new: an
    upstream may have added a thousand.
    """
    gone = {}
    for path in paths:
        entry = store.entry(old, path)
        if entry is not None and store.entry(new, path) is None:
            gone[path] = (entry.mode, entry.oid)
    if not gone:
        return {}
    there = {path for path, _ in store.files(old)}
    added = {p: (e.mode, e.oid) for p, e in store.files(new) if p not in there}
    small = [store.build_tree(files) for files in (gone, added)]
    store.flush()
    done = store.git.run(
        "diff-tree", "-r", "-z", "-M50%", "-l0", "--diff-filter=R", "--name-status", *small
    )
    words = done.stdout.split(b"\0")
    return {words[at + 1]: words[at + 2] for at in range(0, len(words) - 2, 3)}
