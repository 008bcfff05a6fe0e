"""rebuild: the same environment from the lock, wherever and whenever; all of it or nothing."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from environments import SmallEnvironment, locked_environment, served
from patchwright.environment.rebuild import Rebuild
from rebuilds import env, files, refused, site


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallEnvironment:
    return locked_environment(tmp_path, monkeypatch)


def test_two_rebuilds_on_two_machines_are_the_same(
    small: SmallEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = small.project.run("rebuild", "--json")
    assert first.code == 0, first.err
    elsewhere = tmp_path / "another" / "project"
    shutil.copytree(small.project.root, elsewhere, ignore=shutil.ignore_patterns(".patchwright"))
    settings = {
        "TZ": "Pacific/Kiritimati", "LC_ALL": "C", "UV_LINK_MODE": "copy",
        "PATCHWRIGHT_CACHE": str(tmp_path / "another-cache"),
        "UV_CACHE_DIR": str(tmp_path / "another-uv-cache"),
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    old = os.umask(0o077)
    try:
        second = small.project.run_apart(
            "rebuild", "--json", "--env", str(tmp_path / "far" / "env"), cwd=elsewhere
        )
    finally:
        os.umask(old)
    assert second.code == 0, second.err
    one, other = first.json(), second.json()
    same = ("digest", "wheels", "trees", "versions", "patches")
    assert {key: one[key] for key in same} == {key: other[key] for key in same}
    assert files(env(small)) == files(tmp_path / "far" / "env")
    assert len(files(env(small))) > 20


def test_the_patched_state_is_what_runs(
    small: SmallEnvironment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small.project.run("rebuild")
    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"] + os.pathsep + str(tmp_path))
    (tmp_path / "tiny.py").write_text("raise SystemExit('a shadow')\n", encoding="utf-8")
    new = f"1.0+pw.{small.project.tree()[:8]}"
    code = (
        "import os, sys, tiny.gate, tiny_cubin._meta as c, native, importlib.metadata as m;"
        "print(tiny.gate.OPEN, tiny.__version__, c.__version__, m.version('tiny-cubin'), "
        "os.environ['TINY_ARCH_LIST'], native.M, sys.prefix)"
    )
    ran = small.project.run_apart("run", "--", "python", "-c", code, TINY_ARCH_LIST="9.0")
    assert ran.out.split() == ["True", new, new, new, "12.0a", "x86_64", str(env(small))], ran.err
    assert small.project.run_apart("run", "tiny").out == f"{new}\n"
    ran = small.project.run_apart("run", "python", "-c", "raise SystemExit(7)")
    assert ran.code == 7


def test_a_selection_is_rebuilt_and_none_gives_the_pins(small: SmallEnvironment) -> None:
    small.project.add_patch(2, {"csrc/a.cu": "__global__ void a() { }\n"}, title="a: body")
    small.project.run("lock")
    assert small.project.run("rebuild", "--only", "2").code == 0
    place = site(env(small))
    assert (place / "tiny/gate.py").read_text("utf-8") == "OPEN = False\n"
    assert (place / "tiny/data/csrc/a.cu").read_text("utf-8") == "__global__ void a() { }\n"
    ran = small.project.run("rebuild", "--to", "0", "--json")
    assert ran.json()["versions"]["tiny"] == "1.0"
    assert ran.json()["wheels"] == {}
    assert (site(env(small)) / "tiny_cubin/_meta.py").read_text("utf-8") == '__version__ = "1.0"\n'


def test_nothing_is_a_link_into_the_cache_where_files_are_changed(small: SmallEnvironment) -> None:
    small.project.run("rebuild")
    place = site(env(small))
    for name in ("tiny/gate.py", "tiny_cubin/_meta.py"):
        assert (place / name).stat().st_nlink == 1
    cached = list(Path(os.environ["UV_CACHE_DIR"]).rglob("_meta.py"))
    assert any(p.read_text("utf-8") == '__version__ = "1.0"\n' for p in cached)


def test_a_warm_rebuild_asks_no_index(
    small: SmallEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(small.index, monkeypatch) as index:
        first = small.project.run("rebuild", "--json")
        assert first.code == 0, first.err
        assert any(name.endswith(".whl") for name in index.asked)
        index.asked.clear()
        again = small.project.run("rebuild", "--json")
        assert index.asked == []
    offline = small.project.run("rebuild", "--offline", "--json")
    digests = {ran.json()["digest"] for ran in (first, again, offline)}
    assert len(digests) == 1


def test_the_old_environment_goes_also_when_nobody_waits_for_it(
    small: SmallEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("patchwright.environment.switching._PATIENCE", 0)
    first = small.project.run("rebuild", "--json")
    for _ in range(3):  # while the one before may still be on its way
        assert small.project.run("rebuild", "--json").json() == first.json()
    until_the_old_one_is_gone(small)


def until_the_old_one_is_gone(small: SmallEnvironment) -> None:
    deadline = time.monotonic() + 60
    while list(env(small).parent.glob(".env.*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_network_that_goes_half_way(
    small: SmallEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(small.index, monkeypatch) as index:
        assert small.project.run("rebuild").code == 0
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty-uv-cache"))
        index.cut = True
        refused(small, code=3, says="rebuild: ")
        index.cut = False
        assert small.project.run("rebuild").code == 0


def test_of_two_packages_with_one_file_a_rule_decides(small: SmallEnvironment) -> None:
    bring_one_file(small)
    assert small.project.run("rebuild").code == 0
    first = files(env(small))
    for _ in range(3):
        assert small.project.run("rebuild").code == 0
        assert files(env(small)) == first


@pytest.mark.parametrize(("shared", "gate"), [("beta", "tiny"), ("alpha", "gamma")])
def test_whichever_of_them_uv_installs_last(
    small: SmallEnvironment, monkeypatch: pytest.MonkeyPatch, shared: str, gate: str
) -> None:
    """uv's own order cannot be set: once it has installed all, what chance can give is put there.

    Where tiny has its file and gamma not, installing gamma again takes tiny's.
    """
    sync = Rebuild._sync

    def by_chance(of: Rebuild, new: Path, lock: int, lines: Any, how: Any, folders: Any) -> None:
        sync(of, new, lock, lines, how, folders)
        if how[0] == "sync":
            chance = {"shared.py": f"FROM = {shared!r}\n"}
            chance["tiny/gate.py"] = "OPEN = True\n" if gate == "tiny" else "no\n"
            for name, text in chance.items():
                (site(new) / name).unlink()
                (site(new) / name).write_text(text, "utf-8")

    bring_one_file(small)
    monkeypatch.setattr(Rebuild, "_sync", by_chance)
    assert small.project.run("rebuild").code == 0
    assert (site(env(small)) / "shared.py").read_text("utf-8") == "FROM = 'gamma'\n"
    assert (site(env(small)) / "tiny/gate.py").read_text("utf-8") == "OPEN = True\n"


def bring_one_file(small: SmallEnvironment) -> None:
    """Lock three packages that bring the same file, and one of the upstream's."""
    for name in ("alpha", "beta", "gamma"):
        small.add(name, "1.0", {"shared.py": f"FROM = {name!r}\n", "tiny/gate.py": "no\n"})
    small.configure(requirements=["native", "gamma", "beta", "alpha"])
    assert small.project.run("lock").code == 0


def test_the_upstreams_files_are_handed_on_and_never_an_edit(small: SmallEnvironment) -> None:
    small.project.run("rebuild")
    gate, init = (site(env(small)) / "tiny" / name for name in ("gate.py", "__init__.py"))
    before = gate.stat().st_ino, init.stat().st_ino
    gate.write_text("EDITED = True\n", "utf-8")
    again = small.project.run("rebuild", "--json")
    assert again.code == 0, again.err
    assert gate.read_text("utf-8") == "OPEN = True\n"
    assert gate.stat().st_ino != before[0]
    assert init.stat().st_ino == before[1]
    until_the_old_one_is_gone(small)
    assert {gate.stat().st_nlink, init.stat().st_nlink} == {1}
