"""Order, numbers, parts: what moves, drops, splits and folds do, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from projects import TinyProject, make_project

LINES = [f"line {n}\n" for n in range(1, 31)]


def _text(changes: dict[int, str]) -> str:
    return "".join(changes.get(n, line) for n, line in enumerate(LINES, 1))


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    """0002 and 0005 change one line after the other has; 0007 needs 0003."""
    made = make_project(tmp_path, {"tiny/a.py": _text({}), "tiny/b.py": "B = 1\n"})
    made.add_patch(2, {"tiny/a.py": _text({5: "five\n"})}, title="two",
                   fields={"Smoke": "tests/smoke/test_0002_two.py"})  # fmt: skip
    made.add_patch(3, {"tiny/a.py": _text({5: "five\n", 15: "fifteen\nmore\n"})}, title="three")
    made.add_patch(5, {"tiny/a.py": _text({5: "FIVE\n", 15: "fifteen\nmore\n"})}, title="five",
                   fields={"Depends": "0002"})  # fmt: skip
    made.add_patch(7, {"tiny/a.py": _text({5: "FIVE\n", 15: "fifteen\nmore\n", 25: "x\n"}),
                       "tiny/b.py": "B = 2\n"}, title="seven",
                   fields={"Depends": "0003 (why, 0005 aside),\n  0005"})  # fmt: skip
    made.add_smoke("test_0002_two.py", "def test_it(): ...\n")
    assert made.run("lock").code == 0
    return made


def _series(project: TinyProject) -> list[tuple[int, str, str, list[int]]]:
    rows = project.run("status", "--json").json()["patches"]
    return [
        (r["number"], r["title"], r["apply"],
         [n["number"] for n in project.run("show", str(r["number"]), "--json").json()["needs"]])
        for r in rows
    ]  # fmt: skip


def test_a_move_keeps_the_numbers_and_carries_the_others_over(project: TinyProject) -> None:
    before = project.run("status", "--json").json()["patches"][-1]["tree"]
    assert project.run("move", "3", "--first").code == 0
    assert _series(project) == [
        (2, "three", "clean", []), (3, "two", "clean", []), (5, "five", "clean", [3]),
        (7, "seven", "clean", [2, 5]),
    ]  # fmt: skip
    assert project.run("status", "--json").json()["patches"][-1]["tree"] == before
    assert sorted(p.name for p in (project.root / "tests/smoke").iterdir()) == ["test_0003_two.py"]
    text = (project.root / "patches/0007-tiny-seven.patch").read_text()
    assert "Depends: 0002 (why, 0005 aside),\n  0005\n" in text
    assert "Smoke: tests/smoke/test_0003_two.py\n" in (
        project.root / "patches/0003-tiny-two.patch").read_text()  # fmt: skip
    assert project.run("lock", "--check").code == 0


def test_needs_forbid_what_would_break_them(project: TinyProject) -> None:
    for args, said in [
        (["move", "7", "--first"], "0007 (seven) needs 0003 (three), which would come after it"),
        (["move", "2", "--last"], "0005 (five) needs 0002 (two), which would come after it"),
        (["drop", "3"], "0007 (seven) needs 0003 (three)"),
    ]:
        ran = project.run(*args)
        assert (ran.code, said in ran.err) == (1, True), ran.err
    assert len(_series(project)) == 4


def test_a_drop_that_conflicts_is_resolved_like_any_other(project: TinyProject) -> None:
    assert project.run("message", "5", "--field", "Depends=").code == 0
    before = sorted(p.name for p in (project.root / "patches").iterdir())
    ran = project.run("drop", "2")
    assert (ran.code, "0005 (five) conflicts in tiny/a.py" in ran.err) == (1, True), ran.err
    assert sorted(p.name for p in (project.root / "patches").iterdir()) == before
    tree = project.root / ".patchwright/edit/tree"
    assert (
        "<<<<<<< the series before it\nline 5\n=======\nFIVE\n" in (tree / "tiny/a.py").read_text()
    )
    (tree / "tiny/a.py").write_text(_text({5: "FIVE\n", 15: "fifteen\nmore\n"}))
    assert project.run("refresh", "--continue").code == 0
    assert [row[:3] for row in _series(project)] == [
        (3, "three", "clean"), (5, "five", "clean"), (7, "seven", "clean"),
    ]  # fmt: skip
    assert not (project.root / "tests/smoke/test_0002_two.py").exists()
    assert not tree.exists()
    assert project.run("undo").code == 0
    assert sorted(p.name for p in (project.root / "patches").iterdir()) == before
    assert (project.root / "tests/smoke/test_0002_two.py").exists()


def test_split_by_path_and_by_hunk(project: TinyProject) -> None:
    before = project.run("status", "--json").json()["patches"][-1]["tree"]
    assert project.run("split", "7", "tiny/b.py", "--title", "b", "--title", "a").code == 0
    assert _series(project)[-2:] == [(7, "b", "clean", [3, 5]), (8, "a", "clean", [3, 5])]
    assert project.run("split", "3", "--by", "hunk").code == 1  # it has one
    assert project.run("fold", "2", "3").code == 0
    assert project.run("split", "2", "--by", "hunk").code == 0
    rows = _series(project)
    assert [row[1] for row in rows] == [
        "two (a.py, 1/2)", "two (a.py, 2/2)", "five", "b", "a",
    ]  # fmt: skip
    # A need on the whole is a need on all of its parts.
    assert rows[2][3] == [2, 3]
    assert project.run("status", "--json").json()["patches"][-1]["tree"] == before
    assert project.run("lock", "--check").code == 0


def test_fold_takes_words_and_needs_of_both(project: TinyProject) -> None:
    before = project.run("status", "--json").json()["patches"][-1]["tree"]
    assert project.run("fold", "7", "5").code == 0
    assert _series(project)[-1] == (5, "seven", "clean", [2, 3])
    shown = project.run("show", "5", "--json").json()
    assert shown["message"] == "Why, in prose.\n\nfive\n\nWhy, in prose."
    assert project.run("status", "--json").json()["patches"][-1]["tree"] == before


def test_patches_of_two_upstreams_are_not_folded(project: TinyProject) -> None:
    project.add_upstream("other", {"other/o.py": "O\n"})
    project.add_patch(9, {"other/o.py": "P\n"}, upstream="other")
    ran = project.run("fold", "2", "9")
    assert (ran.code, "different upstreams" in ran.err) == (2, True)


def test_off_leaves_a_patch_out_on_this_machine(project: TinyProject) -> None:
    files = {p.name: p.read_bytes() for p in (project.root / "patches").iterdir()}
    assert project.run("off", "7").out == "off on this machine: 0007\n"
    said = project.run("status", "--json").json()
    assert ([row["number"] for row in said["patches"]], said["off"]) == ([2, 3, 5], [7])
    ran = project.run("status")
    assert [line.split()[0] for line in ran.out.splitlines() if " off " in line] == ["0007"]
    assert "off on this machine: 0007" in ran.err
    # Every command with a selection says so, and leaves it out.
    ran = project.run("apply", "--into", "out", "--installed-layout")
    assert (ran.code, "off on this machine: 0007" in ran.err) == (0, True)
    assert (project.root / "out/tiny/b.py").read_text() == "B = 1\n"
    ran = project.run("apply", "--into", "out2", "--installed-layout", "--only", "2,3,5,7")
    assert (project.root / "out2/tiny/b.py").read_text() == "B = 2\n"
    assert project.run("lock", "--check").code == 0
    assert {p.name: p.read_bytes() for p in (project.root / "patches").iterdir()} == files
    # It follows its patch to another number, and goes with an undo.
    assert project.run("renumber").code == 0
    assert project.run("status", "--json").json()["off"] == [4]
    assert project.run("undo").code == 0
    assert project.run("on", "7").out == "off on this machine: none\n"
    assert not (project.root / ".patchwright/off").exists()
    (project.root / ".patchwright/off").write_text("x\n")
    ran = project.run("status")
    assert (ran.code, "'x' is not the number of a patch" in ran.err) == (2, True)


def test_the_graph_tells_declared_needs_from_real_ones(project: TinyProject) -> None:
    project.add_patch(9, {"tiny/b.py": "B = 3\n"}, title="nine")
    said = project.run("graph", "--json").json()
    edges = {(e["patch"], e["on"]): e["by"] for e in said["edges"]}
    assert edges == {
        (5, 2): ["declared", "lines"], (7, 3): ["declared"], (7, 5): ["declared"],
        (9, 7): ["lines"],
    }  # fmt: skip
    warning = "0009 stands on lines of 0007 and does not declare it"
    assert said["warnings"] == [warning]
    assert project.run("status", "--json").json()["warnings"] == [warning]
    ran = project.run("graph")
    assert ran.out.splitlines() == [
        "    ╭── 0002 two",
        "╭───┼── 0003 three",
        "│ ╭─┴─▸ 0005 five",
        "╰─┴─┬─▸ 0007 seven",
        "    ╰─▸ 0009 nine",
        f"warning: {warning}",
    ]
    dot = project.run("graph", "--dot").out
    assert '"0009" -> "0007" [style=dashed, color=red, label="lines"];' in dot
    assert project.run("message", "9", "--field", "Depends=0007").code == 0
    assert project.run("status", "--json").json()["warnings"] == []


def test_what_smoke_tests_show_is_in_the_graph(tmp_path: Path) -> None:
    project = make_project(
        tmp_path, {"tiny/a.py": "A = 1\n", "tiny/b.py": "B = 1\n", "tiny/c.py": "C = 1\n"}
    )
    smoke = """
import pytest

@pytest.mark.tier("static")
def test_it(tree):
    assert {what}
"""
    a, b = 'tree.read("tiny", "tiny/a.py")', 'tree.read("tiny", "tiny/b.py")'
    for number, path, text, what, needs in [
        (1, "tiny/a.py", "A = 2\n", f"b'2' in {a}", None),
        (2, "tiny/b.py", "B = 2\n", f"b'2' in {b} and b'2' in {a}", None),  # needs 1, says nothing
        (3, "tiny/c.py", "C = 2\n", "b'2' in " + a.replace("a.py", "c.py"), "0001"),  # needs none
    ]:
        name = f"test_{number:04d}.py"
        project.add_smoke(name, smoke.format(what=what))
        project.add_patch(number, {path: text}, title=f"number {number}",
                          fields={"Smoke": f"tests/smoke/{name}", "Depends": needs})  # fmt: skip
    assert not project.run("graph", "--json").json()["evidence"]
    project.run("verify", "--context", "without", "--tier", "static")
    said = project.run("graph", "--json").json()
    assert said["evidence"]
    assert {(e["patch"], e["on"]): e["by"] for e in said["edges"]} == {
        (2, 1): ["evidence"], (3, 1): ["declared"],
    }  # fmt: skip
    assert said["warnings"] == [
        "0002 fails its smoke test without 0001 and does not declare it",
        "0003 declares 0001, but its smoke test passes without it",
    ]
    assert project.run("status", "--json").json()["warnings"] == said["warnings"]
