"""Patch files and pyproject.toml that cannot be used: what, where, next step, nothing lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bad_input import GATE, OTHER, edit, patch_file, refused, small_project, snapshot
from projects import TinyProject

COMMANDS = (("lock",), ("status",), ("apply", "--into", "out"), ("verify",))


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    return small_project(tmp_path)


def _twice(tiny: TinyProject) -> None:
    patch_file(tiny, "0001-tiny-again.patch").write_bytes(patch_file(tiny).read_bytes())


def _on(name: str, old: str, new: str) -> Callable[[TinyProject], None]:
    return lambda tiny: edit(patch_file(tiny, name), old, new)


@pytest.mark.parametrize(
    ("damage", "parts"),
    [
        (_twice, ("two patches have the number 0001", "0001-tiny-again.patch", "a gap")),
        (
            _on(OTHER, "Depends: 0001", "Depends: 0003"),
            (f"{OTHER}:9", "0002 needs 0003, which is not in the series", "the series has 1-2"),
        ),
        (
            _on(GATE, "Smoke: ", "Depends: 0002 (later)\nSmoke: "),
            (f"{GATE}:9", "0001 needs a later patch, 0002", "renumber"),
        ),
        (_on(OTHER, "Depends: 0001", "Depends: 0002"), (f"{OTHER}:9", "names itself as a need")),
        (
            _on(GATE, "Upstream: tiny 1.0", "Upstream: tiny 0.9"),
            (f"{GATE}:8", "0001 was made for tiny 0.9, the pin is 1.0", "Upstream: tiny 1.0"),
        ),
        (
            _on(GATE, "Upstream: tiny", "Upstream: tyni"),
            (f"{GATE}:8", "tyni is not an upstream", "[tool.patchwright.upstreams.tyni]"),
        ),
    ],
    ids=["one number twice", "missing need", "later need", "cycle", "other version", "upstream"],
)
def test_fields_that_stop_every_command(
    tiny: TinyProject, damage: Callable[[TinyProject], None], parts: tuple[str, ...]
) -> None:
    damage(tiny)
    before = snapshot(tiny.root)
    for command in COMMANDS:
        refused(tiny.run(*command), 2, *parts)
    assert snapshot(tiny.root) == before


def test_a_gap_between_numbers_is_fine(tiny: TinyProject) -> None:
    patch_file(tiny, OTHER).rename(patch_file(tiny, "0009-other-value.patch"))
    assert tiny.run("apply").code == 0


def test_a_patch_for_another_version_is_shown_all_the_same(tiny: TinyProject) -> None:
    edit(patch_file(tiny), "Upstream: tiny 1.0", "Upstream: tiny 0.9")
    ran = tiny.run("show", "1")
    assert ran.code == 0
    assert "not known: " in ran.out
    assert "0001 was made for tiny 0.9, the pin is 1.0" in ran.out


@pytest.mark.parametrize("content", [b"", b"<html>404</html>\n", b"\xff\xfe\0garbage"])
def test_a_file_that_is_no_patch_says_so(tiny: TinyProject, content: bytes) -> None:
    patch_file(tiny).write_bytes(content)
    ran = tiny.run("status")
    refused(ran, 2, GATE, "no mail header stands at the top", "git format-patch")
    assert "Upstream: NAME" not in ran.err


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("@@ -1,2 ", "@@ -1,3 ", "the hunk header says 3 old and 2 new lines, the hunk has 2"),
        ("-OPEN = False", "-OPEN =\nFalse", "a mail client wrapped the line above"),
        ("Why, in prose.", "Why.\n---\nMore.", "this bare '---' in the message cuts it here"),
        (
            "Why, in prose.",
            "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b",
            "git would take this line of the message as the start of the diff",
        ),
        (" MORE = 0\n", " MORE = 0", "its last newline is missing"),
    ],
    ids=["hunk count", "wrapped", "bare ---", "diff in message", "no newline"],
)
def test_damage_makes_one_patch_corrupt_and_hides_no_other(
    tiny: TinyProject, old: str, new: str, reason: str
) -> None:
    edit(patch_file(tiny), old, new)
    before = snapshot(tiny.root)
    one = "1 of 2 patches does not apply"
    for command in COMMANDS[:3]:
        ran = tiny.run(*command)
        refused(ran, 1, one, "patchwright show 1")
        assert "corrupt" in ran.out
        assert "line " in ran.out
        assert reason in ran.out
    ran = tiny.run("verify")
    assert ran.code == 1
    # Once per context, not once for every tier.
    assert ran.out.count("repeat: patchwright verify ") == 4
    assert "0001 static, compile, import, gpu, multi-gpu, step: error" in ran.out
    assert [p["verdict"] for p in tiny.run("apply", "--json").json()["patches"]] == [
        "corrupt",
        "clean",
    ]
    assert snapshot(tiny.root) == before


def test_status_json_stands_alone_on_standard_output(tiny: TinyProject) -> None:
    edit(patch_file(tiny), "@@ -1,2 ", "@@ -1,3 ")
    for command in ("status", "apply", "verify", "show 1", "lock", "lock --check"):
        ran = tiny.run(*command.split(), "--json")
        if command == "lock --check":  # there is none, which is an error alone
            refused(ran, 1, "there is no lock yet", "patchwright lock")
        elif ran.out:
            assert ran.json() is not None
            assert ran.code == 1


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "outside"])
def test_a_patch_that_is_no_regular_file(tiny: TinyProject, kind: str) -> None:
    path = patch_file(tiny, "0009-x.patch")
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path.name)
        case _:
            path.symlink_to("/etc/hosts")
    refused(tiny.run("status"), 2, "0009-x.patch")


def test_control_characters_of_a_file_name_do_not_reach_the_terminal(tiny: TinyProject) -> None:
    patch_file(tiny, "x\x1b[31m.patch").write_bytes(b"")
    ran = tiny.run("status")
    refused(ran, 2, "x\\x1b[31m.patch")
    assert "\x1b" not in ran.err


def test_a_patchs_text_does_not_steer_the_terminal(tiny: TinyProject) -> None:
    edit(patch_file(tiny), "[PATCH] gate", "[PATCH] \x1b]0;x\x07gate")
    edit(patch_file(tiny), "Why, in prose.", "Why, in \x1b[31mred.")
    for command in ("show 1", "status", "apply", "verify 1 --tier static --context step"):
        ran = tiny.run(*command.split())
        assert ran.code == 0
        assert "\\x1b]0;x\\x07gate" in ran.out
        assert "\x1b" not in ran.out


@pytest.mark.parametrize(
    ("smoke", "reason"),
    [
        ("tests/smoke/none.py", "tests/smoke/none.py is missing: write it"),
        ("tests/smoke", "tests/smoke is not a file"),
        ("tests/smoke/test_0001.py::test_open", "leave out what follows '::'"),
    ],
)
def test_a_smoke_test_that_is_missing(tiny: TinyProject, smoke: str, reason: str) -> None:
    edit(patch_file(tiny), "Smoke: tests/smoke/test_0001.py", f"Smoke: {smoke}")
    ran = tiny.run("verify", "1", "--tier", "static", "--context", "step")
    assert ran.code == 1
    assert reason in ran.out
    assert "repeat: patchwright verify 1 --tier static --context step" in ran.out


def test_a_smoke_test_outside_of_the_project(tiny: TinyProject) -> None:
    edit(patch_file(tiny), "Smoke: tests/smoke/test_0001.py", "Smoke: ../../etc/hosts")
    refused(tiny.run("verify"), 2, f"{GATE}:9", "lies outside of the project", "under tests/smoke/")


def test_a_project_whose_path_pytest_cannot_name(tmp_path: Path) -> None:
    tiny = small_project(tmp_path / "a [b]")
    ran = tiny.run("verify", "1", "--tier", "static", "--context", "step")
    assert ran.code == 1
    assert "pytest runs no file with '[' or '::' in its path: move " in ran.out


def test_no_patches_at_all(tiny: TinyProject) -> None:
    for path in (tiny.root / "patches").iterdir():
        path.unlink()
    for folder in (True, False):
        if not folder:
            (tiny.root / "patches").rmdir()
        for command in ("status", "verify", "apply"):
            ran = tiny.run(command)
            assert ran.code == 0
            assert "no patches" in ran.out
