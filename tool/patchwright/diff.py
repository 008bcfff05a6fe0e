"""The diff of a patch, read exactly: bytes in, immutable file changes out.

It follows ``git apply`` (apply.c) and is stricter where git guesses: what git would
skip as garbage is refused here, with its line. unidiff is not used: it misreads empty
files, quoted paths, CRLF paths and text that is not UTF-8.
"""

from __future__ import annotations

import itertools
import re

from patchwright.changes import MAIL, REWRITE, CorruptPatch, FileChange, Hunk, Kind
from patchwright.hunks import TRAILERS, Lines, read_binary, read_hunk
from patchwright.quoting import BadPath, check_path, display, stripped, unquote

__all__ = ["CorruptPatch", "FileChange", "Hunk", "Kind", "parse_diff"]

_INDEX = re.compile(rb"([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?$")
_MODES = frozenset((b"100644", b"100755", b"120000", b"160000"))
_PATHS = (b"rename from ", b"rename to ", b"copy from ", b"copy to ", b"--- ", b"+++ ")
_HEADERS = (
    b"index ", b"--- ", b"+++ ", b"old mode ", b"new mode ", b"new file mode ",
    b"deleted file mode ", b"similarity index ", b"dissimilarity index ", *_PATHS[:4],
)  # fmt: skip
_KINDS: dict[bytes, Kind] = {
    b"new file mode ": "add", b"deleted file mode ": "delete",
    b"rename from ": "rename", b"copy from ": "copy",
}  # fmt: skip


def parse_diff(data: bytes, first_line: int) -> tuple[FileChange, ...]:
    """Read a diff that starts with ``diff --git`` at line ``first_line`` of its file.

    A signature and ``base-commit`` lines may follow. Raises CorruptPatch.
    """
    source = Lines(data, first_line)
    changes = []
    while source.starts(b"diff --git "):
        changes.append(_change(source))
    _tail(source)
    if len(changes) > 1:
        _check_names(changes)
    return tuple(changes)


def _change(source: Lines) -> FileChange:
    start = source.at
    try:
        header = _header(source)
    except BadPath as error:
        raise source.corrupt(source.at, error.reason, error.next_step or REWRITE) from None
    hunks: list[Hunk] = []
    binary = None
    if source.starts(b"GIT binary patch"):
        binary = read_binary(source)
    elif source.starts(b"Binary files "):
        raise source.corrupt(source.at, "the content of a binary file is missing")
    else:
        while source.starts(b"@@ "):
            hunks.append(read_hunk(source))
    if source.cut and source.at == source.end:
        raise source.corrupt(
            source.end - 1, "the patch ends inside a line: its last newline is missing"
        )
    try:
        return _built(source, start, header, tuple(hunks), binary)
    except BadPath as error:
        raise source.corrupt(start, error.reason, error.next_step or REWRITE) from None


def _header(source: Lines) -> dict[bytes, bytes]:
    """Read the lines from ``diff --git`` to the first hunk, by their first words."""
    found: dict[bytes, bytes] = {b"diff": source.lines[source.at][11:]}
    source.at += 1
    while source.at < source.end:
        line = source.lines[source.at]
        for word in _HEADERS:
            if line.startswith(word):
                break
        else:
            break
        if word in found:
            raise BadPath(f"a second {word.decode().strip()!r} line for one file")
        value = line[len(word) :]
        if word in _PATHS:
            value = _path(word, value)
        elif word.endswith(b"mode ") and value not in _MODES:
            raise BadPath(f"{display(value)!r} is not a mode of git")
        found[word] = value
        source.at += 1
    for first, second in ((b"--- ", b"+++ "), (b"old mode ", b"new mode ")):
        if (first in found) != (second in found):
            missing = second if first in found else first
            raise BadPath(f"the {missing.decode().strip()!r} line of this file is missing")
    return found


def _built(
    source: Lines,
    start: int,
    header: dict[bytes, bytes],
    hunks: tuple[Hunk, ...],
    binary: bytes | None,
) -> FileChange:
    """Check the header lines against each other and the hunks; make the change."""
    kind = _kind(header, bool(hunks or binary))
    old, new = _names(header, kind)
    ids = _INDEX.match(header.get(b"index ", b""))
    if b"index " in header and ids is None:
        raise BadPath("the index line is damaged")
    if binary is not None and (ids is None or len(ids[1]) < 40 or len(ids[2]) < 40):
        raise BadPath("a binary file's part of the diff lacks its full index line")
    mode = ids[3] if ids else None
    old_mode = header.get(b"old mode ", header.get(b"deleted file mode ", mode))
    new_mode = header.get(b"new mode ", header.get(b"new file mode ", mode))
    if kind == "add":
        old_mode = None
        if any(hunk.old_count for hunk in hunks) or len(hunks) > 1:
            raise BadPath("the diff of a new file names old content")
    if kind == "delete":
        new_mode = None
        if any(hunk.new_count for hunk in hunks) or len(hunks) > 1:
            raise BadPath("the diff of a deleted file leaves content behind")
    for before, hunk in itertools.pairwise(hunks):
        if hunk.old_start < before.old_start + before.old_count:
            raise CorruptPatch(
                hunk.line, f"this hunk starts at old line {hunk.old_start}, before the hunk "
                f"above it ends (line {before.old_start + before.old_count - 1})",
            )  # fmt: skip
    similarity = header.get(b"similarity index ", b"").rstrip(b"%")
    return FileChange(
        old, new, kind, old_mode, new_mode,
        ids[1].decode() if ids else None, ids[2].decode() if ids else None,
        hunks, binary, int(similarity) if similarity.isdigit() else None,
        source.first_line + start, source.since(start),
    )  # fmt: skip


def _tail(source: Lines) -> None:
    """Accept the end of a mail; refuse anything that git would skip or apply."""
    while source.at < source.end:
        line = source.lines[source.at]
        if line in (b"-- ", b"--"):
            break
        if line.startswith((b"diff --cc ", b"diff --combined ")):
            raise source.corrupt(
                source.at, "this is the combined diff of a merge",
                "write the change as one commit with one parent",
            )  # fmt: skip
        if line.strip() and not line.startswith(TRAILERS):
            raise source.corrupt(
                source.at,
                "this line belongs to no hunk and to no file: it was added, or a mail client "
                "wrapped the line above",
            )
        source.at += 1
    for at in range(source.at + 1, source.end):
        line = source.lines[at]
        if line.startswith((b"diff --", b"@@ -", b"+++ ")) or MAIL.match(line):
            raise source.corrupt(
                at, "a second patch stands in this file", "put every patch into its own file"
            )


def _path(word: bytes, value: bytes) -> bytes:
    """Return the path that a header line names, without its prefix; b"" is /dev/null."""
    if value.startswith(b'"'):
        path, rest = unquote(value)
        if rest.strip():
            raise BadPath("text stands behind a quoted path")
    else:
        # git ends a name that holds a space with a tab.
        path = value.partition(b"\t")[0]
    if word in (b"--- ", b"+++ "):
        if path == b"/dev/null":
            return b""
        return stripped(path, b"a/" if word == b"--- " else b"b/")
    check_path(path)
    return path


def _kind(header: dict[bytes, bytes], content: bool) -> Kind:
    kinds = [kind for word, kind in _KINDS.items() if word in header]
    if len(kinds) > 1:
        raise BadPath(f"one file is said to be both {kinds[0]} and {kinds[1]}")
    if kinds:
        return kinds[0]
    if content:
        return "modify"
    if b"new mode " in header:
        return "mode"
    raise BadPath("this file's part of the diff changes nothing")


def _names(header: dict[bytes, bytes], kind: Kind) -> tuple[bytes | None, bytes | None]:
    """Return old and new path; all lines that name one must agree."""
    old: bytes | None
    new: bytes | None
    if kind in ("rename", "copy"):
        old, new = (header.get(b"%s %s " % (kind.encode(), way)) for way in (b"from", b"to"))
        if not old or not new:
            raise BadPath(f"a {kind} must say from where and to where")
    else:
        old = new = _same_name(header[b"diff"])
    expected = {b"--- ": b"" if kind == "add" else old, b"+++ ": b"" if kind == "delete" else new}
    for word, path in expected.items():
        if word in header and header[word] != path:
            raise BadPath(f"the {word.decode().strip()!r} line names another file")
    return (None if kind == "add" else old), (None if kind == "delete" else new)


def _same_name(text: bytes) -> bytes:
    """Return the path of ``a/path b/path``; raise BadPath where the two differ."""
    if text.startswith(b'"'):
        first, rest = unquote(text)
        between, second = rest[:1], rest[1:]
        if second.startswith(b'"'):
            second, _ = unquote(second)
    elif text.endswith(b'"') and b' "' in text:
        first, between, rest = text.partition(b' "')
        second, _ = unquote(b'"' + rest)
    else:
        # Both names are one with prefixes of one length: the space is in the middle.
        middle = len(text) // 2
        first, between, second = text[:middle], text[middle : middle + 1], text[middle + 1 :]
    if not between.startswith(b" "):
        raise BadPath("the 'diff --git' line does not name two files")
    if b"/dev/null" in (first, second):
        raise BadPath("the 'diff --git' line must name the file on both sides")
    if first == second or first[2:] == second[2:]:
        stripped(second, b"b/")
        return stripped(first, b"a/")
    raise BadPath("the two paths of the 'diff --git' line differ")


def _check_names(changes: list[FileChange]) -> None:
    """Raise CorruptPatch where two sections speak of one file in ways that clash."""
    written: dict[bytes, FileChange] = {}
    gone: dict[bytes, FileChange] = {}
    for change in changes:
        for path, seen in (
            (change.new_path, written),
            (change.old_path if change.kind in ("delete", "rename") else None, gone),
        ):
            if path is None:
                continue
            if path in seen:
                raise CorruptPatch(
                    change.line,
                    f"{display(path)} was already changed at line {seen[path].line} of this patch",
                )
            seen[path] = change
    for path, change in written.items():
        if path in gone and change.kind in ("modify", "mode"):
            raise CorruptPatch(
                change.line,
                f"{display(path)} is changed here and goes away at line {gone[path].line}",
            )
