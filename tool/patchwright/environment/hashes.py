"""Hashes of files that were read before: what an environment's files have is mostly known.

Files of one package are hard links to the same file in uv's cache, in every environment. A
file is known by device, inode, size and time of change; whoever edits one in place gives it
another time. That time can be set back by hand; the time of the last change to the inode
cannot, but making and removing links moves it as well. So what a rebuild goes by is the
first, and `check`, which looks for edits, asks for both (``strict``).

Remembered are hard links and large files: any other is read as fast as it is looked up.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from patchwright.environment.metadata import recorded
from patchwright.files import sweep, write_atomically

_MAGIC = b"patchwright hashes 3\n"
# Device, inode, size, time of the content's change in nanoseconds; then that of the inode's
# change and the hash as RECORD writes it. Rows are kept packed: there are many, and each run
# asks for a few.
_KEY = struct.Struct("<QQQq")
_VALUE = struct.Struct("<q50s")
_ROW = struct.Struct(f"<{_KEY.size}s{_VALUE.size}s")
_LARGE = 1 << 18  # bytes
_RACY = 50_000_000  # nanoseconds: a file changed again within one tick keeps its times
_NEVER = -1  # no inode's time
_AT_ONCE = 64  # files in one task: a thread for each costs more than reading it
_MOST = 300_000  # rows; one large environment has 60,000


class KnownHashes:
    """The hashes that were computed before, in ``file``; without one, in this process."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self._known: dict[bytes, bytes] = {}
        self._new: dict[bytes, bytes] = {}
        with contextlib.suppress(OSError, ValueError):  # none, or damaged
            data = file.read_bytes() if file is not None else b""
            if data.startswith(_MAGIC) and (len(data) - len(_MAGIC)) % _ROW.size == 0:
                self._known = dict(_ROW.iter_unpack(memoryview(data)[len(_MAGIC) :]))

    def of(self, paths: Sequence[bytes]) -> list[str]:
        """Return for each file its hash as RECORD writes it; empty where it cannot be read.

        For environments that were just made: a copy is another file each time, so of what is
        read only links are remembered.
        """
        found = [""] * len(paths)
        unknown: list[tuple[int, os.stat_result]] = []
        for number, path in enumerate(paths):
            try:
                status = os.stat(path)  # noqa: PTH116 (bytes, and many of them)
            except OSError:
                continue
            known = self.get(status)
            if known is None:
                unknown.append((number, status))
            else:
                found[number] = known
        tasks = [unknown[at : at + _AT_ONCE] for at in range(0, len(unknown), _AT_ONCE)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            parts = pool.map(lambda task: [self._read(paths[n], s) for n, s in task], tasks)
            read = [digest for part in parts for digest in part]
        for (number, _), digest in zip(unknown, read, strict=True):
            found[number] = digest
        return found

    def _read(self, path: bytes, status: os.stat_result) -> str:
        try:
            return self.read(path, status, large=False)
        except OSError:
            return ""

    def get(self, status: os.stat_result, *, strict: bool = False) -> str | None:
        """Return the hash of the file that has this status, None where it is not known."""
        row = self._known.get(_key(status))
        if row is None:
            return None
        inode, digest = _VALUE.unpack(row)
        if strict and inode != status.st_ctime_ns:
            return None
        return str(digest, "ascii", "replace")

    def read(self, path: bytes, status: os.stat_result, *, large: bool = True) -> str:
        """Return the hash of a file, read now. ``status`` was asked for before; OSError."""
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 (bytes)
            if status.st_size < _LARGE:
                digest = recorded(hashlib.sha256(stream.read()).digest())
            else:
                digest = recorded(hashlib.file_digest(stream, "sha256").digest())
        now = time.time_ns()
        worth = status.st_nlink > 1 or (large and status.st_size >= _LARGE)
        if worth and stat.S_ISREG(status.st_mode) and now - status.st_mtime_ns > _RACY:
            inode = status.st_ctime_ns if now - status.st_ctime_ns > _RACY else _NEVER
            self._new[_key(status)] = _VALUE.pack(inode, digest.encode())
        return digest

    def save(self) -> None:
        """Keep what was computed; a cache that cannot be written is no reason to stop."""
        if self.file is None or not self._new:
            return
        rows = {**self._known, **self._new}
        if len(rows) > _MOST:
            rows = dict(self._new)  # what is still needed is read once more
        data = b"".join(key + value for key, value in rows.items())
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            sweep(self.file.parent, self.file.name)
            write_atomically(self.file, _MAGIC + data)
        except OSError:
            return
        self._known, self._new = rows, {}


def _key(status: os.stat_result) -> bytes:
    return _KEY.pack(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
