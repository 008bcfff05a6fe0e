"""run: a command in the rebuilt environment, and the workspaces of what it compiles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from environments import SmallEnvironment, locked_environment


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallEnvironment:
    return locked_environment(tmp_path, monkeypatch)


def test_run_without_an_environment(small: SmallEnvironment) -> None:
    ran = small.project.run_apart("run", "true")
    assert ran.code == 3
    assert "Next: make it: `patchwright rebuild`" in ran.err


def test_compiled_objects_are_found_by_what_they_are_made_from(small: SmallEnvironment) -> None:
    small.configure(workspaces={"TINY_WORKSPACE": ["tiny/data/"]})

    def workspace(*selection: str) -> str:
        assert small.project.run("rebuild", *selection).code == 0
        return small.project.run_apart("run", "sh", "-c", "echo $TINY_WORKSPACE").out

    small.project.add_patch(2, {"csrc/a.cu": "__global__ void a() { }\n"}, title="a: body")
    small.project.run("lock")
    pristine, python_only, all_of_it = workspace("--to", "0"), workspace("--to", "1"), workspace()
    assert pristine == python_only != all_of_it
    assert pristine.strip()


def test_pruning_spares_the_workspace_of_a_program_that_runs(small: SmallEnvironment) -> None:
    small.configure(workspaces={"TINY_WORKSPACE": ["tiny/data/"]})
    small.project.run("rebuild")
    with subprocess.Popen(
        [sys.executable, "-m", "patchwright", "run", "sh", "-c", "echo; read line"],
        cwd=small.project.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as running:  # fmt: skip
        assert running.stdout
        assert running.stdin
        running.stdout.readline()
        [kept] = small.project.run("cache", "prune", "--all", "--json").json()["kept"]
        assert (kept["kind"], kept["why"]) == ("workspaces", "in use by a running process")
        running.stdin.close()
    removed = small.project.run("cache", "prune", "--all", "--json").json()["removed"]
    assert [row["kind"] for row in removed] == ["workspaces"]
    # All of it is made again.
    assert small.project.run("rebuild").code == 0
