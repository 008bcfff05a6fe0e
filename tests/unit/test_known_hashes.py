"""Hashes that are remembered: never those of a file that changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from patchwright.environment.hashes import KnownHashes
from patchwright.environment.metadata import recorded_hash


def linked(folder: Path, data: bytes) -> Path:
    path = folder / "cached"
    path.write_bytes(data)
    (folder / "installed").hardlink_to(path)
    return folder / "installed"


def hashes(folder: Path, path: Path) -> str:
    known = KnownHashes(folder / "known")
    [found] = known.of([os.fsencode(path)])
    known.save()
    return found


def test_a_link_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = linked(tmp_path, b"one")
    assert hashes(tmp_path, path) == recorded_hash(b"one")
    monkeypatch.setattr("hashlib.file_digest", None)
    assert hashes(tmp_path, path) == recorded_hash(b"one")


def test_an_edit_in_place_is_seen(tmp_path: Path) -> None:
    path = linked(tmp_path, b"one")
    hashes(tmp_path, path)
    path.write_bytes(b"two")
    assert hashes(tmp_path, path) == recorded_hash(b"two")


def test_a_copy_is_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "copy"
    path.write_bytes(b"one")
    assert hashes(tmp_path, path) == recorded_hash(b"one")
    assert not (tmp_path / "known").exists()


@pytest.mark.parametrize("damage", [b"", b"x", b"patchwright hashes 1\nhalf a row"])
def test_a_damaged_memory_is_forgotten(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "known").write_bytes(damage)
    path = linked(tmp_path, b"one")
    assert hashes(tmp_path, path) == recorded_hash(b"one")
    assert hashes(tmp_path, tmp_path / "nowhere") == ""
