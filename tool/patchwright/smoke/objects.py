"""The cache of compiled objects, keyed by what they were compiled from.

An entry carries the hash of its own content: a damaged one is compiled again. Two
processes that want the same object compile it once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock

from patchwright.files import sweep, write_atomically


def cache_folder() -> Path:
    """Return the user's cache folder, as the run's environment names it."""
    if os.environ.get("PATCHWRIGHT_CACHE"):
        return Path(os.environ["PATCHWRIGHT_CACHE"])
    from platformdirs import user_cache_path

    return user_cache_path("patchwright")


class ObjectCache:
    """Objects below ``folder``; a folder that cannot be written is used for reading only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return the object of ``key``, made by ``make`` when it is not there or damaged."""
        path = self.folder / key[:2] / key
        data = self._read(path)
        if data is not None:
            # Its age is the time since its last use: what `cache prune` goes by.
            with contextlib.suppress(OSError):
                os.utime(path)
            return data
        with self._lock(path):
            # Another process may have made it while this one waited.
            data = self._read(path)
            if data is None:
                data = make()
                self._write(path, data)
        return data

    def _read(self, path: Path) -> bytes | None:
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        digest, data = stored[:32], stored[32:]
        return data if hashlib.sha256(data).digest() == digest else None

    @contextlib.contextmanager
    def _lock(self, path: Path) -> Iterator[None]:
        lock = FileLock(path.with_suffix(".lock"))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except OSError:
            # Without a writable cache every process works for itself.
            yield
            return
        try:
            yield
        finally:
            lock.release()

    def _write(self, path: Path, data: bytes) -> None:
        # Readers take no lock: they must see the old file, the new one or none.
        sweep(path.parent, path.name)
        with contextlib.suppress(OSError):
            write_atomically(path, hashlib.sha256(data).digest() + data)
