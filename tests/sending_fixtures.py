"""Fixtures of the tests of ``send``: see sending.py."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from projects import TinyProject, make_project
from sending import GATE, MORE, OPENED, SMOKE, Servers, Smtp


@lru_cache(maxsize=1)
def _made(folder: Path) -> TinyProject:
    """Make project, evidence and servers once; each test has a copy."""
    files = {"tiny/gate.py": GATE, "tiny/route.py": "ROUTES = {}\n", "csrc/a.cu": "// a\n"}
    project = make_project(folder, files)
    smoke = "tests/smoke/test_{}.py"
    project.add_patch(
        1, {"tiny/gate.py": OPENED}, title="gate: open for 12",
        fields={"Smoke": smoke.format("gate"), "Bug": "https://example.org/issues/7"},
    )  # fmt: skip
    project.add_smoke("test_gate.py", SMOKE.format(wanted="12 in MAJORS"))
    project.add_patch(
        2, {"tiny/route.py": "ROUTES = {12: 'gate'}\n"}, title="route: to 12",
        fields={"Smoke": smoke.format("route"), "Depends": "0001 (the gate must be open)"},
    )  # fmt: skip
    project.add_smoke("test_route.py", SMOKE.format(wanted="12 in MAJORS and 12 in ROUTES"))
    project.add_patch(3, {"csrc/a.cu": "// b\n"}, title="a: b")
    ran = project.run("verify", "--tier", "static")
    assert "4 passed" in ran.out, ran.out + ran.err
    work = folder / "servers" / "work"
    for name, text in {**files, **MORE}.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def git(*args: str) -> None:
        subprocess.run(["git", *args], cwd=work, capture_output=True, check=True)

    git("init", "--quiet", "--initial-branch=main")
    git("add", "--all")
    git("commit", "--quiet", "-m", "first")
    git("clone", "--quiet", "--bare", ".", "../fork.git")
    (work / "README").write_text("moved on\n", encoding="ascii")
    git("add", "--all")
    git("commit", "--quiet", "-m", "second")
    git("clone", "--quiet", "--bare", ".", "../upstream.git")
    return project


@pytest.fixture
def servers(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Servers:
    folder = tmp_path_factory.getbasetemp() / "sending"
    made = _made(folder)
    shutil.copytree(folder, tmp_path / "s")
    project = TinyProject(
        tmp_path / "s" / "project", made.wheels, {"tiny": tmp_path / "s" / "git" / "tiny"},
        {"tiny": list(made.trees["tiny"])}, {"tiny": dict(made.upstreams["tiny"])},
    )  # fmt: skip
    files = {"tiny/gate.py": GATE, **MORE}
    found = Servers(project, tmp_path / "s" / "servers", files)
    found.configure()
    return found


@pytest.fixture
def project(servers: Servers) -> TinyProject:
    return servers.project


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    return folder


@pytest.fixture
def no_programs(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave on PATH what the machine must have, and neither gh nor pre-commit."""
    for name in ("git", "sh", "cat", "echo", "env"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    monkeypatch.setenv("REAL_PATH", os.environ["PATH"])
    monkeypatch.setenv("PATH", str(programs))


@pytest.fixture
def program(programs: Path, no_programs: None) -> Callable[[str, str], None]:
    """Put a shell script on PATH."""

    def put(name: str, text: str) -> None:
        path = programs / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    return put


@pytest.fixture
def gh(tmp_path: Path, program: Callable[[str, str], None]) -> Callable[..., Path]:
    """Put a stand-in for gh on PATH: GitHub's network is what it stands for.

    What it was asked, argument by argument and then the text, is in the file returned.
    """

    def put(address: str, *, logged_in: bool = True, trouble: str = "") -> Path:
        asked = tmp_path / "asked"
        answer = f"echo '{trouble}' >&2; exit 1" if trouble else f"echo '{address}'"
        program(
            "gh",
            f"""
{"" if logged_in else "exit 4"}
for word in "$@"; do echo "$word" >> '{asked}'; done
cat >> '{asked}'
{answer}""",
        )
        return asked

    return put


@pytest.fixture
def smtp(no_programs: None) -> Iterator[Smtp]:
    with Smtp(os.environ["REAL_PATH"]) as found:
        yield found


@pytest.fixture
def real_program(programs: Path, no_programs: None) -> Callable[[str], None]:
    """Put a real program on PATH; the test is left out where the machine lacks it."""

    def put(name: str) -> None:
        found = shutil.which(name, path=os.environ["REAL_PATH"])
        if found is None:
            pytest.skip(f"{name} is not installed")
        (programs / name).symlink_to(found)

    return put


@pytest.fixture
def reworked(servers: Servers) -> Callable[[], None]:
    """Let patch 1 do its work in another way, and verify that."""

    def rework() -> None:
        path = next((servers.project.root / "patches").glob("0001-*"))
        raw = path.read_bytes().replace(b"+MAJORS = [9, 10, 12]", b"+MAJORS = [12, 10, 9]")
        path.write_bytes(raw)
        assert servers.project.run("verify", "1", "--tier", "static").code == 0

    return rework
