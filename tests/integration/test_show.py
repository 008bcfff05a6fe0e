"""patchwright show: what a user sees of one patch."""

from __future__ import annotations

from pathlib import Path

import pytest

from projects import TinyProject, make_project

OLD = "".join(f"line {n}\n" for n in range(20))


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    project = make_project(tmp_path, {"tiny/gate.py": "OPEN = False\n", "csrc/a.cu": OLD})
    project.add_patch(1, {"csrc/a.cu": OLD.replace("line 3\n", "")}, title="cu: drop a line")
    project.add_patch(
        3,
        {"tiny/gate.py": "OPEN = True\n"},
        title="[Gate] öffnen",
        message="Why, in prose.\n\n  diff --git a/x b/x\n\nSigned-off-by: A <a@example.org>",
        fields={"Depends": "0001 (or the kernel is hollow)", "Upstream-Status": "Pending",
                "X-Own": "kept"},
    )  # fmt: skip
    project.add_patch(4, _move, title="move it", fields={"Depends": "0003"})
    return project


def _move(work: Path) -> None:
    (work / "csrc" / "a.cu").rename(work / "csrc" / "b.cu")
    (work / "csrc" / "b.cu").chmod(0o755)


def test_a_patch_is_shown_with_all_that_it_says(project: TinyProject) -> None:
    ran = project.run("show", "3")
    assert ran.code == 0, ran.err
    for text in (
        "0003 [Gate] öffnen",
        "Depends: 0001 (or the kernel is hollow)",
        "X-Own: kept",
        "0001 cu: drop a line (or the kernel is hollow)",
        "needed by 0004",
        "modify tiny/gate.py +1 -1",
        "apply: clean",
        f"tree after it: {project.trees['tiny'][2]}",
        "static, step: unproven: names no smoke test",
        "    diff --git a/x b/x",
    ):
        assert text in ran.out


@pytest.mark.parametrize("name", ["0003", "0003-tiny-gate-öffnen.patch", "patches/{}"])
def test_a_patch_is_found_by_number_and_by_file_name(project: TinyProject, name: str) -> None:
    name = name.format("0003-tiny-gate-öffnen.patch")
    assert project.run("show", name).out == project.run("show", "3").out


def test_the_json_is_what_the_documentation_says(project: TinyProject) -> None:
    shown = project.run("show", "4", "--json").json()
    page = Path(__file__).parents[2] / "docs" / "patch-format.md"
    assert all(f"`{name}`" in page.read_text(encoding="utf-8") for name in shown)
    assert shown["number"] == 4
    assert shown["needs"] == [{"number": 3, "reason": "", "title": "[Gate] öffnen"}]
    assert shown["files"] == [
        {"path": "csrc/b.cu", "kind": "rename", "old_path": "csrc/a.cu", "added": 0, "removed": 0,
         "binary": False, "old_mode": "100644", "new_mode": "100755"}
    ]  # fmt: skip
    assert shown["apply"] == "clean"
    assert shown["tree"] == project.tree()
    assert shown["corrupt"] is None


def test_a_corrupt_patch_is_shown_with_the_line_and_is_a_no(project: TinyProject) -> None:
    path = next((project.root / "patches").glob("0003-*"))
    path.write_bytes(path.read_bytes().replace(b"+OPEN = True\n", b"+OPEN = True\n+x\n"))
    line = path.read_bytes()[: path.read_bytes().index(b"@@ -1")].count(b"\n") + 1
    ran = project.run("show", "3")
    assert ran.code == 1
    assert f"corrupt at line {line}: the hunk header says 1 old and 1 new lines" in ran.out
    assert "apply: corrupt" in ran.out


def test_a_patch_that_does_not_apply_is_a_no(project: TinyProject) -> None:
    path = next((project.root / "patches").glob("0003-*"))
    path.write_bytes(path.read_bytes().replace(b"-OPEN = False\n", b"-OPEN = None\n"))
    ran = project.run("show", "3", "--json")
    assert ran.code == 1
    assert ran.json()["apply"] == "conflict"
    assert ran.json()["reason"]


def test_a_patch_is_shown_where_the_pins_cannot_be_had(project: TinyProject) -> None:
    project.wheels["tiny"].unlink()
    ran = project.run("show", "3")
    assert ran.code == 0
    assert "[Gate] öffnen" in ran.out
    assert "not known: " in ran.out


@pytest.mark.parametrize("wanted", ["2", "0002-x.patch", "x"])
def test_an_unknown_patch_lists_the_known(project: TinyProject, wanted: str) -> None:
    ran = project.run("show", wanted)
    assert ran.code == 2
    assert "there is no patch" in ran.err
    assert "the series has 1, 3-4" in ran.err
