"""What was found before, kept in the user's cache: one file for all answers of a kind."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from patchwright.files import write_atomically


class Record:
    """Answers by key in one JSON file, read at once and written at once.

    A record that cannot be read counts as empty, and one that cannot be written is no
    reason to stop. Two writers at a time lose answers of one of them, never more.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._asked: set[str] = set()
        self._known: dict[str, Any] = {}
        self._fresh = False
        if path is not None:
            with suppress(OSError, ValueError):
                known = json.loads(path.read_bytes())
                self._known = known if isinstance(known, dict) else {}

    def get(self, key: str) -> Any:
        """Return what is known under a key, or None."""
        self._asked.add(key)
        return self._known.get(key)

    def keep(self, key: str, value: Any) -> None:
        """Keep an answer."""
        self._asked.add(key)
        self._known[key] = value
        self._fresh = True

    def save(self) -> None:
        """Write what was kept; of what nobody asked for stays as much again."""
        if self.path is None or not self._fresh:
            return
        others = [key for key in self._known if key not in self._asked]
        room = max(1000, len(self._asked))
        for key in others[: max(0, len(others) - room)]:
            del self._known[key]
        with suppress(OSError):
            write_atomically(self.path, json.dumps(self._known).encode())
        self._fresh = False
