"""A small series to be edited, and what can be seen of it from outside."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from projects import TinyProject, make_project

LINES = [f"line {n}" for n in range(1, 31)]


def edited(changes: dict[int, str], lines: Sequence[str] = LINES) -> str:
    return "".join(f"{changes.get(n, line)}\n" for n, line in enumerate(lines, 1))


def make(tmp_path: Path) -> TinyProject:
    """0001 and 0003 change neighbouring lines of one file, 0002 another file."""
    made = make_project(tmp_path, {"tiny/a.py": edited({}), "tiny/b.py": "B = 1\n"})
    made.add_patch(1, {"tiny/a.py": edited({5: "five"})}, title="five")
    made.add_patch(2, {"tiny/b.py": "B = 2\n"}, title="two")
    made.add_patch(3, {"tiny/a.py": edited({5: "five", 20: "twenty"})}, title="twenty",
                   fields={"Depends": "0001 (lines above, see 0002),\n 0002"})  # fmt: skip
    assert made.run("lock").code == 0
    return made


def files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".patchwright" not in path.parts
    }


def tree_of(project: TinyProject) -> Path:
    return project.root / ".patchwright" / "edit" / "tree"


def opened(project: TinyProject, number: int) -> Path:
    ran = project.run("edit", str(number))
    assert ran.code == 0, ran.err
    return tree_of(project)


def statuses(project: TinyProject) -> list[tuple[int, str]]:
    ran = project.run("status", "--json")
    return [(row["number"], row["apply"]) for row in ran.json()["patches"]]


def final(project: TinyProject, path: str, number: int = 3) -> str:
    """Return a file after the series up to a patch, from the tree that status names."""
    rows = project.run("status", "--json").json()["patches"]
    tree = next(row["tree"] for row in rows if row["number"] == number)
    store = Path(os.environ["PATCHWRIGHT_CACHE"]) / "objects.git"
    done = subprocess.run(
        ["git", "--git-dir", str(store), "show", f"{tree}:{path}"], capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return done.stdout
