"""The files of a project change all at once or not at all, and every change can be undone."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from patchwright.editing.operations import PENDING, operations
from patchwright.editing.transaction import FOLDER, begin
from patchwright.editing.undoing import history, redo, undo
from patchwright.errors import AnswerNo, InputError, PatchwrightError
from patchwright.project import Project
from projects import TinyProject, make_project


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    made = make_project(tmp_path, {"tiny/a.py": "A = 1\n", "tiny/b.py": "B = 1\n"})
    made.add_patch(1, {"tiny/a.py": "A = 2\n"}, title="a")
    made.add_patch(2, {"tiny/b.py": "B = 2\n"}, title="b")
    return made


def _files(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(root).as_posix(): (path.read_bytes(), path.stat().st_mode)
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".patchwright" not in path.parts
    }


def _change(root: Path) -> None:
    """Remove 0002, write a test and move 0001, in one change."""
    with begin(Project.open(root), "do it all") as change:
        change.remove("patches/0002-tiny-b.patch")
        change.write("tests/smoke/test_0003.py", b"def test_it(): ...\n")
        change.rename("patches/0001-tiny-a.patch", "patches/0003-tiny-a.patch")
        change.relock()
        change.commit()


def test_a_change_is_made_at_once_and_undone_and_redone_bit_for_bit(project: TinyProject) -> None:
    root = project.root
    assert project.run("lock").code == 0
    (root / "patches/0002-tiny-b.patch").chmod(0o600)
    before = _files(root)
    _change(root)
    after = _files(root)
    assert (root / "patches/0003-tiny-a.patch").exists()
    assert sorted(before.keys() - after.keys()) == [
        "patches/0001-tiny-a.patch", "patches/0002-tiny-b.patch",
    ]  # fmt: skip
    assert project.run("lock", "--check").code == 0
    opened = Project.open(root)
    undo(opened)
    assert _files(root) == before
    redo(opened)
    assert _files(root) == after
    undo(opened)
    undo(opened)  # the lock
    assert not (root / "upstream.lock").exists()
    with pytest.raises(AnswerNo, match="nothing to undo"):
        undo(opened)
    kinds = [(o.number, o.kind, o.of) for o in history(opened)]
    assert kinds == [
        (1, "do", None), (2, "do", None), (3, "undo", 2), (4, "redo", 2), (5, "undo", 2),
        (6, "undo", 1),
    ]  # fmt: skip


def test_a_new_change_after_an_undo_leaves_nothing_to_redo(project: TinyProject) -> None:
    opened = Project.open(project.root)
    _change(project.root)
    undo(opened)
    with begin(opened, "other") as change:
        change.write("patches/0002-tiny-b.patch", b"x")
        change.commit()
    with pytest.raises(AnswerNo, match="nothing to redo"):
        redo(opened)
    assert history(opened)[0].changes[0].before is not None  # and yet nothing is lost


def test_leaving_without_commit_changes_nothing(project: TinyProject) -> None:
    before = _files(project.root)
    with begin(Project.open(project.root), "no") as change:
        change.remove("patches/0001-tiny-a.patch")
    assert _files(project.root) == before
    assert not list(operations(project.root / ".patchwright" / FOLDER))


@pytest.mark.parametrize(
    "path", ["../out", "/etc/x", "patches/../../x", ".git/config", "patches", "", "patches/a\0b"]
)
def test_nothing_is_written_outside_of_the_project(project: TinyProject, path: str) -> None:
    with (
        pytest.raises(InputError),
        begin(Project.open(project.root), "no") as change,
    ):
        change.write(path, b"x")


def test_nothing_is_written_through_a_link(project: TinyProject, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (project.root / "tests").mkdir()
    (project.root / "tests" / "smoke").symlink_to(tmp_path / "elsewhere")
    with (
        pytest.raises(InputError, match="symbolic link"),
        begin(Project.open(project.root), "no") as change,
    ):
        change.write("tests/smoke/test_0001.py", b"x")


def test_a_file_that_changed_while_the_command_ran_is_not_overwritten(project: TinyProject) -> None:
    path = project.root / "patches/0001-tiny-a.patch"
    opened = Project.open(project.root)
    with begin(opened, "no") as change:
        assert opened.series.patches
        path.write_bytes(path.read_bytes() + b"-- \nby hand\n")
        with pytest.raises(InputError, match="while the command ran"):
            change.write("patches/0001-tiny-a.patch", b"x")
    with begin(opened, "no") as change:
        change.write("patches/0001-tiny-a.patch", b"x")
        path.write_bytes(b"by hand")
        with pytest.raises(InputError, match="while the command ran"):
            change.commit()
    assert path.read_bytes() == b"by hand"


def test_an_undo_does_not_overwrite_what_was_changed_since(project: TinyProject) -> None:
    _change(project.root)
    path = project.root / "tests/smoke/test_0003.py"
    path.write_bytes(b"a day's work\n")
    opened = Project.open(project.root)
    with pytest.raises(AnswerNo, match="changed since") as caught:
        undo(opened)
    assert caught.value.where.endswith("test_0003.py")
    assert path.read_bytes() == b"a day's work\n"
    undo(opened, force=True)
    assert not path.exists()
    (change,) = (c for c in history(opened)[-1].changes if c.path == "tests/smoke/test_0003.py")
    assert change.before is not None
    assert change.before.data == b"a day's work\n"


def test_two_processes_do_not_change_the_project_at_once(project: TinyProject) -> None:
    opened = Project.open(project.root)
    with begin(opened, "first"):
        pid = os.fork()
        if pid == 0:
            try:
                _change(project.root)
            except PatchwrightError as error:
                os._exit(7 if "another patchwright is changing" in error.what else 8)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    _change(project.root)


CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.chmod"}


def _killed(root: Path, step: int) -> bool:
    """Do it in a child that kills itself just before its n-th step; False if it came to the end."""

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal step
        writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT
        opened = event == "open" and isinstance(args[2], int) and args[2] & writes
        if event in CHANGES or opened:
            step -= 1
            if step == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if pid == 0:
        sys.addaudithook(hook)
        _change(root)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == signal.SIGKILL


def test_killed_at_any_step_the_next_command_finds_before_or_after(project: TinyProject) -> None:
    root = project.root
    assert project.run("lock").code == 0
    before = _files(root)
    _change(root)
    after = _files(root)
    undo(Project.open(root))
    found = set()
    step = 1
    while _killed(root, step):
        step += 1
        between = _files(root) not in (before, after)
        Project.open(root)
        now = _files(root)
        assert now in (before, after), step
        assert not (root / ".patchwright" / FOLDER / PENDING).exists()
        with begin(Project.open(root), "nothing"):
            assert not list(root.rglob(".*.new"))
        found.add((now == after, between))
        if now == after:
            undo(Project.open(root))
    # It was met before, after, and in the middle of things.
    assert found == {(False, False), (True, False), (True, True)}


def test_where_a_file_cannot_be_written_nothing_is(project: TinyProject) -> None:
    before = _files(project.root)
    (project.root / "tests").write_text("a file where the folder should be")
    with pytest.raises(PatchwrightError, match="cannot be written"):
        _change(project.root)
    (project.root / "tests").unlink()
    assert _files(project.root) == before
    Project.open(project.root)
    assert _files(project.root) == before
    assert not history(Project.open(project.root))


def test_a_lock_that_cannot_be_replaced_is_left_as_it_is(
    project: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert project.run("lock").code == 0
    path = project.root / "upstream.lock"
    before = path.read_bytes()
    (project.root / "patches/0002-tiny-b.patch").unlink()

    def refuse(self: Path, target: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", refuse)
        ran = project.run("lock")
    assert ran.code == 3
    assert "No space left" in ran.err
    assert "make room" in ran.err
    assert path.read_bytes() == before
    assert not list(project.root.rglob(".*.new"))


def test_log_undo_and_redo_say_what_they_did(project: TinyProject) -> None:
    assert project.run("log").out == "no command has changed the project's files yet\n"
    before = _files(project.root)
    assert project.run("lock").code == 0
    _change(project.root)
    after = _files(project.root)
    assert project.run("undo").out == "undone: do it all\n"
    log = project.run("log", "--json").json()
    assert [(o["command"], o["kind"], o["undoable"], o["redoable"]) for o in log] == [
        ("lock", "do", True, False), ("do it all", "do", False, True),
        ("undo 2 (do it all)", "undo", False, False),
    ]  # fmt: skip
    assert "do it all (undone)" in project.run("log").out
    assert "  removed patches/0002-tiny-b.patch" in project.run("log", "2").out.splitlines()
    assert project.run("log", "9").code == 2
    assert project.run("redo").code == 0
    assert _files(project.root) == after
    assert project.run("undo", "--all").out == "undone: do it all\nundone: lock\n"
    assert _files(project.root) == before
    ran = project.run("undo")
    assert (ran.code, "nothing to undo" in ran.err) == (1, True)
    done = project.run("redo", "-n", "2", "--json").json()["done"]
    assert [o["command"] for o in done] == ["lock", "do it all"]
    assert _files(project.root) == after


def test_a_series_that_cannot_be_read_can_be_undone(project: TinyProject) -> None:
    path = project.root / "patches/0002-tiny-b.patch"
    good = path.read_bytes()
    with begin(Project.open(project.root), "break it") as change:
        change.write("patches/0002-tiny-b.patch", good.replace(b"Upstream: tiny", b"Upstream: x"))
        change.commit()
    assert project.run("status").code == 2
    assert project.run("undo").code == 0
    assert path.read_bytes() == good
