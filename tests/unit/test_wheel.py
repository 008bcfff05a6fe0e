"""Wheels and their installations: what is read of them, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from archives import config, make_zip
from patchwright.config import UpstreamConfig
from patchwright.errors import InputError
from patchwright.store import FILE
from patchwright.upstreams.archive import BadArchive
from patchwright.upstreams.layout import File
from patchwright.upstreams.wheel import read_installed, read_wheel
from projects import make_wheel


def rewritten(path: Path, changes: Mapping[str, bytes | None]) -> Path:
    """Write the wheel again with members changed, added or (None) removed."""
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    for name, data in changes.items():
        if data is None:
            del members[name]
        else:
            members[name] = data
    return make_zip(path, list(members.items()))


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path, {"tiny/a.py": "a\n"})


RECORD = "tiny-1.0.dist-info/RECORD"


def test_a_wheel(wheel: Path) -> None:
    assert sorted(read_wheel(wheel, config())) == [
        b"tiny-1.0.dist-info/METADATA", b"tiny-1.0.dist-info/WHEEL",    b"tiny/a.py",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "member", "reason"),
    [
        ({"tiny/a.py": b"evil\n"}, "tiny/a.py", "RECORD says sha256=.*the member has sha256="),
        ({"tiny/b.py": b"extra"}, "tiny/b.py", "does not list"),
        ({"tiny/a.py": None}, "tiny/a.py", "is missing"),
        ({RECORD: None}, "RECORD", "0 RECORD files"),
        ({"x-1.0.dist-info/RECORD": b""}, "RECORD", "2 RECORD files"),
        ({RECORD: b"tiny/a.py\n"}, "tiny/a.py", "three fields"),
        ({RECORD: b"../a.py,,\n"}, "../a.py", "leaves the archive"),
        ({RECORD: b"tiny/a.py,md5=x,\n"}, "tiny/a.py", "no sha256"),
        ({RECORD: b"tiny/a.py,sha256=a,\ntiny/a.py,sha256=b,\n"}, "tiny/a.py", "two hashes"),
    ],
)
def test_a_record_that_disagrees(
    wheel: Path, changes: dict[str, bytes | None], member: str, reason: str
) -> None:
    with pytest.raises(BadArchive, match=reason) as caught:
        read_wheel(rewritten(wheel, changes), config())
    assert caught.value.where == f"{wheel.name}: {member}"


def test_quoted_names_in_record(wheel: Path) -> None:
    name, data = 'tiny/E=1,N="2".json', b"{}"
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    with zipfile.ZipFile(wheel) as old:
        record = old.read(RECORD)
    record += f'"tiny/E=1,N=""2"".json",sha256={digest},2\n'.encode()
    files = read_wheel(rewritten(wheel, {name: data, RECORD: record}), config())
    assert files[name.encode()] == File(FILE, data)


def test_another_project_or_version(wheel: Path) -> None:
    other = config()
    for name, version, words in (
        ("other", "1.0", "'tiny', pyproject.toml wants 'other'"),
        ("tiny", "2.0", "'1.0', pyproject.toml wants '2.0'"),
    ):
        wanted = UpstreamConfig(
            "tiny", "wheel", name, version, None, None, None, ("tiny",), other.layout
        )
        with pytest.raises(InputError, match=words):
            read_wheel(wheel, wanted)


def test_data_folders_go_where_an_installer_puts_them(tmp_path: Path) -> None:
    data = "tiny-1.0.data"
    made = make_wheel(
        tmp_path,
        {
            "tiny/a.py": "", f"{data}/purelib/tiny/p.py": "p", f"{data}/data/share/s": "s",
            f"{data}/scripts/run": "#!python", f"{data}/headers/h.h": "h",
        },
    )  # fmt: skip
    files = [path for path in read_wheel(made, config()) if b"dist-info" not in path]
    assert sorted(files) == [b"include/tiny/h.h", b"share/s", b"tiny/a.py", b"tiny/p.py"]
    made = make_wheel(tmp_path, {"tiny/a.py": "1", f"{data}/purelib/tiny/a.py": "2"})
    with pytest.raises(BadArchive, match="second member") as caught:
        read_wheel(made, config())
    assert caught.value.where.endswith(f"{data}/purelib/tiny/a.py")


def test_an_installation_is_checked_file_by_file(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archived:
        archived.extractall(folder)
    with (folder / RECORD).open("a") as record:
        record.write("bin/tiny,sha256=x,1\ntiny-1.0.dist-info/INSTALLER,sha256=")
        record.write("5hhM4Q4mYTT9z6QB6PGpUAW81PGNFrYrdXMj4oM_6ak,2\n")
    (folder / "tiny-1.0.dist-info/INSTALLER").write_text("uv")
    (folder / "tiny/__pycache__").mkdir()
    (folder / "tiny/__pycache__/a.pyc").write_bytes(b"not recorded")
    assert read_installed(folder, config()) == read_wheel(wheel, config())
    (folder / "tiny/a.py").write_text("edited\n")
    with pytest.raises(BadArchive, match="RECORD says") as caught:
        read_installed(folder, config())
    assert caught.value.where == "tiny: tiny/a.py"
    (folder / "tiny/a.py").unlink()
    with pytest.raises(BadArchive, match="missing") as caught:
        read_installed(folder, config())
    assert caught.value.where == "tiny: tiny/a.py"
