"""Hashes that are remembered: never those of a file that changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from patchwright.environment.hashes import KnownHashes
from patchwright.environment.metadata import recorded_hash


def linked(folder: Path, data: bytes) -> Path:
    path = folder / "cached"
    path.write_bytes(data)
    os.utime(path, (1, 1))  # not just now
    (folder / "installed").hardlink_to(path)
    return folder / "installed"


def hashes(folder: Path, path: Path) -> str:
    known = KnownHashes(folder / "known")
    [found] = known.of([os.fsencode(path)])
    known.save()
    return found


def is_known(folder: Path, path: Path, *, strict: bool = False) -> bool:
    return KnownHashes(folder / "known").get(path.stat(), strict=strict) is not None


def test_a_link_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = linked(tmp_path, b"one")
    known = recorded_hash(b"one")
    assert hashes(tmp_path, path) == known
    monkeypatch.setattr("hashlib.sha256", None)
    assert hashes(tmp_path, path) == known


def test_one_more_link_is_known_to_who_does_not_look_for_edits(tmp_path: Path) -> None:
    path = linked(tmp_path, b"one")
    time.sleep(0.06)
    hashes(tmp_path, path)
    assert is_known(tmp_path, path)
    assert is_known(tmp_path, path, strict=True)
    (tmp_path / "another").hardlink_to(path)
    assert is_known(tmp_path, path)
    assert not is_known(tmp_path, path, strict=True)


def test_what_changed_just_now_may_change_unseen(tmp_path: Path) -> None:
    path = linked(tmp_path, b"one")
    os.utime(path, (1, time.time() + 3600))
    hashes(tmp_path, path)
    assert not is_known(tmp_path, path)


def test_an_edit_in_place_is_seen(tmp_path: Path) -> None:
    path = linked(tmp_path, b"one")
    hashes(tmp_path, path)
    path.write_bytes(b"two")
    assert hashes(tmp_path, path) == recorded_hash(b"two")


def test_a_small_copy_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "copy"
    path.write_bytes(b"one")
    os.utime(path, (1, 1))
    assert hashes(tmp_path, path) == recorded_hash(b"one")
    assert not (tmp_path / "known").exists()


@pytest.mark.parametrize("damage", [b"", b"x", b"patchwright hashes 3\nhalf a row"])
def test_a_damaged_memory_is_forgotten(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "known").write_bytes(damage)
    path = linked(tmp_path, b"one")
    assert hashes(tmp_path, path) == recorded_hash(b"one")
    assert hashes(tmp_path, tmp_path / "nowhere") == ""
