"""Killing a process at a step of its work, and whether it is gone: that may take a moment."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

_PATIENCE = 10.0  # seconds
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink",
            "subprocess.Popen", "sqlite3.connect", "fcntl.flock"}  # fmt: skip


def killed_at_step(step: int, work: Callable[[], object]) -> None:
    """Do ``work`` in a child that is killed just before its n-th step that changes anything."""
    pid = os.fork()
    if pid == 0:
        left = [step]

        def hook(event: str, found: tuple[object, ...]) -> None:
            writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT
            opened = event == "open" and isinstance(found[2], int) and found[2] & writes
            if event in _CHANGES or opened:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        with contextlib.suppress(BaseException):
            work()
        os._exit(0)
    os.waitpid(pid, 0)


def is_dead(pid: int) -> bool:
    """Return whether a process has ended, or does so within some seconds."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        state = ""
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        if not state or state.rpartition(") ")[2][0] in "ZX":
            return True
        time.sleep(0.02)
    return False
