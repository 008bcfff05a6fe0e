"""What an object is compiled from: its source and every header that may be included.

Found in the text, whatever the conditions around an include say: a compiler tells only
what one pass over one architecture took. Headers of the toolkit and of the system stand
for the compiler's identity.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from patchwright.environment.workspace import Hashes

_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]", re.MULTILINE)


class Closure:
    """Follows includes; each file is read once."""

    def __init__(self, hashes: Hashes) -> None:
        self.hashes = hashes
        self._named: dict[str, list[tuple[bool, str]]] = {}
        self._there: dict[str, bool] = {}

    def of(self, source: str, folders: Sequence[str]) -> list[str]:
        """Return ``source`` and all that it includes from ``folders``, sorted."""
        todo, done = [source], set[str]()
        while todo:
            path = todo.pop()
            if path in done:
                continue
            done.add(path)
            here = path.rpartition("/")[0]
            for quoted, name in self._includes(path):
                for folder in ([here] if quoted else []) + list(folders):
                    candidate = _plain(f"{folder}/{name}")
                    if self._exists(candidate):
                        todo.append(candidate)
                        break
        return sorted(done)

    def _includes(self, path: str) -> list[tuple[bool, str]]:
        if path not in self._named:
            try:
                data = Path(path).read_bytes()
            except OSError:
                data = b""
            self._named[path] = [
                (mark == b'"', name.decode("utf-8", "replace"))
                for mark, name in _INCLUDE.findall(data)
            ]
        return self._named[path]

    def _exists(self, path: str) -> bool:
        if path not in self._there:
            self._there[path] = Path(path).is_file()
        return self._there[path]


def _plain(path: str) -> str:
    """Return the path without ``.`` and ``..``: the same file has one name."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in (".", ""):
            parts.append(part)
    return "/" + "/".join(parts)
