"""Whether a change was left half done: told to every command, so it loads nothing."""

from __future__ import annotations

from pathlib import Path

FOLDER = "operations"  # in the project's .patchwright
# Of the operation that is being carried out, or was when its process was killed.
FILE = "pending.zip"


def half_done(root: Path) -> bool:
    """Return whether an operation on the project at ``root`` is under way or was killed."""
    return (root / ".patchwright" / FOLDER / FILE).exists()
