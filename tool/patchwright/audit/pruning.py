"""Leaves out of a source what the audit's evaluation never looks into, before it is parsed.

Parsing is what takes time and memory: releases hold a hundred megabytes of kernels
written in Python, of which a few lines ask for an architecture. The body of a function
that is long and mentions none is not interpreted; here it is not parsed either. Lines
keep their numbers.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress

_DEF = re.compile(rb"^([ \t]*)(?:async[ \t]+)?def[ \t]+\w+[ \t]*[(\[]", re.MULTILINE)
# The end of a signature: a colon at a line's end, as formatters leave it.
_SIGNATURE = re.compile(rb":[ \t]*(?:#[^\n]*)?\n")
# The next line that is not indented deeper than a definition, by its indentation.
_DEEPER = {n: re.compile(rb"^(?![ \t]{%d})(?=[ \t]*[^\s#])" % (n + 1), re.MULTILINE)
           for n in range(0, 33)}  # fmt: skip


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


def parsed(data: bytes, less: bytes, name: str) -> ast.Module:
    """Return the syntax tree of a pruned source, of the whole one where that fails.

    Raises SyntaxError or ValueError for a source that is no Python.
    """
    if less is not data:
        with suppress(SyntaxError, ValueError):
            return ast.parse(less, name)
    return ast.parse(data, name)
