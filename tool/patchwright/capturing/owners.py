"""Which patch wrote which line of a file, as the series stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from patchwright.changes import FileChange, Hunk
from patchwright.diff import parse_diff
from patchwright.editing.rewriting import diff_between
from patchwright.store import ObjectStore


@dataclass(frozen=True)
class Run:
    """Lines that stand one below the other in a diff: ``start`` to ``end`` go, ``new`` come.

    0-based, in the old file; an empty range is an insertion before line ``start``.
    """

    start: int
    end: int
    new: tuple[bytes, ...]


@dataclass
class Owners:
    """The patch that wrote each line (None: upstream), and the one that removed lines at a gap.

    ``gaps[n]`` is the place before line ``n``; there is one more than lines.
    """

    lines: list[int | None] = field(default_factory=list)
    gaps: list[int | None] = field(default_factory=lambda: [None])

    def apply(self, runs: Sequence[Run], number: int) -> None:
        """Follow a patch's change to the file."""
        for run in reversed(runs):
            self.lines[run.start : run.end] = [number] * len(run.new)
            middle: list[int | None] = [None] * max(len(run.new) - 1, 0)
            edges: list[int | None] = [number] if not run.new else [
                self.gaps[run.start], *middle, self.gaps[run.end]
            ]  # fmt: skip
            self.gaps[run.start : run.end + 1] = edges

    def pad(self, count: int) -> None:
        """Let there be at least ``count`` lines; those that are not known are upstream's."""
        missing: list[int | None] = [None] * (count - len(self.lines))
        self.lines += missing
        self.gaps += missing

    def of(self, run: Run) -> set[int]:
        """Return the patches on whose lines a change is made."""
        found = set(self.lines[run.start : run.end]) | set(self.gaps[run.start : run.end + 1])
        around = self.lines[run.start - 1 : run.start + 1] if run.start else []
        if run.start == run.end and len(around) == 2 and around[0] == around[1]:
            found.add(around[0])  # inside of what one patch wrote
        return {number for number in found if number is not None}

    def near(self, run: Run, context: int = 3) -> set[int]:
        """Return the patches that wrote what a diff of this change shows around it."""
        start, end = max(run.start - context, 0), run.end + context
        return {n for n in (*self.lines[start:end], *self.gaps[start : end + 1]) if n is not None}


def runs(hunks: Sequence[Hunk]) -> Iterator[Run]:
    """Yield the changes of a file, in its order."""
    for hunk in hunks:
        at = hunk.old_start - (hunk.old_count > 0)
        start, new = at, list[bytes]()
        for line in hunk.lines:
            if line[:1] == b" ":
                if at > start or new:
                    yield Run(start, at, tuple(new))
                at += 1
                start, new = at, []
            elif line[:1] == b"-":
                at += 1
            else:
                new.append(line[1:])
        if at > start or new:
            yield Run(start, at, tuple(new))


def tree_diff(store: ObjectStore, old: str, new: str) -> tuple[FileChange, ...]:
    """Return what differs between two trees, file by file, with exact line numbers."""
    if old == new:
        return ()
    text = diff_between(store, old, new)
    return parse_diff(text[text.index(b"diff --git ") :], 1)


def owners_of(
    store: ObjectStore, steps: Sequence[tuple[int, str, str]], paths: set[bytes]
) -> dict[bytes, Owners]:
    """Return who wrote the lines of ``paths``, as they are after the last of ``steps``.

    A step is a patch's number, the tree before it and the tree after it, in order.
    """
    found: dict[bytes, Owners] = {}
    for number, before, after in steps:
        for change in tree_diff(store, before, after):
            _follow(store, found, change, number, before)
    return {path: found[path] for path in paths if path in found}


def _follow(
    store: ObjectStore, found: dict[bytes, Owners], change: FileChange, number: int, before: str
) -> None:
    old, new = change.old_path, change.new_path
    if new is None:
        found.pop(old or b"", None)
        return
    owners = Owners()
    if old is not None:
        owners = found[old] if old in found else _upstream(store, before, old)
        if change.kind == "rename":
            found.pop(old, None)
    owners = Owners(list(owners.lines), list(owners.gaps))
    owners.apply(tuple(runs(change.hunks)), number)
    if change.binary is not None:
        owners = Owners([number], [None, None])
    found[new] = owners


def _upstream(store: ObjectStore, tree: str, path: bytes) -> Owners:
    entry = store.entry(tree, path)
    count = 0
    if entry is not None:
        data = store.blob(entry.oid)
        count = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    return Owners([None] * count, [None] * (count + 1))
