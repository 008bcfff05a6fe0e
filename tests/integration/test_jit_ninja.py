"""The ninja that `run` puts first: what a start compiled itself is not compiled again."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

from environments import SmallEnvironment, locked_environment
from patchwright.environment.jit_ninja import with_ninja
from patchwright.environment.toolkit import toolkit
from patchwright.smoke.outcomes import Blocked
from real_flashinfer import COMM, FLAG, GENERATOR, Scene, make_scene

MARK = b"from the cache"
OBJECT = "vllm_custom_all_reduce.cuda.o"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallEnvironment:
    """A rebuilt environment with a workspace, and a ninja that says what it was asked."""
    small = locked_environment(tmp_path, monkeypatch)
    ninja = tmp_path / "tools" / "ninja"
    ninja.parent.mkdir()
    ninja.write_text('#!/bin/sh\necho "real ninja: $*"\nexit 3\n', "ascii")
    ninja.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ninja.parent}{os.pathsep}{os.environ['PATH']}")
    small.configure(workspaces={"TINY_WORKSPACE": ["tiny/data/"]})
    assert small.project.run("rebuild").code == 0
    return small


def test_whatever_is_no_jit_module_goes_to_the_real_ninja(small: SmallEnvironment) -> None:
    ran = small.project.run_apart("run", "ninja", "-C", "/a b", "all")
    assert (ran.out, ran.code) == ("real ninja: -C /a b all\n", 3)


def test_a_module_that_we_cannot_read_is_built_all_the_same(small: SmallEnvironment) -> None:
    script = (
        'm="$TINY_WORKSPACE/.cache/flashinfer/1/120a/cached_ops/m"; mkdir -p "$m";'
        'echo nonsense > "$m/build.ninja"; ninja -C "$m" -f "$m/build.ninja"'
    )
    ran = small.project.run_apart("run", "sh", "-c", script)
    assert ran.code == 3
    assert ran.out.startswith("real ninja: -C ")
    assert ran.err == ""


def test_a_run_in_a_run_ends_at_the_real_ninja(small: SmallEnvironment) -> None:
    project = str(small.project.root)
    words = (sys.executable, "-m", "patchwright", "-C", project, "run", "ninja", "all")
    ran = small.project.run_apart("run", "env", f"PYTHONPATH={os.environ['PYTHONPATH']}", *words)
    assert (ran.out, ran.code) == ("real ninja: all\n", 3)


def test_without_a_ninja_nothing_is_put_in_front(tmp_path: Path) -> None:
    variables = {"PATH": str(tmp_path)}
    assert with_ninja({"W": tmp_path / "w"}, tmp_path, tmp_path, variables) == variables
    assert not (tmp_path / "w").exists()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    try:
        kit = toolkit(tmp_path.resolve() / "kit")
    except Blocked as blocked:
        pytest.skip(str(blocked))
    scene = make_scene(tmp_path.resolve(), monkeypatch, kit)
    cache = Path(os.environ["PATCHWRIGHT_CACHE"])
    workspaces = {"FLASHINFER_WORKSPACE_BASE": scene.workspace}
    scene.variables.update(with_ninja(workspaces, scene.env.site, cache, scene.variables))
    return scene


def mark_objects() -> int:
    """Mark every object of the cache, so that one that comes from there can be told."""
    folder = Path(os.environ["PATCHWRIGHT_CACHE"]) / "objects"
    found = [path for path in folder.glob("??/*") if not path.suffix]
    for path in found:
        data = path.read_bytes()[32:] + MARK  # a linker does not mind
        path.write_bytes(hashlib.sha256(data).digest() + data)
    return len(found)


@pytest.mark.slow
def test_what_a_start_compiled_is_found_by_content(scene: Scene) -> None:
    at = ("--env", str(scene.env.root))
    first = scene.start()
    assert not (first / OBJECT).read_bytes().endswith(MARK)
    assert mark_objects() == 1
    assert scene.run("check", *at).code == 0
    # A patch to Python alone: another version, another folder, and no compiling.
    scene.add_patch(
        1, "flashinfer/activation.py", "from types import", "import os\nfrom types import"
    )
    assert scene.run("apply", *at).code == 0
    second = scene.start()
    assert second != first
    assert (second / OBJECT).read_bytes().endswith(MARK)
    assert scene.run("check", *at).code == 0
    # One to the code that writes the command lines: this command line has changed.
    scene.add_patch(2, COMM, GENERATOR, FLAG)
    assert scene.run("apply", *at).code == 0
    third = scene.start()
    assert "-DPATCHED=1" in (third / "build.ninja").read_text()
    assert not (third / OBJECT).read_bytes().endswith(MARK)
    assert mark_objects() == 2
    assert scene.run("check", *at).code == 0
