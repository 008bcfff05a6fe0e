"""Where the names in a diff lead: strip level, installed paths, and which upstream."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from patchwright.applying.verdicts import OK, combine
from patchwright.changes import CorruptPatch, FileChange, Kind
from patchwright.importing.placing import AsPatch
from patchwright.importing.unified import Section
from patchwright.quoting import BadPath, check_path, display
from patchwright.store import DIRECTORY, FILE, SYMLINK, ObjectStore
from patchwright.upstreams.archive import link_faults
from patchwright.upstreams.layout import PathMap

_INSTALLED = re.compile(rb"(?:^|/)(?:site|dist)-packages/(.+)$", re.DOTALL)
_INDEX = re.compile(rb"([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})")
_FIX = "correct the patch, or leave it out"


@dataclass(frozen=True)
class Base:
    """An upstream's tree that a patch is to change, and its layout.

    ``everywhere`` is false where paths that the layout does not carry are refused.
    """

    upstream: str
    tree: str
    paths: PathMap
    everywhere: bool


@dataclass(frozen=True)
class Fitted:
    """What a diff makes of a tree; ``paths`` are the changes in repository paths."""

    base: Base
    strip: int
    changes: tuple[FileChange, ...]
    tree: str
    installed: bool  # whether names of installed files were mapped


def is_installed(sections: Sequence[Section]) -> bool:
    """Return whether the diff names files of an installed package."""
    return any(_INSTALLED.search(name) for s in sections for name in s.names)


def levels(sections: Sequence[Section]) -> range:
    """Return the strip levels that leave every file a name."""
    depths = [max(len(_parts(name)) for name in s.names) for s in sections]
    return range(min(depths))


def fit(store: ObjectStore, base: Base, sections: Sequence[Section], strip: int) -> Fitted:
    """Apply the sections as GNU patch does, names stripped of ``strip`` folders.

    Raises CorruptPatch with the line and the reason where that is refused: a name that
    is hostile, a file that is not there, a hunk that fits nowhere.
    """
    tree = base.tree
    changes: list[FileChange] = []
    # Git's sections speak of the tree as it was before the patch, all at once; GNU patch
    # goes from file to file. Both are the same unless a file comes twice.
    work = AsPatch(store, tree, None if base.everywhere else base.paths)
    for section in sections:
        try:
            changes.append(_change(store, base, work, section, strip))
        except _Elsewhere as error:
            raise Misfit(section.line, error.reason) from None
        except BadPath as error:
            raise CorruptPatch(section.line, error.reason, next_step=_FIX) from None
        verdict = work.step(changes[-1])
        if verdict.verdict not in OK:
            _, reason = combine((verdict,))
            raise Misfit(section.line, f"{verdict.path}: {verdict.detail or reason}")
    tree = store.edit_tree(base.tree, work.edits())
    if tree == base.tree:
        raise CorruptPatch(1, "the patch changes nothing", next_step=_FIX)
    check_tree(store, base, tree, changes)
    installed = is_installed(sections)
    return Fitted(base, strip, tuple(changes), tree, installed)


class Misfit(CorruptPatch):
    """A patch that can be read and does not apply."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(line, reason, next_step=_FIX)


class _Elsewhere(BadPath):
    """A path that may be another upstream's."""


def check_tree(
    store: ObjectStore, base: Base, tree: str, changes: Iterable[FileChange]
) -> None:  # fmt: skip
    """Raise CorruptPatch for what some file system would not keep, and for links that lead out."""
    for change in changes:
        path = change.new_path
        if path is None:
            continue
        twin = _twin(store, tree, path)
        if twin is not None and change.kind in ("add", "rename", "copy"):
            raise CorruptPatch(
                change.line, f"{display(path)} and {display(twin)} are one file where a file "
                "system does not tell case or Unicode forms apart", next_step="rename one",
            )  # fmt: skip
        entry = store.entry(tree, path)
        if entry is not None and entry.mode == SYMLINK:
            fault = link_faults(base.paths, path, store.blob(entry.oid))
            if fault:
                raise CorruptPatch(change.line, f"{display(path)}: {fault}", next_step=_FIX)


def _twin(store: ObjectStore, tree: str, path: bytes) -> bytes | None:
    """Return a path in the tree that differs from ``path`` in case or Unicode form only."""
    done = b""
    for part in path.split(b"/"):
        wanted = _folded(part)
        here = None
        for entry in store.tree(tree):
            if entry.name == part:
                here = entry
            elif _folded(entry.name) == wanted:
                return done + entry.name
        if here is None or here.mode != DIRECTORY:
            return None
        tree, done = here.oid, done + part + b"/"
    return None


def _folded(name: bytes) -> str:
    text = name.decode("utf-8", "surrogateescape")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _parts(name: bytes) -> list[bytes]:
    """Return a name's parts; GNU patch takes several slashes as one."""
    parts = [part for part in name.split(b"/") if part]
    return [b"", *parts] if name.startswith(b"/") else parts


def _stripped(base: Base, name: bytes, strip: int) -> bytes | None:
    """Return the repository path that a name means; None where nothing is left of it."""
    if b"\0" in name:
        raise BadPath(f"{display(name)} holds a NUL byte")
    found = _INSTALLED.search(name)
    if found is not None:
        if b".." in name.split(b"/"):
            raise BadPath(f"{display(name)} leaves the tree")
        check_path(found[1])
        path = base.paths.to_repository(found[1])
        if path is None:
            raise _Elsewhere(
                f"{display(found[1])} is no file of {base.upstream} that a patch changes"
            )
        return path
    if name.startswith(b"/"):
        raise BadPath(f"{display(name)} is absolute")
    parts = _parts(name)[strip:]
    while parts[:1] == [b"."]:
        parts = parts[1:]
    if not parts:
        return None
    path = b"/".join(parts)
    check_path(path)
    return path


def _change(
    store: ObjectStore, base: Base, work: AsPatch, section: Section, strip: int
) -> FileChange:
    """Return the change of one section in repository paths; BadPath, Misfit, CorruptPatch."""
    installed = [n for n in section.names if _INSTALLED.search(n)]
    old, new = (
        None if name is None or (installed and name not in installed)
        else _stripped(base, name, strip)
        for name in (section.old, section.new)
    )  # fmt: skip
    if old is None and new is None:
        names = " and ".join(display(n) for n in section.names)
        raise Misfit(section.line, f"-p{strip} leaves nothing of {names}")
    git = section.git
    ids = _INDEX.match(git.get(b"index ", b""))
    old_oid, new_oid = (ids[1].decode(), ids[2].decode()) if ids else (None, None)
    kind: Kind
    old_mode = git.get(b"old mode ", git.get(b"deleted file mode "))
    new_mode = git.get(b"new mode ", git.get(b"new file mode "))
    moved = next((k for k in ("rename", "copy") if f"{k} from ".encode() in git), None)
    if moved is not None and old is not None and new is not None:
        kind = "rename" if moved == "rename" else "copy"
    else:
        path = _chosen(work, section, old, new)
        kind = _kind(work, section, path)
        old, new = (None if kind == "add" else path), (None if kind == "delete" else path)
        if kind == "add" and new_mode is None:
            new_mode = FILE
    text = b""
    if section.binary is not None:
        text = git[b"diff"] + b"\n"
        text += b"".join(k + v + b"\n" for k, v in git.items() if k != b"diff") + section.binary
        if strip != 1 or (old or new) is None:
            raise CorruptPatch(section.line, "a binary patch must have the names a/… and b/…")
    return FileChange(
        old, new, kind, old_mode, new_mode, old_oid, new_oid, section.hunks, section.binary,
        100 if git.get(b"similarity index ") == b"100%" else None, section.line, text,
    )  # fmt: skip


def _chosen(work: AsPatch, section: Section, old: bytes | None, new: bytes | None) -> bytes:
    """Return which name means the file: of those that exist the shortest, as GNU patch has it."""
    names = [name for name in (old, new) if name is not None]
    there = [name for name in names if work.stands(name)]
    if there:
        return min(there, key=lambda n: (n.count(b"/"), len(n.rpartition(b"/")[2]), len(n)))
    return new if new is not None else names[0]


def _kind(work: AsPatch, section: Section, path: bytes) -> Kind:
    git = section.git
    if b"new file mode " in git:
        return "add"
    if b"deleted file mode " in git:
        return "delete"
    if git and not section.hunks and section.binary is None:
        if b"new mode " in git:
            return "mode"
        raise CorruptPatch(section.line, "this file's part of the diff changes nothing")
    first = section.hunks[0] if section.hunks else None
    from_nothing = first is not None and first.old_start == 0 and first.old_count == 0
    there = work.stands(path)
    if from_nothing and len(section.hunks) == 1 and (not there or section.old is None):
        # An empty file that is there already is filled, not made.
        return "modify" if there and work.is_empty(path) else "add"
    if section.new is None and first is not None and first.new_start == 0:
        return "delete"
    return "modify"
