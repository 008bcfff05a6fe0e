"""The mail around a patch: where its parts stand, and its headers in plain text.

The rules are those of ``git mailsplit`` and ``git mailinfo``. The email package is not
used for reading: it is slow to import and changes what it reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from patchwright.changes import MAIL, REWRITE, CorruptPatch

_HEADER = re.compile(rb"^([!-9;-~]+):[ \t]*(.*(?:\n[ \t].*)*)", re.MULTILINE)
_MIME = re.compile(rb"^content-", re.MULTILINE | re.IGNORECASE)
_BLANK = re.compile(rb"^\r?\n", re.MULTILINE)
# Where mailinfo ends the message (patchbreak in mailinfo.c).
_BREAK = re.compile(rb"^(?:---[ \t\r]*$|diff -|Index: |--- \S)", re.MULTILINE)
_BARE = re.compile(rb"^---[ \t\r]*$\n?", re.MULTILINE)
_DIFF = re.compile(rb"^diff --git ", re.MULTILINE)
_MERGE = re.compile(rb"^diff --(?:cc|combined) ", re.MULTILINE)
_OTHER_DIFF = re.compile(rb"^(?:--- .*\n\+\+\+ |@@ -\d|diff -)", re.MULTILINE)
_WORD = re.compile(r"=\?([^?\s]+)\?([bBqQ])\?([^?]*)\?=")
_BETWEEN_WORDS = re.compile(r"(\?=)\s+(?==\?[^?\s]+\?[bBqQ]\?)")
_IN_BODY = re.compile(rb"(from|subject|date):[ \t]*(.*(?:\n[ \t].*)*)(?:\n|$)", re.IGNORECASE)
_SUBJECT_NOISE = re.compile(r"[ \t:]+|[Rr][Ee]:|\[[^\]]*PATCH[^\]]*\]")
_BRACKETS = re.compile(r"\[[^\]]*\]\s?")


@dataclass(frozen=True, slots=True)
class Parts:
    """Offsets into a patch file, and the damage that stands outside its diff.

    ``message`` to ``message_end`` is what upstream reads, ``below`` to ``diff`` what
    ``git am`` drops: our fields and the diffstat. ``separated`` is false where no
    ``---`` line ends the message.
    """

    message: int
    message_end: int
    below: int
    diff: int
    separated: bool
    damage: CorruptPatch | None


def split(raw: bytes) -> Parts:
    """Find the parts of a patch file. Never raises: damage is part of the answer."""
    damages: list[CorruptPatch] = []

    def damage(offset: int, reason: str, next_step: str = REWRITE) -> None:
        damages.append(
            CorruptPatch(raw.count(b"\n", 0, max(offset, 0)) + 1, reason, next_step=next_step)
        )

    message = _message_start(raw)
    if not message:
        damage(0, "no mail header stands at the top, so it is not what git format-patch writes")
    first = _BREAK.search(raw, message)
    bare = _BARE.search(raw, message)
    if first is None:
        damage(len(raw) - 1, "the patch holds no diff")
        return Parts(message, len(raw), len(raw), len(raw), False, damages[0])
    if bare is None:
        damage(
            first.start(), "no '---' line stands between the message and the diff",
            "put one there; git format-patch writes it",
        )  # fmt: skip
        return Parts(message, first.start(), first.start(), first.start(), False, damages[0])
    if first.start() < bare.start():
        damage(
            first.start(), "git would take this line of the message as the start of the diff",
            "indent every line of a diff that belongs to the message",
        )  # fmt: skip
    below = bare.end()
    start = _DIFF.search(raw, below)
    diff = start.start() if start else len(raw)
    second = _BARE.search(raw, below, diff)
    if second is not None:
        damage(
            bare.start(), "this bare '---' in the message cuts it here: git am drops what follows",
            "indent or remove it; only one '---' line may stand before the diff",
        )  # fmt: skip
        while second is not None:
            below = second.end()
            second = _BARE.search(raw, below, diff)
    other = _OTHER_DIFF.search(raw, below, diff)
    if other is not None or start is None:
        merge = _MERGE.search(raw, below)
        if merge is not None:
            damage(
                merge.start(), "this is the combined diff of a merge",
                "write the change as one commit with one parent",
            )  # fmt: skip
        elif other is not None:
            damage(other.start(), "a diff starts here without its 'diff --git' line")
        else:
            damage(len(raw) - 1, "the patch holds no diff")
    another = MAIL.search(raw, message, diff)
    if another is not None:
        damage(
            another.start(), "git am would take this line as the start of another mail",
            "put a '>' or a space before it, or split the file",
        )  # fmt: skip
    return Parts(message, bare.start(), below, diff, True, damages[0] if damages else None)


def _message_start(raw: bytes) -> int:
    """Return where the message starts; 0 where no mail header stands at the top."""
    if _HEADER.match(raw) is None and not raw.startswith(b"From "):
        return 0
    blank = _BLANK.search(raw)
    end = blank.start() if blank else len(raw)
    return (blank.end() if blank else end) if b"\nSubject:" in raw[:end] or raw.startswith(
        b"Subject:"
    ) else 0  # fmt: skip


def headers(head: bytes) -> dict[str, bytes]:
    """Return the headers, unfolded, by their names in small letters; the first counts."""
    found: dict[str, bytes] = {}
    for match in _HEADER.finditer(head.replace(b"\r\n", b"\n")):
        name = match[1].decode("ascii").lower()
        found.setdefault(name, re.sub(rb"\n[ \t]+", b" ", match[2]).strip())
    return found


def transport_damage(raw: bytes, message: int) -> CorruptPatch | None:
    """Return why the mail's own encoding keeps the diff from being read as it stands."""
    place = _MIME.search(raw, 0, message)
    if place is None:
        return None
    found = headers(raw[:message])
    encoding = found.get("content-transfer-encoding", b"8bit").lower()
    if encoding not in (b"7bit", b"8bit", b"binary"):
        reason = f"the mail is encoded as {encoding.decode('ascii', 'replace')}"
    elif found.get("content-type", b"").lower().startswith(b"multipart/"):
        reason = "the mail has several parts (MIME multipart)"
    else:
        return None
    return CorruptPatch(
        raw.count(b"\n", 0, place.start()) + 1, reason,
        next_step="apply it with git am to a clone and write it again with "
        "git format-patch --full-index --binary",
    )  # fmt: skip


def in_body(message: bytes) -> tuple[dict[str, bytes], int]:
    """Read From, Subject and Date lines at the top of a message.

    Returns them and where the text starts after them and after blank lines.
    """
    found: dict[str, bytes] = {}
    at = _skip_blank(message, 0)
    while (match := _IN_BODY.match(message, at)) is not None:
        name = match[1].decode("ascii").lower()
        if name in found:
            return found, at
        found[name] = re.sub(rb"\r?\n[ \t]+", b" ", match[2]).strip()
        at = match.end()
    return found, _skip_blank(message, at)


def _skip_blank(text: bytes, at: int) -> int:
    while (end := text.find(b"\n", at)) >= 0 and not text[at:end].strip():
        at = end + 1
    return at


def plain(text: bytes, charset: str = "") -> str:
    """Decode bytes for people: UTF-8 where it is, else ``charset``, else Latin-1."""
    for name in ("utf-8", charset or "latin-1"):
        try:
            return text.decode(name)
        except (UnicodeDecodeError, LookupError):
            continue
    return text.decode("latin-1")


def decoded(value: bytes) -> str:
    """Return a header's value with RFC 2047 encoded words in plain text."""
    text = plain(value)
    if "=?" not in text:
        return text
    # White space between two encoded words does not count (RFC 2047, 6.2).
    return _WORD.sub(_decoded_word, _BETWEEN_WORDS.sub(r"\1", text))


def _decoded_word(match: re.Match[str]) -> str:
    import binascii

    charset, encoding, text = match[1].partition("*")[0], match[2], match[3]
    try:
        data = text.encode("ascii")
        base64 = encoding in "bB"
        data = binascii.a2b_base64(data) if base64 else binascii.a2b_qp(data, header=True)
        return data.decode(charset)
    except (ValueError, LookupError):
        return match[0]


def title(subject: str) -> str:
    """Return a subject without ``[PATCH …]`` and ``Re:``; other brackets stay (git am -b)."""
    at = 0
    while at < len(subject):
        noise = _SUBJECT_NOISE.match(subject, at)
        if noise is not None:
            subject = subject[:at] + subject[noise.end() :]
            continue
        brackets = _BRACKETS.match(subject, at)
        if brackets is None:
            break
        at = brackets.end()
    return " ".join(subject.split())
