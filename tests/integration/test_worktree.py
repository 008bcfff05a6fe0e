"""A work-tree slot: moved by difference, exact, and nobody else's edits survive."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from patchwright.errors import InputError
from patchwright.materialise import write_tree
from patchwright.store import EMPTY_TREE, EXECUTABLE, FILE, SYMLINK, ObjectStore
from patchwright.worktree import Difference, Slot, SlotBusy, free_slot

Content = dict[bytes, tuple[bytes, bytes]]

ONE: Content = {
    b".gitattributes": (FILE, b"* text eol=crlf\n*.txt ident\n"),
    b"a.txt": (FILE, b"$Id$\r\nlone\rcr\n"),
    b"bin/run": (EXECUTABLE, b"#!/bin/sh\n"),
    b"link": (SYMLINK, b"no/where"),
    b"deep/er/x": (FILE, b"x"),
    b"deep/y": (FILE, b""),
    b"caf\xe9": (FILE, b"\xff\0"),
}
TWO: Content = {
    **{path: entry for path, entry in ONE.items() if path not in (b"deep/er/x", b"link")},
    b"a.txt": (FILE, b"two\n"),
    b"bin/run": (FILE, b"#!/bin/sh\n"),
    b"link": (FILE, b"a file now\n"),
    b"deep/er": (FILE, b"a file where a folder was\n"),
}


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects.git")


def tree_of(store: ObjectStore, content: Content) -> str:
    files = {path: (mode, store.add("blob", data)) for path, (mode, data) in content.items()}
    tree = store.build_tree(files)
    store.flush()
    return tree


def read(folder: Path) -> Content:
    found: Content = {}
    for place, _, names in os.walk(os.fsencode(folder)):
        for name in names:
            path = os.path.join(place, name)  # noqa: PTH118 - bytes
            mode = os.lstat(path).st_mode
            key = os.path.relpath(path, os.fsencode(folder))
            if stat.S_ISLNK(mode):
                found[key] = (SYMLINK, os.readlink(path))  # noqa: PTH115 - bytes
            else:
                with open(path, "rb") as stream:  # noqa: PTH123 - bytes
                    data = stream.read()
                found[key] = (EXECUTABLE if mode & stat.S_IXUSR else FILE, data)
    return found


def test_bytes_modes_and_links_are_exact(store: ObjectStore, tmp_path: Path) -> None:
    write_tree(store, tree_of(store, ONE), tmp_path / "new")
    assert read(tmp_path / "new") == ONE
    with pytest.raises(InputError):
        write_tree(store, tree_of(store, ONE), tmp_path / "new")


def test_a_move_writes_only_what_differs(store: ObjectStore, tmp_path: Path) -> None:
    one, two = tree_of(store, ONE), tree_of(store, TWO)
    with Slot(tmp_path / "slot", store) as slot:
        slot.move(one)
        before = (slot.folder / "deep/y").stat()
        slot.move(two)
        assert read(slot.folder) == TWO
        assert (slot.folder / "deep/y").stat() == before
        assert slot.check() == ()
        slot.move(one)
        assert read(slot.folder) == ONE
        assert slot.check() == ()
        slot.move(EMPTY_TREE)
        assert list(slot.folder.iterdir()) == []


def test_a_slot_is_found_as_it_was_left(store: ObjectStore, tmp_path: Path) -> None:
    one = tree_of(store, ONE)
    with Slot(tmp_path / "slot", store) as slot:
        slot.move(one)
        before = (slot.folder / "a.txt").stat()
    with Slot(tmp_path / "slot", store) as slot:
        assert slot.tree == one
        slot.move(one)
        assert (slot.folder / "a.txt").stat() == before
        assert slot.check() == ()


def test_every_foreign_edit_is_found_and_undone(store: ObjectStore, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "er").mkdir()
    with Slot(tmp_path / "slot", store) as slot:
        slot.move(tree_of(store, ONE))
        folder = slot.folder
        same = folder / "bin/run"
        times = same.stat()
        with same.open("r+b") as stream:  # same size, same times, same inode
            stream.write(b"!#")
        os.utime(same, ns=(times.st_atime_ns, times.st_mtime_ns))
        (folder / "link").unlink()
        (folder / "link").symlink_to("else/where")
        (folder / "a.txt").unlink()
        (folder / "a.txt").mkdir()
        (folder / "a.txt" / "inner").write_text("")
        (folder / "deep/er/x").unlink()
        (folder / "deep/er").rmdir()
        (folder / "deep/y").unlink()
        (folder / "deep").rmdir()
        (folder / "deep").symlink_to(victim)  # out of the slot
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / "a.pyc").write_bytes(b"")
        (folder / ".gitattributes").chmod(0o755)
        found = set(slot.check())
        assert found == {
            Difference(b"bin/run", "changed"), Difference(b"link", "changed"),
            Difference(b"a.txt", "missing"), Difference(b"a.txt/", "extra"),
            Difference(b"deep", "extra"), Difference(b"deep/er/x", "missing"),
            Difference(b"deep/y", "missing"), Difference(b"__pycache__/", "extra"),
            Difference(b".gitattributes", "changed"),
        }  # fmt: skip
        assert set(slot.repair()) == found
        assert slot.check() == ()
        assert read(folder) == ONE
    assert read(victim) == {}


def test_a_touched_file_is_hashed_and_passes(store: ObjectStore, tmp_path: Path) -> None:
    with Slot(tmp_path / "slot", store) as slot:
        slot.move(tree_of(store, ONE))
        os.utime(slot.folder / "a.txt", ns=(1, 1))
        assert slot.check() == ()


def test_a_hard_link_elsewhere_keeps_its_content(store: ObjectStore, tmp_path: Path) -> None:
    with Slot(tmp_path / "slot", store) as slot:
        slot.move(tree_of(store, ONE))
        (tmp_path / "shared").hardlink_to(slot.folder / "a.txt")
        slot.move(tree_of(store, TWO))
        assert (tmp_path / "shared").read_bytes() == ONE[b"a.txt"][1]
        assert (slot.folder / "a.txt").read_bytes() == TWO[b"a.txt"][1]


def test_a_move_does_not_write_through_a_link_that_leads_out(
    store: ObjectStore, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    changed = {**ONE, b"deep/y": (FILE, b"new\n")}
    with Slot(tmp_path / "slot", store) as slot:
        slot.move(tree_of(store, ONE))
        (slot.folder / "deep").rename(tmp_path / "moved-away")
        (slot.folder / "deep").symlink_to(victim)
        slot.move(tree_of(store, changed))
        slot.repair()
        assert read(slot.folder) == changed
    assert list(victim.iterdir()) == []


def test_a_slot_whose_folder_is_gone_is_repaired(store: ObjectStore, tmp_path: Path) -> None:
    with Slot(tmp_path / "slot", store) as slot:
        slot.move(tree_of(store, ONE))
        slot.folder.rename(tmp_path / "away")
        assert {what for _, what in slot.check()} == {"missing"}
        slot.repair()
        assert read(slot.folder) == ONE


def test_killed_in_the_middle_of_a_move(store: ObjectStore, tmp_path: Path) -> None:
    one, two = tree_of(store, ONE), tree_of(store, TWO)
    with Slot(tmp_path / "slot", store) as slot:
        slot.move(one)
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "import patchwright.materialise as m; from patchwright.store import ObjectStore\n"
        "from patchwright.worktree import Slot\n"
        "real, left = m.write_file, [2]\n"
        "def write_file(*args):\n"
        "    left[0] -= 1\n"
        "    if not left[0]: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(*args)\n"
        "m.write_file = write_file\n"
        "store = ObjectStore(Path(sys.argv[1]) / 'objects.git')\n"
        "Slot(Path(sys.argv[1]) / 'slot', store).move(sys.argv[2])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), two], check=False)
    assert done.returncode == -9
    assert read(tmp_path / "slot" / "tree") not in (ONE, TWO)
    with Slot(tmp_path / "slot", store) as slot:
        slot.move(one)
        assert read(slot.folder) == ONE


def test_a_failed_move_is_built_anew(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tree_of(store, ONE), tree_of(store, TWO)
    with Slot(tmp_path / "slot", store) as slot:
        slot.move(one)
        with monkeypatch.context() as patched:
            patched.setattr(store, "blob", lambda oid: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                slot.move(two)
        slot.move(one)
        assert read(slot.folder) == ONE
        assert slot.check() == ()


def test_a_record_of_another_boot_is_not_believed(store: ObjectStore, tmp_path: Path) -> None:
    with Slot(tmp_path / "slot", store) as slot:
        slot.move(tree_of(store, ONE))
    record = tmp_path / "slot" / "record"
    record.write_text(record.read_text().replace('"boot": "', '"boot": "0'))
    with Slot(tmp_path / "slot", store) as slot:
        assert slot.tree == EMPTY_TREE
        slot.move(tree_of(store, ONE))
        assert read(slot.folder) == ONE


def test_a_slot_belongs_to_one_worker(store: ObjectStore, tmp_path: Path) -> None:
    with free_slot(tmp_path / "slots", store) as first:
        with pytest.raises(SlotBusy):
            Slot(first.path, store)
        with free_slot(tmp_path / "slots", store) as second:
            assert second.path != first.path
    with free_slot(tmp_path / "slots", store) as again:
        assert again.path == first.path


def test_files_that_a_twin_has_are_links_and_each_slot_is_exact(
    store: ObjectStore, tmp_path: Path
) -> None:
    many = {b"many/%d" % n: (FILE, b"%d" % n) for n in range(200)}
    one, two = tree_of(store, ONE | many), tree_of(store, TWO | many)
    with Slot(tmp_path / "a", store) as first, Slot(tmp_path / "b", store) as second:
        first.move(one)
        second.move(one, first)
        assert (first.folder / "deep/y").samefile(second.folder / "deep/y")
        assert first.check() == second.check() == ()
        second.move(two, first)
        assert (read(first.folder), read(second.folder)) == (ONE | many, TWO | many)
        assert first.check() == second.check() == ()


def test_an_edit_in_place_is_found_in_both_twins_and_undone_in_each(
    store: ObjectStore, tmp_path: Path
) -> None:
    many = {**ONE, **{b"many/%d" % n: (FILE, b"%d" % n) for n in range(200)}}
    tree = tree_of(store, many)
    with Slot(tmp_path / "a", store) as first, Slot(tmp_path / "b", store) as second:
        first.move(tree)
        second.move(tree, first)
        assert (first.folder / "many/7").samefile(second.folder / "many/7")
        with (second.folder / "many/7").open("r+b") as stream:
            stream.write(b"X")
        assert second.repair() == (Difference(b"many/7", "changed"),)
        assert first.repair() == (Difference(b"many/7", "changed"),)
        assert read(first.folder) == read(second.folder) == many


def test_what_a_stranger_changed_in_a_twin_is_not_taken_over(
    store: ObjectStore, tmp_path: Path
) -> None:
    tree = tree_of(store, {**ONE, **{b"many/%d" % n: (FILE, b"x") for n in range(200)}})
    with Slot(tmp_path / "a", store) as first, Slot(tmp_path / "b", store) as second:
        first.move(tree)
        (first.folder / "many/7").write_bytes(b"y")
        second.move(tree, first)
        assert (second.folder / "many/7").read_bytes() == b"x"
        assert second.check() == ()
