"""Status again: an answer that is kept is given as long as nothing changed, and never longer."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import patchwright
from projects import TinyProject, make_project, make_wheel


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    tiny = make_project(tmp_path, {"tiny/gate.py": "A = 0\n\n\n\n\nB = 0\n"})
    tiny.add_patch(1, {"tiny/gate.py": "A = 1\n\n\n\n\nB = 0\n"}, title="gate: open a")
    tiny.add_patch(2, {"tiny/gate.py": "A = 1\n\n\n\n\nB = 1\n"}, title="gate: open b")
    assert tiny.run("lock").code == 0
    return tiny


def cache() -> Path:
    return Path(os.environ["PATCHWRIGHT_CACHE"])


def edit(path: Path, old: str, new: str) -> None:
    """Change bytes of a file and nothing else that one could see: size and times stay."""
    assert len(old) == len(new)
    assert path.read_bytes().count(old.encode()) >= 1
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(old.encode(), new.encode(), 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_nothing_is_worked_out_again_where_nothing_changed(tiny: TinyProject) -> None:
    first = tiny.run("status", "--json")
    assert first.json()["base"] == {"tiny": tiny.trees["tiny"][0]}
    assert [p["tree"] for p in first.json()["patches"]] == tiny.trees["tiny"][1:]
    assert [p["title"] for p in first.json()["patches"]] == ["gate: open a", "gate: open b"]
    table = tiny.run("status")
    for name in ("objects.git", "pristine"):
        shutil.rmtree(cache() / name)
    assert tiny.run("status", "--json") == first
    assert tiny.run("status") == table
    # Another selection has to import the pin again.
    assert "importing tiny" in tiny.run("status", "--to", "1").err


def _edit_patch(tiny: TinyProject) -> None:
    edit(tiny.root / "patches" / "0001-tiny-gate-open-a.patch", "gate: open a", "gate: open c")


def _edit_lock(tiny: TinyProject) -> None:
    edit(tiny.root / "upstream.lock", 'version = "1.0"', 'version = "1.1"')


def _edit_project(tiny: TinyProject) -> None:
    edit(tiny.root / "pyproject.toml", 'version = "1.0"', 'version = "1.1"')


def _rename_patch(tiny: TinyProject) -> None:
    path = tiny.root / "patches" / "0001-tiny-gate-open-a.patch"
    path.rename(path.with_name("0001-tiny-gate-open-c.patch"))


def _remove_patch(tiny: TinyProject) -> None:
    (tiny.root / "patches" / "0002-tiny-gate-open-b.patch").unlink()


def _add_patch(tiny: TinyProject) -> None:
    tiny.add_patch(3, {"tiny/gate.py": "A = 1\n\n\n\n\nB = 2\n"})


def _replace_wheel(tiny: TinyProject) -> None:
    make_wheel(tiny.root / "wheels", {"tiny/gate.py": "A = 0\n\n\n\n\nB = 0\nC = 0\n"})


def _remove_lock(tiny: TinyProject) -> None:
    (tiny.root / "upstream.lock").unlink()


def _turn_off(tiny: TinyProject) -> None:
    assert tiny.run("off", "2").code == 0


@pytest.mark.parametrize(
    "change",
    [_turn_off, _edit_patch, _edit_lock, _edit_project, _rename_patch, _remove_patch, _add_patch,
     _replace_wheel, _remove_lock],
)  # fmt: skip
def test_what_changed_is_seen(
    tiny: TinyProject, change: Callable[[TinyProject], None], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    before = tiny.run("status", "--json")
    change(tiny)
    after = tiny.run("status", "--json")
    # A cache that knows nothing has the right answer.
    monkeypatch.setenv("PATCHWRIGHT_CACHE", str(tmp_path / "another-cache"))
    fresh = tiny.run("status", "--json")
    assert (after.code, after.out) == (fresh.code, fresh.out)
    if change is not _remove_lock:  # nothing in the answer comes from the lock itself
        assert after.out != before.out


def test_each_selection_has_its_own_answer(tiny: TinyProject) -> None:
    def numbers(*options: str) -> list[int]:
        return [p["number"] for p in tiny.run("status", "--json", *options).json()["patches"]]

    for _ in range(2):
        assert numbers() == [1, 2]
        assert numbers("--to", "1") == [1]
        assert numbers("--only", "2") == [2]
        assert numbers("--without", "2") == [1]
        assert numbers("--without", "1") == [2]
        assert numbers("--to", "0") == []


def test_a_patch_that_does_not_apply_is_asked_again(tiny: TinyProject) -> None:
    tiny.add_patch(3, {"tiny/gate.py": "A = 2\n\n\n\n\nB = 1\n"})
    assert tiny.run("lock").code == 0
    for _ in range(2):
        ran = tiny.run("status", "--without", "1", "--json")
        assert ran.code == 1
        assert [p["apply"] for p in ran.json()["patches"]] == ["clean", "conflict"]


def test_evidence_is_never_kept(tiny: TinyProject) -> None:
    path = tiny.root / "patches" / "0002-tiny-gate-open-b.patch"
    path.write_bytes(path.read_bytes().replace(
        b"Upstream: tiny 1.0\n", b"Upstream: tiny 1.0\nSmoke: tests/smoke/test_b.py\n"
    ))  # fmt: skip
    assert tiny.run("lock").code == 0

    def said() -> str:
        evidence = tiny.run("status", "--json").json()["patches"][1]["evidence"]
        return str(evidence["static"]["step"]["verdict"])

    assert said() == "missing"
    tiny.add_smoke(
        "test_b.py",
        "import pytest\n@pytest.mark.tier('static')\ndef test_b(tree):\n"
        "    assert 'B = 1' in tree.text('tiny', 'tiny/gate.py')\n",
    )
    assert tiny.run("verify", "2", "--tier", "static", "--context", "step").code == 0
    assert said() == "passed"


def test_another_version_of_the_tool_works_it_out_anew(tiny: TinyProject, tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    shutil.copytree(Path(patchwright.__file__).parent, tool / "patchwright")
    first = tiny.run_apart("status", "--json", PYTHONPATH=str(tool))
    edit(tool / "patchwright" / "mail.py", '" ".join(subject', '"_".join(subject')
    shutil.rmtree(tool / "patchwright" / "__pycache__", ignore_errors=True)
    again = tiny.run_apart("status", "--json", PYTHONPATH=str(tool))
    assert first.json()["patches"][0]["title"] == "gate: open a"
    assert again.json()["patches"][0]["title"] == "gate:_open_a"


@pytest.mark.parametrize("damage", ["substr(verdict, 1, 90)", "replace(verdict, 'clean', 7)", "''"])
def test_a_damaged_answer_is_no_answer(tiny: TinyProject, damage: str) -> None:
    first = tiny.run("status", "--json")
    with closing(sqlite3.connect(cache() / "applied.sqlite")) as database, database:
        done = database.execute(f"UPDATE applied SET verdict = {damage} WHERE key GLOB '*status*'")
        assert done.rowcount == 1
    assert tiny.run("status", "--json") == first


def test_a_damaged_cache_is_no_answer(tiny: TinyProject) -> None:
    first = tiny.run("status", "--json")
    (cache() / "applied.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    assert tiny.run("status", "--json") == first


def test_a_cache_that_cannot_be_written_is_no_error(
    tiny: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tiny.run("status", "--json", "--to", "1")
    connect = sqlite3.connect

    def read_only(path: Path, timeout: float) -> sqlite3.Connection:
        # As on a disk that is mounted read-only: the superuser of a test may write anywhere.
        return connect(f"file:{path}?mode=ro", uri=True, timeout=timeout)

    monkeypatch.setattr(sqlite3, "connect", read_only)
    assert tiny.run("status", "--json").code == 0
    assert tiny.run("status", "--json", "--to", "1") == first


def test_a_command_leaves_no_file_open(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"tiny/a.py": "A = 1\n"})
    project.add_patch(1, {"tiny/a.py": "A = 2\n"}, title="a", fields={"Smoke": None})
    assert project.run("lock").code == 0
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    gc.disable()
    try:
        for _ in range(3):
            assert project.run("status").code == 0
        after = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    finally:
        gc.enable()
    assert after == before
