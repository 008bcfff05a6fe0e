"""A patch opened, changed and written back; conflicts; what must not get lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from edits import edited, files, final, make, opened, statuses
from projects import TinyProject


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    return make(tmp_path)


def test_a_change_is_written_back_and_later_patches_stay_as_they_are(project: TinyProject) -> None:
    before = files(project.root)
    tree = opened(project, 1)
    # A git work tree with the patch as its last commit.
    shown = subprocess.run(["git", "show", "--stat"], cwd=tree, capture_output=True, text=True,
                           check=True)  # fmt: skip
    assert "tiny/a.py | 2 +-" in shown.stdout
    assert (tree / "tiny/a.py").read_text() == edited({5: "five"})
    (tree / "tiny/a.py").write_text(edited({5: "FIVE"}))
    (tree / "tiny/__pycache__").mkdir()
    (tree / "tiny/__pycache__/a.pyc").write_bytes(b"junk")
    ran = project.run("refresh")
    assert (ran.code, ran.out) == (0, "0001-tiny-five.patch: tiny/a.py\n")
    assert "left out: tiny/__pycache__/a.pyc" in ran.err
    after = files(project.root)
    changed = {name for name in after if before.get(name) != after[name]}
    assert changed == {"patches/0001-tiny-five.patch", "upstream.lock"}
    assert b"+FIVE\n" in after["patches/0001-tiny-five.patch"]
    assert before["patches/0001-tiny-five.patch"].split(b"\n---\n")[0] in after[
        "patches/0001-tiny-five.patch"]  # fmt: skip
    assert final(project, "tiny/a.py") == edited({5: "FIVE", 20: "twenty"})
    assert project.run("lock", "--check").code == 0
    # It stays open, and can be written back again.
    assert project.run("refresh").code == 1
    (tree / "tiny/a.py").write_text(edited({5: "Five"}))
    assert project.run("refresh").code == 0
    assert project.run("undo", "-n", "2").code == 0
    assert files(project.root) == before


def test_later_patches_are_carried_over(project: TinyProject) -> None:
    tree = opened(project, 1)
    (tree / "tiny/a.py").write_text("more\n" * 3 + edited({5: "five"}))
    ran = project.run("refresh", "--json").json()
    assert ran["rewritten"] == [3]
    assert statuses(project) == [(1, "clean"), (2, "clean"), (3, "clean")]
    assert final(project, "tiny/a.py") == "more\n" * 3 + edited({5: "five", 20: "twenty"})
    text = (project.root / "patches/0003-tiny-twenty.patch").read_text()
    assert "@@ -20,7 +20,7 @@" in text
    assert "Depends: 0001 (lines above, see 0002),\n 0002\n" in text


def _conflict(project: TinyProject) -> tuple[dict[str, bytes], Path]:
    """Let 0003's line be changed in 0001."""
    before = files(project.root)
    tree = opened(project, 1)
    (tree / "tiny/a.py").write_text(edited({5: "FIVE", 20: "other"}))
    ran = project.run("refresh")
    assert ran.code == 1, ran
    assert "0003 (twenty) conflicts in tiny/a.py; nothing is written yet" in ran.err
    assert files(project.root) == before
    return before, tree


def test_a_conflict_stands_in_the_work_tree_and_its_resolution_goes_on(
    project: TinyProject,
) -> None:
    _, tree = _conflict(project)
    text = (tree / "tiny/a.py").read_text()
    assert "<<<<<<< the series before it\nother\n=======\ntwenty\n>>>>>>> 0003 twenty\n" in text
    status = subprocess.run(["git", "status", "--short"], cwd=tree, capture_output=True, text=True,
                            check=True)  # fmt: skip
    assert status.stdout == "UU tiny/a.py\n"
    # Nobody else changes the series meanwhile.
    for command in (["drop", "2"], ["refresh"], ["edit", "2"], ["undo"], ["edit", "--close"]):
        ran = project.run(*command)
        assert (ran.code, "--abort" in ran.err) == (1, True), command
    ran = project.run("refresh", "--continue")
    assert (ran.code, "conflict markers in tiny/a.py" in ran.err) == (1, True)
    (tree / "tiny/a.py").write_text(edited({5: "FIVE", 20: "both"}))
    assert project.run("refresh", "--continue").code == 0
    assert statuses(project) == [(1, "clean"), (2, "clean"), (3, "clean")]
    assert final(project, "tiny/a.py", 1) == edited({5: "FIVE", 20: "other"})
    assert final(project, "tiny/a.py") == edited({5: "FIVE", 20: "both"})
    # 0001 is open again, as it is now.
    assert (tree / "tiny/a.py").read_text() == edited({5: "FIVE", 20: "other"})
    assert project.run("edit", "--close").code == 0
    assert not tree.exists()


def test_abort_gives_the_work_tree_back_as_the_user_left_it(project: TinyProject) -> None:
    before, tree = _conflict(project)
    assert project.run("refresh", "--abort").code == 0
    assert files(project.root) == before
    assert (tree / "tiny/a.py").read_text() == edited({5: "FIVE", 20: "other"})
    ran = project.run("edit", "2")
    assert (ran.code, "changes that no patch has: tiny/a.py" in ran.err) == (1, True)
    (tree / "tiny/a.py").write_text(edited({5: "FIVE"}))
    assert project.run("refresh").code == 0


def test_skip_leaves_the_patch_out(project: TinyProject) -> None:
    before, _ = _conflict(project)
    assert project.run("refresh", "--skip").code == 0
    assert statuses(project) == [(1, "clean"), (2, "clean")]
    assert not (project.root / "patches/0003-tiny-twenty.patch").exists()
    assert project.run("undo").code == 0
    assert files(project.root) == before


def test_a_patch_that_others_need_is_not_skipped(project: TinyProject) -> None:
    project.add_patch(4, {"tiny/c.py": "C\n"}, title="four", fields={"Depends": "0003"})
    _conflict(project)
    ran = project.run("refresh", "--skip")
    assert (ran.code, "0004 needs 0003" in ran.err) == (1, True)
    assert project.run("refresh", "--abort").code == 0


def test_what_the_work_tree_has_is_not_lost_when_it_is_left(project: TinyProject) -> None:
    tree = opened(project, 1)
    (tree / "tiny/new.py").write_text("NEW\n")
    for command in (["edit", "2"], ["edit", "--close"], ["drop", "2"], ["move", "1", "--last"],
                    ["new", "x"], ["renumber", "--start", "5"]):  # fmt: skip
        ran = project.run(*command)
        assert (ran.code, "changes that no patch has: tiny/new.py" in ran.err) == (1, True), command
    ran = project.run("edit", "--close", "--discard", "--json")
    aside = Path(ran.json()["set_aside"])
    assert b"+NEW\n" in aside.read_bytes()
    assert not tree.exists()
    ran = project.run("refresh")
    assert (ran.code, "no work tree is open" in ran.err) == (1, True)


def test_an_empty_patch_is_refused(project: TinyProject) -> None:
    tree = opened(project, 1)
    (tree / "tiny/a.py").write_text(edited({}))
    ran = project.run("refresh")
    assert (ran.code, "0001 would be empty" in ran.err) == (1, True)


def test_a_patch_that_would_change_nothing_any_more_is_said(project: TinyProject) -> None:
    tree = opened(project, 1)
    (tree / "tiny/b.py").write_text("B = 2\n")
    ran = project.run("refresh")
    assert (ran.code, "0002 (two) would change nothing any more" in ran.err) == (1, True)
    assert project.run("refresh", "--skip").code == 1  # 0003 needs it
    assert project.run("message", "3", "--field", "Depends=0001").code == 1  # not now
    assert project.run("refresh", "--abort").code == 0
    assert project.run("message", "3", "--field", "Depends=0001").code == 0
    assert project.run("refresh").code == 1
    assert project.run("refresh", "--skip").code == 0
    assert statuses(project) == [(1, "clean"), (3, "clean")]


def test_what_the_layout_does_not_carry_is_refused(project: TinyProject) -> None:
    tree = opened(project, 1)
    (tree / "docs.md").write_text("x\n")
    ran = project.run("refresh")
    assert (ran.code, "docs.md is not in the distribution" in ran.err) == (2, True)


def test_a_patch_that_changed_since_it_was_opened_is_not_overwritten(project: TinyProject) -> None:
    tree = opened(project, 3)
    (tree / "tiny/a.py").write_text(edited({5: "five", 20: "zwanzig"}))
    path = project.root / "patches/0001-tiny-five.patch"
    path.write_bytes(path.read_bytes().replace(b"+five", b"+fife"))
    before = files(project.root)
    ran = project.run("refresh")
    assert (ran.code, "was changed since it was opened" in ran.err) == (1, True)
    assert files(project.root) == before


def test_wrong_arguments_change_nothing(project: TinyProject) -> None:
    before = files(project.root)
    cases: list[tuple[list[str], str]] = [
        (["new", "x", "--upstream", "nope"], "no upstream 'nope'"),
        (["new", " "], "needs a title"),
        (["new", "x", "-m", "a\n---\nb"], "---"),
        (["edit"], "name a patch"),
        (["edit", "9"], "there is no patch 9"),
        (["edit", "1", "--discard"], "--close"),
        (["refresh", "--skip", "--abort"], "one of"),
        (["move", "1"], "say where"),
        (["move", "1", "--before", "1"], "before or behind itself"),
        (["move", "1", "--after", "7"], "there is no patch 7"),
        (["split", "1"], "name the files"),
        (["drop", "9"], "there is no patch 9"),
        (["off", "9"], "there is no patch 9"),
        (["renumber", "1"], "name no number"),
        (["renumber", "1", "2"], "0002 is taken"),
        (["fold", "1", "1"], "into another one"),
    ]
    for args, said in cases:
        ran = project.run(*args)
        assert (ran.code, said in ran.err) == (2, True), ran.err
        assert files(project.root) == before


def test_a_work_tree_that_was_half_written_is_written_again(project: TinyProject) -> None:
    tree = opened(project, 1)
    record = project.root / ".patchwright/edit/session.json"
    record.write_text(record.read_text().replace('"writing": false', '"writing": true'))
    (tree / "tiny/a.py").write_text("half")
    (tree / "stray").write_text("half")
    ran = project.run("refresh")
    assert (ran.code, "nothing in the work tree differs" in ran.err) == (1, True)
    assert (tree / "tiny/a.py").read_text() == edited({5: "five"})
    assert not (tree / "stray").exists()


def test_a_work_tree_that_was_removed_is_said(project: TinyProject) -> None:
    shutil.rmtree(opened(project, 1))
    ran = project.run("refresh")
    assert (ran.code, "the work tree is gone" in ran.err) == (3, True)
    assert project.run("edit", "--close", "--discard").code == 0
    assert project.run("edit", "1").code == 0


def test_a_refresh_that_was_killed_behind_its_change_is_taken_as_done(project: TinyProject) -> None:
    tree = opened(project, 1)
    record = project.root / ".patchwright/edit/session.json"
    old = record.read_bytes()
    (tree / "tiny/a.py").write_text(edited({5: "FIVE"}))
    assert project.run("refresh").code == 0
    record.write_bytes(old)  # the series was written, what the work tree is open for was not
    before = files(project.root)
    assert project.run("refresh").code == 0
    assert files(project.root) == before
    assert project.run("refresh").code == 1  # nothing differs
    assert [o["command"] for o in project.run("log", "--json").json()] == ["lock", "refresh 1"]


def test_a_patch_that_does_not_apply_is_no_reason_to_stop(project: TinyProject) -> None:
    path = project.root / "patches/0002-tiny-two.patch"
    path.write_bytes(path.read_bytes().replace(b"-B = 1", b"-B = 7"))
    broken = path.read_bytes()
    ran = project.run("edit", "2")
    assert (ran.code, "0002 does not apply" in ran.err) == (1, True)
    tree = opened(project, 1)
    (tree / "tiny/a.py").write_text("more\n" + edited({5: "FIVE"}))
    ran = project.run("refresh")
    assert (ran.code, "upstream.lock is stale" in ran.err) == (0, True)
    assert path.read_bytes() == broken
    assert statuses(project) == [(1, "clean"), (2, "conflict"), (3, "clean")]
    assert project.run("edit", "--close").code == 0
    assert project.run("message", "3", "--field", "Depends=").code == 0
    assert project.run("drop", "2").code == 0
    assert statuses(project) == [(1, "clean"), (3, "clean")]


def test_what_no_patch_can_carry_is_refused(project: TinyProject) -> None:
    tree = opened(project, 1)
    os.mkfifo(tree / "tiny/pipe")
    ran = project.run("refresh")
    assert (ran.code, "neither a file nor a link" in ran.err) == (2, True)
    (tree / "tiny/pipe").unlink()
    (tree / "tiny/.git").mkdir()
    ran = project.run("refresh")
    assert (ran.code, "a git repository in the work tree" in ran.err) == (2, True)
