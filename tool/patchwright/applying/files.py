"""One patch onto one tree: what each file becomes, and the verdict on each.

The rules are git apply's: the old side of a rename or a copy is the file as it was
before the whole patch; any other section sees what the sections before it made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from patchwright.applying import by_git
from patchwright.applying.text import NotPlaced, Placed, apply_hunks
from patchwright.applying.verdicts import OK, FileVerdict, Verdict, shown
from patchwright.changes import FileChange
from patchwright.store import (
    DIRECTORY,
    EXECUTABLE,
    FILE,
    SUBMODULE,
    SYMLINK,
    ObjectStore,
    object_id,
)  # fmt: skip
from patchwright.upstreams.layout import PathMap

_EMPTY_BLOB = object_id("blob", b"")
_UNCHANGED = 100  # per cent of a renamed file
_KINDS = {DIRECTORY: "a folder", SYMLINK: "a symbolic link", SUBMODULE: "a submodule"}


@dataclass(frozen=True, slots=True)
class Content:
    """A file: its mode, and its blob's id or (new) its bytes."""

    mode: bytes
    oid: str | None
    data: bytes | None = None


class Trouble(Exception):
    """A file that cannot be changed as the patch says."""

    def __init__(self, verdict: Verdict, detail: str) -> None:
        super().__init__(detail)
        self.verdict: Verdict = verdict
        self.detail = detail


@dataclass
class PatchOnTree:
    """Applies the changes of one patch to ``tree``; nothing is changed until ``edits``.

    ``paths`` is the layout (None where every path of the repository is installed).
    ``maker`` names the patch of the series that makes a blob. Such a blob is no base for
    a merge: a patch that fits only on top of another must say so, and whether the blob
    is in the store depends on what was run before.

    ``unsettled`` says that the verdict could be another one with other blobs in the
    store, or with another series.
    """

    store: ObjectStore
    tree: str
    paths: PathMap | None
    maker: Callable[[str], int | None] = lambda oid: None
    written: dict[bytes, Content] = field(default_factory=dict)
    removed: set[bytes] = field(default_factory=set)
    unsettled: bool = False
    _leaving: frozenset[bytes] = frozenset()
    _retyped: dict[bytes, FileChange] = field(default_factory=dict)
    _by_git: list[tuple[FileChange, int]] = field(default_factory=list)

    def apply(self, changes: tuple[FileChange, ...]) -> list[FileVerdict]:
        """Return one verdict per change, in their order."""
        self._leaving = frozenset(
            c.old_path for c in changes if c.kind in ("delete", "rename") and c.old_path is not None
        )
        self._retyped = {
            c.path: c for c in changes if c.kind == "add" and c.new_path in self._leaving
        }
        verdicts: list[FileVerdict] = []
        for change in changes:
            try:
                verdict, detail, offsets = self._change(change, len(verdicts))
            except Trouble as trouble:
                verdict, detail, offsets = trouble.verdict, trouble.detail, ()
            verdicts.append(FileVerdict(shown(change.path), verdict, detail, offsets))
        if self._by_git and all(v.verdict in OK for v in verdicts):
            self._git_applies(verdicts)
        return verdicts

    def edits(self) -> dict[bytes, tuple[bytes, str] | None]:
        """Return the changes for ``store.edit_tree``, their blobs added to the store."""
        edits: dict[bytes, tuple[bytes, str] | None] = {
            path: None for path in self.removed if path not in self.written
        }
        for path, content in self.written.items():
            oid = content.oid
            if oid is None:
                oid = self.store.add("blob", content.data or b"")
            edits[path] = (content.mode, oid)
        return edits

    # One change

    def _change(self, change: FileChange, at: int) -> tuple[Verdict, str, tuple[int, ...]]:
        for path in (change.old_path, change.new_path):
            self._check_layout(path)
        if change.path in self._retyped:
            self._check_retyped(self._retyped[change.path])
        if change.kind == "add":
            return self._add(change, at)
        source = self._source(change)
        self._check_type(change, source)
        if change.kind in ("rename", "copy"):
            self._check_free(change, None if change.hunks else source)
        if change.binary is not None or source.mode == SUBMODULE:
            return self._leave_to_git(change, source, at)
        mode = source.mode
        if change.new_mode is not None and change.old_mode != change.new_mode:
            mode = _canonical(change.new_mode)
        result = source
        verdict: Verdict = "clean"
        detail = ""
        offsets: tuple[int, ...] = ()
        if change.hunks:
            result, verdict, detail, offsets = self._text(change, source)
        if change.kind == "delete":
            if self._bytes(result):
                raise Trouble("conflict", "the file holds more than the patch removes")
            self._remove(change.old_path)
            return verdict, detail, offsets
        assert change.new_path is not None
        if change.kind == "modify" and verdict == "already-upstream" and mode != source.mode:
            verdict, detail = "partly-upstream", "its text is in the tree already, its mode is not"
        if change.kind == "mode" and mode == source.mode:
            return "already-upstream", f"its mode is {shown(mode)} already", ()
        if change.kind == "rename":
            self._remove(change.old_path)
        self._write(change.new_path, Content(mode, result.oid, result.data))
        return verdict, detail, offsets

    def _add(self, change: FileChange, at: int) -> tuple[Verdict, str, tuple[int, ...]]:
        path = change.new_path
        assert path is not None
        mode = _canonical(change.new_mode or FILE)
        if change.binary is not None or mode == SUBMODULE:
            self._check_free(change)
            self._by_git.append((change, at))
            return "clean", "", ()
        data = b"".join(b"".join(hunk.new) for hunk in change.hunks)
        self._check_free(change, Content(mode, None, data))
        self._write(path, Content(mode, None, data))
        return "clean", "", ()

    def _check_layout(self, path: bytes | None) -> None:
        if path is None or self.paths is None or self.paths.to_installed(path) is not None:
            return
        if self.store.entry(self.tree, path) is None:
            raise Trouble("outside", "the layout does not carry it: it is not in the distribution")
        raise Trouble("outside", "the layout does not carry it: its change would not be installed")

    def _source(self, change: FileChange) -> Content:
        """Return the file that the change starts from."""
        path = change.old_path
        assert path is not None
        original = change.kind in ("rename", "copy")
        found = self._now(path) if not original else self._in_tree(path)
        if found is not None:
            return found
        if change.kind == "rename" and change.new_path is not None:
            target = self._in_tree(change.new_path)
            if target is not None and (
                _names(change.new_oid, target.oid) or change.similarity == _UNCHANGED
            ):
                raise Trouble("already-upstream", f"{shown(path)} is renamed already")
        hint = self._elsewhere(path, change)
        if change.kind == "delete" and not hint:
            raise Trouble("already-upstream", "the file is gone already")
        raise Trouble("target-missing", f"{shown(path)} is not in the tree{hint}")

    def _check_type(self, change: FileChange, source: Content) -> None:
        if source.mode == DIRECTORY:
            raise Trouble("conflict", "a folder stands there")
        if change.old_mode is not None and _type(change.old_mode) != _type(source.mode):
            raise Trouble("conflict", f"it is {_KINDS.get(source.mode, 'a file')} now")

    def _check_retyped(self, change: FileChange) -> None:
        """Raise where a file that becomes a symlink, or the other way round, is one already."""
        found = self._in_tree(change.path)
        new_mode = _canonical(change.new_mode or FILE)
        if found is not None and found.mode == new_mode and _names(change.new_oid, found.oid):
            raise Trouble("already-upstream", f"it is {_KINDS.get(found.mode, 'a file')} already")

    def _check_free(self, change: FileChange, wanted: Content | None = None) -> None:
        """Raise where something stands at the new path, or a file where it needs a folder."""
        path = change.new_path
        assert path is not None
        found = self._now(path)
        if found is not None and not (path in self._leaving and path not in self.written):
            same = (
                found.mode == wanted.mode and self._bytes(found) == self._bytes(wanted)
                if wanted is not None
                else _names(change.new_oid, found.oid)
            )
            if same and change.kind != "rename":
                raise Trouble("already-upstream", "the same file is in the tree already")
            what = _KINDS.get(found.mode, "a file with other content")
            raise Trouble("conflict", f"{shown(path)} is there already: {what}")
        end = path.rfind(b"/")
        while end > 0:
            parent = self._now(path[:end])
            if parent is not None and parent.mode != DIRECTORY and path[:end] not in self._leaving:
                kind = _KINDS.get(parent.mode, "a file")
                raise Trouble("conflict", f"{shown(path[:end])} is {kind}, not a folder")
            end = path.rfind(b"/", 0, end)

    # Text

    def _text(
        self, change: FileChange, source: Content
    ) -> tuple[Content, Verdict, str, tuple[int, ...]]:
        data = self._bytes(source)
        placed = apply_hunks(data, change.hunks)
        if isinstance(placed, Placed):
            if any(placed.offsets):
                return (Content(source.mode, None, placed.content), "offset",
                        _offsets(placed.offsets), placed.offsets)  # fmt: skip
            return Content(source.mode, None, placed.content), "clean", "", ()
        if len(placed.already) == len(change.hunks):
            return source, "already-upstream", "its text is in the tree already", ()
        merged, why_not = self._three_way(change, data)
        if merged is None:
            raise self._not_placed(change, placed, why_not)
        if merged == data:
            return source, "already-upstream", "its text is in the tree already", ()
        detail = f"merged on blob {change.old_oid}"
        if placed.already:
            detail += f"; {_numbers(placed.already)} in the tree already"
        return Content(source.mode, None, merged), "three-way", detail, ()

    def _three_way(self, change: FileChange, ours: bytes) -> tuple[bytes | None, str]:
        """Return the merge on the recorded blob, or None and why there is none."""
        if change.old_oid is None:
            return None, "the patch records no blob to merge on"
        maker = self.maker(change.old_oid)
        if maker is not None:
            self.unsettled = True
            return None, f"it was made on top of {maker:04d}"
        base = by_git.find_blob(self.store, change.old_oid)
        if base is None:
            self.unsettled = True
            return None, f"blob {change.old_oid}, which it was made on, is not in the store"
        if base == ours:
            return None, "the patch was made on this very blob: its hunks were edited by hand"
        theirs = apply_hunks(base, change.hunks)
        if isinstance(theirs, NotPlaced) or any(theirs.offsets):
            return None, f"its hunks do not fit blob {change.old_oid}, which it names"
        merged = by_git.merge(self.store, ours, base, theirs.content)
        return merged, "" if merged is not None else "a three-way merge conflicts as well"

    def _not_placed(self, change: FileChange, placed: NotPlaced, why_not: str) -> Trouble:
        if placed.already:
            missing = [n for n in range(1, len(change.hunks) + 1) if n not in placed.already]
            rest = [p for n, p in enumerate(placed.places, 1) if n in missing]
            if all(p.state in ("exact", "offset") for p in rest):
                return Trouble("partly-upstream", f"{_numbers(placed.already)} in the tree "
                                f"already, {_numbers(missing)} not")  # fmt: skip
        number = next(
            n for n, p in enumerate(placed.places, 1) if p.state in ("missing", "ambiguous")
        )
        place, hunk = placed.places[number - 1], change.hunks[number - 1]
        where = f"hunk {number} (line {hunk.line} of the patch)"
        if place.state == "ambiguous":
            lines = ", ".join(str(n) for n in place.candidates)
            return Trouble("conflict", f"{where} fits at lines {lines}, and {why_not}")
        line, found = placed.standing(number)
        now = "".join("\n    " + shown(text.removesuffix(b"\n")) for text in found)
        stands = (
            f"at line {line} stands now:{now}" if found else f"the file ends before line {line}"
        )
        return Trouble("conflict", f"{where} fits nowhere, and {why_not}; {stands}")

    # Binary files, submodules: git's own business

    def _leave_to_git(
        self, change: FileChange, source: Content, at: int
    ) -> tuple[Verdict, str, tuple[int, ...]]:
        if change.old_oid is not None and not _names(change.old_oid, source.oid):
            if _names(change.new_oid, source.oid):
                return "already-upstream", "the same content is in the tree already", ()
            raise Trouble(
                "conflict", f"it holds blob {source.oid}, the binary patch was made on "
                f"{change.old_oid}",
            )  # fmt: skip
        self._by_git.append((change, at))
        return "clean", "", ()

    def _git_applies(self, verdicts: list[FileVerdict]) -> None:
        changes = [change for change, _ in self._by_git]
        tree, trouble = by_git.apply(self.store, self.tree, b"".join(c.text for c in changes))
        for change, at in self._by_git:
            if tree is None:
                verdicts[at] = FileVerdict(shown(change.path), "corrupt", trouble)
                continue
            for path in (change.old_path, change.new_path):
                entry = self.store.entry(tree, path) if path is not None else None
                if path is not None and entry is None:
                    self._remove(path)
                elif path is not None and entry is not None:
                    self._write(path, Content(entry.mode, entry.oid))

    # The tree with what the patch did to it so far

    def _in_tree(self, path: bytes) -> Content | None:
        entry = self.store.entry(self.tree, path)
        return Content(entry.mode, entry.oid) if entry is not None else None

    def _now(self, path: bytes) -> Content | None:
        if path in self.written:
            return self.written[path]
        return None if path in self.removed else self._in_tree(path)

    def _bytes(self, content: Content) -> bytes:
        if content.data is not None:
            return content.data
        assert content.oid is not None
        return self.store.blob(content.oid)

    def _write(self, path: bytes, content: Content) -> None:
        self.written[path] = content

    def _remove(self, path: bytes | None) -> None:
        assert path is not None
        self.removed.add(path)

    def _elsewhere(self, path: bytes, change: FileChange) -> str:
        """Return a hint where the same blob, or a file of the same name, now stands."""
        name = path.rpartition(b"/")[2]
        namesakes = []
        for other, entry in self.store.files(self.tree):
            if entry.oid != _EMPTY_BLOB and _names(change.old_oid, entry.oid):
                return f": renamed to {shown(other)}?"
            if other.rpartition(b"/")[2] == name:
                namesakes.append(other)
        if len(namesakes) != 1 or change.kind == "delete":
            return ""
        return f": renamed to {shown(namesakes[0])}?"


def _names(written: str | None, oid: str | None) -> bool:
    """Return whether an id as a diff writes it (full or short) names ``oid``."""
    return bool(written) and oid is not None and oid.startswith(written or "-")


def _canonical(mode: bytes) -> bytes:
    if _type(mode) != b"100":
        return mode
    return EXECUTABLE if int(mode, 8) & 0o100 else FILE


def _type(mode: bytes) -> bytes:
    return mode[:3]


def _offsets(offsets: tuple[int, ...]) -> str:
    moved = ", ".join(f"hunk {n}: {o:+d}" for n, o in enumerate(offsets, 1) if o)
    return f"{moved} lines"


def _numbers(numbers: list[int] | tuple[int, ...]) -> str:
    words = ", ".join(str(n) for n in numbers)
    return f"hunk {words} is" if len(numbers) == 1 else f"hunks {words} are"
