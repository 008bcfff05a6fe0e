"""A failure's signature: equal for the same failure, whatever the run, tree and machine."""

from __future__ import annotations

import re

from patchwright.startup.tracebacks import Frame, Raised

_LENGTH = 160
_RULES = (
    (re.compile(r"0x[0-9a-fA-F]+"), "0x"),
    (re.compile(r"(?:\b[a-z]+://)?(?:[\w.-]+)?(?:/[\w.+@%~-]+)+/?(?::\d+)*"), "PATH"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b"), "ADDRESS"),
    (re.compile(r"\b[0-9a-f]{12,}\b"), "ID"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "N"),
    (re.compile(r"(?:N[\s,]+)+N\b"), "N"),  # lists of numbers of any length
    (re.compile(r"\s+"), " "),
)  # fmt: skip


def normalised(message: str) -> str:
    """Return a message without numbers, paths, addresses, ports and ids."""
    for pattern, word in _RULES:
        message = pattern.sub(word, message)
    return message.strip()[:_LENGTH]


def place(frame: Frame, site: str = "") -> str:
    """Return ``package/file.py:function``, the same wherever the package lies."""
    file = frame.file
    if site and file.startswith(site.rstrip("/") + "/"):
        file = file[len(site.rstrip("/")) + 1 :]
    else:
        file = re.sub(r"^.*/(?:site|dist)-packages/", "", file)
        file = re.sub(r"^.*/lib/python3\.\d+/", "", file)
        file = file.rpartition("/")[2] if file.startswith("/") else file
    return f"{file}:{frame.function}"


def signature(kind: str, raised: Raised | None, said: str = "", site: str = "") -> str:
    """Return ``class | exception | innermost frame | message``.

    ``said`` stands for the message where nothing was raised: an exit code, a stage.
    """
    if raised is None:
        return f"{kind} | | | {said}".rstrip()
    where = place(raised.frames[-1], site) if raised.frames else ""
    return f"{kind} | {raised.name} | {where} | {normalised(raised.message)}"
