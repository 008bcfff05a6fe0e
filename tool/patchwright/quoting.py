"""Paths as git writes them in a diff: C-style quotes, prefixes, and what is refused."""

from __future__ import annotations

import re

_ESCAPES = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
    b"\\": b"\\", b'"': b'"',
}  # fmt: skip
_QUOTED = re.compile(rb'"((?:[^"\\]|\\(?:[abfnrtv"\\]|[0-3][0-7][0-7]))*)"')
_ESCAPE = re.compile(rb"\\([0-3][0-7][0-7]|.)", re.DOTALL)
_INSTALLED = re.compile(rb"(?:^|/)(?:site|dist)-packages/")


class BadPath(ValueError):
    """A path that a patch must not name; ``next_step`` says what to do."""

    def __init__(self, reason: str, next_step: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.next_step = next_step


def unquote(text: bytes) -> tuple[bytes, bytes]:
    """Read the quoted path at the start of ``text``; return it and what follows.

    Raises BadPath when the quote does not end or holds an escape that git never writes.
    """
    match = _QUOTED.match(text)
    if match is None:
        raise BadPath("a quoted path is damaged")
    path = _ESCAPE.sub(
        lambda m: _ESCAPES.get(m[1]) or bytes([int(m[1], 8)]),
        match[1],
    )
    return path, text[match.end() :]


def quoted(path: bytes) -> bytes:
    """Return a path as git writes it in a diff, in quotes where it needs them."""
    if not re.search(rb"[\x00-\x1f\x7f-\xff\"\\\\]", path):
        return path
    names = {value: key for key, value in _ESCAPES.items()}
    return b'"%s"' % b"".join(
        b"\\" + names[c] if (c := path[at : at + 1]) in names
        else b"\\%03o" % c[0] if c < b" " or c >= b"\x7f" else c
        for at in range(len(path))
    )  # fmt: skip


def display(path: bytes) -> str:
    """Return a path for people: UTF-8 where it is, escapes where it is not."""
    text = path.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable(text: str) -> str:
    """Return text for a terminal: control characters but tab and newline as escapes."""
    return "".join(
        c if c in "\n\t" or not (c < " " or "\x7f" <= c <= "\x9f")
        else c.encode("unicode_escape").decode()
        for c in text
    )  # fmt: skip


def stripped(path: bytes, prefix: bytes) -> bytes:
    """Return the repository path of ``a/path``; raise BadPath for one that is refused."""
    if _INSTALLED.search(path):
        raise BadPath(
            f"{display(path)} is a path of an installed package",
            "name files as the upstream repository does; the layout maps them to site-packages",
        )
    if not path.startswith(prefix):
        raise BadPath(
            f"{display(path)} lacks the prefix {prefix.decode()}",
            "write the patch with git format-patch --src-prefix=a/ --dst-prefix=b/",
        )
    path = path[len(prefix) :]
    check_path(path)
    return path


def check_path(path: bytes) -> None:
    """Raise BadPath for a path that could leave the tree or reach into ``.git``."""
    if b"\0" in path:
        raise BadPath(f"{display(path)} holds a NUL byte")
    if path.startswith(b"/"):
        raise BadPath(
            f"{display(path)} is absolute", "name files relative to the upstream repository"
        )
    for part in path.split(b"/"):
        if part == b"..":
            raise BadPath(f"{display(path)} leaves the tree")
        if part in (b"", b"."):
            raise BadPath(f"{display(path)!r} is not a path of a file")
        if part.lower() == b".git":
            raise BadPath(f"{display(path)} reaches into .git")
