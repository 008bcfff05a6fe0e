"""Whether upstream has what a patch does, in its own words: a squashed or reworded fix.

Each block of lines that a patch changes is asked for by itself, within the function that
it stands in: upstream may have moved that about the file. Words are merged three-way, so
that layout and comments play no part. What that does not decide is told by the lines:
upstream has a block if it gained every line that the patch adds and lost every line that
it removes.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Literal

from patchwright.applying import by_git
from patchwright.upstreaming.functions import around, functions

if TYPE_CHECKING:
    from patchwright.store import ObjectStore

# "fits": upstream left its place alone; "idle": only comments or layout change; "alike":
# upstream changed the place, and gained there nearly all the names that the patch brings.
Standing = Literal["upstream", "alike", "fits", "changed", "idle"]

_TOKEN = re.compile(rb"[A-Za-z_]\w*|\d[\w.]*|\"[^\"\n]*\"|'[^'\n]*'|[^\w\s]")
_PYTHON_COMMENT = re.compile(rb"#[^\n]*")
_C_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
_C_FILES = (b".cu", b".cuh", b".h", b".hpp", b".cc", b".cpp", b".c", b".inc", b".jinja")
_AROUND = 10  # lines, where a block stands in no function
_ALIKE = 0.7  # of the names and numbers that a block brings
_NAME = re.compile(rb"[A-Za-z_]\w*|\d[\w.]*")
_KEYWORDS = frozenset(
    b"if else elif for while return not and or in is const auto int bool void true false True "
    b"False None static inline def raise self".split()
)
_Lines = Sequence[bytes]


@dataclass(frozen=True)
class Block:
    """One block of changed lines; ``line`` is where it stands in the old file (1-based).

    ``lost`` says that upstream's file no longer has the function that it stands in.
    """

    line: int
    function: str
    standing: Standing
    lost: bool = False


def blocks(
    store: ObjectStore, path: bytes, base: bytes, patched: bytes, new: bytes
) -> tuple[Block, ...]:
    """Return the blocks by which ``patched`` differs from ``base``, and how each stands.

    ``base`` is the file at the old pin, ``new`` the same file at the new one.
    """
    old, made, now = (io.BytesIO(data).readlines() for data in (base, patched, new))
    codes = SequenceMatcher(None, old, made, autojunk=False).get_opcodes()
    upstream = _changes(old, now)
    before, after = functions(path, base), {f.name: f for f in functions(path, new)}
    found = []
    for code, i, j, k, m in codes:
        if code == "equal":
            continue
        own = around(before, i)
        here = after.get(own.name) if own is not None else None
        if own is not None and here is not None and own.end >= j:
            start, end = own.start, own.end
            there = now[here.start : here.end]
        else:
            start, end = max(0, i - _AROUND), min(len(old), j + _AROUND)
            there = now[_mapped(upstream, start) : _mapped(upstream, end)]
        triple = (old[start:end], old[start:i] + made[k:m] + old[j:end], there)
        standing = _standing(store, path, *triple, old[i:j], made[k:m])
        if standing == "changed" and _alike(path, triple[0], triple[2], (i - start, j - start),
                                            made[k:m]):  # fmt: skip
            standing = "alike"
        lost = own is not None and here is None and bool(after)
        found.append(Block(i + 1, own.name if own is not None else "", standing, lost))
    return tuple(found)


def _standing(
    store: ObjectStore, path: bytes, base: _Lines, patched: _Lines, new: _Lines,
    removed: _Lines, added: _Lines,
) -> Standing:  # fmt: skip
    ours, root, theirs = (_words(path, lines) for lines in (new, base, patched))
    if theirs == root:
        return "idle"
    if ours == theirs:
        return "upstream"
    if ours == root:
        return "fits"
    merged = by_git.merge(store, ours, root, theirs)
    if merged is not None:
        return "upstream" if merged == ours else "fits"
    return "upstream" if _lines_came(path, base, new, removed, added) else "changed"


def _lines_came(path: bytes, base: _Lines, new: _Lines, removed: _Lines, added: _Lines) -> bool:
    before = Counter(_words(path, [line]) for line in base)
    after = Counter(_words(path, [line]) for line in new)
    gained = [w for line in added if len(w := _words(path, [line])) > 4]
    lost = [w for line in removed if len(w := _words(path, [line])) > 4]
    # What stands on both sides moved within the block.
    come = [w for w in gained if w not in lost]
    gone = [w for w in lost if w not in gained]
    # A removal alone is no sign: any rewriting removes lines.
    return bool(come) and all(after[w] > before[w] for w in come) and all(
        after[w] < before[w] for w in gone
    )  # fmt: skip


def _alike(path: bytes, base: _Lines, new: _Lines, where: tuple[int, int], added: _Lines) -> bool:
    """Return whether upstream gained, just where the block stands, most of what it brings."""
    same = _changes(base, new)
    start = max((end for _, end, _, _ in same if end <= where[0]), default=0)
    stop = min((first for first, last, _, _ in same if first >= where[1] and first < last),
               default=len(base))  # fmt: skip
    here = new[_mapped(same, start) : _mapped(same, stop)]
    old = _names(path, base[start:stop])
    brought = _names(path, added) - _names(path, base[where[0] : where[1]])
    gained = _names(path, here) - old
    return bool(brought) and len(brought & gained) >= _ALIKE * len(brought)


def _names(path: bytes, lines: _Lines) -> set[bytes]:
    words = _words(path, lines).split(b"\n")
    return {word for word in words if _NAME.fullmatch(word)} - _KEYWORDS


def _words(path: bytes, lines: _Lines) -> bytes:
    """Return the words of lines, one to a line, without comments."""
    data = b"".join(lines)
    if path.endswith(b".py"):
        data = _PYTHON_COMMENT.sub(b"", data)
    elif path.endswith(_C_FILES):
        data = _C_COMMENT.sub(b" ", data)
    return b"\n".join(_TOKEN.findall(data)) + b"\n"


def _changes(old: _Lines, new: _Lines) -> list[tuple[int, int, int, int]]:
    """Return where the same lines stand in both: (old start, old end, new start, new end)."""
    matcher = SequenceMatcher(None, old, new, autojunk=len(old) * len(new) > 10**7)
    return [(a, a + size, b, b + size) for a, b, size in matcher.get_matching_blocks()]


def _mapped(same: list[tuple[int, int, int, int]], line: int) -> int:
    """Return where a line of the old file stands, or would stand, in the new one."""
    before = 0
    for old_start, old_end, new_start, new_end in same:
        if line < old_start:
            return max(before, new_start - (old_start - line))
        if line <= old_end:
            return new_start + line - old_start
        before = new_end
    return before
