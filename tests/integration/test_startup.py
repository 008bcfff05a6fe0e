"""One start: what counts as started, what each failure is called, and nothing left behind."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patchwright.smoke import devices
from projects import TinyProject
from stub_machine import StubMachine
from stub_server import HANG, STALE_LOCK, part, processes, stub_project


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    assert processes(os.environ["PATCHWRIGHT_CACHE"]) == []
    slots = Path(os.environ["PATCHWRIGHT_CACHE"]) / "slots"
    assert list(slots.glob("*/run")) == []


def start(project: TinyProject, *args: str) -> tuple[int, dict[str, Any]]:
    ran = project.run("start", "--json", *args)
    return ran.code, ran.json()


def test_a_start_is_ready_answers_and_is_of_the_patched_tree(tmp_path: Path) -> None:
    project = stub_project(tmp_path, {})
    code, said = start(project)
    assert (code, said["outcome"], said["class"]) == (0, "started", "ok")
    assert said["imported"] == ["tiny"]
    assert said["answer"] == '{"output_ids": [1, 2, 3]}'
    assert said["trees"] == {"tiny": project.tree()}


@pytest.mark.parametrize(
    ("how", "kind", "detail", "where"),
    [
        ({"end": "import tiny.missing"}, "import-error", "No module named 'tiny.missing'", "part3"),
        ({"start": "undefined()"}, "error", "name 'undefined' is not defined", "part3.py:start"),
        ({"answer": "undefined()"}, "error", "name 'undefined' is not defined", "part3.py:answer"),
        ({"answer": "tokens = [0, 0, 0]"}, "garbage-output", "repeats one token", ""),
        ({"start": "os.kill(os.getpid(), signal.SIGSEGV)"}, "crash", "", ""),
        ({"start": "sys.exit(3)"}, "exit", "", "exit code 3"),
    ],
)
def test_failures(tmp_path: Path, how: dict[str, str], kind: str, detail: str, where: str) -> None:
    project = stub_project(tmp_path, {3: part(3, **how)})
    code, said = start(project)
    assert (code, said["outcome"], said["class"]) == (1, "failed", kind)
    assert detail in said["detail"]
    assert where in said["signature"]


def test_a_hang_is_killed_with_a_child_that_ignores_sigterm(tmp_path: Path) -> None:
    project = stub_project(tmp_path, {3: part(3, start=HANG)}, stall=1.0)
    code, said = start(project)
    assert (code, said["class"], said["stage"]) == (1, "hang", "")
    assert "said nothing for too long" in said["detail"]


def test_a_lock_that_a_killed_start_left_is_not_there_for_the_next(tmp_path: Path) -> None:
    project = stub_project(tmp_path, {1: part(1, start=STALE_LOCK)})
    for _ in range(2):
        assert start(project, "--only", "1")[0] == 0


def test_stale_bytecode_of_the_same_size_and_time_is_not_run(tmp_path: Path) -> None:
    # Whoever compiles it writes bytecode, and gives the source a time that does not change.
    compiling = (
        "import importlib.util\n"
        "sys.dont_write_bytecode = False\n"
        "place = importlib.util.find_spec('tiny.part2').origin\n"
        "os.utime(place, (1, 1))\n"
    )
    values = {n: part(2, start=f"sys.exit({n})") for n in (0, 7)}
    assert len(values[0]) == len(values[7])
    project = stub_project(tmp_path, {2: values[7]}, base={1: part(1, end=compiling), 2: values[0]})
    first = start(project, "--only", "1")[1]["signature"]
    assert "exit code 7" in start(project, "--only", "1,2")[1]["signature"]
    assert start(project, "--only", "1")[1]["signature"] == first


def test_a_flood_of_output_is_cut_and_its_error_is_found(tmp_path: Path) -> None:
    flood = "for _ in range(400): print('noise ' * 10000)\n    undefined()"
    project = stub_project(tmp_path, {3: part(3, start=flood)})
    log = tmp_path / "log"
    code, said = start(project, "--log", str(log))
    assert (code, said["class"]) == (1, "error")
    assert "part3.py:start" in said["signature"]
    assert log.stat().st_size < 200_000


def test_a_start_that_fills_the_disk_is_killed(tmp_path: Path) -> None:
    fill = "open(os.environ['TMPDIR'] + '/x', 'wb').write(bytes(30 << 20))\n    time.sleep(600)"
    project = stub_project(tmp_path, {3: part(3, start=fill)})
    code, said = start(project)
    assert (code, said["outcome"], said["class"]) == (3, "untestable", "disk")


def test_a_port_that_is_taken_says_nothing_about_the_patches(tmp_path: Path) -> None:
    project = stub_project(tmp_path, {})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        file = project.root / "pyproject.toml"
        text = file.read_text().replace('"{port}"', f'"{taken.getsockname()[1]}", "{{port}}"')
        file.write_text(text)
        code, said = start(project)
    assert (code, said["class"]) == (3, "port")
    assert "in use" in said["detail"]


def test_another_port_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from patchwright.startup import starts

    project = stub_project(tmp_path, {})
    free = starts._free_port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = iter((taken.getsockname()[1], free()))
        monkeypatch.setattr(starts, "_free_port", lambda: next(ports))
        assert start(project)[0] == 0


def test_a_missing_device_says_nothing_about_the_patches(tmp_path: Path) -> None:
    project = stub_project(tmp_path, {
        3: part(3, start="raise RuntimeError('No CUDA GPUs are available')")
    })  # fmt: skip
    code, said = start(project)
    assert (code, said["class"]) == (3, "no-device")


def test_another_copy_of_the_package_is_found_out(tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "tiny").mkdir(parents=True)
    (other / "tiny" / "__init__.py").write_text("")
    project = stub_project(tmp_path, {})
    code = f"import sys; sys.path.insert(0, {str(other)!r}); import tiny"
    (tmp_path / "probe.py").write_text(code)
    exit_code, said = start(project, "--probe", f"{sys.executable} {tmp_path / 'probe.py'}")
    assert (exit_code, said["class"]) == (3, "not-the-tree")
    assert str(other) in said["detail"]


def test_a_command_of_the_users_own(tmp_path: Path) -> None:
    project = stub_project(tmp_path, {})
    for command, code in (
        ("grep -q 'patch 4' $PATCHWRIGHT_SITE/tiny/part4.py", 0), ("exit 1", 1), ("exit 125", 3),
    ):  # fmt: skip
        assert start(project, "--probe", command)[0] == code


@pytest.mark.parametrize("command", ["/no/such/program", "no-such-program"])
def test_a_probe_that_cannot_be_run(tmp_path: Path, command: str) -> None:
    project = stub_project(tmp_path, {})
    ran = project.run("start", "--probe", command)
    assert ran.code == 2
    assert "the probe cannot be run" in ran.err
    assert command in ran.err


def test_the_startup_tier_of_verify(tmp_path: Path) -> None:
    project = stub_project(tmp_path, {3: part(3, start="undefined()")})
    args = ("verify", "2", "3", "--tier", "startup", "--context", "step", "--json")
    ran = project.run(*args)
    assert ran.code == 1, ran.err
    verdicts = {row["number"]: row for row in ran.json()["results"]}
    assert verdicts[2]["verdict"] == "passed"
    assert verdicts[3]["verdict"] == "failed"
    assert "undefined" in verdicts[3]["reason"]
    again = project.run(*args)
    assert "starting" not in again.err
    assert [row["verdict"] for row in again.json()["results"]] == ["passed", "failed"]


# Devices, of a machine with a STUB driver: what is shown is how they are shared.


def shows_devices(tmp_path: Path, count: int | None = None) -> TinyProject:
    project = stub_project(tmp_path, {})
    if count is not None:
        path = project.root / "pyproject.toml"
        head = "[tool.patchwright.startup]\n"
        text = path.read_text("utf-8")
        assert head in text
        path.write_text(text.replace(head, f"{head}devices = {count}\n"), "utf-8")
    return project


@pytest.mark.parametrize(("count", "given"), [(None, "0,1"), (1, "0"), (8, "0,1"), (0, "none")])
def test_a_start_takes_the_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int | None, given: str
) -> None:
    machine = StubMachine(tmp_path, monkeypatch)
    machine.devices("12 0 RTX", "12 0 RTX")
    project = shows_devices(tmp_path, count)
    probe = f'test "${{CUDA_VISIBLE_DEVICES:-none}}" = "{given}"'
    assert project.run("start", "--probe", probe).code == 0


def test_a_start_waits_for_devices_that_another_command_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = StubMachine(tmp_path, monkeypatch)
    machine.devices("12 0 RTX", "12 0 RTX")
    project = shows_devices(tmp_path)
    folder = Path(os.environ["PATCHWRIGHT_CACHE"]) / "devices"
    lease = devices.take(devices.probe(os.environ), 1, folder)
    assert lease is not None
    given_back: list[float] = []

    def give_back() -> None:
        given_back.append(time.time())
        lease.close()

    threading.Timer(2.0, give_back).start()
    ran = project.run("start", "--probe", f"date +%s.%N >{tmp_path}/when")
    assert ran.code == 0
    assert float((tmp_path / "when").read_text()) >= given_back[0]
    assert "waiting for the devices" in ran.err
    free = devices.take(devices.probe(os.environ), 2, folder)
    assert free is not None
    free.close()


def test_starts_of_one_bisection_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = StubMachine(tmp_path, monkeypatch)
    machine.devices("12 0 RTX")
    project = shows_devices(tmp_path)
    lock = tmp_path / "lock"
    probe = f"mkdir {lock} || exit 1; sleep 0.1; rmdir {lock}; exit 0"
    ran = project.run("bisect", "--probe", probe, "-j", "3", "--runs", "2")
    assert (ran.code, "no failure" in ran.out) == (0, True), ran.out + ran.err


# What is on record


def test_status_tells_of_starts(tmp_path: Path) -> None:
    project = stub_project(tmp_path, {3: part(3, start="undefined()")})

    def told() -> Any:
        return {row["number"]: row["evidence"].get("startup", {})
                for row in project.run("status", "--json").json()["patches"]}  # fmt: skip

    assert set(map(str, told().values())) == {"{}"}
    assert project.run("start").code == 1
    assert project.run("start", "--to", "2").code == 0
    said = told()
    last = max(said)
    assert said[last]["step"]["verdict"] == "failed"
    assert "undefined" in said[last]["step"]["why"]
    assert said[2]["step"]["verdict"] == "passed"
    assert "startup failed" in project.run("status").out


def test_the_workspaces_of_starts_are_listed_and_pruned(tmp_path: Path) -> None:
    cache = Path(os.environ["PATCHWRIGHT_CACHE"])
    kept = cache / "startup" / ("a" * 64)
    (kept / "cached").mkdir(parents=True)
    (kept / "cached" / "k.so").write_bytes(b"x" * 5000)
    (cache / "startup" / "mine").mkdir()
    project = TinyProject(tmp_path)
    (listed,) = project.run("cache", "list", "--json").json()["holdings"]
    assert (listed["kind"], listed["count"], listed["size"]) == ("startup workspaces", 1, 5000)
    assert project.run("cache", "prune").code == 0
    assert kept.exists()
    os.utime(kept, (0, 0))
    ran = project.run("cache", "prune", "--json")
    assert [r["kind"] for r in ran.json()["removed"]] == ["startup workspaces"]
    assert not kept.exists()
    assert (cache / "startup" / "mine").exists()
