"""Leaves out of a source what the audit's evaluation never looks into, before it is parsed.

Parsing is what takes time and memory: releases hold a hundred megabytes of kernels
written in Python, of which a few lines ask for an architecture. The body of a function
that is long and mentions none is not interpreted; here it is not parsed either. A
function or a class at module level that mentions none is parsed when its name is read.
Lines keep their numbers.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from patchwright.audit.mentions import tokens
from patchwright.smoke.bindings import bound

_DEF = re.compile(rb"^([ \t]*)(?:async[ \t]+)?def[ \t]+\w+[ \t]*[(\[]", re.MULTILINE)
# The end of a signature: a colon at a line's end, as formatters leave it.
_SIGNATURE = re.compile(rb":[ \t]*(?:#[^\n]*)?\n")
# The next line that is not indented deeper than a definition, by its indentation.
_DEEPER = {n: re.compile(rb"^(?![ \t]{%d})(?=[ \t]*[^\s#])" % (n + 1), re.MULTILINE)
           for n in range(0, 33)}  # fmt: skip
# A line that is not indented and begins a statement; what closes a bracket does not.
_UNINDENTED = re.compile(rb"^[^\s#)\]}\\]", re.MULTILINE)
_HEAD = re.compile(rb"(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)")


def pruned(data: bytes, marked: Sequence[int], short: int) -> bytes:
    """Return a source without the bodies of functions that are longer than ``short`` lines.

    Functions in which one of the ``marked`` lines lies stay whole. The result may not
    parse where a text in quotes looks like code: then the source is to be taken whole.
    """
    ends = [match.start() for match in re.finditer(rb"\n", data)]
    parts: list[bytes] = []
    at = 0
    for match in _DEF.finditer(data):
        if match.start() < at:
            continue
        signature = _SIGNATURE.search(data, match.end())
        deeper = _DEEPER.get(len(match[1]))
        if signature is None or deeper is None or b"\t" in match[1]:
            continue
        begin = signature.end()
        after = deeper.search(data, begin)
        end = after.start() if after is not None else len(data)
        first = bisect_left(ends, match.start()) + 1
        body, last = bisect_left(ends, begin) + 1, bisect_left(ends, end - 1) + 1
        if last - first <= short or last <= body:
            continue
        mark = bisect_left(marked, first)
        if mark < len(marked) and marked[mark] <= last:
            continue
        # The body's last line keeps the function as long as it is.
        parts += [data[at:begin], b"\n" * (last - body), match[1], b" ...\n"]
        at = end
    return b"".join([*parts, data[at:]]) if parts else data


@dataclass(frozen=True)
class Part:
    """A function or a class at module level; ``line`` is its first, a decorator's maybe."""

    name: str
    line: int
    text: bytes

    def statements(self) -> list[ast.stmt]:
        """Return it parsed, none where that fails."""
        try:
            return ast.parse(b"\n" * (self.line - 1) + self.text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []


def divided(data: bytes, marked: Sequence[int]) -> tuple[bytes, list[Part]]:
    """Return a source without functions and classes that hold no marked line, and these."""
    ends = [match.start() for match in re.finditer(rb"\n", data)]
    starts = _statements(data)
    parts: list[Part] = []
    left: list[bytes] = []
    at = begin = 0
    for number, start in enumerate(starts):
        if data[start] == ord("@") and not _decorates(data, starts, number - 1):
            begin = start
        match = _HEAD.match(data, start)
        if match is None:
            continue
        if not _decorates(data, starts, number - 1):
            begin = start
        end = starts[number + 1] if number + 1 < len(starts) else len(data)
        first, last = bisect_left(ends, begin) + 1, bisect_left(ends, end - 1) + 1
        mark = bisect_left(marked, first)
        if mark < len(marked) and marked[mark] <= last:
            continue
        parts.append(Part(match[1].decode(), first, data[begin:end]))
        left += [data[at:begin], b"\n" * data.count(b"\n", begin, end)]
        at = end
    return b"".join([*left, data[at:]]) if parts else data, parts


def _statements(data: bytes) -> list[int]:
    """Return where the lines begin that are neither indented nor part of a text in quotes."""
    texts = list(tokens(data))
    starts = [start for start, _ in texts]
    found = []
    for match in _UNINDENTED.finditer(data):
        at = bisect_left(starts, match.start()) - 1
        if at < 0 or texts[at][1] <= match.start():
            found.append(match.start())
    return found


def _decorates(data: bytes, starts: Sequence[int], number: int) -> bool:
    return number >= 0 and data[starts[number]] == ord("@")


class Statements(Mapping[str, tuple[ast.stmt, ...]]):
    """What binds each name of a module; what was left out is parsed when it is asked for."""

    def __init__(self, made: Mapping[str, tuple[ast.stmt, ...]], parts: Sequence[Part]) -> None:
        self._made = dict(made)
        self._parts: dict[str, list[Part]] = {}
        for part in parts:
            self._parts.setdefault(part.name, []).append(part)

    def __getitem__(self, name: str) -> tuple[ast.stmt, ...]:
        found = self._parts.pop(name, None)
        if found is not None:
            more = [node for part in found for node in part.statements() if name in bound(node)]
            every = sorted((*self._made.get(name, ()), *more), key=lambda node: node.lineno)
            self._made[name] = tuple(every)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._made or name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._made.keys() | self._parts.keys())

    def __len__(self) -> int:
        return len(self._made.keys() | self._parts.keys())
