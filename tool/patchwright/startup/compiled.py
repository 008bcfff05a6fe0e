"""Compiled objects between starts: reused by the content of what they are made from.

A JIT workspace is new for each start, so that nothing stale decides its outcome; but a
patch to one Python file must not cost an hour of compiling. After a start that went well
its workspace is kept under a digest of the files that its objects are compiled from (and
of the interpreter and its packages); the next start with the same digest gets a copy.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from patchwright.files import temporary_folder
from patchwright.smoke.trees import parse_listing

_LOCKS = shutil.ignore_patterns("*.lock")


def digest(listing: Path, prefixes: Iterable[str], environment: str) -> str:
    """Return the digest of the listed files below ``prefixes``; empty where there is none."""
    wanted = tuple(os.fsencode(prefix) for prefix in prefixes)
    found = [
        b"%s %s\0" % (path, oid.encode())
        for path, (_, oid) in sorted(parse_listing(listing.read_bytes()).items())
        if path.startswith(wanted)
    ]
    if not found:
        return ""
    return hashlib.sha256(environment.encode() + b"\0" + b"".join(found)).hexdigest()


class Workspaces:
    """The kept workspaces, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def seed(self, key: str, workspace: Path) -> bool:
        """Copy what is kept under ``key`` into ``workspace``; return whether there was any."""
        kept = self.folder / key
        if not key or not kept.is_dir():
            return False
        try:
            # Times are kept: ninja compares them. Locks of the start that made it are not.
            shutil.copytree(kept, workspace, dirs_exist_ok=True, ignore=_LOCKS)
            os.utime(kept)  # the time of the last use, for pruning
        except OSError:  # pruned meanwhile
            shutil.rmtree(workspace, ignore_errors=True)
            return False
        return True

    def keep(self, key: str, workspace: Path) -> None:
        """Keep a workspace under ``key``, unless it is empty or one is kept already."""
        kept = self.folder / key
        if not key or kept.exists() or not any(workspace.rglob("*.so")):
            return
        with temporary_folder(self.folder) as (folder, _):
            copy = folder / "workspace"
            shutil.copytree(workspace, copy, symlinks=True, ignore=_LOCKS)
            if not kept.exists():
                copy.rename(kept)
