"""A series to be, made from the one that is: every patch carried over to its new base.

Each patch stands for the change from the tree before it to the tree after it, and that
change is what is kept: it is merged three-way into the tree that the patch meets in the
new series. Where its own text, applied exactly, gives the same tree, its bytes stay as
they are; otherwise its diff is written anew. A conflict stops the work before anything is
written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchwright.applying.chain import Chain, State, apply_one
from patchwright.applying.files import PatchOnTree
from patchwright.applying.verdicts import OK
from patchwright.diff import parse_diff
from patchwright.editing.merging import Conflict, merge
from patchwright.editing.rewriting import diff_between, with_diff
from patchwright.errors import PatchwrightError
from patchwright.patch import Patch
from patchwright.series import Series

if TYPE_CHECKING:
    from patchwright.project import Project


@dataclass(frozen=True)
class Item:
    """One patch of the series to be: its name and text, and whose change it makes.

    ``origins`` are numbers in the present series; their changes are made one after the
    other. With none, the patch's own diff is what counts: it must fit exactly.
    """

    patch: Patch
    origins: tuple[int, ...] = ()


@dataclass(frozen=True)
class Resolution:
    """What a person made of a conflict: ``diff`` on the tree ``base``."""

    base: str
    diff: bytes


@dataclass(frozen=True)
class Stopped:
    """Where the work stopped: the change of ``origin`` does not go on ``base`` by itself.

    ``conflict`` is None where it would change nothing there any more.
    """

    item: Item
    origin: int
    base: str
    conflict: Conflict | None


@dataclass(frozen=True)
class Carried:
    """The new series and the trees after it; ``rewritten`` are those with a new diff."""

    patches: tuple[Patch, ...]
    state: State
    rewritten: tuple[Patch, ...]


class Carrier:
    """Carries the patches of ``series`` (as it is) over to the places of ``items``."""

    def __init__(self, project: Project, series: Series) -> None:
        self.project = project
        self.series = series
        self.chain = Chain(project)
        self.before: dict[int, str] = {}  # the tree that a patch meets now
        self.after: dict[int, str] = {}  # the tree that it makes of it, if it applies
        self.changed: set[int] = set()  # those whose tree after it is not what its text gives
        state = self.chain.base()
        _, verdicts = self.chain.apply(series.patches)
        for patch, verdict in zip(series.patches, verdicts, strict=True):
            self.before[patch.number] = state.tree(verdict.upstream)
            if verdict.ok and verdict.tree is not None:
                self.after[patch.number] = verdict.tree
            state = state.after(verdict)
        self.state = state

    def carry(
        self, items: Sequence[Item], resolved: Mapping[int, Resolution] | None = None
    ) -> Carried | Stopped:
        """Return the new series, or where it needs a person. Writes nothing."""
        trees = dict(self.chain.base().trees)
        done: list[Patch] = []
        rewritten: list[Patch] = []
        for item in items:
            upstream = self.chain.upstream(item.patch)
            base = trees[upstream]
            tree: str | None = base
            for origin in item.origins:
                assert tree is not None
                known = (resolved or {}).get(origin)
                made = self._change(origin, tree, known)
                if isinstance(made, Conflict):
                    return Stopped(item, origin, tree, made)
                if made == tree and origin in self.after:
                    return Stopped(item, origin, tree, None)
                tree = made
            if not item.origins:
                tree = self.own(item.patch, base, upstream)
            elif len(item.origins) == 1 and item.origins[0] not in self.after:
                tree = None  # it does not apply now, and is left as it is
            patch = item.patch
            if tree is not None and item.origins and not self._keeps(item, base, tree, upstream):
                patch = with_diff(patch, diff_between(self.project.store, base, tree))
                rewritten.append(patch)
            done.append(patch)
            trees[upstream] = tree or base
        self.project.store.flush()
        return Carried(tuple(done), State(tuple(sorted(trees.items()))), tuple(rewritten))

    def _change(self, origin: int, tree: str, known: Resolution | None) -> str | Conflict:
        store = self.project.store
        if known is not None and known.base == tree:
            work = PatchOnTree(store, tree, None)
            diff = known.diff[known.diff.index(b"diff --git ") :]  # without its diffstat
            if all(v.verdict in OK for v in work.apply(parse_diff(diff, 1))):
                return store.edit_tree(tree, work.edits())
        if origin not in self.after:
            return tree
        title = self.series.get(origin).title
        return merge(
            store, self.before[origin], tree, self.after[origin], f"{origin:04d} {title}".strip()
        )

    def own(self, patch: Patch, base: str, upstream: str) -> str:
        """Return the tree that a new text makes of ``base``, which it was made for."""
        verdict = apply_one(PatchOnTree(self.project.store, base, None), patch, upstream)
        if verdict.tree is None:
            raise PatchwrightError(
                f"the new text of {patch.path.name} does not apply: {verdict.reason}",
                next_step="report this: nothing was written",
            )
        return verdict.tree

    def _keeps(self, item: Item, base: str, tree: str, upstream: str) -> bool:
        """Return whether the patch's text can stay: exact, and giving just that tree."""
        if len(item.origins) > 1:
            return False
        origin = item.origins[0]
        same = self.before[origin] == base and self.after.get(origin) == tree
        if same and origin not in self.changed:
            return True
        # Line numbers that are right must stay right: no offsets, no merges.
        work = PatchOnTree(self.project.store, base, None)
        verdict = apply_one(work, item.patch, upstream)
        return verdict.verdict == "clean" and verdict.tree == tree
