"""Generators are asked in a process of their own; an answer is given again only where the
same call would have read the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import patchwright
from patchwright.smoke.trees import format_listing
from patchwright.store import FILE, object_id
from tiny_flashinfer import make_trees, tiny_flashinfer

# What runs under the server: makes the calls one after the other, each as a run would.
_ASK = """
import json, os, signal, sys, time
sys.path.insert(0, {tool!r})
from patchwright.smoke import generator_server
server = generator_server.start()
from pathlib import Path
from patchwright.smoke.generator import Call
from patchwright.smoke.outcomes import SmokeError
from patchwright.smoke.proof import Claim
from patchwright.smoke.protocol import Place

def ask(step, number):
    site, folder = Path(step["site"]), Path(step["folder"]) / str(number)
    folder.mkdir()
    listing = site.with_suffix(".listing")
    reads = folder.with_suffix(".seen")
    sites = {{place: f"{{place}}.listing" for place in (*step["ahead"], str(site))}}
    claim = Claim(("flashinfer",), sites, f"{{folder}}.report", str(reads))
    given = [eval(text) for text in step["args"]]
    call = Call(site, ("flashinfer",), "flashinfer.jit.comm", step["function"], given, {{}},
                ("9.0a",), "12.8", folder)
    asker = server.of(Place(site, (), listing), claim)
    if step["killed"]:
        pid = os.fork()
        if pid == 0:
            asker.ask(call, 60)
        while not (folder / ".cache" / "started").exists():
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return {{"killed": True}}
    os.environ.update(step["env"])
    try:
        answer = asker.ask(call, step["deadline"])
    except SmokeError as error:
        return {{"error": str(error)}}
    made = [Path(s).read_text() for s in answer.get("sources", ()) if s.startswith(str(folder))]
    seen = [s for s in reads.read_text().split("\\0") if s] if reads.exists() else []
    return answer | {{"folder": str(folder), "made": made, "seen": seen}}

steps = json.loads(sys.stdin.read())
print(json.dumps([ask(step, number) for number, step in enumerate(steps)]))
"""

_MORE = """
import os
import time


def gen_timed_module():
    source = WORKSPACE / "generated" / "timed.cu"
    source.parent.mkdir(parents=True)
    source.write_text(str(time.time_ns()))
    return Spec("timed", [source, DATA / "csrc" / "comm.cu"], archs([9]))


def gen_named_module(name=None):
    return Spec((name or (lambda: os.environ.get("NAME", "nobody")))(), [], archs([9]))


def gen_pointing_module():
    raise RuntimeError("see " + os.environ["NAME"])


def gen_reading_module():
    return Spec(f"read{len((DATA / 'csrc' / 'comm.cu').read_text())}", [], archs([9]))


def gen_refused_module():
    raise RuntimeError(f"refused at {time.time_ns()}")


def gen_hanging_module():
    (WORKSPACE.parent).mkdir()
    (WORKSPACE.parent / "started").touch()
    time.sleep(100)
"""


class Asked:
    """Trees in folders of their own, and the questions to one server about them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps: list[dict[str, Any]] = []

    def tree(self, name: str, change: Mapping[str, str] | None = None) -> Path:
        """Write a tree and its listing; ``change`` adds a text to files or makes them."""
        files = tiny_flashinfer(more=_MORE)
        for path, text in (change or {}).items():
            files[path] = files.get(path, "") + text
        site = (self.folder / name).resolve()
        make_trees(site, files)
        found = {
            str(path.relative_to(site)).encode(): (FILE, object_id("blob", path.read_bytes()))
            for path in site.rglob("*")
            if path.is_file()
        }
        site.with_suffix(".listing").write_bytes(format_listing(found))
        return site

    def about(self, site: Path, function: str, *args: str, **more: Any) -> None:
        """Ask this next; ``args`` are Python expressions."""
        step = {"site": str(site), "folder": str(self.folder), "function": function, "args": args}
        self.steps.append(step | {"env": {}, "deadline": 60, "killed": False, "ahead": []} | more)

    def answers(self) -> list[dict[str, Any]]:
        """Ask, and return the answers once the server has ended as it should."""
        script = _ASK.format(tool=str(Path(patchwright.__file__).parent.parent))
        done = subprocess.run(
            [sys.executable, "-I", "-B", "-c", script], input=json.dumps(self.steps), text=True,
            stdout=subprocess.PIPE, check=True, timeout=90,
        )  # fmt: skip
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path.resolve())


def test_the_same_bytes_give_the_answer_again_in_their_own_folders(asked: Asked) -> None:
    one, two = asked.tree("one"), asked.tree("two")
    for site in (one, two):
        asked.about(site, "gen_timed_module")
    first, second = asked.answers()
    assert first["made"] == second["made"]
    assert first["folder"] != second["folder"]
    for answer, site in ((first, one), (second, two)):
        timed, comm = answer["sources"]
        assert timed.startswith(answer["folder"] + "/")
        assert comm == str(site / "flashinfer/data/csrc/comm.cu")
        assert f"build {answer['folder']}/" in answer["ninja"]
        assert f"-isystem {site}/" in answer["ninja"]
        assert answer["imported"]["flashinfer.jit.core"] == str(site / "flashinfer/jit/core.py")
        # What another run would have to have equal as well.
        assert {f"{site}/flashinfer/jit/core.py", f"{site}/flashinfer/jit/comm.py"} == {
            path for path in answer["seen"] if path.endswith(("core.py", "comm.py"))
        }


@pytest.mark.parametrize("path", ["flashinfer/jit/core.py", "flashinfer/jit/new.py"])
def test_other_bytes_or_other_files_are_asked_anew(asked: Asked, path: str) -> None:
    for site in (asked.tree("one"), asked.tree("two", {path: "\n# changed\n"})):
        asked.about(site, "gen_timed_module")
    first, second = asked.answers()
    assert first["made"] != second["made"]


def test_a_file_that_nobody_read_may_differ(asked: Asked) -> None:
    for site in (asked.tree("one"), asked.tree("two", {"csrc/comm.cu": "// changed\n"})):
        asked.about(site, "gen_timed_module")
    first, second = asked.answers()
    assert first["made"] == second["made"]


def test_the_environment_and_the_arguments_are_part_of_the_question(asked: Asked) -> None:
    site = asked.tree("one")
    asked.about(site, "gen_named_module")
    asked.about(site, "gen_named_module", env={"NAME": "somebody"})
    asked.about(site, "gen_named_module", "lambda: 'a function'")  # no text tells it whole
    assert [a["name"] for a in asked.answers()] == ["nobody", "somebody", "a function"]


def test_a_run_whose_trees_lie_elsewhere_asks_the_same_question(asked: Asked) -> None:
    for site in (asked.tree("one"), asked.tree("two")):
        asked.about(site, "gen_timed_module", env={"PYTHONPATH": f"/proof:{site}"})
    first, second = asked.answers()
    assert first["made"] == second["made"]


def test_what_names_the_other_tree_of_a_run_is_no_answer_for_the_next(asked: Asked) -> None:
    for mine, other in (("one", "two"), ("three", "four")):
        ahead = str(asked.tree(other))
        asked.about(
            asked.tree(mine), "gen_pointing_module", ahead=[ahead],
            env={"PYTHONPATH": ahead, "NAME": ahead},
        )  # fmt: skip
    assert [a["refused"] for a in asked.answers()] == [
        f"RuntimeError: see {asked.folder / name}" for name in ("two", "four")
    ]


def test_upstreams_refusal_is_an_answer(asked: Asked) -> None:
    for site in (asked.tree("one"), asked.tree("two")):
        asked.about(site, "gen_refused_module")
    first, second = asked.answers()
    assert first["refused"].startswith("RuntimeError: refused at ")
    assert first["refused"] == second["refused"]


def test_a_file_that_a_run_changed_decides_nothing_for_others(asked: Asked) -> None:
    one = asked.tree("one")
    source = one / "flashinfer/data/csrc/comm.cu"
    before = len(source.read_text())
    source.write_text("")
    asked.about(one, "gen_reading_module")
    asked.about(asked.tree("two"), "gen_reading_module")
    assert [a["name"] for a in asked.answers()] == ["read0", f"read{before}"]


def test_a_module_that_is_not_the_trees_is_told_and_not_kept(asked: Asked) -> None:
    one = asked.tree("one")
    with (one / "flashinfer/jit/core.py").open("a") as stream:
        stream.write("\n# somebody's\n")
    asked.about(one, "gen_timed_module")
    asked.about(asked.tree("two"), "gen_timed_module")
    first, second = asked.answers()
    assert "which was changed" in Path(f"{first['folder']}.report").read_text()
    assert first["made"] != second["made"]


def test_nothing_hangs_on_a_generator_that_does(asked: Asked) -> None:
    site = asked.tree("one")
    asked.about(site, "gen_hanging_module", deadline=0.5)
    asked.about(site, "gen_hanging_module", killed=True)
    asked.about(site, "gen_named_module")
    late, killed, after = asked.answers()
    assert late["error"].endswith("gave no answer within 0.5 s")
    assert killed == {"killed": True}
    assert after["name"] == "nobody"
