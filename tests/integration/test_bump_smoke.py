"""Moving a pin: what smoke tests say of the new one without their patch."""

from __future__ import annotations

from pathlib import Path

from bumping import (
    GATE,
    OURS,
    PATCHED,
    SMOKE,
    obsolete,
    row,
    text,
)
from projects import TinyProject

REWORDED = "def allowed():\n    word = 'ou'\n    return f'{word}rs'\n" + text()


def test_a_patch_is_obsolete_when_its_smoke_test_passes_without_it(tmp_path: Path) -> None:
    found = row(obsolete(tmp_path, REWORDED), 1)
    assert (found["verdict"], found["obsolete"], found["without"]) == ("conflict", True, "passed")


def test_a_patch_that_is_needed_still_is_not_obsolete(tmp_path: Path) -> None:
    project = obsolete(tmp_path, "import os\n" + GATE + text())
    ran = project.run("bump", "tiny", "1.1", "--no-gates", "--json")
    found = ran.json()
    assert ran.code == 0
    assert not found["patches"][0]["obsolete"]
    assert found["patches"][0]["without"] == "failed"
    assert [(a["number"], a["verdict"]) for a in found["static"]] == [(1, "passed")]


MORE = """
@pytest.mark.tier("static")
def test_the_message_is_kept(tree):
    {body}
"""


def more(tmp_path: Path, body: str, new: str = REWORDED) -> TinyProject:
    """Return a project whose smoke test has a second test, which passes on the old pin."""
    project = obsolete(tmp_path, new)
    project.add_smoke("test_0001_open.py", SMOKE + MORE.format(body=body))
    return project


def test_what_fails_without_the_patch_on_the_old_pin_decides(tmp_path: Path) -> None:
    project = more(tmp_path, "assert 'word' not in tree.text('tiny', 'tiny/a.py')")
    assert (row(project, 1)["obsolete"], row(project, 1)["without"]) == (False, "failed")
    assert project.run("verify", "--tier", "static").code == 0
    found = row(project, 1)
    assert (found["verdict"], found["obsolete"], found["without"]) == ("conflict", True, "failed")
    assert found["without_tests"] == {
        "passed": ["test_open"], "failed": ["test_the_message_is_kept"], "error": [],
        "deciding": ["test_open"],
    }  # fmt: skip
    said = project.run("bump", "tiny", "1.1", "--no-gates").out
    assert "obsolete: the 1 tests that show what it is for pass on the new pin without it" in said
    assert "of 2 these do not: test_the_message_is_kept" in said


def test_a_test_that_breaks_on_the_new_pin_cannot_judge(tmp_path: Path) -> None:
    body = "tree.text('tiny', 'tiny/gone.py')"
    project = obsolete(tmp_path, REWORDED.replace("rs", "RS"))
    project.add_smoke("test_0001_open.py", SMOKE.replace("scope = {}", f"scope = {{}}; {body}"))
    found = row(project, 1)
    assert (found["obsolete"], found["without"]) == (False, "error")
    said = project.run("bump", "tiny", "1.1", "--no-gates").out
    assert "cannot be told: its smoke test cannot judge there, 1 of its 1 tests break" in said


def test_a_failing_assertion_answers_whatever_else_breaks(tmp_path: Path) -> None:
    project = more(tmp_path, "tree.text('tiny', 'tiny/gone.py')", REWORDED.replace("rs", "RS"))
    found = row(project, 1)
    assert (found["obsolete"], found["without"]) == (False, "failed")
    said = project.run("bump", "tiny", "1.1", "--no-gates").out
    assert "still needed: without it 1 of the 2 tests of its smoke test fail" in said


def test_what_is_obsolete_and_what_is_left_to_resolve_is_summed_up(tmp_path: Path) -> None:
    project = obsolete(tmp_path, REWORDED.replace("line_20 = 20", "line_20 = 'theirs'"))
    project.add_patch(2, {"tiny/a.py": OURS + PATCHED})
    said = project.run("bump", "tiny", "1.1", "--no-gates").out
    assert "though they conflict: --without 1; left to resolve: 2\n" in said
