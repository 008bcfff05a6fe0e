"""A rebuild that is killed, at whatever point: an environment that works, and nothing beside it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from environments import SmallEnvironment, locked_environment
from rebuilds import env, files, site


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallEnvironment:
    return locked_environment(tmp_path, monkeypatch)


def test_killed_at_any_point_the_old_environment_works(small: SmallEnvironment) -> None:
    assert small.project.run("rebuild").code == 0
    before = files(env(small))
    started = time.monotonic()
    assert small.project.run_apart("rebuild", "--to", "0").code == 0
    whole = time.monotonic() - started
    small.project.run("rebuild")
    for part in (0.4, 0.6, 0.75, 0.9):
        process = subprocess.Popen(
            [sys.executable, "-m", "patchwright", "rebuild", "--to", "0"], cwd=small.project.root,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        time.sleep(whole * part)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        now = files(env(small))
        if now != before:
            # It was put in place already: then all of it was.
            assert (site(env(small)) / "tiny/gate.py").read_text("utf-8") == "OPEN = False\n"
            assert subprocess.run([env(small) / "bin/tiny"], check=True).returncode == 0
            break
    # A uv that was killed holds its folder until it is gone, which takes a busy machine a while.
    for _ in range(5):
        ran = small.project.run("rebuild")
        assert ran.code == 0, ran.err
        assert files(env(small)) == before
        left = list((small.project.root / ".patchwright").glob(".env.*"))
        if not left:
            break
        time.sleep(2)
    assert left == []


def test_an_environment_moved_aside_by_a_killed_run_comes_back(small: SmallEnvironment) -> None:
    small.project.run("rebuild")
    before = files(env(small))
    # As it is between two renames, where the file system cannot exchange two folders.
    env(small).rename(env(small).with_name(".env.patchwright-abc.old"))
    shutil.rmtree(small.index)
    assert small.project.run("rebuild").code == 3
    assert files(env(small)) == before
    assert list((small.project.root / ".patchwright").glob(".env.*")) == []
