"""Unified diffs as GNU patch and git read them, file by file.

``patchwright.diff`` takes what git format-patch writes and nothing else. Here stands
what people bring: ``Index:`` lines, names without ``a/``, time stamps, -p0, CRLF, text
between the files. Hunks are kept as they are written; what cannot be applied is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from patchwright.changes import CorruptPatch, Hunk
from patchwright.hunks import Lines, read_binary, read_hunk
from patchwright.quoting import BadPath, display, unquote

_GIT = b"diff --git "
# The only headers of git that decide anything; names are read from all that give one.
_WORDS = (
    b"old mode ", b"new mode ", b"new file mode ", b"deleted file mode ", b"rename from ",
    b"rename to ", b"copy from ", b"copy to ", b"similarity index ", b"dissimilarity index ",
    b"index ",
)  # fmt: skip
_STAMP = re.compile(rb"[ \t]+(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?: ?[+-]\d{4})?)\s*$")
_SVN = re.compile(rb"[ \t]+\((?:revision \d+|working copy|nonexistent|\.\.\.[^)]*)\)\s*$")
# The start of time in any zone: how diff -N writes a file that is not there.
_EPOCH = re.compile(
    rb"(?:(?:1970-01-01|1969-12-31)[ T]\d\d:\d\d:00(?:\.0+)?"
    rb"|(?:Thu Jan  1|Wed Dec 31) \d\d:\d\d:00 (?:1970|1969))(?: ?[+-]\d{4})?"
)
_HUNK = re.compile(rb"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
# GNU patch takes the names before it, and does without them.
_INDENTED = re.compile(rb"^[ \tX]+(?:@@ -\d+(?:,\d+)? \+\d|\*{15}\s*$)", re.MULTILINE)
_REWRITE = "write it again as a unified diff (diff -u, git diff, quilt refresh)"


@dataclass(frozen=True)
class Section:
    """What a diff says about one file; names are as written, None where there is no file.

    ``git`` has git's own header lines, by their first words (empty: not git's form).
    ``written`` is each hunk's text as it stands. ``line`` is 1-based in the patch file.
    """

    line: int
    old: bytes | None
    new: bytes | None
    named: bool  # whether --- and +++ (or git's lines) name the file; else only Index: does
    git: dict[bytes, bytes] = field(default_factory=dict)
    hunks: tuple[Hunk, ...] = ()
    written: tuple[bytes, ...] = ()
    binary: bytes | None = None

    @property
    def names(self) -> tuple[bytes, ...]:
        """The names that the file may have, as written."""
        return tuple(dict.fromkeys(n for n in (self.old, self.new) if n is not None))

    def reversed(self) -> Section:
        """Return the section that undoes this one; CorruptPatch where it cannot be told."""
        if self.binary is not None:
            raise CorruptPatch(
                self.line, "a binary file cannot be applied in reverse", next_step=_REWRITE
            )
        hunks = tuple(_reversed(hunk) for hunk in self.hunks)
        swap = {
            b"old mode ": b"new mode ", b"new mode ": b"old mode ",
            b"new file mode ": b"deleted file mode ", b"deleted file mode ": b"new file mode ",
            b"rename from ": b"rename to ", b"rename to ": b"rename from ",
        }  # fmt: skip
        if b"copy from " in self.git:
            raise CorruptPatch(self.line, "a copy cannot be applied in reverse", next_step=_REWRITE)
        git = {swap.get(k, k): v for k, v in self.git.items() if k != b"index "}
        return replace(
            self, old=self.new, new=self.old, git=git, hunks=hunks,
            written=tuple(format_hunk(hunk) for hunk in hunks),
        )  # fmt: skip


@dataclass(frozen=True)
class Diff:
    """The sections of one patch file; ``start`` is the offset at which the first begins.

    ``notes`` are one line each: what was taken otherwise than it is written.
    """

    start: int
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()


class _Lines(Lines):
    def is_another(self, at: int) -> bool:
        """The next file of a plain diff starts with a line that looks like a removed one."""
        return self.is_signature(at) or _plain(self.lines, at)


def read(data: bytes) -> Diff:
    """Find and read all file sections of ``data``, whatever stands around them.

    Raises CorruptPatch for a section that cannot be applied exactly as it stands, and
    for kinds of diffs that are not unified ones.
    """
    notes: list[str] = []
    if data and not data.endswith(b"\n"):
        data += b"\n"
        notes.append("its last line had no newline")
    if b"\r\n" in data:
        stripped = _without_carriage_returns(data)
        if stripped != data:
            data = stripped
            notes.append("its lines ended in CRLF, headers too: one CR was taken from each")
    source = _Lines(data, 1)
    offsets: list[int] = []
    sections: list[Section] = []
    index: bytes | None = None
    first: int | None = None  # where what belongs to the next section begins
    while source.at < source.end:
        line = source.lines[source.at]
        _refuse_others(source)
        if line.startswith(_GIT):
            start = source.at
            sections.append(_git_section(source))
        elif _plain(source.lines, source.at):
            start = source.at
            sections.append(_plain_section(source, index))
        else:
            if line.startswith(b"Index: "):
                index = line[7:].strip()
                first = source.at if first is None else first
            elif line.startswith((b"diff ", b"====")):
                first = source.at if first is None else first
            elif line.startswith(b"@@ -") and _HUNK.match(line):
                raise source.corrupt(
                    source.at, "a hunk stands here without a file's name before it", _REWRITE
                )
            elif line.strip():
                first = None
            source.at += 1
            continue
        offsets.append(start if first is None else first)
        index = first = None
    if not sections:
        return Diff(len(data), (), tuple(notes))
    begin = sum(len(line) + 1 for line in source.lines[: offsets[0]])
    return Diff(begin, tuple(sections), tuple(notes))


def _refuse_others(source: Lines) -> None:
    at, lines = source.at, source.lines
    line = lines[at]
    if line.startswith((b"diff --cc ", b"diff --combined ")):
        raise source.corrupt(
            at, "this is the combined diff of a merge",
            "write the change as one commit with one parent",
        )  # fmt: skip
    if (
        line.startswith(b"*** ") and at + 2 < source.end and lines[at + 1].startswith(b"--- ")
        and lines[at + 2].startswith(b"***************")
    ):  # fmt: skip
        raise source.corrupt(at, "this is a context diff", _REWRITE)
    if line.startswith(b"Cannot display: file marked as a binary type"):
        raise source.corrupt(at, "the content of a binary file is missing", _REWRITE)
    if line.startswith(b"Binary files ") and line.rstrip().endswith(b" differ"):
        raise source.corrupt(at, "the content of a binary file is missing", _REWRITE)


def _plain(lines: Sequence[bytes], at: int) -> bool:
    return (
        at + 2 < len(lines)
        and lines[at].startswith(b"--- ")
        and lines[at + 1].startswith(b"+++ ")
        and lines[at + 2].startswith(b"@@ -")
    )


def indented(data: bytes) -> int | None:
    """Return where a diff stands that is indented as a whole: GNU patch applies it, git not."""
    found = _INDENTED.search(data)
    return found.start() if found is not None else None


def _plain_section(source: Lines, index: bytes | None) -> Section:
    start = source.at
    old, old_gone = _name(source, source.lines[start][4:], start)
    new, new_gone = _name(source, source.lines[start + 1][4:], start + 1)
    source.at += 2
    hunks, written = _hunks(source)
    # A time stamp of 1970 says "no file" only where the hunk agrees.
    if not (old_gone and hunks[0].old_start == 0):
        old_gone = old is None
    if not (new_gone and hunks[0].new_start == 0):
        new_gone = new is None
    named = old is not None or new is not None
    if not named:
        if index is None:
            raise source.corrupt(start, "no line names the file of this diff", _REWRITE)
        new = index
    return Section(
        source.first_line + start, None if old_gone else old, None if new_gone else new,
        named, {}, hunks, written,
    )  # fmt: skip


def _git_section(source: Lines) -> Section:
    start = source.at
    names = _git_names(source.lines[start][len(_GIT) :])
    source.at += 1
    git: dict[bytes, bytes] = {b"diff": source.lines[start]}
    while source.at < source.end:
        line = source.lines[source.at]
        word = next((w for w in _WORDS if line.startswith(w)), None)
        if word is None:
            break
        git[word] = line[len(word) :]
        source.at += 1
    old, new = names if names is not None else (None, None)
    hunks: tuple[Hunk, ...] = ()
    written: tuple[bytes, ...] = ()
    binary = None
    if _plain(source.lines, source.at):
        old, _ = _name(source, source.lines[source.at][4:], source.at)
        new, _ = _name(source, source.lines[source.at + 1][4:], source.at + 1)
        source.at += 2
        hunks, written = _hunks(source)
    else:
        _refuse_others(source)
        if source.starts(b"GIT binary patch"):
            binary = read_binary(source)
        if b"new file mode " in git:
            old = None
        if b"deleted file mode " in git:
            new = None
    prefix = names if names is not None else (old, new)
    for word, side in ((b"from ", 0), (b"to ", 1)):
        for kind in (b"rename ", b"copy "):
            if kind + word in git:
                path, _ = _name(source, git[kind + word], start)
                if path is not None:
                    # These lines stand without prefix: give them the one of the others.
                    path = _prefix(prefix[side], path) + path
                old, new = (path, new) if side == 0 else (old, path)
    if old is None and new is None:
        raise source.corrupt(start, "the 'diff --git' line does not name two files", _REWRITE)
    return Section(source.first_line + start, old, new, True, git, hunks, written, binary)


def _prefix(name: bytes | None, path: bytes) -> bytes:
    return name[: len(name) - len(path)] if name is not None and name.endswith(path) else b""


def _git_names(text: bytes) -> tuple[bytes, bytes] | None:
    """Return both names of a ``diff --git`` line; None where they cannot be told apart."""
    try:
        if text.startswith(b'"'):
            first, rest = unquote(text)
            second = rest[1:]
            return first, unquote(second)[0] if second.startswith(b'"') else second
        if text.endswith(b'"') and b' "' in text:
            first, _, rest = text.partition(b' "')
            return first, unquote(b'"' + rest)[0]
    except BadPath:
        return None
    middle = len(text) // 2
    if text[middle : middle + 1] == b" ":
        first, second = text[:middle], text[middle + 1 :]
        if first.partition(b"/")[2] == second.partition(b"/")[2] or first == second:
            return first, second
    if text.count(b" ") == 1:
        first, _, second = text.partition(b" ")
        return first, second
    return None


def _name(source: Lines, text: bytes, at: int) -> tuple[bytes | None, bool]:
    """Return the name in a header line and whether it says that there is no file."""
    text = text.rstrip(b"\r")
    if text.startswith(b'"'):
        try:
            path, rest = unquote(text)
        except BadPath as error:
            raise source.corrupt(at, error.reason, _REWRITE) from None
        stamp: bytes = rest.strip()
    else:
        path, _, stamp = text.partition(b"\t")
        for pattern in (_STAMP, _SVN):
            found = pattern.search(path)
            if found is not None:
                path, stamp = path[: found.start()], found[1] if found.groups() else b""
        path = path.rstrip(b" ") if not stamp else path
    if b"\0" in path:
        raise source.corrupt(at, f"{display(path)} holds a NUL byte", "correct the name")
    if path == b"/dev/null":
        return None, True
    if not path:
        raise source.corrupt(at, "this line names no file", _REWRITE)
    return path, _EPOCH.fullmatch(stamp.strip()) is not None


def _hunks(source: Lines) -> tuple[tuple[Hunk, ...], tuple[bytes, ...]]:
    hunks, written = [], []
    while source.starts(b"@@ -"):
        start = source.at
        hunks.append(read_hunk(source))
        written.append(source.since(start))
    return tuple(hunks), tuple(written)


def _without_carriage_returns(data: bytes) -> bytes:
    """Take one CR from each line of a section whose header lines end in one (GNU patch)."""
    lines = data.split(b"\n")
    found = False
    for at, line in enumerate(lines):
        if line.startswith(_GIT) or _plain(lines, at):
            found = line.endswith(b"\r")
        if found and line.endswith(b"\r"):
            lines[at] = line[:-1]
    return b"\n".join(lines)


def _reversed(hunk: Hunk) -> Hunk:
    """Return the hunk with its sides exchanged, removed lines before added ones."""
    lines: list[bytes] = []
    added: list[bytes] = []
    for line in hunk.lines:
        if line.startswith(b"-"):
            added.append(b"+" + line[1:])
        elif line.startswith(b"+"):
            lines.append(b"-" + line[1:])
        else:
            lines += [*added, line]
            added = []
    return Hunk(
        hunk.line, hunk.new_start, hunk.new_count, hunk.old_start, hunk.old_count,
        (*lines, *added),
    )  # fmt: skip


def format_hunk(hunk: Hunk) -> bytes:
    """Return a hunk's text."""
    head = b"@@ -%d,%d +%d,%d @@\n" % (
        hunk.old_start, hunk.old_count, hunk.new_start, hunk.new_count,
    )  # fmt: skip
    body = b"".join(
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
        for line in hunk.lines
    )
    return head + body
