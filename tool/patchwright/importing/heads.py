"""What stands above a diff, in whatever form: a mail, DEP-3, StGit, prose, nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from patchwright import mail
from patchwright.changes import MAIL

_LINE = re.compile(r"([A-Za-z][A-Za-z0-9-]*):(?:[ \t]+(.*)|)$")
# Headers that make a first paragraph one of headers (DEP-3, and those of a mail).
_KNOWN = frozenset((
    "description", "subject", "from", "author", "date", "origin", "bug", "forwarded",
    "last-update", "applied-upstream", "reviewed-by", "acked-by",
))  # fmt: skip
_SPENT = frozenset((
    "description", "subject", "from", "author", "date", "last-update", "mime-version",
    "content-type", "content-transfer-encoding", "message-id", "in-reply-to", "references", "to",
    "cc", "x-mailer", "received", "return-path", "delivered-to", "list-id", "sender",
))  # fmt: skip
_AUTHOR = re.compile(r"^(?:From|Author):[ \t]*(.+@.+)$", re.MULTILINE)
_BREAKS = re.compile(rb"^(?=---[ \t\r]*$|diff -|Index: |--- \S|@@ -\d|\+\+\+ )", re.MULTILINE)
_IN_BODY = re.compile(rb"(?:from|subject|date):", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[^\s,]+")
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_LONGEST = 200  # characters of a title


@dataclass(frozen=True)
class Head:
    """Who, when, what and why; ``fields`` are ours, read out of DEP-3's."""

    title: str
    author: str = ""
    date: str = ""
    message: bytes = b""
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_head(text: bytes, name: str) -> Head:
    """Read what stands above the diff of the patch file ``name``."""
    text = text.replace(b"\r\n", b"\n").removeprefix(b"\xef\xbb\xbf")
    first, _, rest = text.partition(b"\n") if text.startswith(b"From ") else (b"", b"", text)
    if MAIL.match(first):
        text = rest
    # Below a bare '---' stand a diffstat, or the words of DEP-3's own template.
    cut = re.search(rb"^---[ \t]*$", text, re.MULTILINE)
    if cut is not None:
        text = text[: cut.start()]
    if re.match(rb"#!|##|# ?DP:", text):
        text = _undpatched(text)
    headers, body = _headers(text.lstrip(b"\n"))
    title, prose = _described(headers)
    author = _first(headers, "from", "author")
    if not headers or not author:
        found = _AUTHOR.search(mail.plain(body))
        if found is not None:
            author = author or found[1]
            if not headers:
                # StGit: the title, then From:, then the text.
                line = found[0].encode("utf-8")
                body = body.replace(line + b"\n", b"", 1) if line in body else body
    if not title:
        title, body = _from_body(body)
    parts = [part for part in (prose.strip(b"\n"), body.strip(b"\n"), _left(headers)) if part]
    return Head(
        mail.title(title)[:_LONGEST].strip() or _from_name(name),
        " ".join(mail.decoded(author.encode()).split()),
        _first(headers, "date") or _day(_first(headers, "last-update")),
        harmless(b"\n\n".join(parts)),
        _fields(headers),
    )


def harmless(message: bytes) -> bytes:
    """Return the message with every line indented that git would not take for a message's."""
    message = _BREAKS.sub(b" ", message.strip(b"\n"))
    message = MAIL.sub(lambda found: b">" + found[0], message)
    if _IN_BODY.match(message):
        message = b" " + message
    return message + b"\n" if message else b""


Headers = list[tuple[str, str, bytes]]  # name as written, value, the lines as they are


def _headers(text: bytes) -> tuple[Headers, bytes]:
    """Divide the text into its first paragraph, where that is one of headers, and the rest."""
    found: Headers = []
    at = 0
    while at < len(text):
        end = text.find(b"\n", at) + 1 or len(text)
        raw = text[at:end]
        line = mail.plain(raw).rstrip()
        if not line:
            break
        match = _LINE.match(line)
        if match is not None:
            found.append((match[1], match[2] or "", raw))
        elif found and line[0] in " \t":
            name, value, before = found[-1]
            found[-1] = (name, f"{value}\n{line}", before + raw)
        else:
            return [], text
        at = end
    if not any(name.lower() in _KNOWN or name.lower().startswith("bug-") for name, _, _ in found):
        return [], text
    return found, text[at:]


def _first(headers: Headers, *names: str) -> str:
    for wanted in names:
        for name, value, _ in headers:
            if name.lower() == wanted and value.strip():
                return " ".join(value.split())
    return ""


def _described(headers: Headers) -> tuple[str, bytes]:
    """Return the title and the long text of Description: or Subject:."""
    for wanted in ("description", "subject"):
        for name, value, raw in headers:
            if name.lower() != wanted:
                continue
            if wanted == "subject":
                return mail.decoded(" ".join(value.split()).encode()), b""
            short, _, long = value.partition("\n")
            # The bytes of the long part as they are; " ." is DEP-3's empty line.
            lines = raw.split(b"\n")[1:] if short.strip() else raw.split(b"\n")[2:]
            prose = b"\n".join(b"" if ln.strip() == b"." else ln.lstrip(b" \t") for ln in lines)
            if not short.strip():
                short = next((ln.strip() for ln in long.split("\n") if ln.strip()), "")
            return short.strip(), prose
    return "", b""


def _left(headers: Headers) -> bytes:
    """Return the headers that are said nowhere else, as they are written."""
    lines = [raw for name, _, raw in headers if name.lower() not in _SPENT]
    return b"".join(lines).strip(b"\n")


def _from_body(body: bytes) -> tuple[str, bytes]:
    body = body.lstrip(b"\n")
    line, _, rest = body.partition(b"\n")
    title = " ".join(mail.plain(line).lstrip("#").split())
    if not re.search(r"\w", title) or len(title) > _LONGEST:
        return "", body
    return title, rest


def _from_name(name: str) -> str:
    stem = name.rpartition("/")[2]
    stem = re.sub(r"\.(?:gz|bz2|xz|lzma)$", "", stem)
    stem = re.sub(r"\.(?:patch|diff|dpatch|eml|mbox|txt)$", "", stem)
    words = re.sub(r"^\d+[-_. ]", "", stem).replace("_", " ").replace("-", " ").strip()
    return words or stem or "unnamed"


def _undpatched(text: bytes) -> bytes:
    lines = [ln for ln in text.split(b"\n") if not ln.startswith(b"#!") and b"@DPATCH@" not in ln]
    plain = b"\n".join(lines)
    return re.sub(rb"^##? ?(?:DP: ?)?", b"", plain, flags=re.MULTILINE)


def _day(text: str) -> str:
    """Return DEP-3's Last-Update (2012-03-04) as a mail's date; empty where it is none."""
    found = _DATE.search(text)
    if found is None or not 1 <= int(found[2]) <= 12 or not 1 <= int(found[3]) <= 31:
        return ""
    return f"{int(found[3])} {_MONTHS[int(found[2]) - 1]} {found[1]} 00:00:00 +0000"


def _fields(headers: Headers) -> dict[str, tuple[str, ...]]:
    """Say in our fields what DEP-3 says of upstream and of bugs."""
    bugs: list[str] = []
    for name, value, _ in headers:
        if name.lower() == "bug" or name.lower().startswith("bug-"):
            bugs += _ADDRESS.findall(value)
    forwarded = _first(headers, "forwarded")
    applied = _first(headers, "applied-upstream")
    origin = _first(headers, "origin")
    status = ""
    if applied:
        status = f"Backport [{applied}]"
    elif origin.lower().startswith(("upstream", "backport")):
        status = f"Backport [{origin}]"
    elif forwarded.lower() == "not-needed":
        status = "Inappropriate [not needed upstream]"
    elif _ADDRESS.match(forwarded):
        status = f"Submitted [{forwarded}]"
    found = {"Upstream-Status": (status,)} if status else {}
    return found | ({"Bug": tuple(dict.fromkeys(bugs))} if bugs else {})
