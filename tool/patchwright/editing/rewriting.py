"""The text of one patch, written anew: another diff, other numbers, another name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchwright.fields import DIFFSTAT
from patchwright.patch import Patch
from patchwright.store import ObjectStore

# The signature that git format-patch puts below the diff.
_SIGNATURE = re.compile(rb"^-- \r?\n[^\n]*\n\s*\Z", re.MULTILINE)
_ITEM = re.compile(rb"(\s*)(\d{1,9})(\s*(?:\((?:[^()]|\([^()]*\))*\))?\s*)(,|\Z)")
_NUMBER = re.compile(r"\d{4,9}(?=-)")


def diff_between(store: ObjectStore, old: str, new: str) -> bytes:
    """Return diffstat and diff of two trees, as ``git format-patch`` writes them."""
    store.flush()
    return store.git.run(
        "diff-tree", "-r", "-M", "--patch-with-stat", "--summary", "--stat=72", "--full-index",
        "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/",
        "--dst-prefix=b/", "--diff-algorithm=myers", "--unified=3", old, new,
    ).stdout  # fmt: skip


def with_diff(patch: Patch, diff: bytes) -> Patch:
    """Return the patch with ``diff`` (diffstat and diff) in place of its own.

    Message, fields, prose below them and the signature stay. Raises CorruptPatch where
    no ``---`` line stands.
    """
    if not patch.parts.separated:
        assert patch.parts.damage is not None
        raise patch.parts.damage.at(patch.path)
    raw, parts = patch.raw, patch.parts
    lines = raw[parts.below : parts.diff].splitlines(keepends=True)
    while lines and (not lines[-1].strip() or DIFFSTAT.match(lines[-1].rstrip())):
        lines.pop()
    newline = b"\r\n" if patch.crlf else b"\n"
    between = b"".join(lines) + newline if lines else b""
    signature = _SIGNATURE.search(raw, parts.diff)
    end = signature[0] if signature is not None else b""
    if patch.crlf:
        diff = diff.replace(b"\n", b"\r\n")
    return Patch.parse(raw[: parts.below] + between + diff + end, patch.path)


def named(patch: Patch, number: int) -> Patch:
    """Return the patch with another number in its file's name."""
    if number == patch.number:
        return patch
    name = _NUMBER.sub(f"{number:04d}", patch.path.name, count=1)
    return Patch.parse(patch.raw, patch.path.with_name(name))


def with_needs(patch: Patch, number: int, numbers: Mapping[int, Sequence[int]]) -> Patch:
    """Return the patch with the numbers in its Depends replaced; reasons and layout stay.

    ``numbers`` maps an old number to its new ones: none removes the need. Numbers that
    it lacks stay. ``number`` is what the patch itself will have: no need. One that stands
    there already is not repeated.
    """
    if not any(need.number in numbers for need in patch.depends):
        return patch
    raw = patch.raw
    met: set[int] = {number}
    edits = []
    for item in patch.fields:
        if item.name == "Depends":
            colon = raw.index(b":", item.start) + 1
            edits.append((item.start, item.end, _needs(raw, item.start, colon, item.end,
                                                       numbers, met)))  # fmt: skip
    for start, end, text in reversed(edits):
        raw = raw[:start] + text + raw[end:]
    return Patch.parse(raw, patch.path)


def _needs(
    raw: bytes, start: int, colon: int, end: int, numbers: Mapping[int, Sequence[int]],
    met: set[int],
) -> bytes:  # fmt: skip
    text = raw[colon:end].rstrip()
    tail = raw[colon + len(text) : end]
    kept: list[bytes] = []
    for match in _ITEM.finditer(text):
        before, digits, rest = match[1], match[2], match[3]
        for number in numbers.get(int(digits), (int(digits),)):
            if number not in met:
                met.add(number)
                kept.append(before + b"%0*d" % (len(digits), number) + rest)
    if not kept:
        return b""
    first = kept[0]
    kept[0] = (
        raw[colon : colon + 1] if raw[colon : colon + 1].isspace() else b" "
    ) + first.lstrip()
    return raw[start:colon] + b",".join(kept).rstrip() + tail


def with_smoke(patch: Patch, names: Mapping[str, str]) -> Patch:
    """Return the patch with other names of smoke tests in its Smoke fields."""
    new = [names.get(name, name) for name in patch.smoke]
    return patch if new == list(patch.smoke) else patch.with_fields({"Smoke": new})


def file_name(number: int, upstream: str, title: str) -> str:
    """Return the name for a new patch: ``0007-flashinfer-short-title.patch``."""
    return f"{number:04d}-{upstream}-{slug(title, '-')}.patch"


def slug(title: str, joint: str) -> str:
    """Return a title's words in small letters for a file name; at most 50 characters."""
    words = re.findall(r"[a-z0-9]+", title.lower())
    short = ""
    for word in words:
        if len(short) + len(word) > 50:
            break
        short += (joint if short else "") + word
    return short or "patch"


def new_patch(
    path: Path, title: str, author: str, date: str, message: str,
    fields: Mapping[str, Sequence[str]], diff: bytes,
) -> Patch:  # fmt: skip
    """Return a new patch as ``git format-patch`` would write it, with our fields.

    ``author`` is ``Name <address>``, ``date`` as in a mail. Raises InputError for a
    message that would break the patch.
    """
    from email.header import Header

    def header(name: str, text: str) -> bytes:
        value = text if text.isascii() else Header(text, "utf-8", header_name=name).encode()
        return f"{name}: {value}\n".encode("ascii")

    address = re.fullmatch(r"(.*?)\s*<([^<>]*)>", author)
    sender = author
    if address is not None and not author.isascii():
        sender = f"{Header(address[1], 'utf-8').encode()} <{address[2]}>"
    encoded = b"" if message.isascii() else (
        b"MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n"
        b"Content-Transfer-Encoding: 8bit\n"
    )  # fmt: skip
    head = header("From", sender) + header("Date", date) + header("Subject", f"[PATCH] {title}")
    empty = head + encoded + b"\n---\n\n" + diff
    patch = Patch.parse(empty, path).with_fields(fields)
    text = message.strip("\n").encode() + b"\n" if message.strip() else b""
    patch = patch.with_message(text)
    whole = Patch.parse(patch.raw + b"diff --git a/a b/a\n", path)
    if not diff and whole.parts.damage is not None:
        raise whole.parts.damage.at(path)
    return patch
