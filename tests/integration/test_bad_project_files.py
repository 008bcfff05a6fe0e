"""pyproject.toml, upstream.lock and local archives that cannot be used."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bad_input import GATE, edit, patch_file, refused, small_project, snapshot
from projects import TinyProject

LOCK = "upstream.lock"


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    return small_project(tmp_path)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"x = [", ("pyproject.toml", "this is not TOML", "correct that line")),
        (b"# \xff\n", ("pyproject.toml", "byte 2 is not UTF-8", "save it as UTF-8")),
        (b"[project]\n", ("no pyproject.toml with [tool.patchwright] here", "-C DIR")),
        (b'tool = "x"\n', ("no pyproject.toml with [tool.patchwright] here", "-C DIR")),
        (b"[tool.patchwright]\n", (GATE, "tiny is not an upstream", "[tool.patchwright.upst")),
        (b"[tool.patchwright]\nupstreams = []\n", ("tool.patchwright.upstreams: a table is",)),
        (b"[tool.patchwright]\nacrh = []\n", ("acrh: this key is not known", "mean arch?")),
    ],
)
def test_pyproject(tiny: TinyProject, content: bytes, parts: tuple[str, ...]) -> None:
    (tiny.root / "pyproject.toml").write_bytes(content)
    before = snapshot(tiny.root)
    for command in ("lock", "status", "verify"):
        refused(tiny.run(command), 2, *parts)
    assert snapshot(tiny.root) == before


@pytest.mark.parametrize("kind", ["folder", "loop"])
def test_pyproject_that_is_no_file(tiny: TinyProject, kind: str) -> None:
    path = tiny.root / "pyproject.toml"
    path.unlink()
    path.mkdir() if kind == "folder" else path.symlink_to(path.name)
    refused(tiny.run("status"), 2, str(tiny.root), "no pyproject.toml", "-C DIR")


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "device", "not printable"])
def test_a_local_archive_that_cannot_be_read(tiny: TinyProject, kind: str) -> None:
    path = tiny.root / "wheels" / "x.whl"
    name = "wheels/x.whl"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "not printable":
            name = "wheels/\\u0000x.whl"
    edit(tiny.root / "pyproject.toml", f"wheels/{tiny.wheels['tiny'].name}", name)
    where = "upstreams.tiny.path" if kind == "not printable" else str(path)
    before = sorted(str(p) for p in tiny.root.rglob("*"))
    for command in ("lock", "verify"):
        refused(tiny.run(command), 2, where)
    assert sorted(str(p) for p in tiny.root.rglob("*") if ".patchwright" not in str(p)) == before


def test_a_pipe_in_the_place_of_a_locked_archive_is_not_waited_for(tiny: TinyProject) -> None:
    assert tiny.run("lock").code == 0
    tiny.wheels["tiny"].unlink()
    os.mkfifo(tiny.wheels["tiny"])
    assert tiny.run("status").code == 0  # what is locked is imported already


def test_a_wheel_that_is_cut_off(tiny: TinyProject) -> None:
    assert tiny.run("lock").code == 0
    wheel = tiny.wheels["tiny"]
    wheel.write_bytes(wheel.read_bytes()[:-100])
    before = snapshot(tiny.root)
    ran = tiny.run("lock", "--check")
    refused(ran, 1, "the lock disagrees with the project in 1 place")
    assert "upstream tiny: sha256" in ran.out
    for command in (("lock",), ("verify",), ("apply", "--into", "out")):
        refused(tiny.run(*command), 2, wheel.name, "damaged or truncated", "get the archive again")
    assert snapshot(tiny.root) == before


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("version = 1\n", "version = 2\n", (":2", "format 2 was written by a newer", "update")),
        ("version = 1\n", "", ("None is not a format number", "remove it and run")),
        ("[[patch]]", "<<<<<<< HEAD\n[[patch]]", ("conflict markers", "git checkout --ours")),
        ("[[patch]]", "[[patch", ("this is not TOML", "git checkout -- upstream.lock")),
        ('tree = "', 'tree = "z', ("upstream[0].tree", "cannot stand here", "git checkout --")),
    ],
    ids=["newer", "no format", "conflict", "not TOML", "no object id"],
)
def test_a_lock_that_was_edited(
    tiny: TinyProject, old: str, new: str, parts: tuple[str, ...]
) -> None:
    assert tiny.run("lock").code == 0
    edit(tiny.root / LOCK, old, new)
    before = snapshot(tiny.root)
    for command in (("lock", "--check"), ("lock",), ("status",), ("verify",)):
        refused(tiny.run(*command), 2, LOCK, *parts)
    assert snapshot(tiny.root) == before


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "loop"])
def test_a_lock_that_is_no_file(tiny: TinyProject, kind: str) -> None:
    path = tiny.root / LOCK
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case _:
            path.symlink_to(path.name)
    for command in ("lock", "status", "verify"):
        refused(tiny.run(command), 2, str(path), "git checkout -- upstream.lock")
    assert not path.is_file()


def test_lock_and_pyproject_disagree(tiny: TinyProject) -> None:
    assert tiny.run("lock").code == 0
    edit(patch_file(tiny), "Why, in prose.", "Why, in other words.")
    before = snapshot(tiny.root)
    ran = tiny.run("lock", "--check")
    refused(ran, 1, "the lock disagrees with the project in 1 place", "patchwright lock")
    assert f"patch patches/{GATE}: sha256" in ran.out
    assert "  lock:    " in ran.out
    assert "  project: " in ran.out
    for command in ("status", "verify"):
        ran = tiny.run(command)
        assert ran.code == 0
        # Both values stand in one line, for grep.
        [line] = [text for text in ran.out.splitlines() if text.startswith("stale: ")]
        assert "the lock has " in line
        assert "the project has " in line
    assert snapshot(tiny.root) == before


def test_a_folder_that_is_gone(tiny: TinyProject, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    from patchwright.errors import InputError
    from patchwright.project import Project

    shutil.rmtree(gone)
    with pytest.raises(InputError, match="cannot be entered") as caught:
        Project.open(gone)
    assert "-C DIR" in caught.value.next_step


def test_from_a_sub_folder_and_from_outside(tiny: TinyProject, tmp_path: Path) -> None:
    assert tiny.run("status", cwd=tiny.root / "tests" / "smoke").code == 0
    assert tiny.run("-C", str(tiny.root / "patches"), "status", cwd=tmp_path).code == 0
    refused(tiny.run("status", cwd=tmp_path), 2, str(tmp_path), "-C DIR")
