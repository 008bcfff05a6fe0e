"""The chain of trees: a series applied without a work tree, each pair computed once."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.applying.cache import key
from patchwright.applying.verdicts import OK, ApplyVerdict, combine, decode, encode
from patchwright.changes import CorruptPatch
from patchwright.errors import InputError
from patchwright.files import hold_folder
from patchwright.lock import ABSENT, layout_digest, only_upstream
from patchwright.packs import Indexes, missing
from patchwright.patch import Patch

if TYPE_CHECKING:
    from patchwright.applying.files import PatchOnTree
    from patchwright.project import Project
    from patchwright.upstreams.layout import PathMap

# How many sets of patches are tried for the smallest one that a patch needs.
_TRIES = 500


@dataclass(frozen=True)
class State:
    """One state of all upstreams: (upstream, repository tree id), sorted by name."""

    trees: tuple[tuple[str, str], ...]

    def tree(self, upstream: str) -> str:
        """Return an upstream's tree id; KeyError for one that is not in the state."""
        return dict(self.trees)[upstream]

    def after(self, verdict: ApplyVerdict) -> State:
        """Return the state after a patch; the same one where it was not applied."""
        if verdict.tree is None:
            return self
        return State(tuple(sorted((dict(self.trees) | {verdict.upstream: verdict.tree}).items())))


@dataclass(frozen=True)
class Alone:
    """Patch ``number`` on top of what it declares to need, and of nothing else.

    ``state`` is None where that does not apply; ``undeclared`` are then the fewest
    earlier patches which make it apply (empty: none found), ``reason`` says it.
    """

    number: int
    patches: tuple[Patch, ...]
    verdicts: tuple[ApplyVerdict, ...]
    state: State | None
    undeclared: tuple[int, ...] = ()
    reason: str = ""


class Chain:
    """Applies patches of one project, remembering every (tree, patch) pair."""

    def __init__(self, project: Project) -> None:
        self.project = project
        # What is found in the store stays there while this chain is in use.
        hold_folder(self._store_path, self)
        self._cache = project.applied
        self._indexes = Indexes()
        self._there: set[str] = set()  # trees that were found in it
        self._base: State | None = None
        self._new: dict[str, str] = {}  # rows that wait for the next commit

    def base(self) -> State:
        """Return the pristine trees of all upstreams, imported where they are not yet."""
        if self._base is None:
            trees = {name: self._pristine(name) for name in self.project.config.upstreams}
            self._base = State(tuple(sorted(trees.items())))
        return self._base

    def upstream(self, patch: Patch) -> str:
        """Return a patch's upstream; InputError where it names none of several, or no known one."""
        name = patch.upstream or only_upstream(self.project.config)
        if name == ABSENT:
            raise InputError(
                "the patch does not say which upstream it is for", where=str(patch.path),
                next_step="add a field Upstream: NAME VERSION below its --- line",
            )  # fmt: skip
        return self.project.upstream(name).name

    def apply(self, patches: Sequence[Patch]) -> tuple[State, tuple[ApplyVerdict, ...]]:
        """Apply ``patches`` in their order to the base, one verdict each.

        A patch that does not apply leaves its tree as it is, and the next one is tried
        on that. Every tree that a verdict names is in the store afterwards.
        """
        verdicts = self._known(patches)
        if verdicts is None:
            verdicts = self._computed(patches)
        state = self.base()
        for verdict in verdicts:
            state = state.after(verdict)
        return state, tuple(verdicts)

    def alone(self, number: int) -> Alone:
        """Apply a patch on top of the closure of its needs only."""
        series = self.project.series
        patch = series.get(number)
        closure = tuple(series.get(n) for n in series.closure(number))
        state, verdicts = self.apply(closure)
        if all(v.ok for v in verdicts):
            return Alone(number, closure, verdicts, state)
        bad = next(v for v in verdicts if not v.ok)
        if bad.patch_number != number or bad.verdict in ("corrupt", "outside", "empty"):
            reason = f"{bad.patch_number:04d} does not apply: {bad.reason}"
            return Alone(number, closure, verdicts, None, (), reason)
        needed = self._smallest_set(patch, closure)
        if needed:
            names = " and ".join(f"{n:04d}" for n in needed)
            them = "it" if len(needed) == 1 else "them"
            reason = f"{number:04d} does not apply without {names}: declare {them}"
        else:
            reason = f"{number:04d} does not apply: {bad.reason}"
        return Alone(number, closure, verdicts, None, needed, reason)

    # Known pairs

    def _known(self, patches: Sequence[Patch]) -> list[ApplyVerdict] | None:
        """Return the verdicts where all are known and their trees are all there."""
        verdicts: list[ApplyVerdict] = []
        keys: dict[str, str] = {}  # tree after a patch -> the row that says so
        trees = dict(self.base().trees)
        for patch in patches:
            name = self.upstream(patch)
            row = key(trees[name], patch.sha256, self._layouts[name])
            verdict = self._look_up(row, patch, name)
            if verdict is None:
                return None
            verdicts.append(verdict)
            if verdict.tree is not None:
                trees[name] = verdict.tree
                keys[verdict.tree] = row
        lost = self._lost(keys)
        for tree in lost:
            self._cache.forget(keys[tree])
        return None if lost else verdicts

    def _lost(self, trees: Collection[str]) -> set[str]:
        """Return those that the store does not hold; each is looked for until it is found."""
        asked = set(trees) - self._there
        lost = missing(self._store_path, asked, self._indexes) if asked else set()
        self._there |= asked - lost
        return lost

    def _look_up(self, row: str, patch: Patch, upstream: str) -> ApplyVerdict | None:
        text = self._cache.get(row)
        if text is None:
            return None
        try:
            return decode(text, patch.number, upstream)
        except ValueError:
            return None

    # Computing

    def _computed(self, patches: Sequence[Patch]) -> list[ApplyVerdict]:
        from patchwright.applying.files import PatchOnTree

        store = self.project.store
        trees = dict(self.base().trees)
        verdicts: list[ApplyVerdict] = []
        for patch in patches:
            name = self.upstream(patch)
            tree = trees[name]
            row = key(tree, patch.sha256, self._layouts[name])
            known = self._look_up(row, patch, name)
            if known is not None and (known.tree is None or store.has(known.tree)):
                verdict = known
            else:
                work = PatchOnTree(store, tree, self._paths[name], self._maker)
                verdict = apply_one(work, patch, name)
                if not work.unsettled:
                    self._new[row] = encode(verdict)
            verdicts.append(verdict)
            trees[name] = verdict.tree or tree
        # First the objects, then the rows that promise them: killed between the two,
        # the next run computes the same again.
        store.flush()
        if self._new:
            self._cache.put(self._new)
            self._new = {}
        return verdicts

    def _maker(self, oid: str) -> int | None:
        """Return the patch of the series that makes the blob which ``oid`` names."""
        return next((n for made, n in self._made if made.startswith(oid)), None)

    @cached_property
    def _made(self) -> list[tuple[str, int]]:
        made = []
        for patch in self.project.series.patches:
            with suppress(CorruptPatch):
                made += [(c.new_oid, patch.number) for c in patch.changes if c.new_oid is not None]
        return made

    def _smallest_set(self, patch: Patch, closure: tuple[Patch, ...]) -> tuple[int, ...]:
        """Return the fewest earlier patches on the same files that let ``patch`` apply."""
        series = self.project.series
        paths = _paths(patch)
        inside = {p.number for p in closure}
        candidates = [
            p.number
            for p in series.patches
            if p.number < patch.number
            and p.number not in inside
            and self.upstream(p) == self.upstream(patch)
            and paths & _paths(p)
        ]

        def fits(numbers: Sequence[int]) -> bool:
            chosen = inside.union(*(series.closure(n) for n in numbers))
            _, verdicts = self.apply([series.get(n) for n in sorted(chosen)])
            return all(v.ok for v in verdicts)

        for tries, numbers in enumerate(_by_size(candidates)):
            if fits(numbers):
                return numbers
            if tries == _TRIES:
                break
        else:
            return ()
        # Too many to try them all: leave out one after the other as long as it fits.
        needed = tuple(candidates)
        if not fits(needed):
            return ()
        for number in reversed(candidates):
            fewer = tuple(n for n in needed if n != number)
            if fits(fewer):
                needed = fewer
        return needed

    # The upstreams

    @property
    def _store_path(self) -> Path:
        return self.project.cache_dir / "objects.git"

    def _pristine(self, name: str) -> str:
        locked = self.project.locked_upstream(name)
        pin = dataclasses.replace(locked, tree="", outside="")
        row = key("pristine", hashlib.sha256(repr(pin).encode()).hexdigest(), locked.layout)
        known = self._cache.get(row)
        # The import's own record is asked through the object database, which takes
        # longer to load than all the rest of a run that finds everything known.
        if known is not None and not self._lost((known,)):
            return known
        tree = self.project.pristine(name).tree
        self._new[row] = tree
        return tree

    @cached_property
    def _layouts(self) -> dict[str, str]:
        """What a verdict depends on beside tree and patch: the layout, where it decides."""
        return {
            name: "" if config.source == "git" else layout_digest(config.layout)[:16]
            for name, config in self.project.config.upstreams.items()
        }

    @cached_property
    def _paths(self) -> dict[str, PathMap | None]:
        from patchwright.upstreams.layout import PathMap

        # A git revision holds files that are never installed, and patches may change them.
        return {
            name: None if config.source == "git" else PathMap(config.layout)
            for name, config in self.project.config.upstreams.items()
        }


def apply_one(work: PatchOnTree, patch: Patch, upstream: str) -> ApplyVerdict:
    try:
        changes = patch.changes
    except CorruptPatch as error:
        reason = f"line {error.line}: {error.reason}"
        return ApplyVerdict(patch.number, upstream, "corrupt", False, None, (), reason)
    files = tuple(work.apply(changes))
    verdict, reason = combine(files)
    tree: str | None = None
    if verdict in OK:
        tree = work.store.edit_tree(work.tree, work.edits())
        if tree == work.tree:
            # Told by the tree's id, never by an exit status.
            tree, verdict, reason = None, "empty", "the patch changes nothing"
    return ApplyVerdict(patch.number, upstream, verdict, tree is not None, tree, files, reason)


def _paths(patch: Patch) -> set[bytes]:
    try:
        changes = patch.changes
    except CorruptPatch:
        return set()
    return {path for c in changes for path in (c.old_path, c.new_path) if path is not None}


def _by_size(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(1, len(numbers) + 1):
        yield from combinations(numbers, size)
