"""Folders of runs that lie in memory.

A run that compiles nothing makes and leaves hundreds of small files. There are disks on
which that takes as long as the run itself, so its folder lies in /dev/shm where that has
room for everybody, and else in the seat. A link in the seat says where, from before the
folder is made until it is gone: what a killed command leaves is found by it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

_MEMORY = Path("/dev/shm")  # noqa: S108 - what is made there has a name that nobody can guess
_LINK = "memory"
_NAME = re.compile(r"patchwright-[0-9a-f]{16}")
_ROOM = 1 << 30  # bytes that must be free there; containers often have 64 MiB in all


def take_memory(seat: Path) -> Path | None:
    """Make a folder in memory for a seat that has none; None where that is no place for it."""
    folder = _MEMORY / f"patchwright-{secrets.token_hex(8)}"
    try:
        there = os.statvfs(_MEMORY)
        if there.f_bavail * there.f_frsize < _ROOM or there.f_flag & os.ST_NOEXEC:
            return None
        (seat / _LINK).symlink_to(folder)
        folder.mkdir(mode=0o700)
    except OSError:
        return None
    return folder


def left_in_memory(seat: Path) -> Iterator[Path]:
    """Yield the folder in memory that a seat has, and then the link that says so."""
    link = seat / _LINK
    with contextlib.suppress(OSError):
        folder = link.readlink()
        if folder.parent == _MEMORY and _NAME.fullmatch(folder.name):
            with contextlib.suppress(OSError):
                found = folder.lstat()
                if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
                    yield folder
        yield link
