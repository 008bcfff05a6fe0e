"""patchwright apply --env and unapply: an installed distribution, patched and given back."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash_installed import kill_once, make_tiny, patched
from patchwright.environment.transaction import FOLDER, SiteFiles, sha256
from projects import TinyProject, make_wheel
from venvs import Env, make_env


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    return make_tiny(tmp_path)


@pytest.fixture
def env(tiny: TinyProject, tmp_path: Path) -> Env:
    return make_env(tmp_path, tiny.wheels.values())


def new_version(tiny: TinyProject, at: int = -1) -> str:
    return f"1.0+pw.{tiny.trees['tiny'][at][:8]}"


def test_apply_then_unapply_gives_every_byte_back_and_leaves_the_cache_alone(
    tiny: TinyProject, env: Env
) -> None:
    before, cached = env.files(), env.cached()
    inodes = {path: (env.site / path).stat().st_ino for path in before}
    assert (env.site / "tiny/gate.py").stat().st_nlink > 1  # a hard link into the cache
    ran = tiny.run("apply", "--env", str(env.root), "--json")
    assert ran.code == 0, ran.err
    version = new_version(tiny)
    said = ran.json()["environment"]
    assert said["versions"]["tiny"] == said["versions"]["tiny-extra"] == version
    assert "tiny/gate.py" in said["files"]
    code = (
        "import tiny, tiny.new, tiny_extra, other, importlib.metadata as m\n"
        "print(tiny.OPEN, tiny.V, tiny.new.NEW, tiny_extra.V, other.x, m.version('tiny'))"
    )
    assert env.python("-c", code).split() == ["1", version, "1", version, "2", version]
    assert (env.site / "tiny/data/csrc/k.cu").read_text() == "k\n"
    assert env.cached() == cached
    ran = tiny.run("unapply", "--env", str(env.root))
    assert ran.code == 0, ran.err
    assert env.files() == before
    assert {path: (env.site / path).stat().st_ino for path in before} == inodes
    assert env.cached() == cached
    assert env.python("-c", "import tiny; print(tiny.OPEN, tiny.V)").split() == ["0", "1.0"]
    assert sorted(p.name for p in env.site.rglob("*") if p.is_dir()) == sorted(
        p.name for p in env.site.rglob("*") if p.is_dir() and any(p.iterdir())
    )
    assert not (env.site / FOLDER).exists()


def test_the_metadata_are_what_an_installer_can_work_with(tiny: TinyProject, env: Env) -> None:
    tiny.run("apply", "--env", str(env.root))
    version = new_version(tiny)
    record = (env.site / f"tiny-{version}.dist-info" / "RECORD").read_text()
    assert "tiny/new/__init__.py,sha256=" in record
    # uv removes exactly what RECORD lists.
    env.install("--reinstall", str(tiny.wheels["tiny"]))
    assert not (env.site / "tiny/new").exists()


@pytest.mark.parametrize("name", ["tiny/gate.py", "tiny/__init__.py", "tiny_extra/__init__.py"])
def test_one_edited_byte_is_refused_with_the_file(tiny: TinyProject, env: Env, name: str) -> None:
    path = env.site / name
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-2] + b"9\n")
    before = env.files()
    ran = tiny.run("apply", "--env", str(env.root))
    assert ran.code == 1
    assert f"{path}: the file is changed" in ran.err
    assert ran.err.count("error:") == 1
    assert env.files() == before
    path.unlink()
    ran = tiny.run("apply", "--env", str(env.root))
    assert ran.code == 1
    assert f"{path}: the file is missing" in ran.err


def test_another_selection_is_moved_to_by_difference(tiny: TinyProject, env: Env) -> None:
    before = env.files()
    tiny.run("apply", "--env", str(env.root))
    whole = env.files()
    other = (env.site / "other/__init__.py").stat().st_ino
    ran = tiny.run("apply", "--env", str(env.root), "--without", "1", "--json")
    assert ran.code == 0, ran.err
    assert "other/__init__.py" not in ran.json()["environment"]["files"]
    assert (env.site / "other/__init__.py").stat().st_ino == other
    assert (env.site / "tiny/gate.py").read_text() == "OPEN = 0\n"
    assert (env.site / "tiny/new/__init__.py").exists()
    assert "nothing to change" in tiny.run("apply", "--env", str(env.root), "--without", "1").out
    tiny.run("apply", "--env", str(env.root), "--to", "1")
    assert not (env.site / "tiny/new").exists()
    tiny.run("apply", "--env", str(env.root))
    assert patched(env.files()) == patched(whole)
    tiny.run("apply", "--env", str(env.root), "--to", "0")
    assert env.files() == before


def test_bytecode_of_the_old_state_cannot_be_used(tiny: TinyProject, env: Env) -> None:
    """Same size, and the same second: an interpreter would take the old bytecode."""
    gate = env.site / "tiny/gate.py"
    assert env.python("-c", "import tiny; print(tiny.OPEN)").split() == ["0"]
    [compiled] = (env.site / "tiny/__pycache__").glob("gate.*.pyc")
    before = compiled.read_bytes()
    tiny.run("apply", "--env", str(env.root))
    assert not compiled.exists()
    assert env.python("-c", "import tiny; print(tiny.OPEN)").split() == ["1"]
    # Bytecode that stands elsewhere goes by size and time: each content has its own time.
    times = {int(gate.stat().st_mtime)}
    tiny.add_patch(4, {"tiny/gate.py": "OPEN = 4\n"})
    tiny.run("apply", "--env", str(env.root))
    times.add(int(gate.stat().st_mtime))
    assert env.python("-c", "import tiny; print(tiny.OPEN)").split() == ["4"]
    tiny.run("unapply", "--env", str(env.root))
    times.add(int(gate.stat().st_mtime))
    assert len(times) == 3
    assert compiled.read_bytes() == before
    assert env.python("-c", "import tiny; print(tiny.OPEN)").split() == ["0"]


def test_an_edit_on_top_stops_unapply_and_the_next_apply(tiny: TinyProject, env: Env) -> None:
    tiny.run("apply", "--env", str(env.root))
    path = env.site / "tiny/new/__init__.py"
    path.write_text("mine\n")
    for args in (("unapply",), ("apply", "--to", "1")):
        ran = tiny.run(*args, "--env", str(env.root))
        assert ran.code == 1
        assert f"{path}: the file was edited since patches were applied here" in ran.err
    path.write_text("NEW = 1\n")
    assert tiny.run("unapply", "--env", str(env.root)).code == 0


def test_what_cannot_be_patched_is_named(tiny: TinyProject, env: Env, tmp_path: Path) -> None:
    def refused(*args: str) -> str:
        before = env.files()
        ran = tiny.run("apply", *args)
        assert ran.code == 2, ran.err
        assert ran.err.count("error:") == 1
        assert env.files() == before
        return ran.err

    assert "there is no such folder" in refused("--env", str(tmp_path / "nothing"))
    assert "there is no interpreter in bin/" in refused("--env", str(tmp_path))
    at = ("--env", str(env.root))
    newer = make_wheel(tmp_path / "newer", {"tiny/__init__.py": ""}, version="1.1")
    env.install(str(newer))
    assert "tiny 1.1 is installed, the pin is 1.0" in refused(*at)
    rebuilt = make_wheel(tmp_path / "r", {"tiny/__init__.py": ""}, version="1.0+pw.12345678")
    env.install(str(rebuilt))
    assert "tiny 1.0+pw.12345678 is patched already, by a rebuild" in refused(*at)
    shutil.rmtree(env.site / "tiny-1.0+pw.12345678.dist-info")
    assert "tiny is not installed in this environment" in refused(*at)


def test_the_environment_of_another_project_is_refused(
    tiny: TinyProject, env: Env, tmp_path: Path
) -> None:
    tiny.run("apply", "--env", str(env.root))
    other = tmp_path / "elsewhere"
    shutil.copytree(tiny.root, other)
    ran = tiny.run("apply", "--env", str(env.root), cwd=other)
    assert ran.code == 2
    assert f"carries patches of another project, {tiny.root}" in ran.err
    assert "unapply --env" in ran.err


def test_a_companion_that_is_not_there_is_noted(
    tiny: TinyProject, env: Env, tmp_path: Path
) -> None:
    shutil.rmtree(env.site / "tiny_extra-1.0.dist-info")
    ran = tiny.run("apply", "--env", str(env.root))
    assert ran.code == 0, ran.err
    assert "note: tiny-extra is not installed here" in ran.out


def test_unapply_of_nothing(tiny: TinyProject, env: Env) -> None:
    ran = tiny.run("unapply", "--env", str(env.root))
    assert ran.code == 1
    assert "no patches of ours are in this environment" in ran.err


def test_a_file_that_nobody_lists_is_not_overwritten(tiny: TinyProject, env: Env) -> None:
    mine = env.site / "tiny/new/__init__.py"
    mine.parent.mkdir()
    mine.write_text("mine\n")
    ran = tiny.run("apply", "--env", str(env.root))
    assert ran.code == 1
    assert f"{mine}: a patch adds this file" in ran.err
    assert mine.read_text() == "mine\n"


def test_a_patch_that_does_not_apply_changes_nothing(tiny: TinyProject, env: Env) -> None:
    before = env.files()
    path = next((tiny.root / "patches").glob("0001*"))
    path.write_bytes(path.read_bytes().replace(b"-OPEN = 0", b"-OPEN = None"))
    ran = tiny.run("apply", "--env", str(env.root))
    assert ran.code == 1
    assert "so nothing was written" in ran.err
    assert env.files() == before


def test_two_at_once(tiny: TinyProject, env: Env) -> None:
    tiny.run("apply", "--env", str(env.root))
    handle = os.open(env.site / FOLDER, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    ran = tiny.run("unapply", "--env", str(env.root))
    os.close(handle)
    assert ran.code == 3
    assert "another patchwright is changing this environment" in ran.err
    assert tiny.run("unapply", "--env", str(env.root)).code == 0


@pytest.mark.parametrize("size", [0, 20, 2000])
def test_a_full_disk_is_one_message_and_changes_nothing(
    tiny: TinyProject, env: Env, size: int
) -> None:
    assert tiny.run("apply").code == 0  # what the cache needs is there
    before = env.files()

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    done = subprocess.run(
        [sys.executable, "-m", "patchwright", "apply", "--env", str(env.root)], cwd=tiny.root,
        capture_output=True, text=True, preexec_fn=limit, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("error:") == 1
    assert "make room" in done.stderr
    assert env.files() == before
    assert tiny.run("apply", "--env", str(env.root)).code == 0


@contextlib.contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    mounted = shutil.which("mount") and not any(
        subprocess.run(["mount", *args], capture_output=True, check=False).returncode
        for args in (["--bind", str(folder), str(folder)], ["-o", "remount,ro,bind", str(folder)])
    )
    if not mounted:
        pytest.skip("needs the right to mount a folder read-only")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_read_only_environment(tiny: TinyProject, env: Env) -> None:
    with _read_only(env.root):
        ran = tiny.run("apply", "--env", str(env.root))
    assert ran.code == 3
    assert "the environment cannot be written: Read-only file system" in ran.err
    assert ran.err.count("error:") == 1


# Killed


@pytest.mark.parametrize("at", [3, 60, 95, 150])
def test_killed_at_a_step_the_next_command_is_right(tiny: TinyProject, env: Env, at: int) -> None:
    """Steps before the journal is written and after it, in both commands."""
    assert kill_once(tiny, env, at)


@pytest.mark.slow
def test_killed_at_many_steps(tiny: TinyProject, env: Env) -> None:
    at = 1
    while kill_once(tiny, env, at):
        at += 6
    assert at > 150


def test_an_edit_between_a_kill_and_the_recovery_is_not_lost(
    tiny: TinyProject, env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SiteFiles, "_carry_out", killed)
        assert tiny.run("apply", "--env", str(env.root)).code == 130
    gate = env.site / "tiny/gate.py"
    gate.unlink()
    gate.write_text("mine\n")
    ran = tiny.run("unapply", "--env", str(env.root))
    assert ran.code == 1
    assert f"{gate}: the file was edited after a command was killed here" in ran.err
    assert gate.read_text() == "mine\n"
    gate.unlink()
    assert tiny.run("unapply", "--env", str(env.root)).code == 0
    assert gate.read_text() == "OPEN = 0\n"


def test_nothing_is_written_through_a_link(tiny: TinyProject, env: Env, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (env.site / "tiny").rename(mine)
    (env.site / "tiny").symlink_to(mine)
    ran = tiny.run("apply", "--env", str(env.root))
    assert ran.code == 2
    assert "is a link that leads out of the environment" in ran.err
    assert (mine / "gate.py").read_text() == "OPEN = 0\n"
    assert not (env.site / FOLDER).exists()


def test_a_record_that_names_a_file_elsewhere_is_refused(
    tiny: TinyProject, env: Env, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine\n")
    tiny.run("apply", "--env", str(env.root))
    record = env.site / FOLDER / "applied.json"
    content = json.loads(record.read_text())
    content["files"].append([os.path.relpath(mine, env.site), None, sha256(b"mine\n")])
    record.write_text(json.dumps(content))
    ran = tiny.run("unapply", "--env", str(env.root))
    assert ran.code == 2
    assert "the path leaves the archive" in ran.err
    assert mine.exists()


def test_a_record_of_a_newer_tool_is_refused(tiny: TinyProject, env: Env) -> None:
    tiny.run("apply", "--env", str(env.root))
    record = env.site / FOLDER / "applied.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"format": 99}))
    ran = tiny.run("apply", "--env", str(env.root))
    assert ran.code == 2
    assert "update patchwright" in ran.err
    record.write_text("{")
    ran = tiny.run("unapply", "--env", str(env.root))
    assert ran.code == 2
    assert "the record of what was applied cannot be read" in ran.err
