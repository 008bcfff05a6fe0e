"""Mailboxes: mails taken apart, their encodings undone, threads put in order.

Splitting follows ``git mailsplit``. The diff's bytes are those that the sender's were:
base64 and quoted-printable are undone, character sets are left alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from patchwright import mail
from patchwright.changes import MAIL, CorruptPatch
from patchwright.importing.items import Item
from patchwright.importing.unified import read

_PLACE = re.compile(r"\[[^\]]*?\b(\d{1,4})/(\d{1,4})\s*\]")
_VERSION = re.compile(r"\[[^\]]*?\b[vV](\d{1,3})\b[^\]]*\]")
_REPLY = re.compile(r"\s*(?:re|aw|sv|antw)(?:\[\d+\])?:", re.IGNORECASE)
_TRAILER = re.compile(
    rb"^((?:Reviewed|Tested|Acked|Reported|Suggested)-by:[ \t]+.*[^ \t\r])[ \t\r]*$", re.MULTILINE
)
_QUOTED = re.compile(rb"^[ \t]*>[> \t]*(?:diff --git |@@ -\d|--- \S)", re.MULTILINE)
_IDENTITY = re.compile(rb"<[^<>\s]+>")
_CHARSET = re.compile(rb'charset="?([^\s";]+)', re.IGNORECASE)
_MIME = (b"content-", b"mime-version")


@dataclass(frozen=True)
class Letter:
    """One mail: its bytes, its headers, and its body with the transfer encoding undone."""

    name: str
    raw: bytes
    headers: dict[str, bytes]
    text: bytes  # a mail again: headers without the encoding, then the decoded body
    body: bytes
    subject: str
    notes: tuple[str, ...] = ()
    # Whether `git am --keep-cr` reads the same diff out of it.
    faithful: bool = True

    @property
    def identity(self) -> bytes:
        """The Message-ID; empty where there is none."""
        found = _IDENTITY.search(self.headers.get("message-id", b""))
        return found[0] if found else b""

    @property
    def answered(self) -> list[bytes]:
        """The mails that this one answers, the nearest first."""
        near = _IDENTITY.findall(self.headers.get("in-reply-to", b""))
        return near + _IDENTITY.findall(self.headers.get("references", b""))[::-1]

    @property
    def place(self) -> tuple[int, int] | None:
        """What ``[PATCH 2/5]`` says: number and count."""
        found = _PLACE.search(self.subject)
        return (int(found[1]), int(found[2])) if found else None

    @property
    def version(self) -> int:
        """What ``[PATCH v2 …]`` says; 1 where nothing does."""
        found = _VERSION.search(self.subject)
        return int(found[1]) if found else 1

    @property
    def holds_diff(self) -> bool:
        """Whether a diff stands in it that is not quoted."""
        try:
            return bool(read(self.body).sections)
        except CorruptPatch:
            return True


def is_mail(data: bytes) -> bool:
    """Return whether a file starts as a mail or a mailbox does."""
    line, _, rest = data.partition(b"\n")
    head = rest if MAIL.match(line) else data
    end = re.search(rb"^\r?\n", head, re.MULTILINE)
    found = mail.headers(head[: end.start()] if end else head)
    named = "subject" in found and ("from" in found or "date" in found)
    return named and (head is rest or re.match(rb"[!-9;-~]+:", head) is not None)


def split(data: bytes) -> list[bytes]:
    """Divide a mailbox into its mails, each with its ``From `` line; nothing is dropped."""
    starts = [found.start() for found in MAIL.finditer(data)]
    if not starts or data[: starts[0]].strip():
        starts = [0, *starts] if not starts or starts[0] else starts
    elif starts[0]:
        starts[0] = 0
    return [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]


def read_letter(raw: bytes, name: str) -> Letter:
    """Take one mail apart."""
    whole, notes, faithful = raw, [], True
    if raw[: raw.find(b"\n") + 1].endswith(b"\r\n"):
        # Made by a mail client or on its way: git am takes one CR from every line too.
        whole = raw.replace(b"\r\n", b"\n")
        notes.append("the mail's lines ended in CRLF")
        faithful = False
    blank = re.search(rb"^\n", whole, re.MULTILINE)
    head = whole[: blank.start()] if blank else whole
    body = whole[blank.end() :] if blank else b""
    headers = mail.headers(head)
    encoding = headers.get("content-transfer-encoding", b"").lower()
    kind = headers.get("content-type", b"").lower()
    if encoding not in (b"", b"7bit", b"8bit", b"binary") or kind.startswith(b"multipart/"):
        body, charset, note = _decoded(whole)
        notes.append(note)
        head = _plain_head(head, charset)
    if b"format=flowed" in kind:
        unwrapped = _unflowed(body, b"delsp=yes" in kind)
        if _readable(unwrapped) or not _readable(body):
            body = unwrapped
            notes.append("format=flowed was undone")
            head = _plain_head(head, _charset(headers))
    lines = [line for line in body.split(b"\n")[:-1] if line]
    if lines and b"\r\n" in body and all(line.endswith(b"\r") for line in lines):
        # The canonical form of text in a mail; a file's own CRLF stands in hunks alone.
        body = body.replace(b"\r\n", b"\n")
        notes.append("its lines ended in CRLF, one CR was taken from each")
        faithful = False
    text = head + b"\n" + body if blank else whole
    subject = mail.decoded(headers.get("subject", b""))
    return Letter(name, raw, headers, text, body, subject, tuple(notes), faithful)


def _readable(body: bytes) -> bool:
    try:
        return bool(read(body).sections)
    except CorruptPatch:
        return False


def _charset(headers: dict[str, bytes]) -> bytes:
    found = _CHARSET.search(headers.get("content-type", b""))
    return found[1] if found else b"utf-8"


def _plain_head(head: bytes, charset: bytes) -> bytes:
    """Return the headers with those of MIME replaced by plain ones."""
    kept = []
    dropping = False
    for line in head.split(b"\n"):
        if line[:1] not in (b" ", b"\t"):
            dropping = line.lower().startswith(_MIME)
        if not dropping and line:
            kept.append(line)
    kept += [
        b"MIME-Version: 1.0", b"Content-Type: text/plain; charset=" + charset,
        b"Content-Transfer-Encoding: 8bit", b"",
    ]  # fmt: skip
    return b"\n".join(kept)


def _decoded(whole: bytes) -> tuple[bytes, bytes, str]:
    """Return the body with all its text parts decoded and joined, as git mailinfo does."""
    from email import message_from_bytes

    if whole.startswith(b"From "):
        whole = whole.partition(b"\n")[2]
    message = message_from_bytes(whole)
    parts: list[bytes] = []
    charset = b""
    encodings: list[str] = []
    for part in message.walk():
        if part.is_multipart() or part.get_content_maintype() != "text":
            continue
        if part.get_content_subtype() == "html":
            continue
        payload = part.get_payload(decode=True)
        if isinstance(payload, bytes):
            if parts and not parts[-1].endswith(b"\n"):
                parts[-1] += b"\n"
            parts.append(payload)
            charset = charset or part.get_content_charset("").encode("ascii", "replace")
            encodings.append(str(part.get("content-transfer-encoding", "7bit")).lower())
    note = f"{' and '.join(dict.fromkeys(encodings)) or 'an empty mail'} was decoded"
    return b"".join(parts), charset or b"utf-8", note


def _unflowed(body: bytes, delsp: bool) -> bytes:
    """Undo format=flowed (RFC 3676): soft line ends and stuffed spaces."""
    out: list[bytes] = []
    joining = False
    for raw in body.split(b"\n"):
        line = raw.removesuffix(b"\r")
        line = line[1:] if line.startswith(b" ") else line
        soft = line.endswith(b" ") and line != b"-- "
        if joining:
            out[-1] += line
        else:
            out.append(line)
        joining = soft
        if soft and delsp:
            out[-1] = out[-1][:-1]
    return b"\n".join(out)


@dataclass(frozen=True)
class Thread:
    """The patches of a mailbox in their order, what was noticed, and what stands against it."""

    items: tuple[Item, ...]
    notes: tuple[str, ...]
    trouble: tuple[str, ...]


def read_thread(
    letters: Sequence[Letter], *, trailers: bool, partial: bool, named: bool = False
) -> Thread:
    """Choose and order the patches among the mails, and collect trailers from replies.

    ``named`` says that each is a file of its own, so that names order what numbers do not.
    """
    notes: list[str] = []
    trouble: list[str] = []
    replies = [x for x in letters if _REPLY.match(x.subject)]
    others = [x for x in letters if not _REPLY.match(x.subject)]
    covers = [x for x in others if x.place and x.place[0] == 0]
    patches = [x for x in others if x not in covers and x.holds_diff]
    for letter in others:
        if letter in covers:
            notes.append(f"{letter.name}: cover letter, skipped: {letter.subject}")
        elif letter not in patches:
            why = "it quotes a diff" if _QUOTED.search(letter.body) else "it holds no diff"
            if letter.place is not None:
                trouble.append(f"{letter.name}: {why}, but says that it is a patch: "
                               f"{letter.subject}")  # fmt: skip
            else:
                notes.append(f"{letter.name}: {why}, skipped: {letter.subject}")
    for letter in replies:
        if letter.holds_diff:
            notes.append(f"{letter.name}: a reply with a diff of its own, skipped: "
                         f"{letter.subject}")  # fmt: skip
    clashes: list[str] = []
    patches = _latest(_unique(patches, notes, clashes), notes)
    if clashes and named:
        notes.append("they are numbered as several series: taken in the order of their names")
    else:
        trouble += clashes
    patches = _ordered(patches, notes, trouble, partial=partial)
    if not patches and not trouble:
        quoting = any(_QUOTED.search(x.body) for x in letters)
        trouble.append("no mail holds a diff" + (" (one quotes a diff)" if quoting else ""))
    found = _collected(patches, covers, replies) if trailers else {}
    items = tuple(
        Item(x.name, x.raw, "mail", x.text, notes=x.notes,
             trailers=tuple(found.get(x.raw, ())))
        for x in patches
    )  # fmt: skip
    skipped = len(replies)
    if skipped:
        notes.append(f"{skipped} repl{'y' if skipped == 1 else 'ies'} skipped")
    return Thread(items, tuple(notes), tuple(trouble))


def _digest(letter: Letter) -> str:
    diff = read(letter.body) if _readable(letter.body) else None
    data = letter.body[diff.start :] if diff else letter.body
    data = re.split(rb"^-- $", data, maxsplit=1, flags=re.MULTILINE)[0]
    return hashlib.sha256(data.rstrip()).hexdigest()


def _unique(patches: list[Letter], notes: list[str], trouble: list[str]) -> list[Letter]:
    """Drop mails that came twice; say where two different ones claim one place."""
    kept: list[Letter] = []
    for letter in patches:
        same = [k for k in kept if k.subject == letter.subject and _digest(k) == _digest(letter)]
        if same:
            notes.append(f"{letter.name}: the same patch as {same[0].name}, skipped")
            continue
        clash = next((k for k in kept if k.place and k.place == letter.place
                      and k.version == letter.version), None)  # fmt: skip
        if clash is not None and _thread(clash) == _thread(letter):
            trouble.append(f"{letter.name}: {clash.name} is {letter.place} as well: "
                           f"{letter.subject}")  # fmt: skip
        kept.append(letter)
    return kept


def _thread(letter: Letter) -> int:
    return letter.place[1] if letter.place else 0


def _latest(patches: list[Letter], notes: list[str]) -> list[Letter]:
    numbered = [x for x in patches if x.place is not None]
    newest = max((x.version for x in numbered), default=1)
    old = [x for x in numbered if x.version < newest]
    if old:
        notes.append(f"{len(old)} patches of versions before v{newest} skipped")
    return [x for x in patches if x not in old]


def _ordered(
    patches: list[Letter], notes: list[str], trouble: list[str], *, partial: bool
) -> list[Letter]:
    places = [x.place for x in patches]
    counts = {place[1] for place in places if place is not None}
    if len(counts) != 1 or None in places:
        return patches  # nothing says another order than that of the mailbox
    count = counts.pop()
    numbers = [place[0] for place in places if place is not None]
    if len(set(numbers)) != len(numbers):
        return patches
    if numbers != sorted(numbers):
        notes.append(f"the mails stood in the order {', '.join(map(str, numbers))}: sorted")
    missing = sorted(set(range(1, count + 1)) - set(numbers))
    if missing:
        what = f"{', '.join(map(str, missing))} of {count} is missing"
        (notes if partial else trouble).append(what if partial else f"{what} (--partial takes "
                                               "what is there)")  # fmt: skip
    return sorted(patches, key=lambda x: (x.place or (0, 0))[0])


def _collected(
    patches: Sequence[Letter], covers: Sequence[Letter], replies: Sequence[Letter]
) -> dict[bytes, list[str]]:
    """Return the trailers that replies give to each patch (by its bytes)."""
    found: dict[bytes, list[str]] = {x.raw: [] for x in patches}
    by_id = {x.identity: x for x in (*patches, *covers) if x.identity}
    for reply in replies:
        lines = [mail.plain(m[1]) for m in _TRAILER.finditer(reply.body)]
        for identity in reply.answered if lines else ():
            target = by_id.get(identity)
            if target is None:
                continue
            for letter in patches if target in covers else [target]:
                there = mail.plain(letter.body)
                found[letter.raw] += [
                    t for t in dict.fromkeys(lines)
                    if t not in found[letter.raw] and f"\n{t}\n" not in there
                ]  # fmt: skip
            break
    return found
