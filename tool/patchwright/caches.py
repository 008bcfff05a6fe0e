"""What the user's cache holds, and removing what is not needed any more.

Nothing here is precious: whatever is removed is fetched, imported, applied or compiled
again on demand. Nothing is removed that a running process uses: slots, compiled objects
and mirrors have locks of their own, and whoever works with the object store holds it.
Only names that this tool gives are touched, so that a folder named by mistake as the
cache loses nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from patchwright.cache_places import (
    SHA256,
    by_key,
    contents,
    digests,
    extent,
    objects,
    rows,
    slots,
    toolkits,
    workspaces,
)
from patchwright.files import leftovers, lock_folder
from patchwright.smoke.leftovers import left_in
from patchwright.smoke.memory import left_in_memory

DAY = 86400.0  # seconds
_STORE = "objects.git"
_PRUNED = ".objects.git.pruned"
_APPLIED = "applied.sqlite"
_HASHES = "hashes"
_OTHERS = ("pristine", "archives", "git", _APPLIED, "slots", "objects", "startup",
           _HASHES, "toolkits", "tmp", "wheels", "built", "compiled")  # fmt: skip
# Each entry is a folder named by a digest.
_ENVIRONMENTS = {"patched wheels": "wheels", "built wheels": "built", "workspaces": "compiled"}
_MIRROR = re.compile(r"[0-9a-f]{32}\.git")
_PRISTINE = re.compile(r"[0-9a-f]{40}\.(json|lock)")
# What git leaves when it is killed while it writes (index-pack, fetch).
_GIT_LEFTOVERS = (
    "objects/pack/tmp_*", "objects/pack/.tmp-*", "objects/[0-9a-f][0-9a-f]/tmp_obj_*",
    "objects/tmp_objdir-*", "objects/incoming-*", "info/*.new",
)  # fmt: skip


@dataclass(frozen=True)
class Holding:
    """One kind of thing in the cache.

    ``size`` is in bytes; ``count`` says how many of them there are (packs, trees, files);
    ``used`` is the time of the last use, in seconds since 1970, 0 where there is none.
    """

    kind: str
    path: Path
    size: int
    count: int
    used: float


@dataclass(frozen=True)
class Removed:
    """What was removed (or would be): how many at ``path``, ``size`` bytes together."""

    kind: str
    path: Path
    count: int
    size: int


@dataclass(frozen=True)
class Kept:
    """What was to be removed and was not, and why."""

    kind: str
    path: Path
    why: str


@dataclass
class Pruned:
    """The outcome of ``prune``."""

    removed: list[Removed] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes that were freed."""
        return sum(each.size for each in self.removed)


def holdings(cache: Path) -> list[Holding]:
    """Return what is in the cache, kind by kind; kinds of which nothing is there are left out."""
    kinds: list[tuple[str, str, Callable[[Path], int]]] = [
        ("object store", _STORE, lambda p: len(list(p.glob("objects/pack/*.pack")))),
        ("pristine records", "pristine", lambda p: len(list(p.glob("*.json")))),
        ("archives", "archives", lambda p: len([f for f in p.glob("*/*") if f.is_file()])),
        ("git mirrors", "git", lambda p: len(list(p.glob("*.git")))),
        ("applied patches", _APPLIED, rows),
        ("work-tree slots", "slots", lambda p: len(slots(p))),
        ("compiled objects", "objects", lambda p: len(list(objects(p)))),
        ("startup workspaces", "startup", lambda p: len(workspaces(p))),
        ("checked files", _HASHES, lambda p: int(p.is_file())),
        ("toolkits", "toolkits", lambda p: len(toolkits(p))),
        *((kind, name, lambda p: len(digests(p))) for kind, name in _ENVIRONMENTS.items()),
        ("temporary files", "tmp", lambda p: len(list(p.iterdir()))),
    ]
    found = []
    for kind, name, count in kinds:
        path = cache / name
        size, used = extent(path)
        number = count(path) if path.exists() else 0
        if number:
            found.append(Holding(kind, path, size, number, used))
    return found


def prune(
    cache: Path, *, older_than: float, everything: bool = False, dry_run: bool = False
) -> Pruned:
    """Remove what was not used for ``older_than`` days and what killed runs left behind.

    Goes by age: compiled objects, work-tree slots and the JIT workspaces of starts.
    ``everything``: all that no running process uses, whatever its age. ``dry_run`` only
    says what would go.
    """
    pruner = _Pruner(cache, time.time() - older_than * DAY, everything, dry_run)
    # Where nothing is, not even a lock file must appear.
    if any((cache / name).exists() for name in (_STORE, _PRUNED, *_OTHERS)):
        pruner.run()
    return pruner.done


class _Pruner:
    def __init__(self, cache: Path, before: float, everything: bool, dry_run: bool) -> None:
        self.cache = cache
        self.before = before
        self.everything = everything
        self.dry_run = dry_run
        self.done = Pruned()

    def run(self) -> None:
        self._slots()
        self._objects()
        self._startup()
        self._environments()
        with self._alone() as why:
            if why:
                what = "object store" if self.everything else "leftovers of killed runs"
                self.done.kept.append(Kept(what, self.cache / _STORE, why))
                return
            self._leftovers()
            if self.everything:
                self._toolkits()
                self._mirrors()
                self._applied()
                self._imports()

    # One by one

    def _slots(self) -> None:
        for slot in slots(self.cache / "slots"):
            used = extent(slot)[1]
            # The worker of a killed command holds the folder until it has left.
            with self._lock("work-tree slots", slot, slot / "lock", slot) as got:
                if not got:
                    continue
                if self._stale(used):
                    there = list(dict.fromkeys((*left_in_memory(slot), *contents(slot))))
                    self._remove("work-tree slots", slot, there, count=1)
                else:
                    # Nobody runs in it: what a run would have removed was left by a killed one.
                    self._remove("leftovers of killed runs", slot, list(left_in(slot)))

    def _objects(self) -> None:
        folder = self.cache / "objects"
        count = size = 0
        for key, paths in by_key(folder).items():
            entry = folder / key[:2] / key
            lock = entry.with_suffix(".lock")
            try:
                stale = self._stale(entry.stat().st_mtime)
            except OSError:
                stale = True  # nothing but the lock of a killed compilation
            if not stale:
                continue
            with self._lock("compiled objects", entry, lock) as got:
                if got:
                    count += entry in paths
                    size += self._delete("compiled objects", paths)
        if count:
            self.done.removed.append(Removed("compiled objects", folder, count, size))
        for part in sorted(folder.glob("[0-9a-f][0-9a-f]")):
            for left in leftovers(part):
                self._remove("leftovers of killed runs", part, [left])

    def _startup(self) -> None:
        folder = self.cache / "startup"
        # No lock: a start that finds one gone while it copies it does without.
        for path in workspaces(folder):
            if self._stale(path.stat().st_mtime):
                self._remove("startup workspaces", path, [path], count=1)

    def _environments(self) -> None:
        """Remove wheels that no rebuild needs now, and workspaces that no `run` is in."""
        for kind, name in _ENVIRONMENTS.items():
            folder = self.cache / name
            for path in digests(folder):
                if not self._stale(extent(path)[1]):
                    continue
                holder = path if name == "compiled" else folder
                with _locked(None, holder) as why:
                    if why:
                        self.done.kept.append(Kept(kind, path, why))
                    else:
                        self._remove(kind, path, [path], count=1)

    # With the store to ourselves

    @contextlib.contextmanager
    def _alone(self) -> Iterator[str]:
        """Keep others out of the store; yield why that cannot be, or an empty text."""
        store = self.cache / _STORE
        # Who makes a store holds the lock, who uses it its folder, and a git that outlives
        # the one who started it the folder of packs.
        folders = (store, store / "objects" / "pack")
        with _locked(self.cache / f"{_STORE}.lock", *folders) as why:
            yield why

    def _leftovers(self) -> None:
        store = self.cache / _STORE
        left = [path for name in _GIT_LEFTOVERS for path in store.glob(name)]
        left += [p for p in self.cache.glob("archives/*/*.part") if SHA256.fullmatch(p.parent.name)]
        left += [*leftovers(self.cache / "pristine"), *self.cache.glob(_PRUNED)]
        left += self.cache.glob(f"{_STORE}.new")
        self._remove("leftovers of killed runs", self.cache, left)
        for folder in sorted(p for name in ("tmp", "startup")
                             for p in self.cache.glob(f"{name}/patchwright-*")):  # fmt: skip
            with _locked(None, folder) as why:
                if not why:
                    self._remove("leftovers of killed runs", folder, [folder])

    def _toolkits(self) -> None:
        folder = self.cache / "toolkits"
        if paths := toolkits(folder):
            with _locked(None, folder) as why:
                if why:
                    self.done.kept.append(Kept("toolkits", folder, why))
                else:
                    self._remove("toolkits", folder, paths)

    def _mirrors(self) -> None:
        for mirror in sorted((self.cache / "git").glob("*.git")):
            if _MIRROR.fullmatch(mirror.name):
                lock = mirror.with_suffix(".lock")
                with self._lock("git mirrors", mirror, lock, mirror) as got:
                    if got:
                        self._remove("git mirrors", mirror, [mirror], count=1)

    def _applied(self) -> None:
        path = self.cache / _APPLIED
        count = rows(path)
        if not count:
            return
        size = path.stat().st_size
        # Emptied, not removed: another process may have it open, and a database that is
        # replaced under a journal is damaged.
        if not self.dry_run:
            try:
                with contextlib.closing(sqlite3.connect(path, timeout=0.0)) as connection:
                    with connection:
                        connection.execute("DELETE FROM applied")
                    connection.execute("VACUUM")
            except sqlite3.Error as error:
                self.done.kept.append(Kept("applied patches", path, str(error)))
                return
            size -= path.stat().st_size
        self.done.removed.append(Removed("applied patches", path, count, size))

    def _imports(self) -> None:
        pristine, archives = self.cache / "pristine", self.cache / "archives"
        records = [p for p in sorted(pristine.glob("*")) if _PRISTINE.fullmatch(p.name)]
        self._remove("pristine records", pristine, records)
        checked = self.cache / _HASHES
        self._remove("checked files", checked, [checked] if checked.is_file() else [])
        kept = [p for p in sorted(archives.glob("*")) if SHA256.fullmatch(p.name)]
        self._remove("archives", archives, kept)
        store = self.cache / _STORE
        if not (store / "HEAD").is_file():
            return
        count, size = len(list(store.glob("objects/pack/*.pack"))), extent(store)[0]
        if not self.dry_run:
            # Away at once: nobody meets half a store.
            aside = self.cache / _PRUNED
            try:
                store.rename(aside)
            except OSError as error:
                self.done.kept.append(Kept("object store", store, error.strerror or str(error)))
                return
            size = self._delete("object store", [aside])
        self.done.removed.append(Removed("object store", store, count, size))

    # Means

    def _stale(self, used: float) -> bool:
        return self.everything or used < self.before

    @contextlib.contextmanager
    def _lock(self, kind: str, path: Path, lock: Path, *folders: Path) -> Iterator[bool]:
        with _locked(lock, *folders) as why:
            if why:
                self.done.kept.append(Kept(kind, path, why))
            yield not why

    def _remove(self, kind: str, where: Path, paths: list[Path], count: int = 0) -> None:
        if not paths:
            return
        size = self._delete(kind, paths)
        self.done.removed.append(Removed(kind, where, count or len(paths), size))

    def _delete(self, kind: str, paths: list[Path]) -> int:
        """Delete files and folders and return how many bytes that freed."""
        freed = 0
        for path in paths:
            size = extent(path)[0]
            try:
                if self.dry_run:
                    pass
                elif path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            except OSError as error:
                why = f"{error.filename}: {error.strerror}"
                self.done.kept.append(Kept(kind, path, why))
                size -= extent(path)[0]
            freed += size
        return freed


@contextlib.contextmanager
def _locked(file: Path | None, *folders: Path) -> Iterator[str]:
    """Take locks as the rest of the tool does, without waiting.

    ``file`` is a lock file; of ``folders`` those that are there are locked themselves.
    Yields why that cannot be, or an empty text.
    """
    from filelock import FileLock, Timeout

    with contextlib.ExitStack() as stack:
        why = ""
        try:
            if file is not None:
                lock = FileLock(file)
                lock.acquire(timeout=0)
                stack.callback(lock.release)
            for folder in folders:
                with contextlib.suppress(FileNotFoundError):
                    stack.callback(os.close, lock_folder(folder, wait=False))
        except (Timeout, BlockingIOError):
            why = "in use by a running process"
        except OSError as error:
            why = f"it cannot be locked: {error.strerror}"
        yield why
