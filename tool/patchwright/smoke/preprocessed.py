"""Preprocessed device text: what the device compiler is given, comparable between trees."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from patchwright.smoke.outcomes import SmokeError

_MARKER = re.compile(r'^# (\d+) "((?:[^"\\]|\\.)*)"[^\n]*(?:\n|\Z)', re.MULTILINE)
_Part = tuple[str, int, str]
_ASSIGNMENT = re.compile(r"(\w+)=(.*)")


class Line(NamedTuple):
    """One line of preprocessed text and where it comes from; ``number`` is 1-based."""

    path: str
    number: int
    text: str


@dataclass(frozen=True)
class Preprocessed:
    """What the device compiler is given for one source and one architecture.

    ``text`` has neither line markers nor blank lines, and the tree's folder stands in
    it as ``/site``. ``flags`` are the module's own, without the architecture and
    without search paths, whose effect is in the text. Two are equal when text and flags
    are, whatever the tree and the architecture.
    """

    text: str
    flags: tuple[str, ...]
    marked: str = field(repr=False, compare=False)
    site: Path = field(repr=False, compare=False)

    @classmethod
    def of(cls, marked: str, flags: tuple[str, ...], site: Path) -> Preprocessed:
        """Return the text of a preprocessor's output, which has its line markers."""
        plain = _MARKER.sub("", marked)
        text = "\n".join(line for line in plain.split("\n") if line.strip())
        return cls(text, flags, marked, site)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of text and flags."""
        whole = "\0".join((*self.flags, self.text))
        return hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The lines of ``text`` with file and line, the tree's files relative to the site."""
        site = f"{self.site}/"
        parts = _parts(self.marked)
        return tuple(_lines((path.removeprefix(site), n, text) for path, n, text in parts))

    @property
    def files(self) -> frozenset[str]:
        """The paths of all files that the text was made from."""
        paths = {path for path, _, _ in _parts(self.marked)}
        return frozenset(path for path in paths if not path.startswith("<"))


def first_difference(old: Preprocessed, new: Preprocessed) -> str:
    """Return where two preprocessed texts first differ, as a sentence; empty when equal."""
    if old.flags != new.flags:
        gone = " ".join(f for f in old.flags if f not in new.flags) or "none"
        come = " ".join(f for f in new.flags if f not in old.flags) or "none"
        return f"flags differ: {gone} against {come}"
    for a, b in zip(old.lines, new.lines, strict=False):
        if a.text != b.text:
            return f"{_quoted(a)} against {_quoted(b)}"
    if len(old.lines) != len(new.lines):
        shorter, longer = sorted((old.lines, new.lines), key=len)
        return f"only one has {_quoted(longer[len(shorter)])}"
    return ""


def device_preprocessor(dryrun: str) -> tuple[list[str], dict[str, str]]:
    """Return the preprocessor command of the device pass in ``nvcc --dryrun`` output.

    This is the command of the real compile, with every macro that it defines; its
    ``-o`` is left out, so that the text goes to standard output. With it come the
    search paths that nvcc sets for its programs. Raises SmokeError when the output has
    no such command.
    """
    env = {}
    for raw in dryrun.splitlines():
        line = raw.removeprefix("#$ ")
        if assignment := _ASSIGNMENT.fullmatch(line):
            if assignment[1] in {"PATH", "LD_LIBRARY_PATH"}:
                env[assignment[1]] = assignment[2]
        elif " -E " in line and " -D__CUDA_ARCH__=" in line:
            argv = shlex.split(line)
            at = argv.index("-o")
            return [*argv[:at], *argv[at + 2 :]], env
    raise SmokeError("nvcc --dryrun names no preprocessor of the device pass")


def lines_of_one(marked: str, other: str) -> tuple[list[Line], list[Line]]:
    """Return the lines that only the first and only the second text has, both with markers.

    Hundreds of thousands of lines are equal: only what lies between two markers and
    differs is looked at line by line.
    """
    parts = _parts(marked), _parts(other)
    known = set(parts[0]), set(parts[1])
    differing = (
        [part for part in parts[0] if part not in known[1]],
        [part for part in parts[1] if part not in known[0]],
    )
    paths = {path for found in differing for path, _, _ in found}
    # A line may stand in another part of the other text.
    lines = [set(_lines(part for part in found if part[0] in paths)) for found in parts]
    return (
        [line for line in _lines(differing[0]) if line not in lines[1]],
        [line for line in _lines(differing[1]) if line not in lines[0]],
    )


def _parts(marked: str) -> list[_Part]:
    """Return what stands between markers: path, number of the first line, text."""
    found = _MARKER.split(marked)
    return list(zip(found[2::3], map(int, found[1::3]), found[3::3], strict=True))


def _lines(parts: Iterable[_Part]) -> Iterator[Line]:
    """Yield the lines that are not blank, each with its place."""
    for path, first, text in parts:
        # Not splitlines: a form feed in a comment or string does not end a line.
        for number, line in enumerate(text.split("\n"), first):
            if line.strip():
                yield Line(path, number, line)


def _quoted(line: Line) -> str:
    return f"{line.path}:{line.number}: {' '.join(line.text.split())}"
