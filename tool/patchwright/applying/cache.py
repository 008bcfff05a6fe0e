"""What is known of (tree, patch) pairs: ``applied.sqlite`` in the user's cache.

Two processes may use it at once: SQLite's own locks serve them, and a row says the
same whoever wrote it. A rollback journal, not WAL, so that a read-only cache can still
be read. A file that is not a database any more is thrown away: it is only a cache.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from patchwright.errors import PatchwrightError

# Part of every key: raise it when the applier's answers change.
APPLIER = "1"
_WAIT = 30.0  # seconds for another process to finish its commit
_TABLE = "CREATE TABLE IF NOT EXISTS applied (key TEXT PRIMARY KEY, verdict TEXT) WITHOUT ROWID"


def key(tree: str, patch_sha256: str, layout: str) -> str:
    """Return the key of a verdict: everything that it depends on."""
    return f"{APPLIER} {tree} {patch_sha256} {layout}"


class AppliedCache:
    """Verdicts (as text) by key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, str | None] = {}
        self._connection: sqlite3.Connection | None = None

    def get(self, wanted: str) -> str | None:
        """Return the verdict stored under a key, or None."""
        if wanted not in self._known:
            self._known[wanted] = self._select(wanted)
        return self._known[wanted]

    def forget(self, wanted: str) -> None:
        """Take a verdict for unknown in this process: its tree is gone."""
        self._known[wanted] = None

    def put(self, rows: Mapping[str, str]) -> None:
        """Store verdicts, all of them or none; the trees they name must be in the store."""
        self._known.update(rows)
        try:
            self._insert(rows)
        except sqlite3.OperationalError as error:
            raise PatchwrightError(
                f"the cache of applied patches cannot be written: {error}", where=str(self.path),
                next_step="make room, make the folder writable, or set PATCHWRIGHT_CACHE to "
                "another one",
            ) from error  # fmt: skip
        except sqlite3.DatabaseError:
            self._discard()
            self._insert(rows)

    def close(self) -> None:
        """Close the database; the next call opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        # A connection refers to itself: by itself it stays open until garbage is collected.
        self.close()

    def _select(self, wanted: str) -> str | None:
        if self._connection is None and not self.path.exists():
            return None
        try:
            row = self._open().execute("SELECT verdict FROM applied WHERE key = ?", (wanted,))
            found = row.fetchone()
        except sqlite3.OperationalError:
            # No table yet, a folder that cannot be entered: nothing is known.
            return None
        except sqlite3.DatabaseError:
            self._discard()
            return None
        return str(found[0]) if found is not None else None

    def _insert(self, rows: Mapping[str, str]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = self._open()
        with connection:
            connection.execute(_TABLE)
            connection.executemany("INSERT OR REPLACE INTO applied VALUES (?, ?)", rows.items())

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(self.path, timeout=_WAIT)
        return self._connection

    def _discard(self) -> None:
        self.close()
        try:
            for suffix in ("", "-journal"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        except OSError as error:
            raise PatchwrightError(
                f"the cache of applied patches is damaged and cannot be removed: {error.strerror}",
                where=str(self.path), next_step="remove that file",
            ) from error  # fmt: skip
