"""The user's cache: what it holds, what pruning removes, and what it leaves alone."""

from __future__ import annotations

import gc
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from patchwright.caches import DAY, holdings, prune
from patchwright.smoke.memory import take_memory
from patchwright.smoke.objects import ObjectCache
from projects import TinyProject, make_project

TEST = """
import pytest

@pytest.mark.tier("static")
def test_it(tree):
    assert "A = 2" in tree.text("tiny", "tiny/a.py")
"""
KEY, OLD = "ab" + "0" * 62, "cd" + "1" * 62


@pytest.fixture
def cache() -> Path:
    folder = Path(os.environ["PATCHWRIGHT_CACHE"])
    folder.mkdir()
    return folder


@pytest.fixture
def project(tmp_path: Path, cache: Path) -> TinyProject:
    """A project that was verified once."""
    project = make_project(tmp_path, {"tiny/a.py": "A = 1\n"})
    project.add_patch(1, {"tiny/a.py": "A = 2\n"}, fields={"Smoke": "tests/smoke/test_a.py"})
    project.add_smoke("test_a.py", TEST)
    ran = project.run_apart("verify", "--tier", "static")
    assert ran.code == 0, ran.out + ran.err
    return project


def age(path: Path, days: float) -> None:
    then = time.time() - days * DAY
    for place in (path, *path.rglob("*")):
        os.utime(place, (then, then), follow_symlinks=False)


def kinds(cache: Path) -> set[str]:
    return {holding.kind for holding in holdings(cache)}


@contextmanager
def other_process(code: str, *arguments: Path) -> Iterator[None]:
    """Run ``code`` in another process for as long as the block lasts."""
    script = f"import sys\nfrom pathlib import Path\n{code}\n"
    script += "print('ready', flush=True)\nsys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    try:
        yield
    finally:
        process.communicate()


def test_what_is_there_is_listed(project: TinyProject, cache: Path) -> None:
    ObjectCache(cache / "objects").get(KEY, lambda: b"x" * 1000)
    listed = project.run("cache", "list", "--json").json()
    assert listed["cache"] == str(cache)
    found = {each["kind"]: each for each in listed["holdings"]}
    assert set(found) == {
        "object store", "pristine records", "applied patches", "work-tree slots",
        "compiled objects",
    }  # fmt: skip
    compiled = found["compiled objects"]
    assert (compiled["count"], compiled["size"]) == (1, 1032)
    assert compiled["used"].startswith("20")
    assert found["pristine records"]["count"] == 1
    assert listed["size"] == sum(each["size"] for each in found.values())
    assert "compiled objects" in project.run("cache", "list").out


def test_toolkits_stay_while_a_process_compiles_with_them(cache: Path) -> None:
    for name in ("stubs", "nothing", "0123456789abcdef", "theirs"):
        (cache / "toolkits" / name).mkdir(parents=True)
    (cache / "toolkits" / "stubs" / "libcuda.so").write_bytes(b"x" * 10)
    [found] = holdings(cache)
    assert (found.kind, found.count, found.size) == ("toolkits", 3, 10)
    hold = "from patchwright.files import hold_folder\nclass H: pass\nh = H()\n"
    with other_process(f"{hold}hold_folder(Path(sys.argv[1]), h)", cache / "toolkits"):
        [kept] = prune(cache, older_than=0, everything=True).kept
        assert (kept.kind, kept.why) == ("toolkits", "in use by a running process")
    assert prune(cache, older_than=0).removed == []
    [removed] = prune(cache, older_than=0, everything=True).removed
    assert (removed.kind, removed.count) == ("toolkits", 3)
    assert [path.name for path in (cache / "toolkits").iterdir()] == ["theirs"]


def test_no_project_is_needed_and_an_empty_cache_stays_empty(
    tmp_path: Path, cache: Path, project: TinyProject
) -> None:
    empty = tmp_path / "empty"
    outside = tmp_path / "outside"
    outside.mkdir()
    for arguments in (("cache", "list"), ("cache", "prune", "--all")):
        ran = project.run_apart(*arguments, cwd=outside, PATCHWRIGHT_CACHE=str(empty))
        assert ran.code == 0, ran.err
    assert not empty.exists()


def test_pruning_goes_by_the_last_use(cache: Path) -> None:
    objects = ObjectCache(cache / "objects")
    for key in (KEY, OLD):
        objects.get(key, lambda: b"content")
        age(cache / "objects", 40)
    objects.get(KEY, lambda: pytest.fail("it is there"))
    done = prune(cache, older_than=30)
    assert [(r.kind, r.count) for r in done.removed] == [("compiled objects", 1)]
    assert [p.name for p in (cache / "objects").rglob("*") if p.is_file()] == [KEY, f"{KEY}.lock"]
    assert done.size == 32 + len(b"content")


def test_a_dry_run_removes_nothing(project: TinyProject, cache: Path) -> None:
    ObjectCache(cache / "objects").get(OLD, lambda: b"content")
    before = {p for p in cache.rglob("*") if p.name != "lock"}
    ran = project.run_apart("cache", "prune", "--all", "--dry-run")
    assert ran.code == 0
    assert "would remove compiled objects (1)" in ran.out
    assert "would remove object store" in ran.out
    assert {p for p in cache.rglob("*") if p.name != "lock"} == before


def test_everything_is_made_again_on_demand(project: TinyProject, cache: Path) -> None:
    before = project.run_apart("status", "--json").json()
    ran = project.run_apart("cache", "prune", "--all", "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["kept"] == []
    assert kinds(cache) == set()
    assert project.run_apart("status", "--json").json() == before
    project.add_smoke("test_a.py", TEST + "\n")
    results = project.run_apart("verify", "--tier", "static", "--json").json()["results"]
    assert [(r["verdict"], r["made"]) for r in results] == [("passed", 2), ("passed", 2)]


def test_a_store_in_use_is_kept_with_all_that_hangs_on_it(
    project: TinyProject, cache: Path
) -> None:
    before = kinds(cache)
    code = "from patchwright.store import ObjectStore\nstore = ObjectStore(Path(sys.argv[1]))"
    with other_process(code, cache / "objects.git"):
        done = prune(cache, older_than=0, everything=True)
        assert [(k.kind, k.why) for k in done.kept] == [
            ("object store", "in use by a running process")
        ]
        assert kinds(cache) == before - {"work-tree slots", "compiled objects"}
    assert prune(cache, older_than=0, everything=True).kept == []
    assert kinds(cache) == set()


def test_a_slot_in_use_is_kept(project: TinyProject, cache: Path) -> None:
    code = "from patchwright.smoke.seats import take_seat\nseat = take_seat(Path(sys.argv[1]))"
    with other_process(code, cache / "slots"):
        done = prune(cache, older_than=0)
        assert [(k.kind, k.path) for k in done.kept] == [("work-tree slots", cache / "slots" / "0")]
        assert "work-tree slots" in kinds(cache)
    assert prune(cache, older_than=0).kept == []
    assert "work-tree slots" not in kinds(cache)


def test_an_object_that_is_being_compiled_is_left_alone(cache: Path) -> None:
    objects = ObjectCache(cache / "objects")
    objects.get(OLD, lambda: b"old")
    code = (
        "from patchwright.smoke.objects import ObjectCache\n"
        "def make():\n    print('ready', flush=True)\n    sys.stdin.read()\n    return b'new'\n"
        "ObjectCache(Path(sys.argv[1])).get(sys.argv[2], make)"
    )
    with other_process(code, cache / "objects", Path(KEY)):
        done = prune(cache, older_than=0)
        assert [(k.kind, k.why) for k in done.kept] == [
            ("compiled objects", "in use by a running process")
        ]
        assert [r.count for r in done.removed] == [1]
    assert objects.get(KEY, lambda: b"again") == b"new"


def test_a_fresh_verify_is_not_broken_by_pruning_at_any_time(
    project: TinyProject, cache: Path
) -> None:
    script = (
        "import sys; from pathlib import Path; from patchwright.caches import prune\n"
        "while not Path(sys.argv[2]).exists():\n"
        "    prune(Path(sys.argv[1]), older_than=0, everything=True)"
    )
    end = project.root / "end"
    pruner = subprocess.Popen([sys.executable, "-c", script, str(cache), str(end)])
    try:
        for number in range(4):
            project.add_smoke("test_a.py", TEST + "\n" * number)
            ran = project.run_apart("verify", "--tier", "static", "--json")
            assert ran.code == 0, ran.err
            assert {r["verdict"] for r in ran.json()["results"]} == {"passed"}
    finally:
        end.touch()
        assert pruner.wait() == 0


def test_leftovers_of_killed_runs_go_without_any_age(project: TinyProject, cache: Path) -> None:
    left = [
        cache / "objects.git" / "objects" / "pack" / "tmp_pack_x1",
        cache / "objects.git" / "objects" / "ab" / "tmp_obj_x1",
        cache / "tmp" / "patchwright-x1" / "site" / "a.py",
        cache / "objects" / "ab" / f".{KEY}.x1.new",
        cache / "objects.git.new" / "HEAD",
        cache / "archives" / ("b" * 64) / "tiny.tar.gz.part",
        cache / "pristine" / ".x.json.abc.new",
        cache / "slots" / "0" / "run" / "tmp" / "x",
        cache / "slots" / "0" / "tree" / "record.new",
        cache / ".objects.git.pruned" / "HEAD",
    ]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("left", encoding="ascii")
    before = kinds(cache) - {"temporary files", "archives"}
    done = prune(cache, older_than=30)
    assert {r.kind for r in done.removed} == {"leftovers of killed runs"}
    assert [path for path in left if path.exists()] == []
    assert not (cache / ".objects.git.pruned").exists()
    assert kinds(cache) == before


@pytest.mark.parametrize("days", [0, 30])
def test_what_a_killed_run_left_in_memory_goes_at_any_age(
    project: TinyProject, cache: Path, days: float
) -> None:
    slot = cache / "slots" / "0"
    folder = take_memory(slot)
    if folder is None:
        pytest.skip("/dev/shm has no room")
    (folder / "run").mkdir()
    prune(cache, older_than=days)
    assert not folder.exists()
    assert not (slot / "memory").is_symlink()
    assert (slot / "tree").exists() == (days > 0)


def test_what_is_not_ours_is_never_removed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    mine = [
        "tmp/notes.txt", "tmp/x/y", "git/project.git/HEAD", "objects/ab/mine", "slots/0/mine",
        "archives/photos/1.part", "pristine/x.json", "slots/old/lock", "objects/x",
    ]  # fmt: skip
    for name in mine:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine", encoding="ascii")
    prune(home, older_than=0, everything=True)
    assert [name for name in mine if not (home / name).exists()] == []


def test_a_database_in_use_is_emptied_later(project: TinyProject, cache: Path) -> None:
    with sqlite3.connect(cache / "applied.sqlite", isolation_level=None) as connection:
        connection.execute("BEGIN IMMEDIATE")
        done = prune(cache, older_than=0, everything=True)
        assert [(k.kind, k.why) for k in done.kept] == [("applied patches", "database is locked")]
        connection.execute("ROLLBACK")
    connection.close()
    assert project.run_apart("verify", "--tier", "static").code == 0


def test_all_and_an_age_do_not_go_together(project: TinyProject) -> None:
    ran = project.run("cache", "prune", "--all", "--older-than", "3")
    assert ran.code == 2
    assert "--all goes by no age" in ran.err


def test_a_store_that_was_pruned_while_we_waited_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from patchwright import files
    from patchwright.store import ObjectStore

    path = tmp_path / "objects.git"
    del ObjectStore(path)._odb
    gc.collect()
    really = files.hold_folder
    calls: list[Path] = []

    def pruned_first(folder: Path, holder: object) -> bool:
        calls.append(folder)
        if len(calls) == 1:
            really(folder, holder)
            folder.rename(tmp_path / "away")
            return False
        return really(folder, holder)

    monkeypatch.setattr("patchwright.store.hold_folder", pruned_first)
    store = ObjectStore(path)
    oid = store.add("blob", b"content")
    store.flush()
    assert store.blob(oid) == b"content"
    assert (path / "info" / "attributes").is_file()


def test_the_list_is_json_that_others_can_read(project: TinyProject) -> None:
    listed = json.loads(project.run_apart("cache", "list", "--json").out)
    assert set(listed) == {"cache", "size", "holdings"}
    assert set(listed["holdings"][0]) == {"kind", "path", "count", "size", "used"}
