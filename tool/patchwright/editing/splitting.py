"""Splits the change of one patch into several: by files, or hunk by hunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from patchwright.applying.files import PatchOnTree
from patchwright.applying.verdicts import OK
from patchwright.changes import FileChange
from patchwright.editing import plans
from patchwright.editing.carrying import Carrier
from patchwright.editing.plans import Plan
from patchwright.editing.rewriting import diff_between, slug, with_diff
from patchwright.errors import AnswerNo, InputError
from patchwright.patch import Patch
from patchwright.quoting import display
from patchwright.store import ObjectStore

if TYPE_CHECKING:
    from patchwright.project import Project

Piece = tuple[FileChange, ...]


def split(
    project: Project, number: int, *, by: str | None = None, globs: Sequence[str] = (),
    titles: Sequence[str] = (),
) -> Plan:  # fmt: skip
    """Return the plan that splits a patch.

    ``by`` is ``file`` or ``hunk``; else the first part has the files that match
    ``globs``, the second the rest. The first part keeps the fields; the others name no
    smoke test. Raises AnswerNo where there would be one part only.
    """
    series = project.series
    patch = series.get(number)
    carrier = Carrier(project, series)
    if number not in carrier.after:
        raise AnswerNo(
            f"{number:04d} does not apply, so it cannot be split", where=str(patch.path),
            next_step=f"see `patchwright show {number}`",
        )  # fmt: skip
    base, after = carrier.before[number], carrier.after[number]
    # What the patch does here, offsets and merges included.
    exact = with_diff(patch, diff_between(project.store, base, after)).changes
    pieces = _pieces(exact, by, globs, number)
    trees = stages(project.store, base, pieces)
    if trees[-1] != after:
        raise AnswerNo(
            f"the parts of {number:04d} do not give its tree", where=str(patch.path),
            next_step="split it by hand: `patchwright edit` and `patchwright new`",
        )  # fmt: skip
    parts = []
    for at, (old, new) in enumerate(zip((base, *trees), trees, strict=False)):
        diff = diff_between(project.store, old, new)
        title = titles[at] if at < len(titles) else _title(patch, pieces[at], at, len(pieces), by)
        part = patch if at == 0 else _bare(patch, f"{number:04d}-", title)
        parts.append(with_diff(part.with_message(part.message, title), diff))
    return plans.replace(series, number, parts, f"split {number}")


def _pieces(
    changes: Sequence[FileChange], by: str | None, globs: Sequence[str], number: int
) -> list[Piece]:
    groups = _files(changes)
    if by is not None:
        pieces = pieces_of(changes, by)
    else:
        inside = [g for g in groups if any(_matches(c, glob) for c in g for glob in globs)]
        rest = [g for g in groups if g not in inside]
        pieces = [tuple(c for g in part for c in g) for part in (inside, rest) if part]
    if len(pieces) < 2:
        names = ", ".join(display(c.path) for c in changes[:5])
        raise AnswerNo(
            f"{number:04d} would stay one part", next_step=f"its files are {names}"
            + ("" if by else "; name some of them, or split --by hunk"),
        )  # fmt: skip
    return pieces


def pieces_of(changes: Sequence[FileChange], by: str) -> list[Piece]:
    """Return the changes in pieces, one per ``file`` or per ``hunk``."""
    groups = _files(changes)
    return groups if by == "file" else [piece for group in groups for piece in _hunks(group)]


def _matches(change: FileChange, glob: str) -> bool:
    path = change.path.decode("utf-8", "surrogateescape")
    return fnmatch(path, glob) or path.startswith(glob.rstrip("/") + "/")


def _files(changes: Sequence[FileChange]) -> list[Piece]:
    """Group the changes that touch one path: they only make sense together."""
    groups: list[list[FileChange]] = []
    for change in changes:
        paths = {change.old_path, change.new_path} - {None}
        touching = [g for g in groups if any(paths & {c.old_path, c.new_path} for c in g)]
        merged = [c for g in touching for c in g] + [change]
        groups = [g for g in groups if g not in touching] + [merged]
    return [tuple(group) for group in groups]


def _hunks(group: Piece) -> list[Piece]:
    """Return a piece per hunk, where the change is nothing but text."""
    if len(group) > 1 or group[0].kind != "modify" or group[0].binary is not None:
        return [group]
    change = group[0]
    if change.old_mode != change.new_mode and change.new_mode is not None:
        return [group]
    return [(replace(change, hunks=(hunk,)),) for hunk in change.hunks]


def stages(store: ObjectStore, base: str, pieces: Sequence[Piece]) -> list[str]:
    """Return the tree after each piece; hunks of one file are all placed on ``base``."""
    trees: list[str] = []
    taken: dict[bytes, FileChange] = {}
    for at, piece in enumerate(pieces):
        for change in piece:
            before = taken.get(change.path)
            hunks = (*(before.hunks if before else ()), *change.hunks)
            taken[change.path] = replace(change, hunks=hunks)
        work = PatchOnTree(store, base, None)
        verdicts = work.apply(tuple(taken.values()))
        bad = next((v for v in verdicts if v.verdict not in OK), None)
        if bad is not None:
            raise InputError(f"part {at + 1} does not stand alone: {bad.path}: {bad.detail}",
                             next_step="split it by file")  # fmt: skip
        trees.append(store.edit_tree(base, work.edits()))
    return trees


def _title(patch: Patch, piece: Piece, at: int, total: int, by: str | None) -> str:
    if by is None and at == 0:
        return patch.title
    names = sorted({display(c.path).rpartition("/")[2] for c in piece})
    which = names[0] if len(names) == 1 else f"{len(names)} files"
    return f"{patch.title} ({which}, {at + 1}/{total})"


def _bare(patch: Patch, number: str, title: str) -> Patch:
    """Return the patch as a part beside the first: no smoke test, gates or bugs of its own."""
    gone: Mapping[str, Sequence[str]] = {
        name: () for name in ("Smoke", "Gate", "Bug") if any(f.name == name for f in patch.fields)
    }
    upstream = f"{patch.upstream}-" if patch.upstream else ""
    path = patch.path.with_name(f"{number}{upstream}{slug(title, '-')}.patch")
    return Patch.parse(patch.with_fields(gone).raw, path)
