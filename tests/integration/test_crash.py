"""Killed at any moment, on a full disk, or beside another process: the next run is right."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crash import crash
from crash_scene import Answer, Scene
from disks import small_disk
from patchwright.errors import PatchwrightError
from patchwright.files import sweep_folders, temporary_folder
from patchwright.smoke.memory import take_memory
from patchwright.smoke.seats import sweep_seats, take_seat
from patchwright.store import ObjectStore


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path.resolve())


@pytest.mark.slow
def test_forty_kills_leave_nothing_wrong_and_nothing_behind(tmp_path: Path) -> None:
    report = crash(tmp_path.resolve(), 40, seed=int(time.time()))
    assert (report.wrong, report.left) == ([], []), report


# What killed writers leave, one by one: the random kills meet each of these rarely.


def _store(tmp_path: Path) -> ObjectStore:
    store = ObjectStore(tmp_path / "cache" / "objects.git")
    store.add("blob", b"kept")
    store.flush()
    return store


@pytest.mark.parametrize(
    "name",
    ["pack/tmp_pack_x", "pack/tmp_idx_x", "pack/.tmp-1-pack-x", "pack/pack-1.pack", "aa/tmp_obj_x"],
)
def test_what_a_killed_git_left_in_the_store_goes_when_it_is_opened(
    tmp_path: Path, name: str
) -> None:
    store = _store(tmp_path)
    left = store.path / "objects" / name
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"half")
    again = ObjectStore(store.path)
    assert not left.exists()
    assert again.blob(store.add("blob", b"kept")) == b"kept"


def test_what_a_live_git_writes_stays_although_its_caller_was_killed(tmp_path: Path) -> None:
    store = _store(tmp_path)
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom patchwright.store import ObjectStore\n"
        "os.environ['PATH'] = sys.argv[2] + ':' + os.environ['PATH']\n"
        "ObjectStore(Path(sys.argv[1])).write('index-pack')"
    )
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    pipe = tmp_path / "end"
    os.mkfifo(pipe)
    left = store.path / "objects" / "pack" / "tmp_pack_live"
    git.write_text(f"#!/bin/sh\n: >'{left}'\nread end <'{pipe}'\n")
    git.chmod(0o755)
    process = subprocess.Popen([sys.executable, "-c", code, str(store.path), str(git.parent)])
    _until(left.exists)
    process.kill()
    process.wait()
    ObjectStore(store.path)
    assert left.exists()
    pipe.write_text("now\n")
    _until(lambda: bool(ObjectStore(store.path)) and not left.exists())


def test_a_store_that_was_half_made_is_made_again(tmp_path: Path) -> None:
    half = tmp_path / "cache" / "objects.git.new" / "objects"
    half.mkdir(parents=True)
    _store(tmp_path)
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == [
        "objects.git", "objects.git.lock",
    ]  # fmt: skip


def test_temporary_folders_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    (tmp_path / "patchwright-dead").mkdir()
    with temporary_folder(tmp_path) as (folder, _):
        sweep_folders(tmp_path)
        assert list(tmp_path.iterdir()) == [folder]
    assert list(tmp_path.iterdir()) == []


def test_a_seat_is_not_given_away_while_the_worker_of_a_killed_command_is_in_it(
    tmp_path: Path,
) -> None:
    seat = take_seat(tmp_path)
    folder = seat.folder
    # What the worker has of it: the descriptor, and a run that it is about to clear away.
    held = os.dup(seat._worker_lock)
    seat.close()
    (folder / "run").mkdir()
    pid = os.fork()
    if pid == 0:
        time.sleep(0.3)
        (folder / "run").rmdir()
        os._exit(0)
    os.close(held)
    seat = take_seat(tmp_path)
    assert seat.folder == folder
    assert not (folder / "run").exists()
    assert os.waitpid(pid, 0) == (pid, 0)
    seat.close()


def test_what_was_left_in_a_seat_goes_though_nobody_takes_it(tmp_path: Path) -> None:
    take_seat(tmp_path).close()
    for name in ("run", "run/work", "run.7.old", "run.7.old/work", "tree"):
        (tmp_path / "0" / name).mkdir()
    for name in ("a.listing", "b.new", "tree/record.new"):
        (tmp_path / "0" / name).touch()
    sweep_seats(tmp_path)
    assert sorted(p.name for p in (tmp_path / "0").rglob("*")) == ["lock", "tree"]


def test_a_git_mirror_never_holds_half_a_commit_nor_the_locks_of_the_dead(scene: Scene) -> None:
    assert scene.run("lock").code == 0
    (mirror,) = scene.cache.glob("git/*.git")
    # Loose objects arrive one by one: a commit would be there before its files.
    assert list(mirror.glob("objects/pack/*.idx"))
    assert not list(mirror.glob("objects/??/*"))
    subprocess.run(
        ["git", "commit", "--quiet", "--allow-empty", "-m", "more"],
        cwd=scene.project.git["other"], check=True,
    )  # fmt: skip
    for name in ("shallow.lock", "objects/pack/tmp_pack_x"):
        (mirror / name).touch()
    (scene.root / "upstream.lock").unlink()
    assert scene.run("lock").code == 0
    assert scene.leftovers() == []


def test_a_run_that_broke_is_asked_again(scene: Scene) -> None:
    broken = scene.folder / "broken"
    broken.touch()
    smoke = scene.root / "tests" / "smoke" / "test_0001.py"
    text = smoke.read_text()
    start = (
        f"    import os\n    if os.path.exists({str(broken)!r}):\n        raise OSError('full')\n"
    )
    smoke.write_text(text.replace("    (tmp_path", f"{start}    (tmp_path"))
    args = ("verify", "1", "--context", "step", "--tier", "static", "--json")

    def verdict() -> object:
        done = subprocess.run(
            [sys.executable, "-m", "patchwright", *args], cwd=scene.root, env=scene.env,
            capture_output=True, check=False,
        )  # fmt: skip
        [result] = json.loads(done.stdout)["results"]
        return result["verdict"]

    assert verdict() == "error"
    broken.unlink()
    assert verdict() == "passed"


# A full disk


def _limited(scene: Scene, size: int, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose files cannot grow beyond ``size`` bytes: as on a full disk."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run(
        [sys.executable, "-m", "patchwright", *args], cwd=scene.root, env=scene.env,
        capture_output=True, text=True, preexec_fn=limit, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("size", [0, 300, 2000, 8000])
def test_a_write_that_fails_is_one_error_and_the_next_run_is_right(scene: Scene, size: int) -> None:
    (scene.root / "upstream.lock").write_text("version = 1\n")
    failed = _limited(scene, size, "lock", "--json")
    assert failed.returncode == 3, failed.stderr
    assert failed.stderr.count("patchwright: error: ") == 1
    assert "Traceback" not in failed.stderr
    assert (scene.root / "upstream.lock").read_text() == "version = 1\n"
    (scene.root / "upstream.lock").unlink()
    assert scene.run("lock").code == 0
    assert [scene.leftovers(), scene.damage()] == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("size", ["4k", "40k", "80k", "200k", "400k", "600k"])
def test_a_cache_on_a_full_disk_is_said_and_room_is_all_it_takes(scene: Scene, size: str) -> None:
    expected = {name: scene.run(name) for name in ("lock", "verify", "apply")}
    assert [answer.code for answer in expected.values()] == [0, 0, 0]
    scene.clear()
    with small_disk(scene.cache, size):
        for name in expected:
            answer = scene.run(name)
            if answer.code:
                assert answer.code == 3
                said = str(answer.said)
                assert said.count("patchwright: error: ") == 1, said
                assert "o space left" in said or "Out of diskspace" in said
                assert "make room" in said
                assert answer.written == expected["lock"].written  # nothing
        subprocess.run(["mount", "-o", "remount,size=64m", str(scene.cache)], check=True)
        for name, wanted in expected.items():
            assert scene.run(name) == wanted
        assert [scene.leftovers(), scene.damage()] == [[], []]


# Two processes at once


@pytest.mark.parametrize(
    "pair",
    [
        ("lock", "lock"),
        pytest.param(("verify", "apply"), marks=pytest.mark.slow),
        pytest.param(("verify", "verify"), marks=pytest.mark.slow),
    ],
)
def test_two_processes_on_a_cold_cache_are_both_right(scene: Scene, pair: tuple[str, str]) -> None:
    expected = {name: scene.run(name) for name in set(pair)}
    scene.clear()
    processes = [scene.start(name) for name in pair]
    for name, process in zip(pair, processes, strict=True):
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        wanted = expected[name].said
        assert isinstance(wanted, dict)
        if name != "lock":
            assert _trees(json.loads(out)) == _trees(wanted)
    for name in pair:
        assert _answer(scene.run(name)) == _answer(expected[name])
    assert [scene.leftovers(), scene.damage()] == [[], []]


def _answer(answer: Answer) -> tuple[object, ...]:
    return answer.code, answer.said, answer.lock, answer.written


def _trees(said: dict[str, object]) -> list[object]:
    rows = said.get("results") or said.get("patches")
    assert isinstance(rows, list)
    return [(row["number"], row["verdict"], row.get("trees", row.get("tree"))) for row in rows]


def _until(holds: object) -> None:
    assert callable(holds)
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(PatchwrightError, match="the cache cannot be written"):
        ObjectStore(tmp_path / "cache" / "objects.git")


def test_what_was_left_in_memory_goes_with_the_link_that_leads_there(tmp_path: Path) -> None:
    take_seat(tmp_path).close()
    folder = take_memory(tmp_path / "0")
    if folder is None:
        pytest.skip("/dev/shm has no room")
    (folder / "run").mkdir()
    sweep_seats(tmp_path)
    assert not folder.exists()
    assert not (tmp_path / "0" / "memory").is_symlink()


def test_a_link_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    take_seat(tmp_path / "slots").close()
    precious = tmp_path / "patchwright-0123456789abcdef"
    (precious / "run").mkdir(parents=True)
    (tmp_path / "slots" / "0" / "memory").symlink_to(precious)
    sweep_seats(tmp_path / "slots")
    assert (precious / "run").is_dir()
    assert not (tmp_path / "slots" / "0" / "memory").is_symlink()
