"""One patch's change made on another tree, its files followed to their new names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from patchwright.editing.merging import Conflict, changes, merge

if TYPE_CHECKING:
    from patchwright.store import ObjectStore

_Files = dict[bytes, tuple[bytes, str]]


def merge_onto(
    store: ObjectStore, base: str, on: str, made: str, name: str, renamed: Mapping[bytes, bytes]
) -> str | Conflict:
    """Return ``on`` with the change from ``base`` to ``made``; ``renamed`` maps its paths.

    Only the files that the change touches are merged: git would look for renames among
    all that differs between two versions of an upstream, each time. A file that is gone
    is a conflict. The new trees wait for the store's next ``flush``.
    """
    sides: tuple[_Files, _Files, _Files] = ({}, {}, {})
    for path, was, now in changes(store, base, made):
        target = renamed.get(path, path)
        here = store.entry(on, target)
        for files, entry in zip(sides, (was, here, now), strict=True):
            if entry is not None:
                files[target] = (entry.mode, entry.oid)
    root, ours, theirs = (store.build_tree(files) for files in sides)
    merged = merge(store, root, ours, theirs, name)
    if isinstance(merged, Conflict):
        return replace(merged, tree=_whole(store, on, ours, merged.tree))
    return _whole(store, on, ours, merged)


def _whole(store: ObjectStore, on: str, before: str, after: str) -> str:
    edits: dict[bytes, tuple[bytes, str] | None] = {
        path: None if now is None else (now.mode, now.oid)
        for path, _, now in changes(store, before, after)
    }
    return store.edit_tree(on, edits)
