"""A machine that lacks something: git, a cache, a reader, a place for output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bad_input import edit, refused, small_project, snapshot
from projects import TinyProject


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    return small_project(tmp_path)


def test_no_git(tiny: TinyProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = snapshot(tiny.root)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    for command in (("lock",), ("status",), ("verify",), ("apply", "--into", "out")):
        refused(tiny.run(*command), 3, "git was not found on PATH", "install git")
    shown = tiny.run("show", "1")
    assert shown.code == 0
    assert "not known: git was not found on PATH" in shown.out
    assert snapshot(tiny.root) == before


def test_a_git_that_cannot_be_run(
    tiny: TinyProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text("not executable", encoding="ascii")
    monkeypatch.setenv("PATH", str(programs))
    # It is git that is wrong, not the cache that git was to write.
    refused(tiny.run("lock"), 3, "git on PATH cannot be run", "make it executable")
    assert not (tiny.root / "upstream.lock").exists()


def test_a_cache_that_cannot_be_made(
    tiny: TinyProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = snapshot(tiny.root)
    file = tmp_path / "file"
    file.touch()
    for cache in (file, file / "below", Path("/proc/self/cache")):
        monkeypatch.setenv("PATCHWRIGHT_CACHE", str(cache))
        for command in (("lock",), ("status",), ("verify",), ("apply", "--into", "out")):
            refused(tiny.run(*command), 3, "the cache cannot be written", "PATCHWRIGHT_CACHE")
    assert snapshot(tiny.root) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_cache_that_is_read_only(
    tiny: TinyProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o500)
    monkeypatch.setenv("PATCHWRIGHT_CACHE", str(cache))
    refused(tiny.run("lock"), 3, str(cache), "Permission denied", "PATCHWRIGHT_CACHE")
    assert not (tiny.root / "upstream.lock").exists()


def test_no_network(tiny: TinyProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = f'path = "wheels/{tiny.wheels["tiny"].name}"\n'
    edit(tiny.root / "pyproject.toml", path, "")
    before = snapshot(tiny.root)
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    for command in (("lock",), ("verify",), ("apply", "--into", "out")):
        refused(tiny.run(*command), 3, "tiny==1.0", "the package index cannot be reached", "proxy")
    assert snapshot(tiny.root) == before


@pytest.mark.parametrize("command", [["status"], ["status", "--json"], ["verify"], ["show", "1"]])
def test_a_reader_that_has_gone(tiny: TinyProject, command: list[str]) -> None:
    # Not 1: that would say that the answer is no.
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "patchwright", *command],
        cwd=tiny.root, stdout=write, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(write)
    assert done.returncode == 141, done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&-", "1>/dev/full", "2>/dev/full"])
def test_streams_that_are_closed(tiny: TinyProject, closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m patchwright status {closed}', sys.executable],
        cwd=tiny.root, capture_output=True, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )  # fmt: skip
    # What a full disk kept from being said is an error of the machine, not an answer.
    codes = {"1>/dev/full": (3,), "2>/dev/full": (0, 3)}.get(closed, (0,))
    assert done.returncode in codes, done.stderr
    assert b"Traceback" not in done.stderr


def test_ctrl_c_while_a_smoke_test_runs(tiny: TinyProject, tmp_path: Path) -> None:
    mark = tmp_path / "runs"
    tiny.add_smoke(
        "test_0001.py",
        "import pathlib, pytest, subprocess\n"
        '@pytest.mark.tier("static")\n'
        "def test_long(tree):\n"
        '    child = subprocess.Popen(["sleep", "300"])\n'
        f"    pathlib.Path({str(mark)!r}).write_text(str(child.pid))\n"
        "    child.wait()\n",
    )
    before = snapshot(tiny.root)
    process = subprocess.Popen(
        [sys.executable, "-m", "patchwright", "verify", "1", "--tier", "static"],
        cwd=tiny.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not (mark.exists() and mark.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"patchwright: interrupted" in err
    assert b"Traceback" not in err
    child = Path(f"/proc/{mark.read_text()}/stat")
    while child.exists() and time.monotonic() < until:
        if child.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.05)
    else:
        assert not child.exists()
    assert snapshot(tiny.root) == before


@pytest.mark.parametrize("variable", ["HOME=", "HOME=/nowhere", "LC_ALL=C", "LC_ALL=tr_TR.UTF-8"])
def test_odd_environments_change_nothing(
    tiny: TinyProject, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    name, _, value = variable.partition("=")
    expected = tiny.run("apply", "--json").json()
    monkeypatch.setenv(name, value)
    ran = tiny.run_apart("apply", "--json")
    assert ran.code == 0
    assert ran.json() == expected


def test_odd_names_of_the_project(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"p\xffr \xc3\xa9 $(x)")
    tiny = small_project(folder)
    assert tiny.run("lock").code == 0
    ran = tiny.run_apart("verify", "1", "--tier", "static", "--context", "step", "--json")
    assert ran.code == 0, ran.err
    assert [r["verdict"] for r in ran.json()["results"]] == ["passed"]
    edit(tiny.root / "patches" / "0001-tiny-gate-open.patch", "tiny 1.0", "tiny 0.9")
    ran = tiny.run_apart("lock")
    refused(ran, 2, "p\\udcffr", "0001 was made for tiny 0.9")
