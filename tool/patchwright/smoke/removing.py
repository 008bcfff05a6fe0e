"""Removing the folders of runs aside: the next run does not wait for it.

A run makes and leaves dozens of folders, and there are disks on which each takes some
milliseconds to remove. A process of its own does that; it ends when all is removed and
nobody holds its end any more.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ASIDE = "run.*.old"  # what such a folder is called until it is gone


class Remover:
    """Hands folders over to the process that removes them; ``pid`` is its id."""

    def __init__(self) -> None:
        reader, self._writer = os.pipe()
        self._count = 0
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._writer)
                # What comes in and goes out there is between others.
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, 0)
                os.dup2(nothing, 1)
                _serve(reader)
            finally:
                os._exit(0)
        os.close(reader)

    def remove(self, folder: Path) -> None:
        """Have a run's folder gone by its name, and before long altogether."""
        self._count += 1
        aside = folder.with_name(ASIDE.replace("*", str(self._count)))
        try:
            folder.rename(aside)
            os.write(self._writer, os.fsencode(aside) + b"\0")
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Let go of it."""
        os.close(self._writer)


def _serve(reader: int) -> None:
    left = b""
    while data := os.read(reader, 1 << 16):
        *folders, left = (left + data).split(b"\0")
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
