"""A whole import, worked out before anything is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.applying.chain import Chain, apply_one
from patchwright.applying.files import PatchOnTree
from patchwright.changes import CorruptPatch
from patchwright.errors import AnswerNo, InputError
from patchwright.importing import originals
from patchwright.importing.fitting import (
    Base,
    Fitted,
    Misfit,
    check_tree,
    fit,
    is_installed,
    levels,
)
from patchwright.importing.heads import read_head
from patchwright.importing.items import Bundle, Item
from patchwright.importing.normal import diff_between, diff_of, write
from patchwright.importing.sources import Wishes
from patchwright.importing.unified import Diff, Section, indented, read
from patchwright.patch import Patch
from patchwright.project import PATCHES
from patchwright.series import Series
from patchwright.upstreams.layout import path_map

if TYPE_CHECKING:
    from patchwright.project import Project

_ANEW = "its hunks fit in more than one way: written anew from what GNU patch makes of it"
_SLUG = 52  # characters of a title in a file's name


@dataclass(frozen=True)
class Row:
    """What becomes of one item: a patch, or why not. ``asked`` is the option that decides."""

    item: Item
    patch: Patch | None = None
    tree: str = ""
    refused: str = ""
    asked: str = ""
    notes: tuple[str, ...] = ()


@dataclass
class Plan:
    """A whole import. ``files`` are the files to be written, by paths from the root."""

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def refused(self) -> list[Row]:
        """The items that stand in the way."""
        return [row for row in self.rows if row.patch is None]


class _Asked(Exception):
    """Two answers fit; ``option`` decides."""

    def __init__(self, what: str, option: str) -> None:
        super().__init__(f"{what}: say which with --{option}")
        self.option = option


def make_plan(
    project: Project, series: Series, bundles: Sequence[Bundle], wishes: Wishes
) -> Plan:  # fmt: skip
    """Work out the import on top of the whole series. Raises AnswerNo where that does not apply."""
    return _Planner(project, series, wishes).plan(bundles)


class _Planner:
    def __init__(self, project: Project, series: Series, wishes: Wishes) -> None:
        self.project = project
        self.wishes = wishes
        self.store = project.store
        self.folder = project.root / PATCHES
        state, verdicts = Chain(project).apply(series.patches)
        bad = next((v for v in verdicts if not v.ok), None)
        if bad is not None:
            raise AnswerNo(
                f"{bad.patch_number:04d}, which is in the series, does not apply: {bad.reason}",
                next_step="repair or leave it out first: imported patches go on top of the series",
            )
        self.trees = dict(state.trees)
        self.next = max((p.number for p in series.patches), default=0) + 1
        if wishes.upstream is not None:
            project.upstream(wishes.upstream)
        if not self.trees:
            raise InputError(
                "the project has no upstream", where=str(project.root / "pyproject.toml"),
                next_step="add one, or start over with `patchwright init`",
            )  # fmt: skip

    def plan(self, bundles: Sequence[Bundle]) -> Plan:
        plan = Plan()
        taken: set[str] = set()
        for bundle in bundles:
            name = originals.set_name(self.folder, bundle.name)
            while name in taken:
                name += "-2"
            taken.add(name)
            plan.notes += bundle.notes
            plan.trouble += bundle.trouble
            done: list[tuple[Item, Patch]] = []
            for item in bundle.items:
                row = self._row(item, name)
                if row.patch is not None:
                    done.append((row.item, row.patch))
                    row = self._finished(row)
                    assert row.patch is not None
                    plan.files[f"{PATCHES}/{row.patch.path.name}"] = row.patch.raw
                plan.rows.append(row)
            kept = originals.files_of(bundle.kind, bundle.container, done)
            prefix = f"{PATCHES}/{originals.FOLDER}/{name}"
            plan.files |= {f"{prefix}/{path}": data for path, data in kept.items()}
        return plan

    def _row(self, item: Item, name: str) -> Row:
        if item.trouble:
            return Row(item, refused=item.trouble)
        try:
            diff = read(item.text)
            if item.kind == "quilt" and indented(item.text[: diff.start]) is not None:
                return Row(
                    item,
                    refused="an indented diff stands above the diff: GNU patch "
                    "applies both, git the second",
                )
            if not diff.sections:
                what = "it holds no diff" if item.text.strip() else "the file is empty"
                return Row(item, refused=f"an empty patch: {what}")
            return self._taken(item, diff, name)
        except _Asked as asked:
            return Row(item, refused=str(asked), asked=asked.option)
        except CorruptPatch as error:
            return Row(item, refused=f"line {error.line}: {error.reason}")

    def _finished(self, row: Row) -> Row:
        """Add what replies said to the message: from then on the patch is not the original."""
        assert row.patch is not None
        if not row.item.trailers:
            return row
        patch = row.patch
        text = patch.message.rstrip(b"\r\n")
        last = text.rpartition(b"\n")[2]
        gap = b"\n" if re.match(rb"[A-Za-z-]+-by: ", last) else b"\n\n"
        added = "\n".join(row.item.trailers).encode()
        patch = patch.with_message((text + gap if text else b"") + added + b"\n")
        note = f"collected from replies: {', '.join(row.item.trailers)}"
        return replace(row, patch=patch, notes=(*row.notes, note))

    # One item

    def _taken(self, item: Item, diff: Diff, name: str) -> Row:
        notes = [*item.notes, *diff.notes]
        sections = diff.sections
        if item.reverse:
            sections = tuple(section.reversed() for section in sections)
            notes.append("applied in reverse (-R)")
        path = self.folder / f"{self.next:04d}-new.patch"
        bases = self._bases(item, notes)
        ready = None if item.reverse else self._as_it_is(item, path, bases)
        if ready is not None:
            base, patch, tree = ready
            patch = self._without_foreign(patch, notes)
        else:
            fitted = self._fitted(item, sections, bases)
            base, tree = fitted.base, fitted.tree
            if fitted.installed:
                notes.append("paths of installed files were mapped to the repository's")
            else:
                item = replace(item, strip=fitted.strip)
            if fitted.strip != 1:
                notes.append(f"names stripped by -p{fitted.strip}")
            patch = self._written(item, diff, sections, fitted, path, notes)
        patch = self._named(patch, item, base.upstream, name)
        self.trees[base.upstream] = tree
        self.next += 1
        return Row(item, patch, tree, notes=tuple(notes))

    def _bases(self, item: Item, notes: list[str]) -> list[Base]:
        wanted = self.wishes.upstream
        if wanted is None and item.upstream is not None:
            configs = self.project.config.upstreams
            wanted = next(
                (n for n, c in configs.items() if item.upstream in (n, *c.packages)), None
            )
            if wanted is None:
                notes.append(f"{item.upstream} is no upstream of this project: found by its files")
        names = [wanted] if wanted is not None else sorted(self.trees)
        return [self._base(name) for name in names]

    def _base(self, name: str) -> Base:
        config = self.project.upstream(name)
        return Base(name, self.trees[name], path_map(config.layout), config.source == "git")

    def _as_it_is(
        self, item: Item, path: Path, bases: Sequence[Base]
    ) -> tuple[Base, Patch, str] | None:
        """Return the patch where its text is in the project's form and applies as it stands."""
        if item.strip not in (None, 1) or item.kind == "quilt":
            return None
        try:
            patch = Patch.parse(item.text, path)
            if patch.parts.damage is not None or not patch.changes:
                return None
        except InputError:
            return None
        found = []
        for base in bases:
            paths = None if base.everywhere else base.paths
            verdict = apply_one(PatchOnTree(self.store, base.tree, paths), patch, base.upstream)
            if verdict.tree is not None:
                check_tree(self.store, base, verdict.tree, patch.changes)
                found.append((base, patch, verdict.tree))
        if len(found) > 1:
            raise _Asked(_both(sorted(base.upstream for base, _, _ in found)), "upstream")
        return found[0] if found else None

    def _fitted(self, item: Item, sections: Sequence[Section], bases: Sequence[Base]) -> Fitted:
        found: list[Fitted] = []
        first: CorruptPatch | None = None
        for base in bases:
            for strip in _wanted_levels(item, sections):
                try:
                    found.append(fit(self.store, base, sections, strip))
                except CorruptPatch as error:
                    if not isinstance(error, Misfit):
                        raise
                    first = first or error
                else:
                    if item.strip is None and _is_git(sections):
                        break
        likely = [f for f in found if self._likely(f)] or found
        if not likely:
            assert first is not None
            raise first
        upstreams = sorted({f.base.upstream for f in likely})
        if len(upstreams) > 1:
            raise _Asked(_both(upstreams), "upstream")
        if len(likely) > 1:
            ways = " or ".join(
                f"-p{f.strip} ({f.changes[0].path.decode('utf-8', 'replace')})" for f in likely
            )
            raise _Asked(f"its names fit with {ways}", "strip")
        return likely[0]

    def _likely(self, fitted: Fitted) -> bool:
        """Return whether every new file goes into a folder that there is."""
        for change in fitted.changes:
            folder = change.path.rpartition(b"/")[0]
            if change.kind == "add" and folder and not self._stands(fitted, folder):
                return False
        return True

    def _stands(self, fitted: Fitted, folder: bytes) -> bool:
        return self.store.entry(fitted.base.tree, folder) is not None

    def _written(
        self, item: Item, diff: Diff, sections: Sequence[Section], fitted: Fitted, path: Path,
        notes: list[str],
    ) -> Patch:  # fmt: skip
        """Return the patch in the project's form; it makes the tree that GNU patch makes."""
        head = read_head(item.text[: diff.start], item.name)
        base = fitted.base
        fields: dict[str, Sequence[str]] = {
            "Upstream": (f"{base.upstream} {self.project.upstream(base.upstream).version}",)
        }
        fields |= head.fields
        renames = any(change.kind in ("rename", "copy") for change in fitted.changes)
        for verbatim in (True, False):
            if verbatim:
                text = diff_of(self.store, fitted, sections)
            else:
                text = diff_between(self.store, base.tree, fitted.tree, renames=renames)
                notes.append(_ANEW)
            patch = Patch.parse(write(head, fields, text), path)
            paths = None if base.everywhere else base.paths
            work = PatchOnTree(self.store, base.tree, paths)
            if apply_one(work, patch, base.upstream).tree == fitted.tree:
                return patch
        raise CorruptPatch(1, "the diff cannot be written in git's form")

    def _without_foreign(self, patch: Patch, notes: list[str]) -> Patch:
        """Drop the fields that speak of the project which the patch comes from."""
        values: dict[str, list[str]] = {}
        if patch.depends:
            values["Depends"] = []
            notes.append("its Depends names patches of another project: dropped")
        there = [n for n in patch.smoke if (self.project.root / n.partition("::")[0]).is_file()]
        if len(there) != len(patch.smoke):
            values["Smoke"] = there
            notes.append("it names a smoke test that is not here: dropped")
        return patch.with_fields(values)

    def _named(self, patch: Patch, item: Item, upstream: str, name: str) -> Patch:
        version = self.project.upstream(upstream).version
        values = {"Upstream": [f"{upstream} {version}"]}
        values |= {k: list(v) for k, v in item.fields.items()}
        values[originals.FIELD] = [f"{name}/{item.name}"]
        patch = patch.with_fields(values)
        slug = "-".join(re.findall(r"[a-z0-9]+", patch.title.lower()))[:_SLUG].strip("-")
        file = f"{self.next:04d}-{upstream}-{slug or 'patch'}.patch"
        return Patch.parse(patch.raw, self.folder / file)


def _wanted_levels(item: Item, sections: Sequence[Section]) -> list[int]:
    if is_installed(sections):
        return [1]
    if item.strip is not None:
        return [item.strip]
    found = list(levels(sections))
    # What git writes has one folder in front; only where that fails something else is tried.
    return [1, *(n for n in found if n != 1)] if _is_git(sections) else found or [0]


def _is_git(sections: Sequence[Section]) -> bool:
    return all(
        (s.old is None or s.old.startswith(b"a/")) and (s.new is None or s.new.startswith(b"b/"))
        for s in sections
    )


def _both(upstreams: Sequence[str]) -> str:
    return f"it fits {' and '.join(upstreams)}"
