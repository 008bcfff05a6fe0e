"""New patches and the words of patches: title, message, fields, and their tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edits import edited, files, final, make, opened, tree_of
from projects import TinyProject


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    return make(tmp_path)


def test_words_can_be_changed_while_the_patch_is_open(project: TinyProject) -> None:
    tree = opened(project, 1)
    (tree / "tiny/a.py").write_text(edited({5: "FIVE"}))
    assert project.run("message", "1", "--title", "Fünf", "-m", "Because.").code == 0
    assert project.run("refresh").code == 0
    shown = project.run("show", "1", "--json").json()
    assert (shown["title"], shown["message"]) == ("Fünf", "Because.")
    assert final(project, "tiny/a.py") == edited({5: "FIVE", 20: "twenty"})


def test_the_editor_changes_words_and_fields(
    project: TinyProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project.root / "patches/0003-tiny-twenty.patch"
    diff = path.read_bytes().partition(b"diff --git")[2]
    editor = tmp_path / "editor"
    editor.write_text(
        '#!/bin/sh\ncp "$1" "$1.seen"; sed -i \'s/^Why, .*/Much better./; s/^twenty$/zwanzig/;'
        ' s/^Upstream-Status.*//; s/^Depends: .*/Depends: 0002\\nArch: sm_120/\' "$1"\n'
    )
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    assert project.run("message", "3").code == 0
    shown = project.run("show", "3", "--json").json()
    assert (shown["title"], shown["message"]) == ("zwanzig", "Much better.")
    assert [n["number"] for n in shown["needs"]] == [2]
    assert shown["arch"] == ["sm_120"]
    assert path.read_bytes().partition(b"diff --git")[2] == diff
    # What cannot be used is kept.
    editor.write_text("#!/bin/sh\necho 'only a title' > \"$1\"\n")
    ran = project.run("message", "3")
    assert (ran.code, "what you wrote is in" in ran.err) == (2, True)
    assert (project.root / ".patchwright/message.txt").read_text() == "only a title\n"
    editor.write_text("#!/bin/sh\ntrue\n")
    assert project.run("message", "3").out == "nothing was changed\n"


def test_words_that_break_the_patch_are_refused(project: TinyProject) -> None:
    before = files(project.root)
    cases: list[tuple[list[str], str]] = [
        (["--field", "Depends=0009"], "not in the series"),
        (["--field", "Depends"], "NAME=VALUE"),
        (["-m", "text\n---\nmore"], "---"),
        (["-m", "diff --git a/x b/x"], "diff"),
        (["--title", ""], "title is missing"),
    ]
    for args, said in cases:
        ran = project.run("message", "3", *args)
        assert (ran.code, said in ran.err) == (2, True), ran.err
        assert files(project.root) == before


def test_a_new_patch_comes_with_a_test_that_fails_until_it_is_written(project: TinyProject) -> None:
    before = files(project.root)
    ran = project.run("new", "tiny: öffne das Tor", "-m", "Why.", "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["number"] == 4
    assert files(project.root) == before
    tree = tree_of(project)
    assert project.run("refresh").code == 1
    (tree / "tiny/c.py").write_text("C = 3\n")
    assert project.run("refresh").code == 0
    shown = project.run("show", "4", "--json").json()
    assert shown["title"] == "tiny: öffne das Tor"
    assert shown["author"] == "A Tester <tester@example.org>"
    assert (shown["message"], shown["made_for"], shown["upstream_status"]) == (
        "Why.", "1.0", "Pending",
    )  # fmt: skip
    assert shown["smoke"] == ["tests/smoke/test_0004_tiny_ffne_das_tor.py"]
    ran = project.run("verify", "4", "--tier", "static", "--json")
    assert ran.code == 1
    assert {r["verdict"] for r in ran.json()["results"]} == {"failed"}
    assert project.run("lock", "--check").code == 0
    mail = project.root / "patches" / shown["file"]
    work = project.git["tiny"]
    subprocess.run(["git", "am", "--quiet", "--keep-cr", str(mail)], cwd=work, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD^{tree}"], cwd=work, check=True,
                          capture_output=True, text=True)  # fmt: skip
    rows = project.run("status", "--json").json()["patches"]
    assert rows[-1]["tree"] == head.stdout.strip()
    assert project.run("undo").code == 0
    assert files(project.root) == before


def test_a_new_patch_between_others(project: TinyProject) -> None:
    ran = project.run("new", "between", "--number", "3", "-m", "", "--no-smoke")
    assert ran.code == 0, ran.err
    (tree_of(project) / "tiny/b.py").write_text("B = 3\n")
    assert project.run("refresh").code == 0
    rows = project.run("status", "--json").json()["patches"]
    assert [(row["number"], row["title"]) for row in rows] == [
        (1, "five"), (2, "two"), (3, "between"), (4, "twenty"),
    ]  # fmt: skip
    assert rows[2]["evidence"]["static"]["step"]["verdict"] == "unproven"
    assert project.run("edit", "--close").code == 0


def test_a_new_patch_without_changes_is_not_forgotten(project: TinyProject) -> None:
    assert project.run("new", "x", "-m", "A day's thoughts.").code == 0
    for command in (["edit", "2"], ["new", "y", "-m", ""], ["drop", "2"]):
        ran = project.run(*command)
        assert (ran.code, "no patch has: a new patch" in ran.err) == (1, True), command
    assert project.run("edit", "--close").code == 0
    assert project.run("edit", "2").code == 0
