"""What goes wrong with a rebuild leaves the old environment as it was."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from disks import small_disk
from environments import PYTHON, SmallEnvironment, locked_environment
from projects import falsify
from rebuilds import refused


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallEnvironment:
    return locked_environment(tmp_path, monkeypatch)


@pytest.fixture
def rebuilt(
    small: SmallEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SmallEnvironment:
    """An environment is there; uv has forgotten what it fetched for it."""
    assert small.project.run("rebuild").code == 0
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty-uv-cache"))
    return small


def test_a_file_with_another_hash(rebuilt: SmallEnvironment) -> None:
    rebuilt.add("dep", "1.0", {"dep.py": "V = 666\n"})
    ran = refused(rebuilt, code=3, says="wrong sha256: ")
    assert "dep==1.0: wrong sha256" in ran.err
    assert "`patchwright lock --upgrade dep`" in ran.err


def test_a_file_that_the_index_lost(rebuilt: SmallEnvironment) -> None:
    next(rebuilt.index.glob("dep-*")).unlink()
    refused(rebuilt, code=3, says="the package index in use does not have it")


def test_no_network_and_nothing_cached(rebuilt: SmallEnvironment) -> None:
    shutil.rmtree(rebuilt.index)
    refused(rebuilt, "--offline", code=3, says="rebuild: ")


def test_a_wheel_for_another_machine(rebuilt: SmallEnvironment) -> None:
    path = rebuilt.project.root / "upstream.lock"
    text = path.read_text("utf-8")
    line = next(line for line in text.splitlines() if line.startswith("native"))
    arm = line.split("aarch64=")[1].split()[0]
    path.write_text(text.replace(line, f"native 2.0 aarch64={arm} x86_64={arm}"), "utf-8")
    ran = refused(rebuilt, code=2, says="native is locked for x86_64 with a wheel for aarch64")
    assert "environment.packages: line 2: " in ran.err


def test_a_python_that_is_not_there(rebuilt: SmallEnvironment) -> None:
    path = rebuilt.project.root / "upstream.lock"
    text = path.read_text("utf-8").replace(f'python = "{PYTHON}"', 'python = "3.99"')
    path.write_text(text, "utf-8")
    rebuilt.configure(python="3.99")
    refused(rebuilt, code=3, says="Python 3.99: there is no such Python here")


@pytest.mark.parametrize("size", ["16k", "90k"])
def test_a_full_disk(small: SmallEnvironment, tmp_path: Path, size: str) -> None:
    with small_disk(tmp_path / "disk", size):
        ran = small.project.run("rebuild", "--env", str(tmp_path / "disk" / "env"))
        assert (ran.code, ran.err.count("patchwright: error: ")) == (3, 1), ran.err
        assert "Next: make room" in ran.err
        assert list((tmp_path / "disk").iterdir()) == []


def test_a_lock_that_disagrees_shows_both_values(rebuilt: SmallEnvironment) -> None:
    rebuilt.configure(settings={"TINY_ARCH_LIST": "12.1a"})
    ran = refused(rebuilt, code=1, says="the lock disagrees with the project")
    assert "the lock has TINY_ARCH_LIST=12.0a, the project has TINY_ARCH_LIST=12.1a" in ran.err


def test_a_patched_wheel_that_is_not_the_locked_one(rebuilt: SmallEnvironment) -> None:
    path = rebuilt.project.root / "upstream.lock"
    text = path.read_text("utf-8")
    line = next(line for line in text.splitlines() if line.startswith("tiny-1.0+pw"))
    path.write_text(text.replace(line.split()[1], "0" * 64), "utf-8")
    refused(rebuilt, code=1, says=f"the lock has {'0' * 64}")


def test_a_patch_that_does_not_apply_without_another(rebuilt: SmallEnvironment) -> None:
    rebuilt.project.add_patch(2, {"tiny/gate.py": "OPEN = 2\n"}, title="gate: two")
    assert rebuilt.project.run("lock").code == 0
    ran = refused(rebuilt, "--only", "2", code=1, says="so nothing was rebuilt")
    assert "1 of 1 patches does not apply" in ran.err


@pytest.mark.parametrize("kind", ["a file", "a link", "somebody's files", "an environment"])
def test_a_place_that_is_not_ours_is_not_replaced(
    small: SmallEnvironment, tmp_path: Path, kind: str
) -> None:
    place = tmp_path / "place"
    if kind == "a file":
        place.write_text("x", "utf-8")
    elif kind == "a link":
        place.symlink_to(tmp_path)
    else:
        place.mkdir()
        (place / ("pyvenv.cfg" if kind == "an environment" else "thesis.txt")).write_text("x")
    ran = small.project.run("rebuild", "--env", str(place))
    assert ran.code == 2
    assert "Next: name another folder with --env, or remove this one yourself" in ran.err
    assert os.path.lexists(place)


def test_the_environment_of_another_project_is_not_replaced(
    small: SmallEnvironment, tmp_path: Path
) -> None:
    assert small.project.run("rebuild", "--env", str(tmp_path / "shared")).code == 0
    other = tmp_path / "other"
    shutil.copytree(small.project.root, other, ignore=shutil.ignore_patterns(".patchwright"))
    ran = small.project.run("-C", str(other), "rebuild", "--env", str(tmp_path / "shared"))
    assert ran.code == 2
    assert f"this environment belongs to another project, {small.project.root}" in ran.err
    # The project has moved: then the environment is its own.
    shutil.rmtree(small.project.root)
    ran = small.project.run(
        "-C", str(other), "rebuild", "--env", str(tmp_path / "shared"), cwd=tmp_path
    )
    assert ran.code == 0, ran.err


def test_a_target_that_cannot_be_written(small: SmallEnvironment) -> None:
    ran = small.project.run("rebuild", "--env", "/proc/nowhere/env")
    assert ran.code == 3
    assert "the environment cannot be written: " in ran.err
    assert "Next: make room or the folder writable, or name another one with --env" in ran.err


def test_two_upstreams_with_one_file(small: SmallEnvironment) -> None:
    small.project.add_upstream(
        "other", {"other/gate.py": "OTHER = 1\n"}, layout={"other/": "tiny/"}
    )
    small.configure()
    assert small.project.run("lock").code == 0
    ran = refused(small, code=2, says="other and tiny both bring this file, with other content")
    assert "tiny/gate.py: other and tiny" in ran.err


def test_a_record_that_is_wrong_about_a_file_of_two_packages(small: SmallEnvironment) -> None:
    """It is never right, however often the package is installed: that must come to an end."""
    small.add("alpha", "1.0", {"shared.py": "FROM = 'alpha'\n"})
    wheel = small.add("gamma", "1.0", {"shared.py": "FROM = 'gamma'\n"})
    falsify(wheel, "shared.py", b"FROM = 'mallory'\n")
    small.configure(requirements=["native", "alpha", "gamma"])
    assert small.project.run("lock").code == 0
    ran = refused(small, code=3, says="shared.py: the file has other content than alpha and gamma ")
    assert "`uv cache clean alpha gamma`" in ran.err
