"""What upstream changed in the functions that a patch changes: it may apply and still be wrong."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from patchwright.editing.merging import changes
from patchwright.quoting import display
from patchwright.upstreaming.functions import Function, around, functions

if TYPE_CHECKING:
    from patchwright.store import ObjectStore
    from patchwright.upstreaming.moves import Move


@dataclass(frozen=True)
class Touched:
    """A function under a patch that upstream changed, by ``added`` and ``removed`` lines."""

    number: int
    path: str
    function: str
    added: int
    removed: int


def touched(store: ObjectStore, moves: Iterable[Move]) -> tuple[Touched, ...]:
    """Return the functions that upstream changed under the patches that are carried."""
    found = []
    for move in moves:
        if not move.carried:
            continue
        for path, was, now in changes(store, move.base, move.made):
            target = move.renamed.get(display(path), "").encode() or path
            here = store.entry(move.on, target)
            if was is None or now is None or here is None or was.oid == here.oid:
                continue
            base, made, new = (store.blob(entry.oid) for entry in (was, now, here))
            found += _in_file(move.number, path, base, made, new)
    return tuple(found)


def _in_file(number: int, path: bytes, base: bytes, made: bytes, new: bytes) -> list[Touched]:
    old, patched, now = (io.BytesIO(data).readlines() for data in (base, made, new))
    known = functions(path, base)
    there = {f.name: f for f in functions(path, new)}
    own: dict[str, Function] = {}
    for code, i, _, _, _ in SequenceMatcher(None, old, patched, autojunk=False).get_opcodes():
        function = around(known, i) if code != "equal" else None
        if function is not None and not function.is_class:
            own[function.name] = function
    found = []
    for name, function in own.items():
        if name not in there:
            continue
        before = old[function.start : function.end]
        after = now[there[name].start : there[name].end]
        codes = [c for c in SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
                 if c[0] != "equal"]  # fmt: skip
        if codes:
            found.append(Touched(
                number, display(path), name,
                sum(m - k for _, _, _, k, m in codes), sum(j - i for _, i, j, _, _ in codes),
            ))  # fmt: skip
    return found
