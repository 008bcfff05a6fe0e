"""Bisecting real starts of a small server, by the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patchwright.audit import verdicts
from patchwright.project import Project
from patchwright.series import Selection
from projects import Ran, TinyProject, make_project
from stub_server import HANG, STALE_LOCK, part, processes, stub_project

# A probe of the user's own, quicker than a server: fails when a file holds a word.
PROBE = "! grep -rqs BROKEN $PATCHWRIGHT_SITE/tiny"


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    assert processes(os.environ["PATCHWRIGHT_CACHE"]) == []


def bisect(project: TinyProject, *args: str) -> Any:
    ran = project.run("bisect", "--json", *args)
    assert ran.code in (0, 1, 3), ran.err
    return ran.json()


def names(found: Any) -> list[list[int]]:
    return [culprit["patches"] for culprit in found["culprits"]]


def of_files(folder: Path, texts: dict[int, str], count: int = 6) -> TinyProject:
    """Return a project with one small file per patch; ``texts`` are those that differ."""
    files = {"tiny/__init__.py": "", **{f"tiny/f{n}.py": "x = 0\n" for n in range(1, count + 1)}}
    project = make_project(folder, files)
    for n in range(1, count + 1):
        project.add_patch(n, {f"tiny/f{n}.py": texts.get(n, f"x = {n}\n")})
    return project


def test_a_trace_that_names_the_file_takes_three_starts(tmp_path: Path) -> None:
    project = stub_project(tmp_path, {4: part(4, answer="undefined()")})
    found = bisect(project)
    assert names(found) == [[4]]
    assert "part4.py" in found["runs"][0]["detail"]
    assert [run["patches"] for run in found["runs"]] == [
        [1, 2, 3, 4], [], [4], [1, 2, 3], [],
    ]  # fmt: skip
    again = bisect(project)
    assert again == found
    # What is known as evidence is not started again for another question either.
    ran = project.run("bisect", "--json", "--fresh")
    assert [run["source"] for run in ran.json()["runs"]] == ["record"] * 5


def test_a_hang_with_a_stubborn_child_and_a_stale_lock(tmp_path: Path) -> None:
    project = stub_project(
        tmp_path, {1: part(1, start=STALE_LOCK), 3: part(3, start=HANG)}, stall=4.0
    )
    found = bisect(project, "--bad", "4", "--good", "1")
    assert names(found) == [[3]]
    assert found["signature"].startswith("hang | ")


def test_a_patch_that_others_need_is_left_out_with_them(tmp_path: Path) -> None:
    # 3 breaks; 4 changes the same lines (it does not apply without 3), 5 imports what 3 adds.
    project = make_project(tmp_path, {"tiny/__init__.py": "", "tiny/a.py": "x = 0\n"})
    project.add_patch(1, {"tiny/one.py": "x = 1\n"})
    project.add_patch(2, {"tiny/two.py": "x = 1\n"})
    project.add_patch(3, {"tiny/a.py": "x = 3  # BROKEN\n", "tiny/three.py": "x = 1\n"})
    project.add_patch(4, {"tiny/a.py": "x = 4  # BROKEN\n"})
    project.add_patch(5, {"tiny/five.py": "import tiny.three\n"})
    script = tmp_path / "probe.py"
    script.write_text(
        "import importlib.util, pathlib, sys\n"
        "site = pathlib.Path(importlib.util.find_spec('tiny').origin).parent\n"
        "if (site / 'five.py').exists(): import tiny.five\n"
        "sys.exit('BROKEN' in (site / 'a.py').read_text())\n"
    )
    found = bisect(project, "--probe", f"{sys.executable} {script}")
    assert names(found) == [[3]]
    assert found["culprits"][0]["starts"] == [[1, 2]]
    assert found["notes"] == ["0005 fails otherwise without 0003: an undeclared need"]


def test_what_cannot_be_tested_is_stepped_around(tmp_path: Path) -> None:
    project = of_files(tmp_path, {2: "UNTESTABLE\n", 4: "BROKEN\n", 5: "REPAIR\n"})
    script = tmp_path / "probe.sh"
    script.write_text(
        "cd $PATCHWRIGHT_SITE/tiny\n"
        "if grep -q UNTESTABLE *.py && ! grep -q REPAIR *.py; then exit 125; fi\n"
        "! grep -q BROKEN *.py\n"
    )
    found = bisect(project, "--probe", f"sh {script}")
    assert names(found) == [[4]]
    assert {run["outcome"] for run in found["runs"]} == {"started", "failed", "untestable"}


def test_what_the_audit_has_on_record_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = of_files(tmp_path, {5: "BROKEN\n"})
    opened = Project.open(project.root)
    verdicts.keep(opened, Selection(), {5: ("missing", "no such module"), 6: ("whole", "")})
    found = bisect(project, "--probe", PROBE)
    assert found["runs"][2]["patches"] == [5]  # tried first
    assert found["culprits"][0]["audit"] == [
        {"patch": 5, "verdict": "missing", "why": "no such module"}
    ]
    ran = project.run("bisect", "--probe", PROBE)
    assert "audit of 0005: missing: no such module" in ran.out.splitlines()

    def broken(*of: object) -> dict[int, tuple[str, str]]:
        raise KeyError("an audit that is broken")

    monkeypatch.setattr(verdicts, "recall", broken)
    assert names(bisect(project, "--probe", PROBE)) == [[5]]


def test_several_at_a_time(tmp_path: Path) -> None:
    project = of_files(tmp_path, {2: "BROKEN\n", 5: "BROKEN\n"})
    assert names(bisect(project, "--probe", PROBE, "-j", "3")) == [[2], [5]]


def test_a_limit_gives_a_range_and_more_goes_on(tmp_path: Path) -> None:
    project = of_files(tmp_path, {4: "BROKEN\n"})
    found = bisect(project, "--probe", PROBE, "--max-probes", "3")
    assert (found["answer"], found["starts"]) == ("range", 3)
    assert 4 in found["candidates"]
    whole = bisect(project, "--probe", PROBE)
    assert names(whole) == [[4]]
    assert whole["runs"][:3] == found["runs"]


def test_the_log_can_be_replayed(tmp_path: Path) -> None:
    project = of_files(tmp_path, {4: "BROKEN\n"})
    found = bisect(project, "--probe", PROBE)
    (log,) = (project.root / ".patchwright" / "bisect").glob("*.json")
    assert bisect(project, "--replay", str(log)) == found
    content = json.loads(log.read_text())
    content["runs"] = content["runs"][:3]
    log.write_text(json.dumps(content))
    ran = project.run("bisect", "--replay", str(log))
    assert "the log is not complete: next would be" in ran.out
    log.write_text("{}")
    assert project.run("bisect", "--replay", str(log)).code == 2


def test_the_text_for_people(tmp_path: Path) -> None:
    project = of_files(tmp_path, {4: "BROKEN\n"})
    ran = project.run("bisect", "--probe", PROBE)
    assert ran.code == 1
    for line in (
        "culprit: 0004 tiny: change 4",
        "  starts: all but 4",
        "Next: `patchwright show 4`, or go on with `patchwright start --without 4`",
    ):
        assert line in ran.out.splitlines()
    assert "confidence 9" in ran.out


@pytest.mark.parametrize(
    ("texts", "args", "code", "words"),
    [
        ({}, (), 0, "no failure: all started in one start"),
        ({1: "BROKEN\n"}, ("--good", "2"), 1, "--good 2 is bad"),
        ({1: "BROKEN\n"}, ("--good", "9"), 2, "does not have that patch"),
        ({1: "BROKEN\n"}, ("--good", "3", "--bad", "2"), 2, "no patch between the two ends"),
        ({1: "BROKEN\n"}, ("--signature", "KeyError"), 1, "another failure"),
        ({1: "BROKEN\n"}, ("--signature", "("), 2, "is no pattern"),
    ],
)
def test_what_is_asked_wrongly(
    tmp_path: Path, texts: dict[int, str], args: tuple[str, ...], code: int, words: str
) -> None:
    ran = of_files(tmp_path, texts, 3).run("bisect", "--probe", PROBE, *args)
    assert ran.code == code, ran.err
    assert words in ran.out + ran.err


def test_a_base_that_fails_is_no_patch(tmp_path: Path) -> None:
    ran = of_files(tmp_path, {}, 2).run("bisect", "--probe", "exit 1")
    assert (ran.code, "not a patch: base fails the same way" in ran.out) == (1, True)
    assert "look at the environment" in ran.out


def test_a_series_that_does_not_apply(tmp_path: Path) -> None:
    project = of_files(tmp_path, {}, 3)
    patch = next((project.root / "patches").glob("0002*"))
    patch.write_bytes(patch.read_bytes().replace(b"-x = 0", b"-x = 7"))
    ran = project.run("bisect", "--probe", PROBE)
    assert ran.code == 1
    assert "0002 does not apply" in ran.err


def test_a_probe_that_cannot_be_run(tmp_path: Path) -> None:
    ran = of_files(tmp_path, {}, 2).run("bisect", "--probe", "no-such-program")
    assert ran.code == 2
    assert "the probe cannot be run" in ran.err


def test_without_a_probe(tmp_path: Path) -> None:
    ran = of_files(tmp_path, {}, 2).run("bisect")
    assert ran.code == 2
    assert "declares no startup probe" in ran.err


def test_what_the_static_tier_shows_takes_no_start(tmp_path: Path) -> None:
    smoke = (
        "import pytest\n"
        "@pytest.mark.tier('static')\n"
        "def test_open(tree):\n"
        "    assert '{0}' in tree.text('tiny', 'tiny/{1}.py')\n"
        "@pytest.mark.tier('static')\n"
        "def test_leads_somewhere(tree):\n"
        "    gate = 'open' in tree.text('tiny', 'tiny/gate.py')\n"
        "    assert not gate or 'sm120' in tree.text('tiny', 'tiny/list.py')\n"
    )
    project = make_project(
        tmp_path, {"tiny/__init__.py": "", "tiny/gate.py": "shut\n", "tiny/list.py": "sm90\n"}
    )
    for n, (word, file) in {1: ("sm120", "list"), 2: ("open", "gate")}.items():
        fields = {"Smoke": f"tests/smoke/test_{n}.py"}
        if n == 2:
            fields["Depends"] = "0001 (the list refuses sm120)"
        project.add_smoke(f"test_{n}.py", smoke.format(word, file))
        project.add_patch(n, {f"tiny/{file}.py": f"{word}\n"}, fields=fields)
    found = bisect(project, "--without", "1")
    assert (names(found), found["starts"]) == ([[2]], 0)
    assert (found["culprits"][0]["missing_needs"], found["culprits"][0]["cured"]) == ([1], True)
    ran = project.run("bisect", "--without", "1")
    assert "  needs 0001, which the selection leaves out: the list refuses sm120" in ran.out
    probe = (
        "! grep -q open $PATCHWRIGHT_SITE/tiny/gate.py || grep -q 120 $PATCHWRIGHT_SITE/tiny/*t.py"
    )
    found = bisect(project, "--without", "1", "--probe", probe)
    assert (names(found), found["culprits"][0]["missing_needs"]) == ([[2]], [1])


def run_until(project: TinyProject, count: int, *args: str) -> subprocess.Popen[bytes]:
    """Begin a bisection and return it once ``count`` runs are in its log."""
    process = subprocess.Popen(
        [sys.executable, "-m", "patchwright", "bisect", *args], cwd=project.root,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for log in (project.root / ".patchwright" / "bisect").glob("*.json"):
            if len(json.loads(log.read_text())["runs"]) >= count and processes("probe.sh"):
                return process
        time.sleep(0.02)
    process.kill()
    raise AssertionError("no run came to its end")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_it_goes_on_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    project = of_files(tmp_path, {3: "BROKEN\n"})
    script = tmp_path / "probe.sh"
    script.write_text(f"sleep 0.5; {PROBE}\n")
    process = run_until(project, 2, "--probe", f"sh {script}")
    os.kill(process.pid, number)
    _, said = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert b"interrupted" in said
    end = time.monotonic() + 20
    while processes(str(script)) and time.monotonic() < end:
        time.sleep(0.05)
    assert processes(str(script)) == []
    ran: Ran = project.run("bisect", "--json", "--probe", f"sh {script}")
    found = ran.json()
    assert names(found) == [[3]]
    assert "going on from" in ran.err
    # The lower end is started again before a name; nothing else is.
    inside = [tuple(run["patches"]) for run in found["runs"] if run["patches"]]
    assert len(inside) == len(set(inside))
