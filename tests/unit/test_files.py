"""Files are replaced whole, and what killed writers leave is found and removed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from patchwright.files import leftovers, sweep, write_atomically

# Writes one file and stops for ever just before the rename.
_STUCK = """
import sys, time
from pathlib import Path
from patchwright import files

def stop(self, target):
    print("written", flush=True)
    time.sleep(600)

Path.replace = stop
files.write_atomically(Path(sys.argv[1]), b"new")
"""


@pytest.fixture
def stuck(tmp_path: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", _STUCK, str(tmp_path / "file.json")], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_file_is_replaced_and_keeps_to_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "below" / "file"
    before = os.umask(0o027)
    try:
        write_atomically(path, b"one")
        write_atomically(path, b"two")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def refuse(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_temporary_file_of_a_living_writer_stays(
    tmp_path: Path, stuck: subprocess.Popen[bytes]
) -> None:
    try:
        assert sweep(tmp_path) == []
        assert len(list(tmp_path.iterdir())) == 1
    finally:
        _end(stuck)


def test_the_temporary_file_of_a_killed_writer_goes(
    tmp_path: Path, stuck: subprocess.Popen[bytes]
) -> None:
    _end(stuck)
    (left,) = leftovers(tmp_path)
    assert left.exists()
    assert sweep(tmp_path, "other.json") == []
    assert sweep(tmp_path, "file.json") == [left]
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_ours_is_not_swept(tmp_path: Path) -> None:
    for name in ("file.new", ".hidden", "notes.txt"):
        (tmp_path / name).write_text("mine", encoding="ascii")
    os.mkfifo(tmp_path / ".pipe.x.new")
    (tmp_path / ".link.x.new").symlink_to("notes.txt")
    sweep(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"file.new", ".hidden", "notes.txt", ".link.x.new", ".pipe.x.new"}


def test_a_folder_that_is_not_there_has_nothing_to_sweep(tmp_path: Path) -> None:
    assert sweep(tmp_path / "none") == []


def test_writers_and_sweepers_at_once_lose_nothing(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from patchwright.files import sweep\n"
        "while not Path(sys.argv[1], 'end').exists(): sweep(Path(sys.argv[1]))"
    )
    sweeper = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
    try:
        for number in range(100):
            write_atomically(tmp_path / "file", b"%d" % number)
            assert (tmp_path / "file").read_bytes() == b"%d" % number
    finally:
        (tmp_path / "end").touch()
        sweeper.wait()
