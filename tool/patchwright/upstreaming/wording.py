"""The words that upstream reads with a commit: title, author, message."""

from __future__ import annotations

import re
from email.utils import parseaddr, parsedate_to_datetime
from typing import TYPE_CHECKING

from patchwright.errors import InputError

if TYPE_CHECKING:
    from patchwright.patch import Patch
    from patchwright.upstreaming.profiles import Profile

KINDS = ("fix", "feat", "perf", "refactor", "docs", "test", "build", "ci", "chore")
_CONVENTIONAL = re.compile(rf"(?:{'|'.join(KINDS)}|style|revert)(?:\([^()]+\))?!?: \S")
_SCOPED = re.compile(r"([\w./-]+(?:, ?[\w./-]+)*): (\S.*)")
_TAGS = re.compile(r"(?:\[[^\]]*\]\s*)+")
_ADDRESS = re.compile(r"[^@\s<>]+@[^@\s<>]+\.[^@\s<>]+")


def title_for(patch: Patch, profile: Profile, kind: str) -> str:
    """Return a patch's title in the upstream's style; ``[tags]`` stay.

    ``comm: build x`` is ``fix(comm): build x`` where titles are conventional and
    ``kind`` is ``fix``.
    """
    title = patch.title
    if profile.title != "conventional" or _CONVENTIONAL.match(title):
        return title
    scoped = _SCOPED.fullmatch(title)
    return f"{kind}({scoped[1]}): {scoped[2]}" if scoped is not None else f"{kind}: {title}"


def has_tags(title: str) -> bool:
    """Return whether a title starts with ``[tags]``, which plain ``git am`` would drop."""
    return _TAGS.match(title) is not None


def check_title(title: str) -> str:
    """Return a title that the user gave; InputError for one that is none."""
    if not title.strip() or not title.isprintable():
        raise InputError(f"{title!r} is not a title", next_step="give one line of text")
    return title.strip()


def name_and_address(person: str) -> tuple[str, str] | None:
    """Return name and e-mail address of ``Name <address>``; None without a usable one."""
    name, address = parseaddr(person)
    if not _ADDRESS.fullmatch(address) or any(c in "\n\r\0" for c in name):
        return None
    return name or address, address


def date_of(patch: Patch) -> str:
    """Return a patch's date as git takes it; empty where it has none that can be read."""
    try:
        return parsedate_to_datetime(patch.date).isoformat()
    except (TypeError, ValueError):
        return ""


def commit_message(patch: Patch, title: str, sign_off: str | None) -> str:
    """Return the commit's message: title, reasons, and the sign-off of ``sign_off``.

    What stands below the patch's ``---`` line, our fields among it, takes no part.
    """
    body = patch.message_text.strip("\n")
    line = f"Signed-off-by: {sign_off}"
    if sign_off is not None and line not in body.splitlines():
        last = body.rpartition("\n")[2]
        body += ("\n" if re.match(r"[A-Za-z-]+: \S", last) else "\n\n") + line
    return f"{title}\n\n{body.strip()}\n" if body.strip() else f"{title}\n"


def reasons(patch: Patch) -> str:
    """Return a patch's message without its trailers: what a description says."""
    lines = patch.message_text.strip("\n").split("\n")
    while lines and (re.match(r"[A-Z][A-Za-z-]+-by: ", lines[-1]) or not lines[-1].strip()):
        lines.pop()
    return "\n".join(lines)
