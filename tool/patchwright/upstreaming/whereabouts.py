"""Where upstream has by now what a patch changes, when the function that it stood in is gone.

A function that kept its name is found by it. One that was renamed or taken apart is found by
what its lines say: the names and texts around the change, the rare ones counting most.
"""

from __future__ import annotations

import heapq
import io
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from patchwright.quoting import display
from patchwright.upstreaming.functions import around, functions

if TYPE_CHECKING:
    from patchwright.store import ObjectStore

_COMMENT = re.compile(rb"#[^\n]*")
_WORD = re.compile(rb"[A-Za-z_]\w{5,}")
_COMMON = frozenset(b"self none true false return import from else elif with while None True False "
                    b"raise lambda yield break continue print".split())  # fmt: skip
_FEW = 5  # words, below which a likeness is chance
_FILES = 5  # that hold most of the words: only these are read line by line
_AROUND = 8  # lines on each side of a change
_LIKE = 0.5  # of the words' weight, from which a place is named


def surroundings(path: bytes, data: bytes, line: int) -> list[bytes]:
    """Return the lines around one (0-based): its whole function, where that is no long one."""
    lines = io.BytesIO(data).readlines()
    own = around(functions(path, data), line)
    start, end = (own.start, own.end) if own is not None else (0, len(lines))
    if end - start > 4 * _AROUND:
        start, end = max(start, line - _AROUND), min(end, line + _AROUND)
    return lines[start:end]


class Whereabouts:
    """Looks things up in the Python files of one tree; reads them once."""

    def __init__(self, store: ObjectStore, tree: str) -> None:
        """Look in ``tree``."""
        self._store = store
        self._tree = tree

    @cached_property
    def _texts(self) -> dict[bytes, bytes]:
        return {
            path: self._store.blob(entry.oid)
            for path, entry in self._store.files(self._tree)
            if path.endswith(b".py")
        }

    def named(self, names: Iterable[str]) -> list[str]:
        """Return ``NAME is in PATH`` for each function and file."""
        wanted = sorted(set(names))
        return [
            f"{name} is in {display(path)}"
            for path, text in self._texts.items()
            for name in wanted
            if b"def %s(" % name.encode() in text
        ]

    def like(self, lines: Sequence[bytes]) -> str:
        """Return ``PATH:LINE (FUNCTION)`` of the place that says most of ``lines``, or nothing."""
        words = set(_WORD.findall(_COMMENT.sub(b"", b"".join(lines)))) - _COMMON
        holders = {
            word: [path for path, text in self._texts.items() if word in text] for word in words
        }
        # A word that stands in few files tells most; one that is gone tells nothing.
        weights = {
            word: math.log((1 + len(self._texts)) / len(paths))
            for word, paths in holders.items() if paths
        }  # fmt: skip
        if len(weights) < _FEW:
            return ""
        held: dict[bytes, float] = defaultdict(float)
        for word, weight in weights.items():
            for path in holders[word]:
                held[path] += weight
        best = max(
            ((sum(weights[word] for word in weights.keys() & set(_WORD.findall(window))), -n, path)
             for path in heapq.nlargest(_FILES, held, key=held.__getitem__)
             for n, window in _windows(self._texts[path], len(lines))),
            default=(0.0, 0, b""),
        )  # fmt: skip
        if best[0] < _LIKE * sum(weights.values()):
            return ""
        line, path = -best[1], best[2]
        own = around(functions(path, self._texts[path]), line + len(lines) // 2)
        return f"{display(path)}:{line + 1}" + (f" ({own.name})" if own is not None else "")


def _windows(text: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of a text as long as what is looked for, each with its first line (0-based)."""
    lines = io.BytesIO(text).readlines()
    step = max(1, size // 4)
    for start in range(0, max(1, len(lines) - size + step), step):
        yield start, b"".join(lines[start : start + size])
