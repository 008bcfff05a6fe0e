"""Preprocessed device text: what the device compiler is given, comparable between trees."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from patchwright.smoke.outcomes import SmokeError

_MARKER = re.compile(r'# (\d+) "((?:[^"\\]|\\.)*)"')
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
        text = "\n".join(line.text for line in _lines(marked, ""))
        return cls(text, flags, marked, site)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of text and flags."""
        whole = "\0".join((*self.flags, self.text))
        return hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The lines of ``text`` with file and line, the tree's files relative to the site."""
        return tuple(_lines(self.marked, f"{self.site}/"))

    @property
    def files(self) -> frozenset[str]:
        """The paths of all files that the text was made from."""
        markers = filter(None, map(_MARKER.match, self.marked.splitlines()))
        return frozenset(m[2] for m in markers if not m[2].startswith("<"))


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


def _lines(marked: str, site: str) -> Iterator[Line]:
    """Yield the lines that are not blank, each placed by the marker before it."""
    path, number = "", 0
    # Not splitlines: a form feed in a comment or string does not end a line.
    for line in marked.split("\n"):
        if line.startswith("# ") and (marker := _MARKER.match(line)):
            path, number = marker[2].removeprefix(site), int(marker[1])
            continue
        if line.strip():
            yield Line(path, number, line)
        number += 1


def _quoted(line: Line) -> str:
    return f"{line.path}:{line.number}: {' '.join(line.text.split())}"
