"""Patched wheels: the same bytes everywhere, and refused where nothing would read the patch."""

from __future__ import annotations

import hashlib
import os
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from patchwright.config import Layout, UpstreamConfig
from patchwright.environment.metadata import read_record, recorded_hash
from patchwright.environment.packing import pack
from patchwright.environment.patched import PatchedDistribution
from patchwright.errors import InputError
from patchwright.upstreams.wheel import read_wheel
from projects import Content, make_wheel

CONFIG = UpstreamConfig("tiny", "wheel", "tiny", "1.0", None, None, None, ("tiny",), Layout(()))
NEW = "1.0+pw.1a2b3c4d"
FILES: Mapping[str, Content] = {"tiny/__init__.py": "", "tiny/gate.py": "OPEN = False\n"}


def patched(changes: Mapping[bytes, bytes | None]) -> PatchedDistribution:
    return PatchedDistribution("tiny", "tiny", "1.0", NEW, changes)


def members(data: bytes, folder: Path) -> dict[str, bytes]:
    path = folder / "made.whl"
    path.write_bytes(data)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_patched_files_are_in_and_everything_is_recorded(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {**FILES, "tiny/old.py": ""})
    name, data = pack(
        CONFIG, wheel, patched({b"tiny/gate.py": b"OPEN = True\n", b"tiny/old.py": None})
    )
    assert name == f"tiny-{NEW}-py3-none-any.whl"
    found = members(data, tmp_path)
    info = f"tiny-{NEW}.dist-info/"
    assert found["tiny/gate.py"] == b"OPEN = True\n"
    assert f"Version: {NEW}\n".encode() in found[f"{info}METADATA"]
    names = {
        "tiny/__init__.py",
        "tiny/gate.py",
        *(info + n for n in ("METADATA", "WHEEL", "RECORD")),
    }
    assert set(found) == names
    rows = {path.decode(): digest for path, digest, _ in read_record(found[f"{info}RECORD"])}
    assert rows == {
        n: "" if n.endswith("RECORD") else recorded_hash(content) for n, content in found.items()
    }
    (tmp_path / name).write_bytes(data)
    read_wheel(tmp_path / name, CONFIG.__class__(**{**CONFIG.__dict__, "version": NEW}))


def test_the_bytes_are_the_same_on_every_machine_and_in_every_year(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(tmp_path, FILES)
    changes = patched({b"tiny/gate.py": b"OPEN = True\n"})
    first = pack(CONFIG, wheel, changes)
    old = os.umask(0o077)
    try:
        monkeypatch.setenv("TZ", "Pacific/Kiritimati")
        time.tzset()
        monkeypatch.setattr(time, "time", lambda: 2e9)
        os.utime(wheel, (0, 0))
        assert pack(CONFIG, wheel, changes) == first
    finally:
        os.umask(old)
        monkeypatch.undo()
        time.tzset()
    # What this machine makes today is what any other one has to make: nothing is compressed.
    assert hashlib.sha256(first[1]).hexdigest() == (
        "8bcf51921abdc9f8c033f1cca4f1b8d468164a3f4db16a1ccd12231589a1219c"
    )


def test_files_of_a_data_folder_are_patched_where_the_wheel_has_them(tmp_path: Path) -> None:
    files = {**FILES, "tiny-1.0.data/purelib/tiny/more.py": "a = 1\n",
             "tiny-1.0.data/scripts/tiny-run": "#!python\n"}  # fmt: skip
    _, data = pack(CONFIG, make_wheel(tmp_path, files), patched({b"tiny/more.py": b"a = 2\n"}))
    found = members(data, tmp_path)
    assert found[f"tiny-{NEW}.data/purelib/tiny/more.py"] == b"a = 2\n"
    assert found[f"tiny-{NEW}.data/scripts/tiny-run"] == b"#!python\n"
    assert not [name for name in found if name.startswith("tiny-1.0.")]


COMPILED: Mapping[str, Content] = {
    **FILES,
    "tiny/_ops.abi3.so": b"\x7fELF",
    "tiny/csrc/ops.cu": "one\n",
    "tiny/_ops.py": "x = 1\n",
}


def test_a_python_file_of_a_compiled_wheel_can_be_patched(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, COMPILED, tag="cp39-abi3-manylinux_2_28_x86_64")
    name, _ = pack(CONFIG, wheel, patched({b"tiny/gate.py": b"OPEN = True\n"}))
    assert name == f"tiny-{NEW}-cp39-abi3-manylinux_2_28_x86_64.whl"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (b"tiny/csrc/ops.cu", "only a build from source honours it"),
        (b"setup.py", "only a build from source honours it"),
        (b"tiny/_ops.py", "a compiled module of its name is imported in its place"),
    ],
)
def test_what_a_compiled_wheel_does_not_honour_is_refused(
    tmp_path: Path, path: bytes, reason: str
) -> None:
    wheel = make_wheel(tmp_path, COMPILED, tag="cp39-abi3-manylinux_2_28_x86_64")
    with pytest.raises(InputError, match=f"{path.decode()}: .*the wheel is compiled: {reason}"):
        pack(CONFIG, wheel, patched({path: b"two\n"}))


def test_kernel_sources_of_a_pure_wheel_are_compiled_later_and_can_be_patched(
    tmp_path: Path,
) -> None:
    wheel = make_wheel(tmp_path, {**FILES, "tiny/data/csrc/a.cu": "one\n"})
    _, data = pack(CONFIG, wheel, patched({b"tiny/data/csrc/a.cu": b"two\n"}))
    assert members(data, tmp_path)["tiny/data/csrc/a.cu"] == b"two\n"
