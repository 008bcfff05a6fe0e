"""A patch as others read it: without our fields, its diff exact on the tree before it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from patchwright.errors import AnswerNo
from patchwright.exporting.chosen import Chosen
from patchwright.importing.normal import bare, diff_between
from patchwright.importing.unified import indented
from patchwright.quoting import display
from patchwright.store import EXECUTABLE, FILE

if TYPE_CHECKING:
    from patchwright.store import ObjectStore

# The line by which mailboxes are split, as git format-patch writes it.
ENVELOPE = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\n"
_PLAIN = (None, FILE, EXECUTABLE)


def as_mail(store: ObjectStore, chosen: Chosen) -> bytes:
    """Return one mail of a mailbox: ``git am --keep-cr`` applies it without searching."""
    text = as_file(store, chosen)
    return text if text.startswith(b"From ") else ENVELOPE + text


def for_quilt(store: ObjectStore, chosen: Chosen) -> bytes:
    """Return a patch that GNU patch applies without fuzz and offset.

    Raises AnswerNo for what GNU patch (or dpkg-source) cannot do.
    """
    patch = chosen.patch
    for change in patch.changes:
        if change.binary is not None:
            what = "a binary file"
        elif change.old_mode not in _PLAIN or change.new_mode not in _PLAIN:
            what = "a symbolic link or a submodule"
        else:
            continue
        raise AnswerNo(
            f"{patch.number:04d} changes {what}, which a quilt series cannot carry",
            where=display(change.path), next_step="export it with --format mbox or git-branch, "
            f"or leave it out: --without {patch.number}",
        )  # fmt: skip
    plain = any(change.kind in ("rename", "copy") for change in patch.changes)
    text = as_file(store, chosen, plain=plain)
    found = re.search(rb"^diff --git ", text, re.MULTILINE)
    start = found.start() if found is not None else 0
    head, diff = text[:start], text[start:]
    while (at := indented(head)) is not None:
        # GNU patch applies a diff that is indented; git does not.
        head = head[:at] + b"|" + head[at:]
    return head + diff


def as_file(store: ObjectStore, chosen: Chosen, *, plain: bool = False) -> bytes:
    """Return a patch file as git format-patch writes it, without our fields.

    ``plain`` writes a renamed file as a deleted and an added one.
    """
    patch = chosen.patch
    if chosen.verdict.verdict == "clean" and not plain:
        text = bare(patch)
        return text.replace(b"\r\n", b"\n") if patch.crlf else text
    head = patch.raw[: patch.parts.below]
    if patch.crlf:
        head = head.replace(b"\r\n", b"\n")
    renames = not plain and any(c.kind in ("rename", "copy") for c in patch.changes)
    return head + b"\n" + diff_between(store, chosen.base.tree, chosen.tree, renames=renames)
