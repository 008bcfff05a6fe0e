"""Where things lie in the user's cache, and how much room they take."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

SHA256 = re.compile(r"[0-9a-f]{64}")
_DIGEST = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24}|\.json)?")
_TOOLKIT = re.compile(r"[0-9a-f]{16}|stubs|nothing")
_OBJECT = re.compile(r"([0-9a-f]{64})(\.lock)?")


def slots(folder: Path) -> list[Path]:
    """Return the slots that hold something."""
    found = [p for p in sorted(folder.glob("*")) if p.name.isdigit() and (p / "lock").exists()]
    return [slot for slot in found if contents(slot)]


def contents(slot: Path) -> list[Path]:
    """Return what is in a slot; its lock file stays: another process may wait for it."""
    return [path for path in sorted(slot.glob("*")) if path.name != "lock"]


def objects(folder: Path) -> Iterator[Path]:
    """Yield every compiled object below ``folder``."""
    for path in folder.glob("[0-9a-f][0-9a-f]/*"):
        if SHA256.fullmatch(path.name):
            yield path


def workspaces(folder: Path) -> list[Path]:
    """Return the kept workspaces of starts."""
    return [p for p in sorted(folder.glob("*")) if SHA256.fullmatch(p.name) and p.is_dir()]


def digests(folder: Path) -> list[Path]:
    """Return what is named by a digest."""
    return [path for path in sorted(folder.glob("*")) if _DIGEST.fullmatch(path.name)]


def toolkits(folder: Path) -> list[Path]:
    """Return what `prebuild` completed CUDA toolkits with: stubs, and folders of links."""
    return [path for path in sorted(folder.glob("*")) if _TOOLKIT.fullmatch(path.name)]


def by_key(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each compiled object: itself and its lock."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("[0-9a-f][0-9a-f]/*")):
        match = _OBJECT.fullmatch(path.name)
        if match is not None and match[1][:2] == path.parent.name:
            found.setdefault(match[1], []).append(path)
    return found


def rows(path: Path) -> int:
    """Return how many verdicts a database of applied patches holds; 0 where there is none."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT count(*) FROM applied").fetchone()
            return int(row[0])
    except sqlite3.Error:
        return 0


def extent(path: Path) -> tuple[int, float]:
    """Return the bytes in files at and below ``path``, and the newest time of change."""
    size, newest = 0, 0.0
    with contextlib.suppress(OSError):
        found = path.lstat()
        size, newest = found.st_size, found.st_mtime
        if not path.is_dir() or path.is_symlink():
            return size, newest
        size = 0
    for folder, _, files in os.walk(path):
        for name in files:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - tens of thousands
                size += found.st_size
                newest = max(newest, found.st_mtime)
    return size, newest
