"""Tiny projects whose pin can move: a wheel of another version lies at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from projects import LAYOUT, Content, TinyProject, make_project, make_wheel

LINES = [f"line_{n} = {n}" for n in range(1, 41)]


def text(changes: dict[int, str | None] | None = None, *, above: int = 0) -> str:
    """Forty lines of Python, some of them changed or removed, and some new ones above."""
    changed = [(changes or {}).get(n, line) for n, line in enumerate(LINES, 1)]
    new = [f"new_{n} = {n}" for n in range(above)]
    return "".join(f"{line}\n" for line in [*new, *changed] if line is not None)


def add_wheel(project: TinyProject, version: str, files: dict[str, Content]) -> Path:
    """Put the wheel of another version beside the pinned one (repository paths)."""
    installed = {}
    for path, content in files.items():
        prefix = next(p for p in LAYOUT if path.startswith(p))
        installed[LAYOUT[prefix] + path[len(prefix) :]] = content
    return make_wheel(project.root / "wheels", installed, version=version)


def wheel(
    tmp_path: Path, old: dict[str, Content], new: dict[str, Content], version: str = "1.1"
) -> TinyProject:
    """Return a project pinned on ``old``, with the wheel of ``new`` at hand."""
    project = make_project(tmp_path, old)
    add_wheel(project, version, new)
    return project


def snapshot(project: TinyProject) -> dict[str, bytes]:
    return {
        path.relative_to(project.root).as_posix(): path.read_bytes()
        for path in sorted(project.root.rglob("*"))
        if path.is_file() and ".patchwright" not in path.parts
    }


def verdicts(project: TinyProject, *args: str) -> dict[int, str]:
    ran = project.run("bump", *(args or ("tiny", "1.1")), "--no-static", "--no-gates", "--json")
    assert ran.out, ran.err
    return {row["number"]: row["verdict"] for row in ran.json()["patches"]}


def row(project: TinyProject, number: int, *args: str) -> dict[str, Any]:
    ran = project.run("bump", "tiny", "1.1", "--no-gates", "--json", *args)
    found: dict[str, Any] = next(r for r in ran.json()["patches"] if r["number"] == number)
    return found


PATCHED = text({20: "line_20 = 'ours'"})


SMOKE = """
import pytest

@pytest.mark.tier("static")
def test_open(tree):
    scope = {}
    exec(tree.text("tiny", "tiny/a.py"), scope)
    assert scope["allowed"]() == "ours"
"""
GATE = "def allowed():\n    return 'theirs'\n"
OURS = "def allowed():\n    return 'ours'\n"


def obsolete(tmp_path: Path, new: str) -> TinyProject:
    project = wheel(tmp_path, {"tiny/a.py": GATE + text()}, {"tiny/a.py": new})
    project.add_smoke("test_0001_open.py", SMOKE)
    project.add_patch(1, {"tiny/a.py": OURS + text()},
                      fields={"Smoke": "tests/smoke/test_0001_open.py"})  # fmt: skip
    return project
