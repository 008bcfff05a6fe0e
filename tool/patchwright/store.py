"""The content-addressed object store: a bare git repository in the user's cache.

Reading goes through GitPython's own object database, in process: no ``cat-file``
children. Writing makes one pack at a time and hands it to ``git index-pack``, which
checks it, fsyncs it and moves it into place at once: a killed writer leaves no
half-written object. Paths and contents are bytes from end to end.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from patchwright.errors import PatchwrightError
from patchwright.files import hold_folder, lock_folder
from patchwright.git import Completed, Git, make_bare
from patchwright.packs import missing

FILE, EXECUTABLE = b"100644", b"100755"
SYMLINK, SUBMODULE, DIRECTORY = b"120000", b"160000", b"40000"
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_PACK_TYPES = {"commit": 1, "tree": 2, "blob": 3}
# Trees are mostly hashes: compressing them costs more than it saves.
_LEVELS = {"commit": 1, "tree": 0, "blob": 1}

# What a git that is killed while it writes leaves below the git directory.
_LEFTOVERS = ("objects/pack/tmp_*", "objects/pack/.tmp-*", "objects/??/tmp_obj_*")


class TreeEntry(NamedTuple):
    """One line of a git tree: ``mode`` as git stores it (``100644``, ``40000``, …)."""

    mode: bytes
    name: bytes
    oid: str


def object_id(kind: str, data: bytes) -> str:
    """Return git's id of an object."""
    return hashlib.sha1(
        b"%s %d\0" % (kind.encode(), len(data)) + data, usedforsecurity=False
    ).hexdigest()


def encode_tree(entries: Iterable[TreeEntry]) -> bytes:
    """Return a tree object's bytes; entries may come in any order."""
    return _encoded(sorted(entries, key=_order))


def _order(entry: TreeEntry) -> bytes:
    return entry.name + b"/" if entry.mode == DIRECTORY else entry.name


def _encoded(ordered: Iterable[TreeEntry]) -> bytes:
    return b"".join(
        [b"%s %s\0%s" % (mode, name, bytes.fromhex(oid)) for mode, name, oid in ordered]
    )


def decode_tree(data: bytes) -> tuple[TreeEntry, ...]:
    """Return the entries of a tree object."""
    entries = []
    at = 0
    while at < len(data):
        space = data.index(b" ", at)
        end = data.index(b"\0", space)
        oid = data[end + 1 : end + 21].hex()
        entries.append(TreeEntry(data[at:space], data[space + 1 : end], oid))
        at = end + 21
    return tuple(entries)


class ObjectStore:
    """Blobs and trees, and the id of every tree made from them."""

    def __init__(self, path: Path) -> None:
        """Open the store at ``path`` (a bare repository), making it if it is missing."""
        self.path = path = path.absolute()
        self.git = Git(path)
        self._pending: dict[str, tuple[str, bytes]] = {}
        self._trees: dict[str, tuple[TreeEntry, ...]] = {}
        try:
            self._create()
            # As long as this object lives nobody prunes it; it may just have been pruned.
            while not hold_folder(path, self):
                self._create()
            self._sweep()
            with contextlib.suppress(OSError):
                os.utime(path)  # when it was last used, for `cache list`
        except OSError as error:
            raise _unwritable(error, path) from error
        # GitPython's object database; the package around it would start a git to import.
        from gitdb.db import GitDB

        self._odb = GitDB(str(path / "objects"))

    def _create(self) -> None:
        if (self.path / "HEAD").is_file():
            return
        from filelock import FileLock

        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Two processes may make the store at once: the second finds it made.
        with FileLock(f"{self.path}.lock"):
            if not (self.path / "HEAD").is_file():
                make_bare(self.path)

    def _sweep(self) -> None:
        """Remove what killed writers left, unless somebody is writing now."""
        left = [path for name in _LEFTOVERS for path in self.path.glob(name)]
        packs = self.path / "objects" / "pack"
        # git moves the index into place last: a pack without one was never in use.
        left += [p for p in packs.glob("pack-*") if not p.with_suffix(".idx").exists()]
        if not left:
            return
        with contextlib.suppress(OSError):
            lock = lock_folder(packs, wait=False)
            try:
                for path in left:
                    if path.name.startswith(("tmp_", ".")) or not path.with_suffix(".idx").exists():
                        path.unlink(missing_ok=True)
            finally:
                os.close(lock)

    # Reading

    def has(self, oid: str) -> bool:
        """Return whether the object is here (or waits to be written)."""
        return oid in self._pending or oid == EMPTY_TREE or self._in_database(oid)

    def _in_database(self, oid: str) -> bool:
        binary = bytes.fromhex(oid)
        if self._odb.has_object(binary):
            return True
        self._odb.update_cache(force=True)
        return bool(self._odb.has_object(binary))

    def read(self, oid: str) -> tuple[str, bytes]:
        """Return an object's kind and bytes; PatchwrightError where it is missing."""
        if oid in self._pending:
            return self._pending[oid]
        if oid == EMPTY_TREE:
            return "tree", b""
        if not self._in_database(oid):
            raise PatchwrightError(
                f"object {oid} is missing", where=str(self.path),
                next_step="delete that folder; the next run imports the pins again",
            )  # fmt: skip
        stream = self._odb.stream(bytes.fromhex(oid))
        kind = stream.type
        return kind.decode() if isinstance(kind, bytes) else str(kind), stream.read()

    def blob(self, oid: str) -> bytes:
        """Return a blob's bytes."""
        return self.read(oid)[1]

    def tree(self, oid: str) -> tuple[TreeEntry, ...]:
        """Return a tree's entries."""
        if oid not in self._trees:
            self._trees[oid] = decode_tree(self.read(oid)[1])
        return self._trees[oid]

    def entry(self, tree: str, path: bytes) -> TreeEntry | None:
        """Return what stands at ``path`` in ``tree``, or None."""
        found: TreeEntry | None = None
        for part in path.split(b"/"):
            if found is not None:
                if found.mode != DIRECTORY:
                    return None
                tree = found.oid
            found = next((e for e in self.tree(tree) if e.name == part), None)
            if found is None:
                return None
        return found

    def files(self, tree: str, prefix: bytes = b"") -> Iterator[tuple[bytes, TreeEntry]]:
        """Yield every path below ``tree`` that is not a directory, with its entry."""
        for entry in self.tree(tree):
            path = prefix + entry.name
            if entry.mode == DIRECTORY:
                yield from self.files(entry.oid, path + b"/")
            else:
                yield path, entry

    # Writing

    def add(self, kind: str, data: bytes) -> str:
        """Keep an object until the next ``flush`` and return its id."""
        oid = object_id(kind, data)
        self._pending.setdefault(oid, (kind, data))
        return oid

    def add_tree(self, entries: Iterable[TreeEntry]) -> str:
        """Keep a tree until the next ``flush`` and return its id."""
        ordered = tuple(sorted(entries, key=_order))
        oid = self.add("tree", _encoded(ordered))
        self._trees[oid] = ordered  # the next change is likely to start from it
        return oid

    def build_tree(self, files: Mapping[bytes, tuple[bytes, str]]) -> str:
        """Return the id of the tree that holds exactly ``files`` (path to mode and id)."""
        return self.edit_tree(EMPTY_TREE, files)

    def edit_tree(self, tree: str, changes: Mapping[bytes, tuple[bytes, str] | None]) -> str:
        """Return the tree that differs from ``tree`` by ``changes`` (None removes a path).

        A directory left empty goes away, as in git. A file put where a directory
        stood replaces it, and the other way round.
        """
        entries = {e.name: e for e in self.tree(tree)}
        below: dict[bytes, dict[bytes, tuple[bytes, str] | None]] = {}
        # Removals first: a file may give way to a directory of the same name.
        for path, change in sorted(changes.items(), key=lambda item: item[1] is not None):
            first, _, rest = path.partition(b"/")
            if rest:
                below.setdefault(first, {})[rest] = change
            elif change is None:
                if first in entries and entries[first].mode != DIRECTORY:
                    del entries[first]
            else:
                entries[first] = TreeEntry(change[0], first, change[1])
        for name, inner in below.items():
            old = entries.get(name)
            base = old.oid if old is not None and old.mode == DIRECTORY else EMPTY_TREE
            if old is not None and old.mode != DIRECTORY and all(c is None for c in inner.values()):
                continue
            oid = self.edit_tree(base, inner)
            if oid == EMPTY_TREE:
                # All that stood here went; a file that replaced the directory stays.
                if old is None or old.mode == DIRECTORY:
                    entries.pop(name, None)
            else:
                entries[name] = TreeEntry(DIRECTORY, name, oid)
        return self.add_tree(entries.values())

    def flush(self, root: str | None = None) -> None:
        """Write what ``add`` kept, as one pack; nothing of it is visible before.

        ``root`` is the one tree that the caller needs: a tree comes here with what is below it,
        so where it is here nothing has to be written yet.
        """
        if root is not None and self._in_database(root):
            return
        lost = missing(self.path, self._pending)
        new = {oid: held for oid, held in self._pending.items() if oid in lost}
        if new:
            self.write("index-pack", "--stdin", data=_pack(new.values()))
        self._pending.clear()

    def write(self, *args: str, holds: Collection[int] = (), **how: Any) -> Completed:
        """Run a git command that writes objects; arguments as for ``Git.run``.

        Nobody sweeps while it runs. Raises PatchwrightError.
        """
        try:
            lock = lock_folder(self.path / "objects" / "pack", shared=True)
        except OSError as error:
            raise _unwritable(error, self.path) from error
        try:
            return self.git.run(*args, holds=(lock, *holds), **how)
        finally:
            os.close(lock)
            self._sweep()  # git leaves its temporary file where the disk is full
            self._odb.update_cache(force=True)


def _unwritable(error: OSError, path: Path) -> PatchwrightError:
    return PatchwrightError(
        f"the cache cannot be written: {error.strerror}", where=str(error.filename or path),
        next_step="make room, make the folder writable, or set PATCHWRIGHT_CACHE to another one",
    )  # fmt: skip


def _pack(objects: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a pack (version 2, no deltas) of the objects."""
    body = []
    for kind, data in objects:
        size, first = len(data), _PACK_TYPES[kind] << 4
        header = bytearray([first | (size & 15)])
        size >>= 4
        while size:
            header[-1] |= 0x80
            header.append(size & 0x7F)
            size >>= 7
        body += [bytes(header), zlib.compress(data, _LEVELS[kind])]
    pack = b"PACK" + struct.pack(">II", 2, len(body) // 2) + b"".join(body)
    return pack + hashlib.sha1(pack, usedforsecurity=False).digest()
