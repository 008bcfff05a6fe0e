"""Three-way merges of whole trees: a patch's change carried over to another tree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from patchwright.errors import PatchwrightError
from patchwright.store import DIRECTORY, EMPTY_TREE, ObjectStore, TreeEntry

_WHO = b"patchwright <patchwright@localhost> 0 +0000"


@dataclass(frozen=True)
class Conflict:
    """A merge that needs a person: ``tree`` has the usual markers in its files.

    ``stages`` maps each path in conflict to what git's index holds for it: stage
    (1 base, 2 ours, 3 theirs) to mode and blob. ``told`` are git's own words.
    """

    tree: str
    stages: Mapping[bytes, Mapping[int, tuple[bytes, str]]]
    told: tuple[str, ...]


def changes(
    store: ObjectStore, old: str, new: str, prefix: bytes = b""
) -> Iterator[tuple[bytes, TreeEntry | None, TreeEntry | None]]:
    """Yield each file that differs between two trees: path, old and new entry."""
    if old == new:
        return
    before = {entry.name: entry for entry in store.tree(old)}
    after = {entry.name: entry for entry in store.tree(new)}
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        path = prefix + name
        for side in (0, 1):
            entry = (was, now)[side]
            if entry is not None and entry.mode != DIRECTORY:
                other = (now, was)[side]
                if other is None or other.mode == DIRECTORY:
                    yield (path, entry, None) if side == 0 else (path, None, entry)
        if was is not None and now is not None and DIRECTORY not in (was.mode, now.mode):
            yield path, was, now
        folders = [e.oid if e is not None and e.mode == DIRECTORY else EMPTY_TREE
                   for e in (was, now)]  # fmt: skip
        yield from changes(store, folders[0], folders[1], path + b"/")


def merge(store: ObjectStore, base: str, ours: str, theirs: str, name: str) -> str | Conflict:
    """Return the tree that has the change from ``base`` to ``theirs`` made on ``ours``.

    ``name`` is what the markers of a conflict call ``theirs``. The new trees wait for
    the store's next ``flush``.
    """
    if base == ours:
        return theirs
    edits: dict[bytes, tuple[bytes, str] | None] = {}
    for path, was, now in changes(store, base, theirs):
        here = store.entry(ours, path)
        if _differs(here, was) or (here is None and _blocked(store, ours, path)):
            return _by_git(store, base, ours, theirs, name)
        edits[path] = None if now is None else (now.mode, now.oid)
    return store.edit_tree(ours, edits)


def _differs(here: TreeEntry | None, was: TreeEntry | None) -> bool:
    return (here and (here.mode, here.oid)) != (was and (was.mode, was.oid))


def _blocked(store: ObjectStore, tree: str, path: bytes) -> bool:
    """Return whether a file stands where ``path`` needs a folder."""
    end = path.rfind(b"/")
    while end > 0:
        entry = store.entry(tree, path[:end])
        if entry is not None:
            return entry.mode != DIRECTORY
        end = path.rfind(b"/", 0, end)
    return False


def _by_git(store: ObjectStore, base: str, ours: str, theirs: str, name: str) -> str | Conflict:
    root = _commit(store, base)
    sides = [_commit(store, tree, root) for tree in (ours, theirs)]
    store.flush()
    # Renames of whole folders are a guess that no patch asked for.
    done = store.write(
        "-c", "merge.directoryRenames=false", "-c", "merge.conflictStyle=merge",
        "merge-tree", "--write-tree", "-z", "--messages", *sides, ok=(0, 1),
    )  # fmt: skip
    tree, _, rest = done.stdout.partition(b"\0")
    merged = tree.decode()
    if done.returncode == 0:
        return merged
    stages: dict[bytes, dict[int, tuple[bytes, str]]] = {}
    informed, _, messages = rest.partition(b"\0\0") if not rest.startswith(b"\0") else (
        b"", b"", rest[1:])  # fmt: skip
    for line in informed.split(b"\0"):
        match = re.fullmatch(rb"(\d{6}) ([0-9a-f]{40}) ([123])\t(.*)", line, re.DOTALL)
        if match is None:
            raise PatchwrightError(f"git merge-tree said what is not understood: {line!r}")
        stages.setdefault(match[4], {})[int(match[3])] = (match[1], match[2].decode())
    words = [w.decode("utf-8", "replace").strip() for w in messages.split(b"\0")]
    told = tuple(w for w in words if w.startswith("CONFLICT"))
    return Conflict(_labelled(store, merged, stages, sides, name), stages, told)


def _commit(store: ObjectStore, tree: str, parent: str = "") -> str:
    above = f"parent {parent}\n" if parent else ""
    text = f"tree {tree}\n{above}".encode() + b"author %s\ncommitter %s\n\n.\n" % (_WHO, _WHO)
    return store.add("commit", text)


def _labelled(
    store: ObjectStore, tree: str, stages: Mapping[bytes, object], sides: list[str], name: str
) -> str:
    """Call the two sides of each conflict by names that a person knows."""
    labels = [(sides[0].encode(), b"the series before it"), (sides[1].encode(), name.encode())]
    edits: dict[bytes, tuple[bytes, str] | None] = {}
    for path in stages:
        entry = store.entry(tree, path)
        if entry is None or not entry.mode.startswith(b"100"):
            continue
        data = old = store.blob(entry.oid)
        for oid, label in labels:
            data = re.sub(rb"^([<>]{7}) " + oid + rb"(?=[:\r\n])", rb"\1 " + label, data,
                          flags=re.MULTILINE)  # fmt: skip
        if data != old:
            edits[path] = (entry.mode, store.add("blob", data))
    return store.edit_tree(tree, edits)
