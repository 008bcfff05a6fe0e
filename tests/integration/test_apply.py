"""patchwright apply: the table, the JSON, and trees written whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patchwright.project import Project
from projects import Content, TinyProject, make_project

FILES: dict[str, Content] = {
    "tiny/__init__.py": "",
    "tiny/gate.py": "OPEN = False\r\n",
    "csrc/k.cu": "__global__ void k() {}\n",
}


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    tiny = make_project(
        tmp_path, FILES, built={"tiny/_build.py": "V = '1.0'\n"}, outside=("tiny/_build.py",)
    )
    tiny.add_upstream("other", {"other/__init__.py": "x = 1\n"})
    tiny.add_patch(1, {"tiny/gate.py": "OPEN = True\r\n"}, title="gate: open")
    tiny.add_patch(2, {"other/__init__.py": "x = 2\n"}, upstream="other")
    tiny.add_patch(3, {"csrc/k.cu": "k\n"}, fields={"Depends": "0001 (the gate)"})
    return tiny


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_the_table_names_each_patch_and_its_tree(tiny: TinyProject) -> None:
    ran = tiny.run("apply")
    assert ran.code == 0, ran.err
    for number, upstream in ((1, "tiny"), (2, "other"), (3, "tiny")):
        [row] = [line for line in ran.out.splitlines() if line.startswith(f" {number:04d}")]
        assert f"{upstream}: " in row
        assert "clean" in row
    assert f"tiny: tree {tiny.tree()}" in ran.out
    assert f"other: tree {tiny.tree('other')}" in ran.out


def test_json(tiny: TinyProject) -> None:
    ran = tiny.run("apply", "--json", "--to", "2")
    value = ran.json()
    assert ran.code == 0
    assert value["patches"][0] == {
        "number": 1,
        "file": "0001-tiny-gate-open.patch",
        "upstream": "tiny",
        "verdict": "clean",
        "tree": tiny.trees["tiny"][1],
        "files": [{"path": "tiny/gate.py", "verdict": "clean", "detail": ""}],
        "reason": "",
    }
    assert [p["number"] for p in value["patches"]] == [1, 2]
    assert value["trees"] == {"other": tiny.tree("other"), "tiny": tiny.trees["tiny"][1]}


def test_one_bad_patch_is_exit_code_1_and_hides_no_other(tiny: TinyProject) -> None:
    path = tiny.root / "patches" / "0001-tiny-gate-open.patch"
    path.write_bytes(path.read_bytes().replace(b"-OPEN = False", b"-OPEN = None"))
    ran = tiny.run("apply", "--json")
    assert ran.code == 1
    words = [(p["verdict"], p["tree"] is None) for p in ran.json()["patches"]]
    assert words == [("conflict", True), ("clean", False), ("clean", False)]
    ran = tiny.run("apply")
    assert ran.code == 1
    assert "0001 conflict: tiny/gate.py: hunk 1 (line " in ran.out
    assert "    OPEN = False" in ran.out


def test_into_writes_one_folder_per_upstream(tiny: TinyProject, tmp_path: Path) -> None:
    into = tmp_path / "new" / "trees"
    ran = tiny.run("apply", "--into", str(into))
    assert ran.code == 0, ran.err
    assert content(into) == {
        "tiny/tiny/__init__.py": b"",
        "tiny/tiny/gate.py": b"OPEN = True\r\n",
        "tiny/csrc/k.cu": b"k\n",
        "other/other/__init__.py": b"x = 2\n",
    }
    umask = os.umask(0)
    os.umask(umask)
    assert into.stat().st_mode & 0o777 == 0o777 & ~umask


def test_into_in_installed_layout(tiny: TinyProject, tmp_path: Path) -> None:
    into = tmp_path / "site"
    into.mkdir()
    assert tiny.run("apply", "--into", str(into), "--installed-layout").code == 0
    files = content(into)
    assert files["tiny/gate.py"] == b"OPEN = True\r\n"
    assert files["tiny/data/csrc/k.cu"] == b"k\n"
    assert files["tiny/_build.py"] == b"V = '1.0'\n"
    assert files["other/__init__.py"] == b"x = 2\n"
    assert "tiny-1.0.dist-info/METADATA" in files


def test_a_selection_may_leave_out_a_need_and_says_so(tiny: TinyProject, tmp_path: Path) -> None:
    into = tmp_path / "trees"
    ran = tiny.run("apply", "--into", str(into), "--without", "1")
    assert ran.code == 0, ran.err
    assert "note: 0003 needs 0001 (the gate), which is left out" in ran.out
    assert (into / "tiny/tiny/gate.py").read_bytes() == b"OPEN = False\r\n"
    assert (into / "tiny/csrc/k.cu").read_bytes() == b"k\n"


def test_nothing_is_written_when_one_patch_does_not_apply(
    tiny: TinyProject, tmp_path: Path
) -> None:
    path = tiny.root / "patches" / "0001-tiny-gate-open.patch"
    path.write_bytes(path.read_bytes().replace(b"-OPEN = False", b"-OPEN = None"))
    before = sorted(tmp_path.iterdir())
    ran = tiny.run("apply", "--into", str(tmp_path / "trees"))
    assert ran.code == 1
    assert "1 of 3 patches does not apply, so nothing was written" in ran.err
    assert sorted(tmp_path.iterdir()) == before
    assert tiny.run("apply", "--into", str(tmp_path / "trees"), "--without", "1").code == 0


def test_a_folder_that_holds_something_is_refused(tiny: TinyProject, tmp_path: Path) -> None:
    into = tmp_path / "full"
    into.mkdir()
    (into / "mine").write_text("mine")
    ran = tiny.run("apply", "--into", str(into))
    assert (ran.code, content(into)) == (2, {"mine": b"mine"})
    assert "the folder is not empty" in ran.err
    ran = tiny.run("apply", "--into", str(into / "mine"))
    assert ran.code == 2
    assert tiny.run("apply", "--installed-layout").code == 2


def test_killed_while_writing_leaves_nothing_in_place_and_no_rubbish_behind(
    tiny: TinyProject, tmp_path: Path
) -> None:
    code = (
        "import os, signal, patchwright.materialise as m\n"
        "m.write_tree = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from patchwright.main import main; main()\n"
    )
    into = tmp_path / "trees"
    done = subprocess.run(
        [sys.executable, "-c", code, "apply", "--into", str(into)],
        cwd=tiny.root, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == -9
    assert not into.exists()
    assert len([p for p in tmp_path.iterdir() if p.name.startswith(".trees.patchwright-")]) == 1
    assert tiny.run("apply", "--into", str(into)).code == 0
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".trees")] == []


def test_a_patch_for_another_version_is_refused(tiny: TinyProject) -> None:
    path = tiny.root / "patches" / "0001-tiny-gate-open.patch"
    path.write_bytes(path.read_bytes().replace(b"Upstream: tiny 1.0", b"Upstream: tiny 0.9"))
    ran = tiny.run("apply")
    assert ran.code == 2
    assert "0001 was made for tiny 0.9, the pin is 1.0" in ran.err


def test_in_a_virtual_environment_inside_another_repository(
    tiny: TinyProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`git apply` there skips the patch and returns 0; the tree tells."""
    repository = tmp_path / "repository"
    repository.mkdir()
    subprocess.run(["git", "init", "--quiet"], cwd=repository, check=True)
    monkeypatch.delenv("GIT_CEILING_DIRECTORIES")
    tiny.add_patch(4, {"tiny/x.bin": b"\0\1\2"})
    into = repository / "venv" / "site-packages"
    assert tiny.run("apply", "--into", str(into), "--installed-layout").code == 0
    assert (into / "tiny/gate.py").read_bytes() == b"OPEN = True\r\n"
    assert (into / "tiny/x.bin").read_bytes() == b"\0\1\2"


def test_killed_while_applying_the_next_run_gives_the_same(tiny: TinyProject) -> None:
    for number in range(4, 30):
        tiny.add_patch(number, {"csrc/k.cu": f"k{number}\n"})
    assert Project.open(tiny.root).pristine("tiny").tree == tiny.trees["tiny"][0]
    command = [sys.executable, "-m", "patchwright", "apply"]
    for after in (0.1, 0.15, 0.2, 0.25, 0.3):
        process = subprocess.Popen(
            command, cwd=tiny.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(after)
        process.kill()
        process.wait()
    value = tiny.run("apply", "--json").json()
    trees = [p["tree"] for p in value["patches"] if p["upstream"] == "tiny"]
    assert trees == tiny.trees["tiny"][1:]
