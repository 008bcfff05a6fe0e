"""Writing an imported patch in the project's own form, hunks as they were written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from patchwright.changes import FileChange
from patchwright.importing.fitting import Fitted
from patchwright.importing.heads import Head
from patchwright.importing.unified import Section
from patchwright.patch import Patch
from patchwright.quoting import quoted
from patchwright.store import FILE, ObjectStore

# git am wants a name and an address, and takes one author.
_UNKNOWN = "<unknown@invalid>"
_ONE_AUTHOR = re.compile(r"[^<>]*<[^<>\s]+>")
_NONE = "0" * 40


def write(head: Head, fields: Mapping[str, Sequence[str]], diff: bytes) -> bytes:
    """Return a patch file: a mail without transfer encoding, our fields, the diff."""
    lines = [b"From: " + _encoded(_author(head.author), "From")]
    if head.date:
        lines.append(b"Date: " + _encoded(head.date, "Date"))
    lines.append(b"Subject: " + _encoded("[PATCH] " + head.title, "Subject"))
    if not head.message.isascii():
        try:
            head.message.decode()
            charset = b"utf-8"
        except UnicodeDecodeError:
            charset = b"iso-8859-1"
        lines += [
            b"MIME-Version: 1.0", b"Content-Type: text/plain; charset=" + charset,
            b"Content-Transfer-Encoding: 8bit",
        ]  # fmt: skip
    block = "".join(f"{name}: {value}\n" for name, values in fields.items() for value in values)
    return (
        b"\n".join(lines) + b"\n\n" + head.message + b"---\n"
        + block.encode("utf-8", "surrogateescape") + b"\n" + diff
    )  # fmt: skip


def _author(text: str) -> str:
    """Return the first author of a patch, with an address whether there is one or not."""
    found = _ONE_AUTHOR.match(text)
    if found is not None:
        return found[0]
    name = "".join(c for c in text if c not in "<>").strip()
    if "@" in name and " " not in name:
        return f"{name} <{name}>"
    return f"{name or 'unknown author'} {_UNKNOWN}"


def _encoded(text: str, name: str) -> bytes:
    text = " ".join(text.split())
    if text.isascii() and text.isprintable():
        return text.encode("ascii")
    from email.header import Header

    # An address stays outside of the encoded words.
    found = re.fullmatch(r"(.*?)\s*(<[^<>]*>)", text) if name == "From" else None
    words, rest = (found[1], f" {found[2]}") if found else (text, "")
    encoded = Header(words.encode("utf-8", "replace").decode(), "utf-8", header_name=name)
    return encoded.encode().encode("ascii") + rest.encode("ascii", "replace")


def diff_of(store: ObjectStore, fitted: Fitted, sections: Sequence[Section]) -> bytes:
    """Return the diff in git's form, with repository paths and full index lines.

    The text of every hunk is the one that was imported.
    """
    return b"".join(
        _section(store, fitted, change, section)
        for change, section in zip(fitted.changes, sections, strict=True)
    )


def _section(store: ObjectStore, fitted: Fitted, change: FileChange, section: Section) -> bytes:
    if change.binary is not None:
        return change.text
    old, new = change.old_path or change.path, change.new_path or change.path
    before = store.entry(fitted.base.tree, old) if change.old_path is not None else None
    after = store.entry(fitted.tree, new) if change.new_path is not None else None
    out = [b"diff --git %s %s\n" % (quoted(b"a/" + old), quoted(b"b/" + new))]
    old_mode = before.mode if before is not None else FILE
    new_mode = after.mode if after is not None else FILE
    if change.kind == "add":
        out.append(b"new file mode %s\n" % new_mode)
    elif change.kind == "delete":
        out.append(b"deleted file mode %s\n" % old_mode)
    elif old_mode != new_mode:
        out.append(b"old mode %s\nnew mode %s\n" % (old_mode, new_mode))
    if change.kind in ("rename", "copy"):
        kind = change.kind.encode()
        if change.similarity is not None:
            out.append(b"similarity index %d%%\n" % change.similarity)
        out.append(b"%s from %s\n%s to %s\n" % (kind, quoted(old), kind, quoted(new)))
    old_oid = before.oid if before is not None else _NONE
    new_oid = after.oid if after is not None else _NONE
    if old_oid != new_oid:
        suffix = b" " + new_mode if before and after and old_mode == new_mode else b""
        out.append(b"index %s..%s%s\n" % (old_oid.encode(), new_oid.encode(), suffix))
    if section.hunks:
        out.append(b"--- " + _side(b"a/", change.old_path) + b"\n")
        out.append(b"+++ " + _side(b"b/", change.new_path) + b"\n")
        out += section.written
    return b"".join(out)


def _side(prefix: bytes, path: bytes | None) -> bytes:
    if path is None:
        return b"/dev/null"
    name = quoted(prefix + path)
    # git ends a name that holds a space with a tab.
    return name + b"\t" if b" " in name else name


def diff_between(store: ObjectStore, old: str, new: str, *, renames: bool = False) -> bytes:
    """Return what git writes for the difference of two trees, binary files included."""
    store.flush()
    return store.git.run(
        "diff-tree", "-r", "-p", "--full-index", "--binary", "--no-ext-diff", "--no-textconv",
        "--no-color", "--find-renames" if renames else "--no-renames", "--src-prefix=a/",
        "--dst-prefix=b/", "--end-of-options", old, new,
    ).stdout  # fmt: skip


def bare(patch: Patch) -> bytes:
    """Return the patch's bytes without our fields: what it says to others."""
    if not patch.fields:
        return patch.raw
    rest = patch.raw[patch.fields[-1].end :]
    # The blank line after the fields came with them.
    rest = rest.removeprefix(b"\r\n" if patch.crlf else b"\n")
    return patch.raw[: patch.fields[0].start] + rest
