"""A disk that is full at once, for tests of what happens then."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a disk of ``size`` (``40k``) at the new ``folder``; skips where that is not allowed."""
    folder.mkdir()
    options = ["-o", f"size={size}", "tmpfs", str(folder)]
    if (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "-t", "tmpfs", *options], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("needs the right to mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
