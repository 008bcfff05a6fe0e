"""A run that would read the same files as another is not made, and one that may not is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from projects import TinyProject, make_project

TEST = """\
import os, subprocess, sys
import pytest
from pathlib import Path
@pytest.mark.tier("static")
def test_it(tree):
    {look}
    assert "A = 2" in tree.text("tiny", "tiny/other.py")
"""


def project_of(folder: Path, look: str, first: Mapping[str, str | None]) -> TinyProject:
    """Patch 1 makes ``first``; patch 2 changes other.py, its test looks around before."""
    files = {"tiny/__init__.py": "", "tiny/gate.py": "G = 1\n", "tiny/other.py": "A = 1\n"}
    project = make_project(folder, files)
    project.add_patch(1, first, title="gate", fields={"Smoke": None})
    project.add_patch(2, {"tiny/other.py": "A = 2\n"}, title="other",
                      fields={"Smoke": "tests/smoke/test_other.py"})  # fmt: skip
    project.add_smoke("test_other.py", TEST.format(look=look))
    return project


def made(project: TinyProject) -> int:
    """The number of runs that were made for patch 2, all of whose verdicts are ``passed``."""
    # One after the other: runs that are under way at once cannot stand for each other.
    ran = project.run("verify", "2", "--tier", "static", "--jobs", "1", "--json")
    results = ran.json()["results"]
    assert {r["verdict"] for r in results} == {"passed"}
    return sum(r["made"] for r in results)


GATE: Mapping[str, str | None] = {"tiny/gate.py": "G = 2\n"}
# step and alone, each with its control: four runs where none stands for another.
LOOKS: Mapping[str, tuple[str, Mapping[str, str | None]]] = {
    "a file that differs": ("tree.text('tiny', 'tiny/gate.py')", GATE),
    "a file that differs, by its path": ("(tree.site / 'tiny/gate.py').read_text()", GATE),
    "through a link": (
        "Path('here').symlink_to(tree.site); Path('here/tiny/gate.py').read_bytes()", GATE,
    ),
    "by an import": ("import tiny.gate", GATE),
    "in a forked child": (
        "os.waitpid(os.fork() or (open(tree.site / 'tiny/gate.py').read(), os._exit(0)), 0)", GATE,
    ),
    "by a program that was told": (
        "subprocess.run(['cat', str(tree.site / 'tiny/gate.py')], env={}, check=True)", GATE,
    ),
    "by a program that can know": ("subprocess.run([sys.executable, '-c', ''], check=True)", GATE),
    "a file that one of them lacks": ("tree.exists('tiny', 'tiny/new.py')", {"tiny/new.py": "\n"}),
}  # fmt: skip


@pytest.mark.parametrize("look", LOOKS)
def test_what_may_differ_is_run(tmp_path: Path, look: str) -> None:
    assert made(project_of(tmp_path, *LOOKS[look])) == 4


@pytest.mark.parametrize("look", ["pass", "subprocess.run(['true'], env={}, check=True)"])
def test_what_reads_the_same_is_run_once(tmp_path: Path, look: str) -> None:
    project = project_of(tmp_path, look, GATE)
    assert made(project) == 2
    assert made(project) == 0


def test_the_record_names_the_run_that_was_made(tmp_path: Path) -> None:
    project = project_of(tmp_path, "pass", GATE)
    made(project)
    records = project.run("evidence", "list", "--json").json()["records"]
    runs = [r for r in records if r["tier"] == "static"]
    shown = [project.run("evidence", "show", r["key"], "--json").json() for r in runs]
    facts = [s["records"][0]["machine"] for s in shown]
    others = [fact["as run"] for fact in facts if "as run" in fact]
    assert len(runs) == 4
    assert len(others) == 2
    assert set(others) < {r["key"] for r in runs}


def test_what_broke_stands_for_nothing(tmp_path: Path) -> None:
    project = project_of(tmp_path, "raise OSError('the disk')", GATE)
    ran = project.run("verify", "2", "--tier", "static", "--json")
    assert ran.code == 1
    assert sum(r["made"] for r in ran.json()["results"]) == 4
