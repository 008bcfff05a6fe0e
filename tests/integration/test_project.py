"""Project: what the parts of a command find, with a lock, without one, and with a stale one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from patchwright.errors import InputError, PatchwrightError
from patchwright.project import Project
from projects import TinyProject, make_project, make_wheel


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    tiny = make_project(tmp_path, {"tiny/gate.py": "OPEN = False\n"})
    tiny.add_patch(1, {"tiny/gate.py": "OPEN = True\n"}, title="gate: open")
    return tiny


def test_without_a_lock_the_pins_are_resolved_and_nothing_is_written(tiny: TinyProject) -> None:
    project = Project.open(tiny.root / "patches")
    assert project.lock is None
    assert project.stale() == []
    assert project.pristine("tiny").tree == tiny.trees["tiny"][0]
    assert not project.lock_path.exists()


def test_with_a_lock_its_entry_is_used(tiny: TinyProject) -> None:
    tiny.run("lock")
    project = Project.open(tiny.root)
    assert project.lock is not None
    assert project.locked_upstream("tiny") == project.lock.upstream("tiny")
    assert project.stale() == []


def test_an_entry_that_disagrees_is_resolved_anew_and_said(tiny: TinyProject) -> None:
    tiny.run("lock")
    make_wheel(tiny.root / "wheels", {"tiny/gate.py": "OTHER = 1\n"})
    project = Project.open(tiny.root)
    assert project.pristine("tiny").tree != tiny.trees["tiny"][0]
    assert [d.what for d in project.stale()] == ["upstream tiny: sha256"]


def test_slow_steps_are_told(tiny: TinyProject) -> None:
    said: list[str] = []
    project = Project.open(tiny.root)
    project.progress = said.append
    project.pristine("tiny")
    project.pristine("tiny")
    assert said == ["resolving tiny 1.0", "importing tiny 1.0"]


def test_an_unknown_upstream(tiny: TinyProject) -> None:
    with pytest.raises(InputError, match="no upstream 'other'") as caught:
        Project.open(tiny.root).pristine("other")
    assert "tiny" in caught.value.next_step


def test_git_ignores_what_runs_leave_behind(tiny: TinyProject) -> None:
    project = Project.open(tiny.root)
    (project.state_dir / "log").write_text("x", encoding="utf-8")
    for args in (["init", "--quiet"], ["status", "--porcelain"]):
        done = subprocess.run(["git", *args], cwd=tiny.root, capture_output=True, check=True)
    assert b".patchwright" not in done.stdout
    assert b"pyproject.toml" in done.stdout


def test_state_that_cannot_be_written(tiny: TinyProject) -> None:
    (tiny.root / ".patchwright").write_text("in the way", encoding="utf-8")
    with pytest.raises(PatchwrightError, match="state cannot be written"):
        _ = Project.open(tiny.root).state_dir
