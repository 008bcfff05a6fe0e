"""Hashes of files that were read before: what an environment's files have is mostly known.

Files of one package are hard links to the same file in uv's cache, in every environment.
A file that was read once is known by device, inode, size and time; an edit in place gives
it another time. Only such links are remembered: a copy is another file each time.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from patchwright.files import sweep, write_atomically

_MAGIC = b"patchwright hashes 1\n"
_ROW = struct.Struct("<QQQQ32s")  # device, inode, size, time in nanoseconds; sha256
_AT_ONCE = 64  # files in one task: a thread for each costs more than reading it
_Key = tuple[int, int, int, int]


class KnownHashes:
    """The hashes that were computed before, in ``file``."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._known: dict[_Key, bytes] = {}
        self._new: dict[_Key, bytes] = {}
        try:
            data = file.read_bytes()
        except OSError:
            data = b""
        if data.startswith(_MAGIC) and (len(data) - len(_MAGIC)) % _ROW.size == 0:
            rows = _ROW.iter_unpack(data[len(_MAGIC) :])
            self._known = {row[:4]: row[4] for row in rows}

    def of(self, paths: Sequence[bytes]) -> Iterator[str]:
        """Yield for each file its hash as RECORD writes it; empty where it cannot be read."""
        tasks = [paths[at : at + _AT_ONCE] for at in range(0, len(paths), _AT_ONCE)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for found in pool.map(lambda task: [self._of(path) for path in task], tasks):
                yield from found

    def _of(self, path: bytes) -> str:
        try:
            status = os.stat(path)  # noqa: PTH116 (bytes, and many of them)
            key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            digest = self._known.get(key)
            if digest is None:
                with open(path, "rb") as stream:  # noqa: PTH123
                    digest = hashlib.file_digest(stream, "sha256").digest()
                if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                    self._new[key] = digest
        except OSError:
            return ""
        return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def save(self) -> None:
        """Keep what was computed; a cache that cannot be written is no reason to stop."""
        if not self._new:
            return
        rows = {**self._known, **self._new}
        data = b"".join(_ROW.pack(*key, digest) for key, digest in rows.items())
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            sweep(self.file.parent, self.file.name)
            write_atomically(self.file, _MAGIC + data)
        except OSError:
            return
        self._known, self._new = rows, {}
