"""Writing files so that a killed process leaves the old one or the new one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

_SUFFIX = ".new"
_FOLDER = "patchwright-"


def write_atomically(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace ``path`` by ``data``: temporary file beside it, fsync, rename, fsync.

    ``mode`` is its permissions; without it, those of a new file.
    Raises OSError; ``path`` is then untouched and the temporary file gone. What a killed
    process leaves beside it is for ``sweep``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = _temporary(path)
    try:
        # The file stays open, and so locked, until it has its own name.
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            # mkstemp makes files that only their owner can read.
            os.fchmod(handle, new_file_mode() if mode is None else mode)
            os.fsync(handle)
            Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    sync_folder(path.parent)


def new_file_mode() -> int:
    """Return the permissions that a new file gets here."""
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock_folder(folder: Path, *, shared: bool = False, wait: bool = True) -> int:
    """Lock a folder (the folder itself, by flock) and return the descriptor that holds it.

    Closing the descriptor lets go, and so does the end of the process. Raises OSError:
    BlockingIOError where another process has it and ``wait`` is False.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(handle, kind if wait else kind | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle


def hold_folder(folder: Path, holder: object) -> bool:
    """Lock a folder, shared, for as long as ``holder`` lives; False where it is gone.

    Waits for whoever has it alone. A file system without locks is no reason to stop.
    """
    try:
        handle = lock_folder(folder, shared=True)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    weakref.finalize(holder, os.close, handle)
    # It may have been removed by the one who had it alone.
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except OSError:
        return False


@contextlib.contextmanager
def temporary_folder(parent: Path) -> Iterator[tuple[Path, int]]:
    """Make a folder below ``parent`` for a while; yield it and the descriptor that locks it.

    A child that is given the descriptor keeps the folder from being swept while it lives.
    What killed processes left in ``parent`` goes first. Raises OSError.
    """
    parent.mkdir(parents=True, exist_ok=True)
    sweep_folders(parent)
    while True:
        path = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=parent))
        # A sweep that comes between these lines takes it for a leftover.
        with contextlib.suppress(FileNotFoundError):
            handle = lock_folder(path)
            if path.exists():
                break
            os.close(handle)
    try:
        yield path, handle
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def sweep_folders(parent: Path) -> None:
    """Remove the temporary folders in ``parent`` whose makers are gone; never raises OSError."""
    for path in parent.glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError):
            handle = lock_folder(path, wait=False)
            try:
                shutil.rmtree(path)
            finally:
                os.close(handle)


def sweep(folder: Path, name: str = "*") -> list[Path]:
    """Remove what killed writers of ``folder/name`` left, and return what that was.

    ``name`` is a glob. A temporary file whose writer lives is locked and stays; so does
    everything where the file system knows no locks. Never raises OSError.
    """
    # Each is still locked by the generator while it is removed.
    return [path for path in leftovers(folder, name) if _removed(path)]


def leftovers(folder: Path, name: str = "*") -> Iterator[Path]:
    """Yield the temporary files of ``folder/name`` whose writer is gone; remove nothing."""
    for path in sorted(folder.glob(f".{name}.*{_SUFFIX}")):
        with contextlib.suppress(OSError), _opened(path) as handle:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield path


def _removed(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        yield handle
    finally:
        os.close(handle)


def _temporary(path: Path) -> tuple[int, str]:
    """Make and lock a temporary file beside ``path``."""
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_SUFFIX)
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        # A sweep between the two lines above took it for a leftover.
        if os.fstat(handle).st_nlink:
            return handle, name
        os.close(handle)
