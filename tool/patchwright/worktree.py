"""A work-tree slot: a folder that is moved from tree to tree and can prove what it holds.

with free_slot(folder, store) as slot:
    slot.move(tree)              # writes and removes only what differs
    slot.check()                 # () where the folder is exactly that tree
    slot.folder                  # the files
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from patchwright.materialise import made_folder, open_folder, remove, update, write_file, write_tree
from patchwright.store import EMPTY_TREE, EXECUTABLE, SYMLINK, ObjectStore, TreeEntry, object_id

__all__ = ["Difference", "Slot", "SlotBusy", "free_slot", "write_tree"]

_FORMAT = 1
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# A file changed again within one tick of the kernel's clock keeps its times. Times
# younger than this when they were taken prove nothing (git's "racy" index entries).
_RACY = 50_000_000  # nanoseconds
_MANY = 100  # files: to read and hash so many takes as long as to wait until they are old


class SlotBusy(Exception):
    """Another worker holds the slot."""


class Difference(NamedTuple):
    """One way in which the folder is not the tree. ``path`` ends in / for a folder."""

    path: bytes
    what: Literal["missing", "extra", "changed"]


class _Seen(NamedTuple):
    """A file as it was written: its entry in the tree and what its status said."""

    mode: bytes
    oid: str
    status: tuple[int, ...]


def _status(found: os.stat_result) -> tuple[int, ...]:
    """Return what changes when a file does; the change time cannot be set back."""
    return (found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)


def _proof(found: os.stat_result) -> tuple[int, ...]:
    """Return the status to record: none (so that it equals no other) where it is too young."""
    return _status(found) if time.time_ns() - found.st_ctime_ns > _RACY else ()


def _settle(fresh: list[tuple[Slot, bytes]]) -> None:
    """Have the statuses of files just written be proofs, or none where they are too young."""
    if len(fresh) > _MANY:
        time.sleep(_RACY / 1e9)  # cheaper than to read them all again
        return
    for slot, path in fresh:
        seen = slot._files.get(path)
        if seen is not None and seen.status and time.time_ns() - seen.status[0] <= _RACY:
            slot._files[path] = seen._replace(status=())


class Slot:
    """A folder that holds one tree at a time, locked for one worker.

    ``path`` is the slot's own folder; the files are in ``path/tree``. Its record says
    which tree that is and how each file looked when it was written. It is removed
    before the first move and written when the slot is let go: a slot without one (new, or
    of a command that was killed) is built anew.
    """

    def __init__(self, path: Path, store: ObjectStore) -> None:
        """Lock the slot and read its record; raises SlotBusy."""
        from filelock import FileLock, Timeout

        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.folder = path / "tree"
        self.store = store
        self._lock = FileLock(path / "lock")
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise SlotBusy(str(path)) from None
        self._record = path / "record"
        self.tree = EMPTY_TREE
        self._files: dict[bytes, _Seen] = {}
        self._known_folders: set[bytes] | None = None  # those of the files, worked out once
        self._is_whole = self._read_record()  # false from a move's start to its end
        self._is_recorded = self._is_whole
        if not self._is_whole:
            self._begin()
            self._clear()

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the slot; what it holds stays for the next worker."""
        try:
            # A full disk costs the next worker time, nobody anything else.
            with suppress(OSError):
                if self._is_whole and not self._is_recorded:
                    self._write_record()
        finally:
            self._lock.release()

    def move(self, tree: str, twin: Slot | None = None) -> None:
        """Make the folder hold ``tree``: only what differs is written or removed.

        What a stranger did to other files stays; ``check`` finds it. Files that ``twin``,
        another slot of this process, has already are shared with it as hard links: who
        writes into one changes both, and ``check`` finds it in both.
        """
        if not self._is_whole:
            self._clear()  # new, or a move before this one failed half-way
        elif tree == self.tree:
            return
        self._begin()
        fresh: list[tuple[Slot, bytes]] = []

        def moved(path: bytes, entry: TreeEntry | None, found: os.stat_result | None) -> None:
            self._observe(path, entry, found, _status)
            fresh.append((self, path))

        def shared(
            path: bytes, entry: TreeEntry, name: bytes, within: int
        ) -> os.stat_result | None:
            found = twin._share(path, entry, name, within) if twin is not None else None
            if found is not None and twin is not None:
                fresh.append((twin, path))
            return found

        try:
            update(self.store, self.tree, tree, self.folder, moved,
                   shared if twin is not None and twin._is_whole else None)  # fmt: skip
        finally:
            _settle(fresh)
        self.tree = tree
        self._is_whole = True

    def _share(
        self, path: bytes, entry: TreeEntry, name: bytes, within: int
    ) -> os.stat_result | None:
        """Link this slot's file to ``name`` and return its status, None where that is not it."""
        seen = self._files.get(path)
        if seen is None or (seen.mode, seen.oid) != (entry.mode, entry.oid) or not seen.status \
                or seen.mode == SYMLINK:  # fmt: skip
            return None
        place = os.path.join(os.fsencode(self.folder), path)  # noqa: PTH118 - bytes
        try:
            if _status(os.stat(place, follow_symlinks=False)) != seen.status:  # noqa: PTH116
                return None
            remove(name, within)
            os.link(place, name, dst_dir_fd=within, follow_symlinks=False)
            found = os.stat(name, dir_fd=within, follow_symlinks=False)
        except OSError:
            return None  # a file system without links, or a stranger at work: it is written
        if _status(found)[1:] != seen.status[1:]:
            return None  # all but the change time, which a link sets
        self._files[path] = seen._replace(status=_status(found))
        self._is_recorded = False
        return found

    def listing(self) -> dict[bytes, tuple[bytes, str]]:
        """Return the tree's files: path to (mode, blob id)."""
        return {path: (seen.mode, seen.oid) for path, seen in self._files.items()}

    def check(self) -> tuple[Difference, ...]:
        """Return every difference between the folder and the tree: () proves it equal.

        A file whose status is as recorded is taken as unchanged; any other is hashed.
        """
        found: list[Difference] = []
        met: set[bytes] = set()
        files = self._files
        for path, entry in self._walk():
            seen = files.get(path)
            if seen is None:
                found.append(Difference(path, "extra"))
                continue
            met.add(path)
            now = entry.stat(follow_symlinks=False)
            if _status(now) == seen.status:
                continue
            if self._holds(entry.path, now, seen):
                files[path] = seen._replace(status=_proof(now))
                self._is_recorded = False
            else:
                found.append(Difference(path, "changed"))
        if len(met) != len(files):
            found += [Difference(path, "missing") for path in files.keys() - met]
        return tuple(sorted(found))

    def repair(self) -> tuple[Difference, ...]:
        """Restore what ``check`` finds and return what it was."""
        found = self.check()
        if not self._is_there():
            self._begin()
            self.move(self.tree)
        elif found:
            self._begin()
            # What does not belong goes first: it may stand where a folder is needed.
            for path, what in sorted(found, key=lambda d: d.what != "extra"):
                self._restore(path.rstrip(b"/"), what)
            self._is_whole = True
        return found

    # The files

    def _observe(
        self, path: bytes, entry: TreeEntry | None, found: os.stat_result | None,
        status: Callable[[os.stat_result], tuple[int, ...]] = _proof,
    ) -> None:  # fmt: skip
        if entry is None or found is None:
            self._files.pop(path, None)
            self._known_folders = None
        else:
            if path not in self._files:
                self._known_folders = None
            self._files[path] = _Seen(entry.mode, entry.oid, status(found))

    def _folders(self) -> set[bytes]:
        if self._known_folders is None:
            self._known_folders = set()
            for path in self._files:
                end = path.rfind(b"/")
                while end > 0 and path[:end] not in self._known_folders:
                    self._known_folders.add(path[:end])
                    end = path.rfind(b"/", 0, end)
        return self._known_folders

    def _walk(self) -> Iterator[tuple[bytes, os.DirEntry[bytes]]]:
        """Yield everything in the folder that is not a folder of its files."""
        if not self._is_there():
            return
        folders = self._folders()
        todo = [(os.fsencode(self.folder), b"")]
        while todo:
            place, prefix = todo.pop()
            with os.scandir(place) as entries:
                for entry in entries:
                    path = prefix + entry.name
                    if not entry.is_dir(follow_symlinks=False):
                        yield path, entry
                    elif path in folders:
                        todo.append((entry.path, path + b"/"))
                    else:
                        yield path + b"/", entry

    def _is_there(self) -> bool:
        return self.folder.is_dir() and not self.folder.is_symlink()

    def _holds(self, place: bytes, now: os.stat_result, seen: _Seen) -> bool:
        if seen.mode == SYMLINK:
            return stat.S_ISLNK(now.st_mode) and _link(place) == seen.oid
        if not stat.S_ISREG(now.st_mode):
            return False
        if bool(now.st_mode & stat.S_IXUSR) != (seen.mode == EXECUTABLE):
            return False
        try:
            handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        with os.fdopen(handle, "rb") as stream:
            return object_id("blob", stream.read()) == seen.oid

    def _restore(self, path: bytes, what: str) -> None:
        *parents, name = path.split(b"/")
        with open_folder(self.folder) as root:
            self._restore_in(root, parents, name, path if what != "extra" else None)

    def _restore_in(
        self, handle: int, parents: list[bytes], name: bytes, path: bytes | None
    ) -> None:
        """Go down without following links; write the file, or (None) remove what is there."""
        if parents:
            with made_folder(parents[0], handle) as below:
                self._restore_in(below, parents[1:], name, path)
            return
        if path is None:
            remove(name, handle)
            return
        seen = self._files[path]
        entry = TreeEntry(seen.mode, name, seen.oid)
        self._observe(path, entry, write_file(name, entry, self.store.blob(seen.oid), handle))

    def _begin(self) -> None:
        """Have the folder be nobody's until it is whole again, a kill included."""
        self._is_whole = self._is_recorded = False
        self._record.unlink(missing_ok=True)

    def _clear(self) -> None:
        self.tree = EMPTY_TREE
        self._files = {}
        self._known_folders = None
        with open_folder(self.path) as within:
            remove(b"tree", within)
        self.folder.mkdir()

    # The record

    def _read_record(self) -> bool:
        """Take the recorded state; False where there is none that can be trusted."""
        try:
            record = json.loads(self._record.read_bytes())
            if record["format"] != _FORMAT or record["boot"] != _boot():
                return False
            self._files = {
                path.encode("latin-1"): _Seen(mode.encode(), oid, tuple(status))
                for path, mode, oid, status in record["files"]
            }
            self.tree = record["tree"]
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return self._is_there() and self.store.has(self.tree)

    def _write_record(self) -> None:
        # No fsync: after a crash of the machine the boot id differs, and the slot is
        # built anew.
        rows = [(p.decode("latin-1"), s.mode.decode(), s.oid, s.status) for p, s in
                self._files.items()]  # fmt: skip
        record = {"format": _FORMAT, "boot": _boot(), "tree": self.tree, "files": rows}
        temporary = self._record.with_suffix(".new")
        temporary.write_text(json.dumps(record), encoding="ascii")
        temporary.replace(self._record)


def _link(place: bytes) -> str:
    """Return the blob id of a symlink."""
    return object_id("blob", os.readlink(place))  # noqa: PTH115 - the target is bytes


def _boot() -> str:
    with suppress(OSError):
        return _BOOT_ID.read_text(encoding="ascii").strip()
    return ""


@contextmanager
def free_slot(parent: Path, store: ObjectStore) -> Iterator[Slot]:
    """Lock the first slot below ``parent`` that no other worker holds; make one if need be."""
    number = 0
    while True:
        try:
            slot = Slot(parent / str(number), store)
        except SlotBusy:
            number += 1
            continue
        with slot:
            yield slot
        return
