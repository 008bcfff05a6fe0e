"""lint and the pre-commit hooks that this repository offers to those who carry a series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from projects import TinyProject, make_project

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    project = make_project(tmp_path, {"tiny/a.py": "A = 1\n"})
    project.add_patch(1, {"tiny/a.py": "A = 2\n"}, title="a")
    return project


def test_good_patches(project: TinyProject) -> None:
    ran = project.run("lint")
    assert (ran.code, ran.out) == (0, "1 patch file well-formed\n")


def test_a_damaged_diff_is_named_with_its_line(project: TinyProject) -> None:
    [path] = (project.root / "patches").iterdir()
    path.write_bytes(path.read_bytes().replace(b"@@ -1 +1 @@", b"@@ -1 +1,7 @@"))
    ran = project.run("lint", str(path))
    assert ran.code == 1
    assert ran.out.startswith(f"{path}:")
    faults: list[Any] = project.run("lint", "--json").json()["faults"]
    assert faults[0]["where"] in ran.out


def test_a_field_that_is_none_and_a_need_that_is_missing(project: TinyProject) -> None:
    [path] = (project.root / "patches").iterdir()
    good = path.read_bytes()
    path.write_bytes(good.replace(b"Upstream: tiny 1.0\n", b"Upstream: tiny 1.0\nDepends: x\n"))
    assert "is not a list of needed patches" in project.run("lint").out
    path.write_bytes(good.replace(b"Upstream: tiny 1.0\n", b"Upstream: tiny 1.0\nDepends: 9\n"))
    assert "is not in the series" in project.run("lint").out


def test_a_file_that_is_not_there(project: TinyProject) -> None:
    ran = project.run("lint", "patches/0009-x.patch")
    assert ran.code == 2
    assert "there is no such patch file" in ran.err


def test_the_hooks_call_commands_that_exist() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    entries = [line.partition("entry: ")[2] for line in text.splitlines() if "entry: " in line]
    assert entries == ["patchwright lint", "patchwright lock --check"]
