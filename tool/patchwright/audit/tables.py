"""Tables of records that each name architectures: one gate for a table, not one for a record.

Releases hold generated kernels by the thousand, each a record with the architectures that
it is delivered for. What a table decides is a sum: how many of its lists name an
architecture. Large ones are found and counted in the text, and never parsed: what they
hold is then unknown to the evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# So many lists of architectures in one statement make it a table.
MANY = 8
_BEGIN = re.compile(
    rb"^([A-Za-z_]\w*)[ \t]*(?::[^=\n#]+)?=[ \t]*[\[({][ \t]*(?:#[^\n]*)?\n", re.MULTILINE
)
_END = re.compile(rb"^[\])}]+[ \t]*(?:#[^\n]*)?$", re.MULTILINE)
_TEXT = re.compile(rb"\"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'|#[^\n]*")
_WORD = re.compile(rb"(?<![\w.])[A-Za-z_]\w*")
_CONSTANTS = {b"True", b"False", b"None"}
_NAME = rb"\s*[\"']sm_?\d{2,3}[af]?[\"']\s*"
_LIST = re.compile(rb"[\[({](%s(?:,%s)*),?\s*[\])}]" % (_NAME, _NAME))
_NUMBER = re.compile(r"sm_?(\d{2,3})")
_PAIRS = ((b"[", b"]"), (b"(", b")"), (b"{", b"}"))
# Evaluation knows nothing of what stands in a table's place.
_NOTHING = b" = {_: _ for _ in ()}"
# What is a gate of its own in a text.
_OTHERS = (b"gencode", b"compute_", b"CUDA_ARCH")


@dataclass(frozen=True)
class Table:
    """A table: 1-based lines, and of each list the architectures' numbers (``120``)."""

    name: str
    line: int
    end_line: int
    lists: tuple[frozenset[int], ...]
    function: str = ""


def without_tables(data: bytes, marked: Sequence[int]) -> tuple[bytes, list[Table]]:
    """Return a source without its large literal tables of architectures, and these.

    A table's name stays bound, to nothing that is known, and lines keep their numbers.
    """
    if len(marked) < MANY or b"sm" not in data:
        return data, []
    tables: list[Table] = []
    parts: list[bytes] = []
    at = lines = counted = 0
    for match in _BEGIN.finditer(data):
        if match.start() < at:
            continue
        end = _END.search(data, match.end())
        if end is None or not _is_literal(data[data.index(b"=", match.start()) : end.end()]):
            continue
        text = data[match.start() : end.end()]
        lists = tuple(numbers([found[1].decode()]) for found in _LIST.finditer(text))
        if len(lists) < MANY or any(word in text for word in _OTHERS):
            continue
        lines += data.count(b"\n", counted, match.start())
        counted = match.start()
        height = text.count(b"\n")
        tables.append(Table(match[1].decode(), lines + 1, lines + 1 + height, lists))
        parts += [data[at : match.start()], match[1], _NOTHING, b"\n" * height]
        at = end.end()
    return (b"".join([*parts, data[at:]]), tables) if parts else (data, [])


def numbers(names: Iterable[str]) -> frozenset[int]:
    """Return the numbers in names of architectures: ``sm_120a`` gives 120."""
    return frozenset(int(number) for name in names for number in _NUMBER.findall(name))


def _is_literal(text: bytes) -> bool:
    """Return whether the inside of a bracket, up to its end, is a literal."""
    rest = _TEXT.sub(b"", text)
    return (
        b'"' not in rest
        and b"'" not in rest
        and all(rest.count(a) == rest.count(b) for a, b in _PAIRS)
        and set(_WORD.findall(rest)) <= _CONSTANTS
    )


def decided(lists: Iterable[frozenset[int]], number: int) -> bool | None:
    """Return what a table decides for an architecture: None where only some lists name it."""
    answers = {number in one for one in lists}
    return answers.pop() if len(answers) == 1 else None


def told(lists: Sequence[frozenset[int]]) -> str:
    """Return in words how many lists name which architecture."""
    every = sorted(frozenset().union(*lists))
    counts = ", ".join(f"sm_{n} in {sum(n in one for one in lists)}" for n in every)
    return f"of {len(lists)} lists: {counts}"
