"""The environment in the lock: resolved by uv from an index of the test's own."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from environments import PYTHON, SmallEnvironment, locked_environment, small_environment


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallEnvironment:
    return small_environment(tmp_path, monkeypatch)


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallEnvironment:
    return locked_environment(tmp_path, monkeypatch)


def table(small: SmallEnvironment) -> dict[str, Any]:
    text = (small.project.root / "upstream.lock").read_text("utf-8")
    found: dict[str, Any] = tomllib.loads(text)["environment"]
    return found


def versions(small: SmallEnvironment) -> dict[str, str]:
    lines = table(small)["packages"].splitlines()
    return {line.split()[0]: line.split()[1] for line in lines}


def test_everything_is_locked_for_two_machines_and_no_address_is(small: SmallEnvironment) -> None:
    ran = small.project.run("lock")
    assert f"environment: Python {PYTHON}, packages: x86_64 3, aarch64 3\n" in ran.out, ran.err
    locked = table(small)
    assert versions(small) == {"dep": "1.0", "native": "2.0", "tiny-cubin": "1.0"}
    assert locked["settings"] == {"TINY_ARCH_LIST": "12.0a"}
    [wheel] = locked["wheels"].splitlines()
    assert wheel.startswith(f"tiny-1.0+pw.{small.project.tree()[:8]}-py3-none-any.whl ")
    native = next(line for line in locked["packages"].splitlines() if line.startswith("native"))
    assert "aarch64=py3-none-manylinux_2_17_aarch64:" in native
    text = (small.project.root / "upstream.lock").read_bytes()
    assert b"://" not in text
    assert str(small.index).encode() not in text


def test_what_is_locked_stays_until_asked_for(locked: SmallEnvironment) -> None:
    first = (locked.project.root / "upstream.lock").read_bytes()
    locked.add("dep", "1.1", {"dep.py": "V = 2\n"})
    locked.add("tiny-cubin", "1.0", {"tiny_cubin/__init__.py": "", "tiny_cubin/_meta.py": "other"})
    assert "is up to date" in locked.project.run("lock").out
    assert (locked.project.root / "upstream.lock").read_bytes() == first
    # A requirement more: what was locked keeps its version all the same.
    locked.add("more", "1.0", {"more.py": ""})
    locked.configure(requirements=["native", "more"])
    assert locked.project.run("lock").code == 0
    assert versions(locked) == {"dep": "1.0", "more": "1.0", "native": "2.0", "tiny-cubin": "1.0"}
    locked.add("more", "1.5", {"more.py": ""})
    assert locked.project.run("lock", "--upgrade", "Dep").code == 0
    assert (versions(locked)["dep"], versions(locked)["more"]) == ("1.1", "1.0")
    assert locked.project.run("lock", "--upgrade").code == 0
    assert versions(locked)["more"] == "1.5"
    ran = locked.project.run("lock", "--upgrade", "nowhere")
    assert (ran.code, "the lock has no package 'nowhere' to upgrade" in ran.err) == (2, True)


def test_check_names_each_wish_that_changed_without_a_network(
    locked: SmallEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(locked.index)
    assert locked.project.run("lock", "--check").code == 0
    locked.configure(
        python="3.99", cuda="12.8", requirements=["native<3"], settings={"TINY_ARCH_LIST": "12.1a"}
    )
    monkeypatch.setenv("PATCHWRIGHT_CACHE", "/dev/null/nowhere")
    ran = locked.project.run("lock", "--check", "--json")
    assert ran.code == 1
    found = {d["what"]: (d["locked"], d["actual"]) for d in ran.json()["disagreements"]}
    assert found == {
        "environment: python": (PYTHON, "3.99"),
        "environment: cuda": ("(absent)", "12.8"),
        "environment: requirements": ("native", "native<3"),
        "environment: settings": ("TINY_ARCH_LIST=12.0a", "TINY_ARCH_LIST=12.1a"),
    }
    monkeypatch.delenv("PATCHWRIGHT_CACHE")
    assert f"environment: python: the lock has {PYTHON}" in locked.project.run("status").out


def test_check_makes_the_patched_wheels_again(locked: SmallEnvironment) -> None:
    path = locked.project.root / "upstream.lock"
    [wheel] = table(locked)["wheels"].splitlines()
    path.write_text(path.read_text("utf-8").replace(wheel.split()[1], "0" * 64), "utf-8")
    ran = locked.project.run("lock", "--check")
    assert ran.code == 1
    assert f"environment: wheel {wheel.split()[0]}\n  lock:    {'0' * 64}\n" in ran.out


def test_a_machine_for_which_nothing_can_be_locked_is_a_fact(small: SmallEnvironment) -> None:
    next(small.index.glob("native*aarch64.whl")).unlink()
    ran = small.project.run("lock")
    assert ran.code == 0, ran.err
    [note] = [line for line in ran.out.splitlines() if line.startswith("note: ")]
    assert note.startswith("note: nothing is locked for aarch64: ")
    assert "native" in note
    assert "://" not in note
    assert f"environment: Python {PYTHON}, packages: x86_64 3\n" in ran.out
    exported = small.project.run("lock", "--export", "requirements", "--machine", "aarch64")
    assert exported.code == 1
    assert "nothing is locked for aarch64: " in exported.err


def test_exports_for_other_installers(locked: SmallEnvironment) -> None:
    ran = locked.project.run("lock", "--export", "requirements", "--machine", "aarch64")
    lines = ran.out.splitlines()
    assert [line.split(" --hash=sha256:")[0] for line in lines[1:]] == [
        "dep==1.0", "native==2.0", "tiny-cubin==1.0",
    ]  # fmt: skip
    ran = locked.project.run("lock", "--export", "pylock", "--machine", "aarch64")
    exported = tomllib.loads(ran.out)
    assert exported["lock-version"] == "1.0"
    files = {p["name"]: p["wheels"][0]["url"] for p in exported["packages"]}
    assert files["native"].endswith("native-2.0-py3-none-manylinux_2_17_aarch64.whl")


def test_prebuilt_objects_that_would_win_are_refused(small: SmallEnvironment) -> None:
    small.add("tiny-jit-cache", "1.0", {"tiny_jit_cache/__init__.py": ""})
    small.configure(requirements=["native", "tiny-jit-cache"])
    ran = small.project.run("lock")
    assert ran.code == 2
    assert "tiny-jit-cache 1.0 holds compiled objects of tiny, which would be loaded" in ran.err
    assert not (small.project.root / "upstream.lock").exists()


def test_what_the_index_does_not_have_is_named(small: SmallEnvironment) -> None:
    small.configure(requirements=["native>=7"])
    ran = small.project.run("lock")
    assert ran.code == 3
    assert "nothing can be locked for any platform; x86_64: " in ran.err
    assert "native" in ran.err
    assert not (small.project.root / "upstream.lock").exists()


def test_export_of_a_project_without_an_environment(small: SmallEnvironment) -> None:
    small.configure(python=None, requirements=None)
    small.project.run("lock")
    ran = small.project.run("lock", "--export", "requirements")
    assert ran.code == 1
    assert "no environment is locked" in ran.err
    assert 'Next: add python = "3.11" to [tool.patchwright.environment]' in ran.err
