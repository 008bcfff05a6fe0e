"""The upstreams' files of a new environment: nobody else's, with times by their content.

An installer puts hard links into its cache. Files of the upstreams are edited by hand and
have times of their own, so each becomes a file that only this environment has. Most of
them stand in the environment that gives way already, and making a file costs ten times
what a link costs (ext4): the old file gets a second name here, which is its only one as
soon as the old environment is gone. What cannot be taken over is copied.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from patchwright.environment.content import Content, content_time
from patchwright.environment.hashes import KnownHashes
from patchwright.environment.installed import distributions, site_packages
from patchwright.errors import InputError

_BESIDE = b".patchwright-new"


class OldFiles:
    """Files of some distributions that the environment in ``folder`` (if any) can hand on.

    That is every file that is as a rebuild left it: its content (read here) is what RECORD
    says, so is its time, it has one name, and no folder on its way is a link.
    """

    def __init__(self, folder: Path, names: Iterable[str], hashes: KnownHashes) -> None:
        self._root = b""
        self._files: dict[bytes, tuple[str, tuple[int, ...]]] = {}
        with contextlib.suppress(InputError):
            site = site_packages(folder)
            self._root = os.fsencode(site) + b"/"
            there = distributions(site)
            for name in names:
                if name in there:
                    self._read(there[name].files, hashes)

    def _read(self, recorded: dict[bytes, str], hashes: KnownHashes) -> None:
        plain: dict[bytes, bool] = {}
        found = []
        for path, digest in recorded.items():
            with contextlib.suppress(OSError):
                status = os.lstat(self._root + path)
                if (
                    digest
                    and stat.S_ISREG(status.st_mode)
                    and status.st_nlink == 1
                    and status.st_mtime_ns == content_time(digest) * 10**9
                    and self._is_plain(path.rpartition(b"/")[0], plain)
                ):
                    found.append((path, digest, _seen(status)))
        actual = hashes.of([self._root + path for path, *_ in found])
        for (path, digest, seen), read in zip(found, actual, strict=True):
            if read == digest:
                self._files[path] = digest, seen

    def _is_plain(self, folder: bytes, known: dict[bytes, bool]) -> bool:
        if not folder:
            return True
        if folder not in known:
            above, _, name = folder.rpartition(b"/")
            known[folder] = (
                name != b".."
                and stat.S_ISDIR(os.lstat(self._root + folder).st_mode)
                and self._is_plain(above, known)
            )
        return known[folder]

    def take(self, path: bytes, digest: str, place: bytes) -> bool:
        """Put the old ``path`` at ``place``, over the file there, if it is the one wanted.

        ``digest`` is the hash that it must have; its permissions must be those of the file
        that gives way. False where nothing was done.
        """
        known = self._files.get(path)
        if known is None or known[0] != digest:
            return False
        beside = place + _BESIDE
        with contextlib.suppress(OSError):
            there = os.stat(place)  # noqa: PTH116 (bytes)
            if _seen(there) == known[1]:
                return True  # taken before; a rename between two names of one file does nothing
            os.link(self._root + path, beside, follow_symlinks=False)
            status = os.lstat(beside)
            if _seen(status) == known[1] and status.st_mode == there.st_mode:
                os.rename(beside, place)  # noqa: PTH104
                return True
        with contextlib.suppress(OSError):
            os.unlink(beside)  # noqa: PTH108
        return False


def make_own(content: Content, names: Collection[str], old: OldFiles) -> dict[bytes, str]:
    """Make the files of ``names`` nobody else's, with times that follow from their content.

    ninja and bytecode go by times: other content must have another one, the same content
    the same, or what one rebuild compiled would be compiled again after the next. Returns
    the hashes of those that the old environment handed on. Raises OSError.
    """
    root = os.fsencode(content.site) + b"/"
    known = {}
    for path, digest in _recorded(content, names):
        place = root + path
        try:
            status = os.lstat(place)
        except FileNotFoundError:
            continue  # the check of every file names it
        if status.st_nlink > 1 or not stat.S_ISREG(status.st_mode):
            if old.take(path, digest, place):
                known[path] = digest
                continue
            shutil.copy(place, place + _BESIDE)
            os.rename(place + _BESIDE, place)  # noqa: PTH104 (bytes)
        time = content_time(digest)
        os.utime(place, (time, time))
    return known


def _recorded(content: Content, names: Collection[str]) -> Iterator[tuple[bytes, str]]:
    for name, distribution in content.distributions.items():
        if name in names:
            for path, digest, _ in distribution.rows:
                if digest:
                    yield path, digest


def _seen(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
