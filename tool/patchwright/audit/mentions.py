"""Which lines of a source may ask for an architecture: those that hold one of its words.

Written for speed, as every file of the upstreams goes through it: plain searches and
patterns that begin with a literal, on the text in lower case.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator

_LITERALS = (b"capabilit", b"blackwell", b"hopper", b"nvcc_flags", b"gencode", b"support_pdl",
             b"major_versions", b"get_device_properties", b"device_sm", b"sm_version",
             b"backend_requirement")  # fmt: skip
_PATTERNS = tuple(
    (literal, re.compile(pattern))
    for literal, pattern in (
        (b"sm", rb"sm_?\d{2,3}"),
        (b"sm=", rb"(?<!\w)sm=\w"),
        (b"sm ", rb"sm (?:[<>=!]=|[<>]|(?:not )?in\b)"),
        (b"major ", rb"major (?:[<>=!]=|[<>]|(?:not )?in\b)"),
        (b"compute_", rb"compute_\d"),
        (b"arch", rb"(?<![a-z])(?<!cute\.)arch(?:s?\b|_)"),
        (b"", rb"[\"'](?:80|86|89|90|100|103|110|120|121)[af]?[\"']"),
    )
)
_NAME = re.compile(rb"[A-Za-z_]\w{5,}")
_WORD = re.compile(rb"\w")


def mentions(data: bytes) -> bool:
    """Return whether a source mentions an architecture at all."""
    return next(_places(data), None) is not None


def words(data: bytes) -> frozenset[bytes]:
    """Return the words of a source that are long enough for a name that tells something."""
    return frozenset(_NAME.findall(data))


def marked(data: bytes, names: Collection[bytes]) -> tuple[int, ...]:
    """Return the lines (1-based, in order) that mention an architecture or one of ``names``."""
    places = set(_places(data))
    for name in names:
        places.update(_whole(data, name))
    if not places:
        return ()
    ends = [match.start() for match in re.finditer(rb"\n", data)]
    return tuple(sorted({bisect_left(ends, place) + 1 for place in places}))


def _places(data: bytes) -> Iterator[int]:
    low = data.lower()
    for literal in _LITERALS:
        at = low.find(literal)
        while at >= 0:
            yield at
            at = low.find(literal, at + 1)
    for literal, pattern in _PATTERNS:
        if literal in low:
            for match in pattern.finditer(low):
                yield match.start()


def _whole(data: bytes, name: bytes) -> Iterator[int]:
    at = data.find(name)
    while at >= 0:
        end = at + len(name)
        if not _WORD.match(data, end) and not (at and _WORD.match(data, at - 1)):
            yield at
        at = data.find(name, end)
