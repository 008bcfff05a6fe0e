"""Which patches are exported, and whether each can go out as it came in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchwright.applying.chain import Chain, apply_one
from patchwright.applying.files import PatchOnTree
from patchwright.applying.verdicts import ApplyVerdict
from patchwright.changes import CorruptPatch
from patchwright.errors import AnswerNo, InputError, PatchwrightError
from patchwright.importing.fitting import Base, fit
from patchwright.importing.originals import Original, Originals
from patchwright.importing.unified import read
from patchwright.patch import Patch
from patchwright.project import PATCHES
from patchwright.series import Selection
from patchwright.upstreams.layout import path_map

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.store import ObjectStore


@dataclass(frozen=True)
class Chosen:
    """One patch to be exported; ``original`` is None where it changed since its import."""

    patch: Patch
    base: Base
    tree: str
    verdict: ApplyVerdict
    original: Original | None


def choose(
    project: Project, selection: Selection, upstream: str | None, *, anew: bool = False
) -> list[Chosen]:
    """Return the selected patches of one upstream, in order; with ``anew`` no originals.

    Raises AnswerNo where one does not apply, InputError where several upstreams are meant.
    """
    if upstream is not None:
        project.upstream(upstream)
    picked = selection.pick(project.series)
    chain = Chain(project)
    if upstream is not None:
        picked = tuple(p for p in picked if chain.upstream(p) == upstream)
    names = sorted({chain.upstream(p) for p in picked})
    if len(names) > 1:
        raise InputError(
            f"the patches change {' and '.join(names)}", next_step="name one with --upstream"
        )
    _, verdicts = chain.apply(picked)
    bad = [v for v in verdicts if not v.ok]
    if bad:
        raise AnswerNo(
            f"{bad[0].patch_number:04d} does not apply: {bad[0].reason}",
            next_step="correct it, or leave it out with --without",
        )
    return _chosen(project, chain, picked, verdicts, anew)


def _chosen(
    project: Project,
    chain: Chain,
    picked: Sequence[Patch],
    verdicts: Sequence[ApplyVerdict],
    anew: bool,
) -> list[Chosen]:
    kept = Originals(project.root / PATCHES)
    trees = dict(chain.base().trees)
    found = []
    for patch, verdict in zip(picked, verdicts, strict=True):
        config = project.upstream(verdict.upstream)
        base = Base(
            config.name, trees[config.name], path_map(config.layout), config.source == "git"
        )
        assert verdict.tree is not None
        trees[config.name] = verdict.tree
        original = None if anew else kept.of(patch)
        if original is not None and not _makes(project.store, original, base, verdict.tree):
            original = None
        found.append(Chosen(patch, base, verdict.tree, verdict, original))
    return found


def _makes(store: ObjectStore, original: Original, base: Base, tree: str) -> bool:
    """Return whether the original, applied as its format is applied, makes ``tree``.

    The patches before it may have changed since, and with them the place of a hunk.
    """
    if original.entry.kind == "commit":
        return True  # the patch is the mail that git made of it
    try:
        item = original.item
    except (PatchwrightError, OSError, EOFError, ValueError):
        return False
    try:
        sections = read(item.text).sections
        if item.reverse:
            sections = tuple(section.reversed() for section in sections)
        strip = 1 if item.strip is None else item.strip
        if sections and fit(store, base, sections, strip).tree == tree:
            return True
    except CorruptPatch:
        pass
    if item.kind == "quilt":
        return False
    try:
        patch = Patch.parse(item.text, original.whole.folder / "0001-original.patch")
    except InputError:
        return False
    work = PatchOnTree(store, base.tree, None if base.everywhere else base.paths)
    return apply_one(work, patch, base.upstream).tree == tree
