"""Files of a tree written into a folder, without git's checkout.

Bytes come from the store as they are: no attribute, filter or line ending of a
repository decides anything. Nothing is written through a link: every folder is opened
relative to its parent without following symlinks, and a file is unlinked and made anew,
so that a hard link shared with another folder keeps its content.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from patchwright.errors import InputError, PatchwrightError
from patchwright.store import (
    DIRECTORY,
    EMPTY_TREE,
    EXECUTABLE,
    SUBMODULE,
    SYMLINK,
    ObjectStore,
    TreeEntry,
)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

# Told of every path that went (None) or was written, with its entry and its status.
Observer = Callable[[bytes, TreeEntry | None, os.stat_result | None], None]
# Makes a file (path, entry, name within an open folder) of what is on the disk already, as a
# hard link, and returns its status; None where it cannot.
Sharer = Callable[[bytes, TreeEntry, bytes, int], os.stat_result | None]


def write_tree(store: ObjectStore, tree: str, directory: Path) -> None:
    """Write the files of ``tree`` into ``directory``, which must be empty or missing.

    Raises InputError where it holds anything, OSError where it cannot be written.
    """
    check_free(directory)
    directory.mkdir(parents=True, exist_ok=True)
    update(store, EMPTY_TREE, tree, directory)


def write_tree_at_once(store: ObjectStore, tree: str, directory: Path) -> None:
    """Write ``tree`` as the new or empty folder ``directory``: all of it or nothing.

    It is written beside its place and renamed into it; what a killed run left there is
    removed. Raises InputError where the place is taken, PatchwrightError where it
    cannot be written.
    """
    check_free(directory)
    directory = directory.resolve()
    prefix = f".{directory.name}.patchwright-"
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_overs(directory.parent, prefix)
        temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=directory.parent))
        with open_folder(temporary) as handle:
            # Held while this process lives: another one must not clean it up.
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                write_tree(store, tree, temporary)
                temporary.chmod(0o777 & ~_umask())
                temporary.rename(directory)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            check_free(directory)
        raise PatchwrightError(
            f"the tree cannot be written: {error.strerror}",
            where=str(error.filename or directory), next_step="name a folder that can be written",
        ) from error  # fmt: skip


def check_free(directory: Path) -> None:
    """Raise InputError unless ``directory`` is missing or an empty folder."""
    if directory.is_dir():
        what = "the folder is not empty" if any(directory.iterdir()) else ""
    else:
        what = "this is not a folder" if os.path.lexists(directory) else ""
    if what:
        raise InputError(what, where=str(directory), next_step="name a new or an empty folder")


def _remove_left_overs(parent: Path, prefix: str) -> None:
    for path in parent.glob(f"{glob.escape(prefix)}*"):
        with contextlib.suppress(OSError), open_folder(path) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def update(
    store: ObjectStore, old: str, new: str, directory: Path, observer: Observer | None = None,
    sharer: Sharer | None = None,
) -> None:  # fmt: skip
    """Turn a folder that holds ``old`` into ``new``, touching only what differs."""
    told = observer or (lambda path, entry, status: None)
    with open_folder(directory) as handle:
        _Update(store, told, sharer).folder(handle, b"", old, new)


@contextmanager
def open_folder(path: Path | bytes, *, within: int | None = None) -> Iterator[int]:
    """Open a folder for use as ``dir_fd``; OSError where it is a link or no folder."""
    handle = os.open(path, _FOLDER, dir_fd=within)
    try:
        yield handle
    finally:
        os.close(handle)


def remove(name: bytes, within: int) -> None:
    """Remove a file, a link (not what it points to) or a whole folder; or nothing."""
    try:
        mode = os.stat(name, dir_fd=within, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        shutil.rmtree(name, dir_fd=within)
    else:
        os.unlink(name, dir_fd=within)


def write_file(name: bytes, entry: TreeEntry, data: bytes, within: int) -> os.stat_result:
    """Make a file or symlink anew and return its status, taken before it is closed."""
    try:
        os.unlink(name, dir_fd=within)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):
        remove(name, within)
    if entry.mode == SYMLINK:
        os.symlink(data, name, dir_fd=within)
        return os.stat(name, dir_fd=within, follow_symlinks=False)
    handle = os.open(name, _NEW_FILE, 0o777 if entry.mode == EXECUTABLE else 0o666, dir_fd=within)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        return os.fstat(handle)
    finally:
        os.close(handle)


@contextmanager
def made_folder(name: bytes, within: int) -> Iterator[int]:
    """Open a sub-folder, made where it is missing or something else stands there."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=within)
    try:
        handle = os.open(name, _FOLDER, dir_fd=within)
    except OSError:
        # A file, or a symlink that leads out: it gives way, its target stays untouched.
        os.unlink(name, dir_fd=within)
        os.mkdir(name, dir_fd=within)
        handle = os.open(name, _FOLDER, dir_fd=within)
    try:
        yield handle
    finally:
        os.close(handle)


class _Update:
    def __init__(self, store: ObjectStore, observer: Observer, sharer: Sharer | None) -> None:
        self.store = store
        self.observer = observer
        self.sharer = sharer

    def folder(self, handle: int, prefix: bytes, old: str, new: str) -> None:
        before = {entry.name: entry for entry in self.store.tree(old)}
        after = {entry.name: entry for entry in self.store.tree(new)}
        for name, entry in before.items():
            if name not in after or (after[name].mode == DIRECTORY) != (entry.mode == DIRECTORY):
                remove(name, handle)
                self._gone(prefix + name, entry)
        for name, entry in after.items():
            if before.get(name) == entry or entry.mode == SUBMODULE:
                continue
            if entry.mode == DIRECTORY:
                was = before.get(name)
                inner = was.oid if was is not None and was.mode == DIRECTORY else EMPTY_TREE
                with made_folder(name, handle) as below:
                    self.folder(below, prefix + name + b"/", inner, entry.oid)
            else:
                path = prefix + name
                shared = self.sharer and self.sharer(path, entry, name, handle)
                self.observer(path, entry, shared or write_file(
                    name, entry, self.store.blob(entry.oid), handle
                ))  # fmt: skip

    def _gone(self, path: bytes, entry: TreeEntry) -> None:
        if entry.mode != DIRECTORY:
            self.observer(path, None, None)
            return
        for below, _ in self.store.files(entry.oid, path + b"/"):
            self.observer(below, None, None)
