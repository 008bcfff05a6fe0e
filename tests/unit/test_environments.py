"""The environment with upstream's packages: found, described, and named where it lacks."""

from __future__ import annotations

import importlib.util
import os
import sys
import venv
from pathlib import Path

import pytest

from patchwright.config import Config
from patchwright.smoke import environments
from patchwright.smoke.environments import VARIABLE, describe, interpreter, require_torch
from patchwright.smoke.outcomes import Blocked


def config(root: Path, **declared: object) -> Config:
    return Config(root, {}, environment=declared)


def make(folder: Path) -> Path:
    """Make an environment and return the folder of its packages."""
    venv.create(folder, symlinks=True, with_pip=False)
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return folder / "lib" / minor / "site-packages"


def test_the_variable_wins_over_the_declaration(tmp_path: Path) -> None:
    make(tmp_path / "a")
    make(tmp_path / "b")
    declared = config(tmp_path, interpreter="a/bin/python")
    assert interpreter(declared, {}) == tmp_path / "a/bin/python"
    assert interpreter(declared, {VARIABLE: str(tmp_path / "b")}) == tmp_path / "b/bin/python"


def test_what_rebuild_made_serves_where_nothing_is_named(tmp_path: Path) -> None:
    make(tmp_path / ".patchwright" / "env")
    make(tmp_path / "a")
    assert interpreter(config(tmp_path), {}) == tmp_path / ".patchwright/env/bin/python"
    assert interpreter(config(tmp_path, interpreter="a"), {}) == tmp_path / "a/bin/python"


def test_without_one_the_need_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Blocked, match=r"name one with PATCHWRIGHT_ENVIRONMENT=VENV"):
        interpreter(config(tmp_path), {})
    with pytest.raises(Blocked, match="nowhere has no interpreter"):
        interpreter(config(tmp_path), {VARIABLE: "nowhere"})


def test_the_running_interpreter_serves_where_it_has_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "torch" or None)
    assert interpreter(config(tmp_path), {}) == Path(sys.executable)


def test_another_package_is_another_environment(tmp_path: Path) -> None:
    packages = make(tmp_path / "a")
    python = tmp_path / "a/bin/python"
    before = describe(python)
    (packages / "numpy-2.4.6.dist-info").mkdir()
    describe.cache_clear()
    after = describe(python)
    assert before.identity != after.identity
    # The same packages elsewhere are the same environment.
    other = make(tmp_path / "b")
    (other / "numpy-2.4.6.dist-info").mkdir()
    assert describe(tmp_path / "b/bin/python").identity == after.identity


def test_an_interpreter_that_does_not_run_is_a_need(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n", encoding="ascii")
    broken.chmod(0o755)
    with pytest.raises(Blocked, match="needs an environment that runs"):
        describe(broken)


@pytest.mark.parametrize(
    ("version", "need"),
    [
        (None, "needs torch in"),
        ("cuda: Optional[str] = None\n", "is not"),
        ("cuda: Optional[str] = '13.0'\n", "needs a driver for CUDA 13.0"),
        ("cuda = '12.9'\n", ""),
    ],
)
def test_torch_must_be_built_for_what_the_driver_serves(
    tmp_path: Path, version: str | None, need: str
) -> None:
    packages = make(tmp_path / "a")
    if version is not None:
        (packages / "torch").mkdir()
        (packages / "torch/__init__.py").write_text("raise ImportError('never imported')")
        (packages / "torch/version.py").write_text(version, encoding="ascii")
    environment = describe(tmp_path / "a/bin/python")
    if not need:
        require_torch(environment, "12.2")
        return
    with pytest.raises(Blocked, match=need):
        require_torch(environment, "12.2")


def test_its_programs_come_first(tmp_path: Path) -> None:
    path = environments.program_path(tmp_path / "bin/python", "/usr/bin")
    assert path == f"{tmp_path}/bin{os.pathsep}/usr/bin"
