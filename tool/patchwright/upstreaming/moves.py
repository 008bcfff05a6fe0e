"""The series on another pin: what becomes of each patch there, and why.

A patch stands for the change from the tree before it to the tree after it, on the old
pin. That change is made on the new pin by its exact text and, with the old tree as the
base, by a three-way merge: no index line is needed. Where the two differ, the merge is
right: it knows where the text stood.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from patchwright.applying.chain import Chain, apply_one
from patchwright.applying.files import PatchOnTree
from patchwright.applying.verdicts import ApplyVerdict
from patchwright.editing.carrying import Resolution
from patchwright.editing.merging import Conflict, changes
from patchwright.editing.rewriting import diff_between, with_diff, with_needs
from patchwright.patch import CorruptPatch, FileChange, Patch
from patchwright.quoting import display
from patchwright.upstreaming.content import Standing, blocks
from patchwright.upstreaming.onto import merge_onto
from patchwright.upstreaming.renames import renames
from patchwright.upstreaming.whereabouts import Whereabouts, surroundings

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.store import ObjectStore

Verdict = Literal[
    "clean", "moved", "merged", "retargeted", "partly-upstream", "upstream",
    "likely-upstream", "conflict", "gone", "left-out", "stale",
]  # fmt: skip
# Those that the new series can carry.
CARRIED: tuple[Verdict, ...] = ("clean", "moved", "merged", "retargeted", "partly-upstream")
# Those that stand in the way until somebody decides.
OPEN: tuple[Verdict, ...] = ("likely-upstream", "conflict", "gone", "stale")


@dataclass(frozen=True)
class Place:
    """One block of a patch: its line on the old pin, and how it stands on the new one."""

    path: str
    line: int
    function: str
    standing: Standing
    lost: bool = False


@dataclass(frozen=True)
class Move:
    """What becomes of one patch.

    ``base`` and ``made`` are its trees on the old pin, ``on`` the tree that it meets on
    the new one, ``tree`` what it makes of it (None where it is not carried). ``patch`` is
    the text for the new pin. ``offsets`` are lines by which its hunks moved, ``places``
    the blocks of a patch that upstream has in part or not at all.
    """

    number: int
    upstream: str
    verdict: Verdict
    reason: str
    patch: Patch
    base: str = ""
    made: str = ""
    on: str = ""
    tree: str | None = None
    offsets: tuple[int, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    places: tuple[Place, ...] = ()
    conflict: Conflict | None = field(default=None, repr=False)

    @property
    def carried(self) -> bool:
        """Whether the new series has it."""
        return self.verdict in CARRIED


class Mover:
    """Makes the changes of a series on other pristine trees.

    ``bases`` are the new pristine trees by upstream; patches for other upstreams stay as
    they are. ``without`` are left out, ``resolved`` what a person made of conflicts.
    """

    def __init__(
        self, project: Project, bases: Mapping[str, str], versions: Mapping[str, str],
        without: Collection[int] = (), resolved: Mapping[int, Resolution] | None = None,
    ) -> None:  # fmt: skip
        self.project = project
        self.store: ObjectStore = project.store
        self.chain = Chain(project)
        self.bases = bases
        self.versions = versions
        self.without = without
        self.resolved = resolved or {}
        self._renames: dict[str, dict[bytes, bytes]] = {}
        self._whereabouts: dict[str, Whereabouts] = {}
        self._last: dict[str, str] = {}  # the trees after the whole series, on the old pins

    def moves(self, say: Callable[[str], None] = lambda _: None) -> tuple[Move, ...]:
        """Return what becomes of every patch of a moving upstream, in order."""
        patches = self.project.series.patches
        state = self.chain.base()
        _, verdicts = self.chain.apply(patches)
        for verdict in verdicts:
            self._last = self._last | ({verdict.upstream: verdict.tree} if verdict.tree else {})
        trees = dict(self.bases)
        found: list[Move] = []
        for patch, verdict in zip(patches, verdicts, strict=True):
            before, state = state, state.after(verdict)
            name = verdict.upstream
            if name not in self.bases:
                continue
            say(f"{patch.number:04d} on {name} {self.versions[name]}")
            move = self._move(patch, verdict, before.tree(name), trees[name])
            found.append(move)
            trees[name] = move.tree or trees[name]
        self.store.flush()
        return tuple(found)

    def series(self, moves: Sequence[Move]) -> tuple[Patch, ...]:
        """Return the new series; needs on what upstream has by now are met, and go.

        A patch that needs one which is not carried stays in it, without that need: who
        accepts has to refuse it.
        """
        by_number = {move.number: move for move in moves}
        gone = {n: () for n, move in by_number.items() if not move.carried}
        out = []
        for patch in self.project.series.patches:
            move = by_number.get(patch.number)
            if move is None or move.carried:
                text = move.patch if move is not None else patch
                out.append(with_needs(text, patch.number, gone))
        return tuple(out)

    def _move(self, patch: Patch, verdict: ApplyVerdict, base: str, on: str) -> Move:
        name, number, made = verdict.upstream, patch.number, verdict.tree
        if number in self.without:
            return Move(number, name, "left-out", "asked for with --without", patch,
                        base, made or "", on)  # fmt: skip
        if made is None:
            reason = f"it does not apply to the old pin either ({verdict.reason})"
            return Move(number, name, "stale", reason, patch, base, "", on)
        resolved = self._resolved(number, on)
        if resolved is not None:
            word: Verdict = "merged" if resolved != on else "upstream"
            return self._done(patch, name, word, "resolved by hand", base, made, on, resolved)
        text = apply_one(PatchOnTree(self.store, on, None, lambda oid: number), patch, name)
        merged = merge_onto(
            self.store, base, on, made, f"{number:04d} {patch.title}".strip(), self._renamed(name)
        )
        return self._judged(patch, text, base, made, on, merged)

    def _judged(
        self, patch: Patch, text: ApplyVerdict, base: str, made: str, on: str,
        merged: str | Conflict,
    ) -> Move:  # fmt: skip
        if not text.ok and self._as_made(text.upstream, base, made, on):
            reason = "its files are there as the whole series makes them"
            return self._done(patch, text.upstream, "upstream", reason, base, made, on, on)
        if isinstance(merged, Conflict):
            if text.ok and text.tree is not None:
                return self._fits(patch, text, base, made, on, text.tree)
            return self._conflict(patch, text, base, made, on, merged)
        if merged == on:
            return self._done(patch, text.upstream, "upstream", _how(text), base, made, on, on)
        if text.tree == merged:
            return self._fits(patch, text, base, made, on, merged)
        return self._merged(patch, text, base, made, on, merged)

    def _resolved(self, number: int, on: str) -> str | None:
        known = self.resolved.get(number)
        if known is None or known.base != on:
            return None
        start = known.diff.find(b"diff --git ")
        if start < 0:
            return on
        from patchwright.diff import parse_diff

        work = PatchOnTree(self.store, on, None)
        files = work.apply(parse_diff(known.diff[start:], 1))
        return self.store.edit_tree(on, work.edits()) if all(f.verdict == "clean" for f in files) \
            else None  # fmt: skip

    def _as_made(self, name: str, base: str, made: str, on: str) -> bool:
        """Return whether upstream took this patch and all later ones for its files."""
        last = self._last[name]
        return all(
            (here := self.store.entry(on, path)) is not None
            and here == self.store.entry(last, path)
            for path, _, now in changes(self.store, base, made)
            if now is not None
        )

    def _fits(
        self, patch: Patch, text: ApplyVerdict, base: str, made: str, on: str, tree: str
    ) -> Move:
        offsets = tuple(o for f in text.files for o in f.offsets)
        word: Verdict = "moved" if any(offsets) else "clean"
        reason = "; ".join(f"{f.path}: {f.detail}" for f in text.files if f.detail)
        return self._done(patch, text.upstream, word, reason, base, made, on, tree, offsets)

    def _merged(
        self, patch: Patch, text: ApplyVerdict, base: str, made: str, on: str, tree: str
    ) -> Move:
        """The merge is clean, and the text alone would not give the same."""
        renamed = self._targets(patch, text.upstream)
        there = [p for p in self._places(base, made, on, renamed) if p.standing == "upstream"]
        if there:
            said = ", ".join(f"{p.path}:{p.line}" for p in there)
            reason = (
                f"upstream has the change at {said} (lines of the old pin); the rest is carried"
            )
            return self._done(patch, text.upstream, "partly-upstream", reason, base, made, on,
                              tree, renamed=renamed, places=tuple(there))  # fmt: skip
        if renamed:
            said = ", ".join(f"{old} is {new} now" for old, new in renamed.items())
            return self._done(patch, text.upstream, "retargeted", said, base, made, on, tree,
                              renamed=renamed)  # fmt: skip
        why = "its text fits elsewhere too, the old pin tells where" if text.ok else text.reason
        return self._done(patch, text.upstream, "merged", _in_short(why),
                          base, made, on, tree)  # fmt: skip

    def _conflict(
        self, patch: Patch, text: ApplyVerdict, base: str, made: str, on: str, conflict: Conflict
    ) -> Move:
        name, number = text.upstream, patch.number
        renamed = self._targets(patch, name)
        lost = [
            display(path)
            for path, was, now in changes(self.store, base, made)
            if was is not None and now is not None
            and self.store.entry(on, self._now(name, path)) is None
        ]  # fmt: skip
        places = self._places(base, made, on, renamed)
        some = [place for place in places if place.standing == "upstream"]
        if not lost and some and all(p.standing in ("upstream", "idle") for p in places):
            reason = "upstream has the same in other words: " + _said(some)
            return self._done(patch, name, "upstream", reason, base, made, on, on,
                              places=tuple(places))  # fmt: skip
        alike = [place for place in places if place.standing == "alike"]
        word: Verdict = "gone" if lost else "conflict"
        if lost:
            reason = f"{', '.join(lost)} is gone from upstream"
            reason += self._elsewhere(name, self._lines_of(base, made))
        elif alike and all(p.standing in ("upstream", "idle", "alike") for p in places):
            word = "likely-upstream"
            reason = f"upstream seems to have it in other words: {_said(alike)}"
        else:
            changed = [p for p in places if p.standing in ("changed", "alike")] or places
            reason = f"upstream changed the same lines: {_said(changed)}"
            gone = {place.function: place.path for place in changed if place.lost}
            for function, path in gone.items():
                here = {function: self._lines_of(base, made).get(function, [])}
                reason += f"\n{function} is gone from {path}" + self._elsewhere(name, here)
            if alike:
                reason += f"; seems to be there in other words: {_said(alike)}"
        if renamed:
            reason += f" ({', '.join(f'{old} is {new} now' for old, new in renamed.items())})"
        if some:
            reason += f"; in upstream already: {_said(some)}"
        return Move(number, name, word, reason, patch, base, made, on, None, (), renamed,
                    tuple(places), conflict)  # fmt: skip

    def _lines_of(self, base: str, made: str) -> dict[str, list[bytes]]:
        """Return the Python functions that a patch changes, with the lines around the change."""
        found: dict[str, list[bytes]] = {}
        for path, was, now in changes(self.store, base, made):
            if path.endswith(b".py") and was is not None and now is not None:
                old, new = (self.store.blob(entry.oid) for entry in (was, now))
                for block in blocks(self.store, path, old, new, old):
                    if block.function:
                        lines = surroundings(path, old, block.line - 1)
                        found.setdefault(block.function, []).extend(lines)
        return found

    def _elsewhere(self, upstream: str, lost: Mapping[str, Sequence[bytes]]) -> str:
        """Say where upstream has functions now: by name, or else by what their lines say."""
        if upstream not in self._whereabouts:
            self._whereabouts[upstream] = Whereabouts(self.store, self.bases[upstream])
        where = self._whereabouts[upstream]
        names = [name.rpartition(".")[2] for name in lost]
        if not names or any(name.startswith("__") for name in names):
            return ""
        if found := where.named(names):
            return f"; {', '.join(found[:3])}"
        like = [place for lines in lost.values() if (place := where.like(lines))]
        return "; no file of upstream has a function of that name: it was rewritten" + (
            f", most like it is {', '.join(like[:3])}" if like else ""
        )

    def _places(self, base: str, made: str, on: str, renamed: Mapping[str, str]) -> list[Place]:
        """Return every block of the patch, with whether upstream has it."""
        found = []
        for path, was, now in changes(self.store, base, made):
            target = renamed.get(display(path), "").encode() or path
            here = self.store.entry(on, target)
            if was is None or now is None or here is None:
                continue
            data = [self.store.blob(entry.oid) for entry in (was, now, here)]
            if any(b"\0" in part[:8000] for part in data):
                continue
            found += [
                Place(display(path), block.line, block.function, block.standing, block.lost)
                for block in blocks(self.store, target, *data)
            ]
        return found

    def _targets(self, patch: Patch, name: str) -> dict[str, str]:
        """Return the patch's files that upstream renamed, with their new names."""
        old = [c.old_path for c in _changes(patch) if c.old_path is not None]
        pairs = ((path, self._now(name, path)) for path in old)
        return {display(path): display(now) for path, now in pairs if path != now}

    def _now(self, name: str, path: bytes) -> bytes:
        return self._renamed(name).get(path, path)

    def _renamed(self, name: str) -> dict[bytes, bytes]:
        if name not in self._renames:
            paths = {
                change.old_path
                for patch in self.project.series.patches
                if self.chain.upstream(patch) == name
                for change in _changes(patch)
                if change.old_path is not None
            }
            before = self.chain.base().tree(name)
            self._renames[name] = renames(self.store, before, self.bases[name], paths)
        return self._renames[name]

    def _done(
        self, patch: Patch, name: str, verdict: Verdict, reason: str, base: str, made: str,
        on: str, tree: str, offsets: tuple[int, ...] = (), *,
        renamed: Mapping[str, str] | None = None, places: tuple[Place, ...] = (),
    ) -> Move:  # fmt: skip
        if verdict == "upstream" or tree == on:
            return Move(patch.number, name, verdict, reason, patch, base, made, on, None, offsets,
                        places=places)  # fmt: skip
        if verdict != "clean" or not self._same_blobs(patch, on):
            patch = with_diff(patch, diff_between(self.store, on, tree))
        patch = patch.with_fields({"Upstream": [f"{name} {self.versions[name]}"]})
        return Move(patch.number, name, verdict, reason, patch, base, made, on, tree, offsets,
                    renamed or {}, places)  # fmt: skip

    def _same_blobs(self, patch: Patch, on: str) -> bool:
        """Return whether the ids that the diff names are those of the new pin."""
        for change in patch.changes:
            entry = None if change.old_path is None else self.store.entry(on, change.old_path)
            if change.old_oid is not None and entry is not None \
                    and not entry.oid.startswith(change.old_oid):  # fmt: skip
                return False
        return True


def _changes(patch: Patch) -> tuple[FileChange, ...]:
    try:
        return patch.changes
    except CorruptPatch:
        return ()


def _how(text: ApplyVerdict) -> str:
    """Say how it is known that upstream has all of a patch."""
    if text.verdict == "already-upstream":
        return "it fits in reverse: every line of it is there"
    return "merged with the old pin as the base, nothing of it is left"


def _in_short(why: str) -> str:
    """Leave out what the applier adds for whoever has no base to merge on."""
    return why.partition("; at line")[0].partition(", and it was made on top of")[0]


def _said(places: Sequence[Place]) -> str:
    by_path: dict[str, list[int]] = {}
    for place in places:
        by_path.setdefault(place.path, []).append(place.line)
    return ", ".join(
        f"{path}:{','.join(str(line) for line in lines)}" for path, lines in by_path.items()
    )
