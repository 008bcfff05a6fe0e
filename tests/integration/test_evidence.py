"""Evidence that travels: verified on one machine, shown with its origin on another."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path
from typing import Any

import pytest

from patchwright.evidence_files import _sealed
from patchwright.tiers import Needs
from projects import TinyProject, make_project

TEST = """
import pytest

@pytest.mark.tier("static")
def test_static(tree):
    print("\\x1b[2J looked at the tree")
    assert "A = 2" in tree.text("tiny", "tiny/a.py")

@pytest.mark.tier("gpu")
def test_gpu(tree):
    tree.announce("torch.cuda (simulated)")
    assert "A = 2" in tree.text("tiny", "tiny/a.py")
"""
OTHER = """
import pytest

@pytest.mark.tier("static")
def test_other(tree):
    assert "B = 2" in tree.text("tiny", "tiny/b.py")
"""
NEED = "needs one sm_120 device; found none"


class Machine:
    """A machine by name, with or without a device; the project is copied to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def __call__(self, name: str, *, device: bool) -> None:
        self.monkeypatch.setattr(platform, "node", lambda: name)
        self.monkeypatch.setattr(
            Needs, "missing", lambda needs, tier: NEED if tier == "gpu" and not device else ""
        )


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def two_patches(folder: Path, *, opening: str = "") -> TinyProject:
    files = {"tiny/a.py": f"{opening}A = 1\n", "tiny/b.py": f"{opening}B = 1\n"}
    project = make_project(folder, files)
    for number, name in ((1, "a"), (2, "b")):
        after = files[f"tiny/{name}.py"].replace("= 1", "= 2")
        fields: dict[str, str | None] = {"Smoke": f"tests/smoke/test_{name}.py"}
        project.add_patch(number, {f"tiny/{name}.py": after}, fields=fields)
    project.add_smoke("test_a.py", TEST)
    project.add_smoke("test_b.py", OTHER)
    return project


@pytest.fixture
def box(tmp_path: Path, on: Machine) -> TinyProject:
    """The project on a machine with a device, verified there."""
    project = two_patches(tmp_path / "box")
    on("gpubox", device=True)
    ran = project.run("verify")
    assert ran.code == 0, ran.out + ran.err
    return project


@pytest.fixture
def laptop(tmp_path: Path, box: TinyProject, on: Machine) -> TinyProject:
    """The same project on a machine without a device, where nothing was verified."""
    ran = box.run("evidence", "export", str(tmp_path / "gpu.json"))
    assert ran.code == 0, ran.err
    shutil.copytree(box.root, tmp_path / "laptop", ignore=shutil.ignore_patterns(".patchwright"))
    on("laptop", device=False)
    return TinyProject(tmp_path / "laptop", box.wheels, box.git, box.trees, box.upstreams)


def rows(project: TinyProject, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = project.run("evidence", "list", "--json", *args).json()["records"]
    return found


def evidence(project: TinyProject, number: int = 1) -> Any:
    (row,) = project.run("status", "--only", str(number), "--json").json()["patches"]
    return row["evidence"]


def test_every_run_is_listed_with_what_it_is_worth(box: TinyProject) -> None:
    found = rows(box)
    assert {(*r["numbers"], r["tier"], r["run"], r["outcome"]) for r in found} == {
        (1, "static", "test", "passed"), (1, "static", "control", "failed"),
        (1, "gpu", "test", "passed"), (1, "gpu", "control", "failed"),
        (2, "static", "test", "passed"), (2, "static", "control", "failed"),
    }  # fmt: skip
    assert {(r["state"], r["host"], r["origin"]) for r in found} == {("current", "gpubox", None)}
    assert {n for r in rows(box, "2") for n in r["numbers"]} == {2}
    table = box.run("evidence", "list").out
    assert "0001" in table
    assert "gpubox" in table
    assert box.run("evidence", "list", "9").code == 2


def test_an_old_record_says_what_changed_since(box: TinyProject) -> None:
    box.add_smoke("test_b.py", OTHER + "\n")
    states = {(r["numbers"][0], r["state"], r["why"]) for r in rows(box)}
    assert states == {(1, "current", ""), (2, "old", "the test changed")}
    (box.root / "patches").joinpath(
        next(p.name for p in (box.root / "patches").glob("0002*"))
    ).unlink()
    unnamed = [r for r in rows(box) if r["state"] == "unmatched"]
    assert {(tuple(r["numbers"]), r["why"]) for r in unnamed} == {
        ((), "no patch names tests/smoke/test_b.py")
    }


def test_a_record_is_shown_whole(box: TinyProject) -> None:
    (row,) = [r for r in rows(box) if (r["tier"], r["run"]) == ("gpu", "test")]
    ran = box.run("evidence", "show", row["key"][:8])
    assert ran.code == 0
    for fact in ("passed", "gpubox", "Python: 3.", "stubbed: torch.cuda (simulated)", "platform:"):
        assert fact in ran.out
    (record,) = box.run("evidence", "show", row["key"], "--json").json()["records"]
    assert record["stubs"] == ["torch.cuda (simulated)"]
    assert record["inputs"]["test"] == "tests/smoke/test_a.py"
    assert record["state"] == "current"


def test_a_log_cannot_command_the_terminal(box: TinyProject) -> None:
    row = next(r for r in rows(box) if (r["tier"], r["run"]) == ("static", "test"))
    out = box.run("evidence", "show", row["key"]).out
    assert "\\x1b[2J looked at the tree" in out or row["numbers"] == [2]
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("prefix", "said"),
    [("ab", "too short"), ("zzzz", "no record's key starts with"), ("0" * 64, "no record's key")],
)
def test_a_key_that_fits_nothing_is_refused(box: TinyProject, prefix: str, said: str) -> None:
    ran = box.run("evidence", "show", prefix)
    assert ran.code == 2
    assert said in ran.err


def test_damaged_records_are_named_and_made_again(box: TinyProject) -> None:
    row = next(r for r in rows(box) if r["numbers"] == [1])
    path = box.root / ".patchwright" / "evidence" / f"{row['key']}.json"
    path.write_bytes(path.read_bytes().replace(b'"seconds"', b'"moments"', 1))
    ran = box.run("evidence", "list")
    assert ran.code == 0
    assert f"damaged: {path}: it was edited" in ran.out
    shown = box.run("evidence", "show", row["key"][:10])
    assert shown.code == 2
    assert "does not count" in shown.err
    results = box.run("verify", "--json").json()["results"]
    assert {r["verdict"] for r in results} <= {"passed", "none"}
    assert max(r["made"] for r in results) == 1
    assert box.run("evidence", "list", "--json").json()["damaged"] == []


def test_a_gpu_verified_elsewhere_is_shown_and_not_counted(
    laptop: TinyProject, tmp_path: Path
) -> None:
    assert evidence(laptop) == {"static": {"step": {"verdict": "missing", "why": "not verified yet",
                                                    "from": ""}}}  # fmt: skip
    ran = laptop.run("evidence", "import", str(tmp_path / "gpu.json"))
    assert ran.code == 0, ran.err
    assert "8 records from gpubox" in ran.out
    assert "8 for the present series: gpu 0001; static 0001, 0002" in ran.out
    found = evidence(laptop)
    for tier in ("static", "gpu"):
        for context in ("step", "alone"):
            assert found[tier][context]["verdict"] == "passed"
            assert found[tier][context]["from"].startswith("gpubox, 20")
    assert "gpu passed on gpubox" in laptop.run("status").out

    ran = laptop.run("verify")
    assert ran.code == 0
    assert "blocked; passed on gpubox" in ran.out
    assert f"gpu: blocked: {NEED}" in ran.out
    results = laptop.run("verify", "1", "--tier", "gpu", "--json").json()["results"]
    assert {r["verdict"] for r in results} == {"blocked"}
    assert {r["elsewhere"]["verdict"] for r in results} == {"passed"}
    assert laptop.run("verify", "--require", "gpu").code == 1
    # Once verified here, the own record is what counts.
    assert evidence(laptop)["static"]["step"]["from"] == ""


def test_imported_records_are_listed_with_their_origin(laptop: TinyProject, tmp_path: Path) -> None:
    laptop.run("evidence", "import", str(tmp_path / "gpu.json"))
    found = rows(laptop)
    assert {r["origin"]["host"] for r in found} == {"gpubox"}
    assert {r["origin"]["file"] for r in found} == {"gpu.json"}
    assert {r["state"] for r in found} == {"current"}
    assert "imported from gpubox via gpu.json" in laptop.run("evidence", "list").out
    again = laptop.run("evidence", "import", str(tmp_path / "gpu.json"), "--json")
    assert again.json()["new"] is False
    assert len(rows(laptop)) == len(found)
    # What is not our own does not travel on under our name.
    ran = laptop.run("evidence", "export", str(tmp_path / "out.json"))
    assert ran.code == 1
    assert "no current record of this machine" in ran.err


def test_imported_records_never_replace_our_own(laptop: TinyProject, tmp_path: Path) -> None:
    laptop.run("verify")
    before = {p: p.read_bytes() for p in (laptop.root / ".patchwright/evidence").glob("*.json")}
    laptop.run("evidence", "import", str(tmp_path / "gpu.json"))
    after = {p: p.read_bytes() for p in (laptop.root / ".patchwright/evidence").glob("*.json")}
    assert before == after


def test_evidence_for_other_trees_matches_nothing(
    laptop: TinyProject, tmp_path: Path, on: Machine
) -> None:
    other = two_patches(tmp_path / "other", opening="# another pin\n")
    ran = other.run("evidence", "import", str(tmp_path / "gpu.json"), "--json")
    assert ran.code == 0, ran.err
    assert (ran.json()["current"], ran.json()["old"]) == (0, 8)
    again = other.run("evidence", "import", str(tmp_path / "gpu.json")).out
    assert "8 match no patch of the present series" in again
    results = other.run("verify", "1", "--tier", "gpu", "--json").json()["results"]
    assert {(r["verdict"], r["elsewhere"]) for r in results} == {("blocked", None)}
    assert {(e["verdict"], e["from"]) for e in evidence(other)["gpu"].values()} == {("blocked", "")}
    assert {r["state"] for r in rows(other, "1") if r["origin"]} == {"old"}
    assert {r["why"] for r in rows(other, "2") if r["origin"]} == {
        "the tree changed, the tree of the control changed"
    }


def test_a_control_that_is_missing_elsewhere_proves_nothing(
    laptop: TinyProject, tmp_path: Path
) -> None:
    content = json.loads((tmp_path / "gpu.json").read_bytes())
    del content["sha256"]
    content["records"] = [r for r in content["records"] if r["record"]["outcome"] == "passed"]
    (tmp_path / "half.json").write_bytes(_sealed(content))
    laptop.run("evidence", "import", str(tmp_path / "half.json"))
    assert {e["verdict"] for e in evidence(laptop)["gpu"].values()} == {"blocked"}


def test_a_failure_elsewhere_is_shown_beside_a_success(laptop: TinyProject, tmp_path: Path) -> None:
    content = json.loads((tmp_path / "gpu.json").read_bytes())
    del content["sha256"]
    content["host"] = "second"
    for entry in content["records"]:
        entry["record"].update(host="second", outcome="failed", reason="wrong\x1b[2J sum")
    content["records"] = [r for r in content["records"] if r["record"]["inputs"]["trees"]]
    (tmp_path / "second.json").write_bytes(_sealed(content))
    laptop.run("evidence", "import", str(tmp_path / "gpu.json"))
    laptop.run("evidence", "import", str(tmp_path / "second.json"))
    found = evidence(laptop)["gpu"]["step"]
    assert found["verdict"] == "failed"
    assert found["why"] == "wrong [2J sum"
    assert found["from"].startswith("second, ")


def test_only_what_was_asked_for_is_exported(box: TinyProject, tmp_path: Path) -> None:
    file = tmp_path / "two.json"
    keys = box.run("evidence", "export", str(file), "2", "--json").json()["keys"]
    assert len(keys) == 4
    exported = {r["record"]["inputs"]["test"] for r in json.loads(file.read_bytes())["records"]}
    assert exported == {"tests/smoke/test_b.py"}
    box.add_smoke("test_b.py", OTHER + "\n")
    assert box.run("evidence", "export", str(file), "2").code == 1
    ran = box.run("evidence", "export", str(file), "2", "--all")
    assert ran.code == 0
    assert "4 records of static 0002" in ran.out


@pytest.mark.parametrize("name", ["", "none/x.json"])
def test_a_place_that_cannot_be_written_is_refused(
    box: TinyProject, tmp_path: Path, name: str
) -> None:
    ran = box.run("evidence", "export", str(tmp_path / name))
    assert ran.code == 2
    assert "Next: name a file to write" in ran.err


def test_a_bad_file_is_refused_and_nothing_is_taken(laptop: TinyProject, tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    file.write_bytes(file.read_bytes().replace(b"gpubox", b"mybox", 1))
    ran = laptop.run("evidence", "import", str(file))
    assert ran.code == 2
    assert f"{file}: it was edited" in ran.err
    assert rows(laptop) == []
    assert laptop.run("evidence", "import", str(tmp_path / "none.json")).code == 2
