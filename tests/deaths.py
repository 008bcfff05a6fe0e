"""Whether a process that was killed is gone: the kernel may take a moment over it."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

_PATIENCE = 10.0  # seconds


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
