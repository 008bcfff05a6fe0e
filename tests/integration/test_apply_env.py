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

from patchwright.environment.transaction import FOLDER
from projects import Content, TinyProject, make_project, make_wheel
from venvs import Env, make_env

FILES: dict[str, Content] = {
    "tiny/__init__.py": "from .gate import OPEN\nfrom ._version import V\n",
    "tiny/gate.py": "OPEN = 0\n",
    "csrc/k.cu": "__global__ void k() {}\n",
}
COMPANION = {"tiny_extra/__init__.py": "V = '1.0'\n"}


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    tiny = make_project(
        tmp_path, FILES, built={"tiny/_version.py": "V = '1.0'\n"}, outside=("tiny/_version.py",)
    )
    tiny.wheels["tiny-extra"] = make_wheel(
        tiny.root / "wheels", COMPANION, distribution="tiny-extra"
    )
    config = tiny.upstreams["tiny"]
    config["version-files"] = ["tiny/_version.py"]
    config["companions"] = {"tiny-extra": ["tiny_extra/__init__.py"]}
    tiny.add_upstream("other", {"other/__init__.py": "x = 1\n"})
    tiny.add_patch(1, {"tiny/gate.py": "OPEN = 1\n"}, title="gate: open")
    tiny.add_patch(2, {"other/__init__.py": "x = 2\n"}, upstream="other")
    tiny.add_patch(3, {"csrc/k.cu": "k\n", "tiny/new/__init__.py": "NEW = 1\n"})
    return tiny


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
    assert _patched(env.files()) == _patched(whole)
    tiny.run("apply", "--env", str(env.root), "--to", "0")
    assert env.files() == before


def _patched(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if not path.startswith(FOLDER)}


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

_KILLED = """
import os, signal, sys
import patchwright.environment.transaction as t
left = [int(sys.argv.pop(1))]
def count(event, args):
    if event in ("os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir") or (
        event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR)):
        if any(isinstance(a, str) and "env/lib" in a for a in args):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
from patchwright.main import main
main()
"""


def _killed(tiny: TinyProject, at: int, *args: str) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(at), *args], cwd=tiny.root, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


@pytest.mark.parametrize("at", [2, 9, 20, 26, 33])
def test_killed_at_a_step_the_next_command_is_right(tiny: TinyProject, env: Env, at: int) -> None:
    pristine = env.files()
    assert _killed(tiny, at, "apply", "--env", str(env.root))
    assert tiny.run("unapply", "--env", str(env.root)).code in (0, 1)
    assert env.files() == pristine
    assert tiny.run("apply", "--env", str(env.root)).code == 0
    whole = _patched(env.files())
    assert _killed(tiny, at, "unapply", "--env", str(env.root))
    assert tiny.run("apply", "--env", str(env.root)).code == 0
    assert _patched(env.files()) == whole
    assert tiny.run("unapply", "--env", str(env.root)).code == 0
    assert env.files() == pristine


@pytest.mark.slow
def test_killed_at_every_step(tiny: TinyProject, env: Env) -> None:
    pristine, cached = env.files(), env.cached()
    for args in (("apply",), ("unapply",)):
        at = 0
        while True:
            at += 1
            if args == ("unapply",):
                tiny.run("apply", "--env", str(env.root))
            if not _killed(tiny, at, *args, "--env", str(env.root)):
                break
            assert tiny.run("apply", "--env", str(env.root), "--to", "1").code == 0, at
            assert tiny.run("unapply", "--env", str(env.root)).code == 0
            assert env.files() == pristine, at
            assert env.cached() == cached
        tiny.run("unapply", "--env", str(env.root))
        assert at > 30


def test_an_edit_between_a_kill_and_the_recovery_is_not_lost(tiny: TinyProject, env: Env) -> None:
    at = 10
    while _killed(tiny, at, "apply", "--env", str(env.root)):
        if (env.site / FOLDER / "journal.json").exists():
            break
        at += 1
    gate = env.site / "tiny/gate.py"
    gate.unlink()
    gate.write_text("mine\n")
    ran = tiny.run("unapply", "--env", str(env.root))
    assert ran.code == 1
    assert f"{gate}: the file was edited after a command was killed here" in ran.err
    assert gate.read_text() == "mine\n"
    gate.unlink()
    assert tiny.run("unapply", "--env", str(env.root)).code == 0


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
