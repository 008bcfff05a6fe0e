"""Site trees: all upstreams of one state side by side in installed layout."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from patchwright.applying.cache import key
from patchwright.errors import PatchwrightError
from patchwright.store import DIRECTORY, EMPTY_TREE, ObjectStore, TreeEntry

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.project import Project

# Part of the key of what is known: raise it when a state gives other site trees.
_FORMAT = 1


def known_site_trees(project: Project, state: State) -> dict[str, str]:
    """Return the ids of ``site_trees``, from what is known of earlier runs where it can be.

    A repeat that finds everything on record needs no more than these ids: it does not
    open the object store. The trees themselves may be gone from it.
    """
    pins = [replace(project.locked_upstream(name), tree="", outside="") for name, _ in state.trees]
    digest = hashlib.sha256(repr((_FORMAT, pins, state.trees)).encode()).hexdigest()
    row = key("site", digest, "")
    if (text := project.applied.get(row)) is not None:
        found: dict[str, str] = json.loads(text)
        return found
    found = site_trees(project, state)
    with contextlib.suppress(PatchwrightError):  # a cache that can only be read
        project.applied.put({row: json.dumps(found)})
    return found


def site_trees(project: Project, state: State) -> dict[str, str]:
    """Return for each upstream its tree in installed layout, files outside included."""
    from patchwright.upstreams.layout import installed_tree

    trees = {}
    for name, tree in state.trees:
        layout = project.config.upstreams[name].layout
        trees[name] = installed_tree(project.store, layout, tree, project.pristine(name).outside)
    return trees


def site_tree(project: Project, state: State) -> str:
    """Return the one tree that holds all upstreams of a state, written to the store.

    Raises PatchwrightError when two upstreams have different files at one path.
    """
    known = project.site_trees
    if state not in known:
        known[state] = _site_tree(project, state)
    return known[state]


def _site_tree(project: Project, state: State) -> str:
    union = EMPTY_TREE
    for name, tree in site_trees(project, state).items():
        union = _union(project.store, union, tree, b"", name)
    project.store.flush(union)
    return union


def _union(store: ObjectStore, left: str, right: str, prefix: bytes, upstream: str) -> str:
    if left == EMPTY_TREE:
        return right
    entries = {entry.name: entry for entry in store.tree(left)}
    for entry in store.tree(right):
        there = entries.get(entry.name)
        path = prefix + entry.name
        if there is None or there == entry:
            entries[entry.name] = entry
        elif there.mode == entry.mode == DIRECTORY:
            oid = _union(store, there.oid, entry.oid, path + b"/", upstream)
            entries[entry.name] = TreeEntry(DIRECTORY, entry.name, oid)
        else:
            raise PatchwrightError(
                f"{path.decode('utf-8', 'replace')} comes from {upstream} and, with other "
                "content, from another upstream",
                where="pyproject.toml", next_step="let only one upstream's layout install it",
            )  # fmt: skip
    return store.add_tree(entries.values())
