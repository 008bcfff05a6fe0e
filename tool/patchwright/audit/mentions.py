"""What a source says before it is parsed: the lines that may ask for an architecture, its imports.

Written for speed, as every file of the upstreams goes through it: plain searches and
patterns that begin with a literal find candidates; only these are looked at closely.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_LITERALS = (b"capabilit", b"blackwell", b"hopper", b"nvcc_flags", b"gencode", b"support_pdl",
             b"major_versions", b"get_device_properties", b"device_sm", b"sm_version",
             b"backend_requirement")  # fmt: skip
_PATTERNS = tuple(
    (literal, re.compile(pattern))
    for literal, pattern in (
        (b"sm", rb"sm_?\d{2,3}"),
        (b"sm ", rb"sm (?:[<>=!]=|[<>]|(?:not )?in\b)"),
        (b"major ", rb"major (?:[<>=!]=|[<>]|(?:not )?in\b)"),
        (b"compute_", rb"compute_\d"),
        (b"arch", rb"arch(?<![a-z]arch)(?<!cute\.arch)(?:s?\b|_)"),
        (b"", rb"[\"'](?:80|86|89|90|100|103|110|120|121)[af]?[\"']"),
    )
)
_NAME = re.compile(rb"[A-Za-z_]\w{5,}")
_WORD = re.compile(rb"\w")
_WHOLE = re.compile(rb"\w*")
_START = re.compile(rb"\w*\Z")
# Words that ask wherever they stand in code.
_ASKING = re.compile(
    rb"nvcc_flags|gencode|support_pdl|major_versions|get_device_properties|backend_requirement|"
    rb"CUDA_ARCH|(?:^|_)capability|device_sm(?!_count)|sm_version|SMVersion|compute_\d|"
    rb"(?i:(?:^|_)(?:is|has|use|supports?|enable|on|can|require|check|match|only)_?\w*?"
    rb"(?:sm_?\d|blackwell|hopper|ampere)|(?:^|_)(?:is|has|check|match)_(?:\w+_)?archs?$|"
    rb"(?:sm_?\d+[xaf]?|blackwell|hopper|ampere)\w*(?:support|enabled|available|capab|only|or_))"
)
# Words that ask where they are compared.
_OPERAND = re.compile(
    rb"(?:^|_)(?:arch|sm|cc|major|minor|capability|sm_version|device_sm)s?$", re.IGNORECASE
)
_AFTER = re.compile(rb"(?:\[\d\])?\s*(?:[=!<>]=|[<>]|(?:not\s+)?in\b)")
_BEFORE = re.compile(rb"(?:[=!<>]=|[<>]|\bin)\s*(?:\w+\.)*\Z")
_TEXT = re.compile(rb"(?:sm_?)?\d{2,3}[af]?")
_TOKEN = re.compile(
    rb"#[^\n]*"
    rb'|"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""'
    rb"|'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''"
    rb'|"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
    rb"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'",
    re.DOTALL,
)
_IMPORT = re.compile(
    rb"[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]*"
    rb"(\((?:[^()#]|#[^\n]*)*\)|(?:[^\n\\]|\\\n)*)|import[ \t]+([^\n#]*))"
)
_COMMENT = re.compile(rb"#[^\n]*")
_IDENTIFIER = re.compile(rb"[A-Za-z_]\w*")
_DOTTED = re.compile(rb"\w[\w.]*")


@dataclass(frozen=True)
class Facts:
    """What one source says: ``lines`` that ask (1-based, in order), and its imports.

    ``imported`` are the names that come from the upstreams' own packages, and the
    attributes that are read from such names; ``star`` tells of a star import. ``size``
    is in bytes.
    """

    lines: tuple[int, ...]
    imported: frozenset[bytes]
    star: bool
    size: int


def facts(data: bytes, packages: Collection[str]) -> Facts:
    """Return what a source says; ``packages`` are the upstreams' import names."""
    own = {name.encode() for name in packages}
    imported: set[bytes] = set()
    star = False
    for source, names, plain in _imports(data):
        if plain is not None:
            for part in plain.split(b","):
                found = _IDENTIFIER.findall(part)
                if found and found[0] in own:
                    imported.add(found[-1] if b" as " in part else found[0])
        elif source.startswith(b".") or source.partition(b".")[0] in own:
            given = _COMMENT.sub(b"", names)
            star = star or b"*" in given
            imported.update(_IDENTIFIER.findall(given))
    imported.discard(b"as")
    behind = {
        part
        for name in imported
        for place in _whole(data, name, b".")
        if data[place - 1 : place] != b"." and (rest := _DOTTED.match(data, place + len(name) + 1))
        for part in rest[0].split(b".")
    }
    known = frozenset(name for name in imported | behind if len(name) > 5)
    return Facts(marked(data), known, star, len(data))


def _imports(data: bytes) -> Iterator[tuple[bytes, bytes, bytes | None]]:
    """Yield of each import what it imports from, the names, and those without a source."""
    at = data.find(b"import")
    while at >= 0:
        match = _IMPORT.match(data, data.rfind(b"\n", 0, at) + 1)
        if match is not None:
            yield match[1], match[2], match[3]
        at = data.find(b"import", max(at + 1, match.end() if match is not None else 0))


def words(data: bytes) -> frozenset[bytes]:
    """Return the words of a source that are long enough for a name that tells something."""
    return frozenset(_NAME.findall(data))


def marked(data: bytes) -> tuple[int, ...]:
    """Return the lines (1-based, in order) that may ask for an architecture."""
    places = _outside_prose(data, [p for p in set(_places(data)) if _tells(data, p)])
    return lines_at(data, places)


def named(data: bytes, names: Collection[bytes]) -> tuple[int, ...]:
    """Return the lines (1-based, in order) in which one of ``names`` stands as a word."""
    return lines_at(data, [place for name in names for place in _whole(data, name)])


def lines_at(data: bytes, places: Collection[int]) -> tuple[int, ...]:
    """Return the lines of places in a source, in order."""
    if not places:
        return ()
    ends = [match.start() for match in re.finditer(rb"\n", data)]
    return tuple(sorted({bisect_left(ends, place) + 1 for place in places}))


def tokens(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the comments and the texts in quotes of a source: start and end."""
    for match in _TOKEN.finditer(data):
        yield match.start(), match.end()


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


def _tells(data: bytes, place: int) -> bool:
    """Return whether the word at a place may ask, and is no name of kernels for one GPU."""
    if data[place : place + 1] in (b'"', b"'"):
        return True
    match = _START.search(data, max(0, place - 80), place)
    start = match.start() if match is not None else place
    whole = _WHOLE.match(data, start)
    end = whole.end() if whole is not None else place
    word = data[start:end]
    if _ASKING.search(word):
        return True
    quoted = data[start - 1 : start] in (b'"', b"'") and data[end : end + 1] in (b'"', b"'")
    if quoted and _TEXT.fullmatch(word):
        return True
    if not _OPERAND.search(word):
        return False
    return bool(_AFTER.match(data, end) or _BEFORE.search(data, max(0, start - 60), start))


def _outside_prose(data: bytes, places: Collection[int]) -> list[int]:
    """Return the places that lie in no comment and in no text that is a statement of its own."""
    if not places:
        return []
    starts, ends = [], []
    for start, end in tokens(data):
        if data[start] != ord("#"):
            line = data.rfind(b"\n", 0, start) + 1
            if data[start : start + 3] not in (b'"""', b"'''") or data[line:start].strip(
                b" \trRuU"
            ):
                continue
        starts.append(start)
        ends.append(end)
    found = []
    for place in places:
        at = bisect_right(starts, place) - 1
        if at < 0 or place >= ends[at]:
            found.append(place)
    return found


def _whole(data: bytes, name: bytes, behind: bytes = b"") -> Iterator[int]:
    """Yield where a name stands as a word, with ``behind`` after it."""
    wanted = name + behind
    at = data.find(wanted)
    while at >= 0:
        end = at + len(name)
        if not _WORD.match(data, end) and not (at and _WORD.match(data, at - 1)):
            yield at
        at = data.find(wanted, end)
