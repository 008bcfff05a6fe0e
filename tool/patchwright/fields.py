"""Our own fields: trailers below the ``---`` line of a patch, where git am drops them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from patchwright.errors import InputError

KNOWN = ("Upstream", "Depends", "Arch", "Gate", "Smoke", "Upstream-Status", "Bug")
# Yocto's words, in Yocto's order.
STATUS_WORDS = (
    "Pending", "Submitted", "Backport", "Denied", "Inappropriate", "Inactive-Upstream",
)  # fmt: skip

_LOWER = {name.lower(): name for name in KNOWN}
_FIELD = re.compile(rb"([A-Za-z][A-Za-z0-9-]*):(?:[ \t]+(.*)|[ \t]*)$")
_NEWLINE = b"\n"
_KNOWN_FIELD = re.compile(
    rb"^(%s):(?=[ \t\r\n]|$)" % "|".join(KNOWN).encode(), re.MULTILINE | re.IGNORECASE
)
DIFFSTAT = re.compile(
    rb" (?:.+ \| +(?:\d+(?: [+-]+)?|Bin(?: \d+ -> \d+ bytes)?)|\d+ files? changed.*"
    rb"|(?:create|delete) mode [0-7]{6} .*|mode change .*|(?:rename|copy|rewrite) .* \(\d+%\))$"
)
_NEED = re.compile(r"\s*(\d{1,9})\s*(?:\(((?:[^()]|\([^()]*\))*)\))?\s*(?:,|$)")
_UPSTREAM = re.compile(r"(\S+)(?:\s+(\S+))?$")


@dataclass(frozen=True, slots=True)
class Field:
    """One field; ``value`` has its continuation lines joined by single spaces.

    ``line`` is its line in the patch file, 1-based; ``start`` and ``end`` are its
    offsets in bytes. Bytes that are not UTF-8 are kept as surrogates.
    """

    name: str
    value: str
    line: int
    start: int = field(compare=False)
    end: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Need:
    """Another patch that must be applied too, and why; ``line`` is where that stands."""

    number: int
    reason: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What the known fields say."""

    upstream: str | None
    made_for: str | None
    depends: tuple[Need, ...]
    arch: tuple[str, ...]
    gates: tuple[str, ...]
    smoke: tuple[str, ...]
    upstream_status: str | None
    bugs: tuple[str, ...]


def canonical(name: str) -> str:
    """Return a known field's own spelling; others as they are."""
    return _LOWER.get(name.lower(), name)


def read_fields(raw: bytes, start: int, end: int, path: Path) -> tuple[Field, ...]:
    """Read the fields that stand in ``raw[start:end]``: its first paragraph.

    A paragraph that does not start with a field is prose and is left alone, as is one
    without any known field that holds other lines too. Raises InputError for a line
    among known fields that is none, and for a known field further down.
    """
    found: list[Field] = []
    stray: int | None = None
    at = _paragraph(raw, start, end)
    line = raw.count(b"\n", 0, at) + 1
    while at < end:
        after = raw.find(b"\n", at, end) + 1 or end
        text = raw[at:after].rstrip()
        if not text or DIFFSTAT.match(text):
            break
        match = _FIELD.match(text)
        if match is not None:
            name = canonical(match[1].decode("ascii"))
            found.append(Field(name, _text(match[2] or b""), line, at, after))
        elif text[:1] in (b" ", b"\t") and found:
            last = found[-1]
            value = f"{last.value} {_text(text)}".strip()
            found[-1] = Field(last.name, value, last.line, last.start, after)
        elif not found:
            break
        elif stray is None:
            stray = line
        at = after
        line += 1
    outside = _KNOWN_FIELD.search(raw, at, end)
    if outside is not None:
        raise InputError(
            f"the field {outside[1].decode('ascii')} stands outside of the fields",
            where=f"{path}:{raw.count(_NEWLINE, 0, outside.start()) + 1}",
            next_step="put all fields into one block, directly below the '---' line",
        )
    if stray is not None:
        if not any(f.name in KNOWN for f in found):
            return ()
        raise InputError(
            "this line among the fields is neither 'Name: value' nor an indented continuation",
            where=f"{path}:{stray}",
            next_step="indent it, or put prose behind a blank line",
        )
    return tuple(found)


def _paragraph(raw: bytes, at: int, end: int) -> int:
    """Return where the first line that is not blank starts."""
    while at < end and not raw[at : (after := raw.find(b"\n", at, end) + 1 or end)].strip():
        at = after
    return at


def _text(value: bytes) -> str:
    return value.strip().decode("utf-8", "surrogateescape")


def understand(fields: tuple[Field, ...], path: Path) -> Meaning:
    """Read the known fields' values; raise InputError with the line of a wrong one."""
    by_name: dict[str, list[Field]] = {name: [] for name in KNOWN}
    for item in fields:
        by_name.setdefault(item.name, []).append(item)
    for name in ("Upstream", "Upstream-Status"):
        if len(by_name[name]) > 1:
            raise _wrong(by_name[name][1], path, f"{name} stands here a second time", "keep one")
    upstream, made_for = None, None
    for item in by_name["Upstream"]:
        match = _UPSTREAM.match(item.value)
        if match is None:
            raise _wrong(item, path, "Upstream must be a name and a version",
                         "write it as 'Upstream: flashinfer 0.6.3'")  # fmt: skip
        upstream, made_for = match[1], match[2]
    status = None
    for item in by_name["Upstream-Status"]:
        status = item.value
        if not status or status.split()[0] not in STATUS_WORDS:
            raise _wrong(item, path, f"{status!r} is no Upstream-Status",
                         f"use one of {', '.join(STATUS_WORDS)}")  # fmt: skip
    for item in by_name["Smoke"]:
        for name in _listed(item.value):
            if name.startswith("/") or ".." in name.split("/"):
                raise _wrong(item, path, f"the smoke test {name} lies outside of the project",
                             "name it relative to the project, under tests/smoke/")  # fmt: skip
    return Meaning(
        upstream,
        made_for,
        _needs(by_name["Depends"], path),
        _all(by_name["Arch"]),
        _all(by_name["Gate"]),
        _all(by_name["Smoke"]),
        status,
        _all(by_name["Bug"]),
    )


def _wrong(item: Field, path: Path, what: str, next_step: str) -> InputError:
    return InputError(what, where=f"{path}:{item.line}", next_step=next_step)


def _listed(value: str) -> list[str]:
    return [part for part in (p.strip() for p in value.split(",")) if part]


def _all(items: list[Field]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for item in items for part in _listed(item.value)))


def _needs(items: list[Field], path: Path) -> tuple[Need, ...]:
    found: dict[int, Need] = {}
    for item in items:
        at = 0
        while at < len(item.value):
            match = _NEED.match(item.value, at)
            if match is None:
                raise _wrong(
                    item, path, f"{item.value!r} is not a list of needed patches",
                    "write it as 'Depends: 0007 (why, in a few words), 0009 (why)'",
                )  # fmt: skip
            number = int(match[1])
            if number not in found or not found[number].reason:
                found[number] = Need(number, " ".join((match[2] or "").split()), item.line)
            at = match.end()
    return tuple(found.values())
