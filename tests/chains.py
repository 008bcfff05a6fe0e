"""A small project whose chain of trees is looked at."""

from __future__ import annotations

from pathlib import Path

from patchwright.applying.chain import Chain
from patchwright.applying.verdicts import ApplyVerdict
from patchwright.project import Project
from projects import Content, TinyProject

LINES = [f"line {n}\n" for n in range(1, 31)]
FILES: dict[str, Content] = {
    "tiny/__init__.py": "",
    "tiny/a.py": "".join(LINES),
    "tiny/b.py": "b = 1\n",
    "csrc/k.cu": "__global__ void k() {}\n",
    "tests/test_a.py": "def test(): ...\n",
}


def with_line(number: int, text: str, *more: tuple[int, str]) -> str:
    lines = list(LINES)
    for at, new in ((number, text), *more):
        lines[at - 1] = new
    return "".join(lines)


def opened(tiny: TinyProject) -> Project:
    return Project.open(tiny.root)


def verdicts(tiny: TinyProject) -> tuple[ApplyVerdict, ...]:
    project = opened(tiny)
    return Chain(project).apply(project.series.patches)[1]


def edit(path: Path, old: str, new: str) -> None:
    data = path.read_bytes()
    assert old.encode() in data
    path.write_bytes(data.replace(old.encode(), new.encode()))
