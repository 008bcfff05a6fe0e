"""Hostile archives: each is refused with the member named, and nothing is returned."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest

from patchwright.config import Layout, LayoutRule, UpstreamConfig
from patchwright.errors import InputError
from patchwright.store import FILE, SYMLINK
from patchwright.upstreams import archive
from patchwright.upstreams.archive import BadArchive, link_fault, path_fault, read_archive
from patchwright.upstreams.layout import File
from patchwright.upstreams.sdist import read_sdist
from patchwright.upstreams.wheel import read_installed, read_wheel
from projects import make_wheel

HOSTILE_PATHS = [
    (b"../evil.py", "leaves the archive"),
    (b"pkg/../../evil.py", "leaves the archive"),
    (b"/etc/evil", "absolute"),
    (b"pkg\\..\\evil.py", "backslash"),
    (b"C:evil.py", "drive letter"),
    (b"pkg/.git/hooks/pre-commit", "git's own folder"),
    (b".GIT/config", "git's own folder"),
    (b"pkg/.git. /config", "git's own folder"),
    (b"pkg/.g\xe2\x80\x8cit/config", "git's own folder"),
    (b"git~1/config", "git's own folder"),
    (b"pkg/./evil.py", "normal form"),
    (b"pkg//evil.py", "normal form"),
    (b"pkg/" + b"n" * 256, "255 bytes"),
]


def config(source: Literal["wheel", "sdist"] = "wheel", **rules: str) -> UpstreamConfig:
    layout = Layout(
        tuple(LayoutRule(r.encode(), i.encode()) for r, i in (rules or {"tiny/": "tiny/"}).items()),
        ("tiny/_version.py",),
    )
    return UpstreamConfig(
        "tiny",
        source,
        "tiny",
        "1.0",
        None,
        None,
        None,
        ("tiny",),
        layout,
    )


def make_zip(path: Path, members: list[tuple[str | zipfile.ZipInfo, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members:
            made.writestr(name, data)
    return path


def make_tar(path: Path, members: list[tuple[tarfile.TarInfo | str, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as made:
        for member, data in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
            if info.isreg():
                info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return path


def tar_entry(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_files_are_read_and_x_bits_dropped(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("tiny/run.sh")
    info.external_attr = 0o100755 << 16
    made = make_zip(tmp_path / "a.whl", [(info, b"#!"), ("tiny/é.py", b""), ("tiny/", b"")])
    assert read_archive(made) == {
        b"tiny/run.sh": File(FILE, b"#!"), "tiny/é.py".encode(): File(FILE, b""),
    }  # fmt: skip
    script = tarfile.TarInfo("./tiny/run.sh")
    script.mode = 0o755
    made = make_tar(
        tmp_path / "a.tar.gz", [(tar_entry("./", tarfile.DIRTYPE), b""), (script, b"#!")]
    )
    assert read_archive(made) == {b"tiny/run.sh": File(FILE, b"#!")}


@pytest.mark.parametrize(("path", "reason"), HOSTILE_PATHS)
def test_hostile_names(tmp_path: Path, path: bytes, reason: str) -> None:
    assert reason in str(path_fault(path))
    name = path.decode()
    shown = name.replace("\u200c", "\\u200c")
    for made in (
        make_zip(tmp_path / "a.whl", [("ok.py", b""), (name, b"")]),
        make_tar(tmp_path / "a.tar.gz", [("ok.py", b""), (name, b"")]),
    ):
        with pytest.raises(BadArchive, match=reason) as caught:
            read_archive(made)
        assert caught.value.where in (f"{made.name}: {shown}", f"{made.name}: {name}")
        assert caught.value.exit_code == 3


def test_a_nul_byte_in_a_name(tmp_path: Path) -> None:
    made = make_zip(tmp_path / "a.whl", [("pkg/aXb.py", b"")])
    made.write_bytes(made.read_bytes().replace(b"pkg/aXb.py", b"pkg/a\0b.py"))
    with pytest.raises(BadArchive, match="NUL") as caught:
        read_archive(made)
    assert "pkg/a" in caught.value.where


def test_duplicate_names(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        made = make_zip(tmp_path / "a.whl", [("a/x.py", b"1"), ("a/x.py", b"2")])
    spelled = make_zip(tmp_path / "b.whl", [("a/\u00e9.py", b"1"), ("a/e\u0301.py", b"2")])
    tar = make_tar(tmp_path / "a.tar.gz", [("a/x.py", b"1"), ("a/x.py", b"2")])
    for path, name in ((made, "a/x.py"), (spelled, "a/e\u0301.py"), (tar, "a/x.py")):
        with pytest.raises(BadArchive, match="two members") as caught:
            read_archive(path)
        assert name in caught.value.where


def test_a_file_that_is_also_a_folder(tmp_path: Path) -> None:
    members: list[tuple[str, bytes]] = [("pkg/a", b""), ("pkg/a/b.py", b"")]
    folder: list[tuple[str, bytes]] = [("pkg/a", b""), ("pkg/a/", b"")]
    for made in (
        make_zip(tmp_path / "a.whl", [*members]),
        make_zip(tmp_path / "b.whl", [*folder]),
        make_tar(tmp_path / "a.tar.gz", [*members]),
    ):
        with pytest.raises(BadArchive, match="both a file and a folder") as caught:
            read_archive(made)
        assert caught.value.where == f"{made.name}: pkg/a"


@pytest.mark.parametrize("target", ["../../etc/passwd", "/etc/passwd", "a/../../../x", ""])
def test_links_out_of_the_tree(tmp_path: Path, target: str) -> None:
    assert link_fault(b"pkg/link", target.encode()) is not None
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        made = make_tar(tmp_path / "a.tar.gz", [(tar_entry("pkg/link", kind, target), b"")])
        with pytest.raises(BadArchive, match=r"out of the tree|bad target") as caught:
            read_archive(made)
        assert caught.value.where == "a.tar.gz: pkg/link"


def test_links_within_the_tree(tmp_path: Path) -> None:
    made = make_tar(
        tmp_path / "a.tar.gz",
        [
            ("pkg/a.py", b"a"),
            (tar_entry("pkg/sub/l", tarfile.SYMTYPE, "../a.py"), b""),
            (tar_entry("pkg/h", tarfile.LNKTYPE, "pkg/a.py"), b""),
        ],
    )
    assert read_archive(made) == {
        b"pkg/a.py": File(FILE, b"a"),
        b"pkg/sub/l": File(SYMLINK, b"../a.py"),
        b"pkg/h": File(FILE, b"a"),
    }


def test_a_link_in_a_zip(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("pkg/link")
    info.external_attr = 0o120777 << 16
    made = make_zip(tmp_path / "a.whl", [(info, b"../../etc/passwd")])
    with pytest.raises(BadArchive, match="symbolic link") as caught:
        read_archive(made)
    assert caught.value.where == "a.whl: pkg/link"


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_device_files(tmp_path: Path, kind: bytes) -> None:
    made = make_tar(tmp_path / "a.tar.gz", [(tar_entry("pkg/dev", kind), b"")])
    with pytest.raises(BadArchive, match="special file") as caught:
        read_archive(made)
    assert caught.value.where == "a.tar.gz: pkg/dev"


def test_truncated_archives(tmp_path: Path) -> None:
    noise = b"".join(hashlib.sha256(bytes([n])).digest() for n in range(200))
    whole = make_zip(tmp_path / "a.whl", [("pkg/a.py", noise)]).read_bytes()
    tar = make_tar(tmp_path / "a.tar.gz", [("pkg/a.py", noise), ("pkg/b.py", noise)]).read_bytes()
    plain = gzip.decompress(tar)
    for name, data in (
        ("a.whl", whole[: len(whole) // 2]),
        ("a.whl", whole[:-10]),
        ("a.tar.gz", tar[: len(tar) // 2]),
        ("a.tar.gz", tar[:-6]),
        ("a.tar.gz", gzip.compress(plain[:1000])),
        # Cut between two members, and in the middle of the second one's header.
        ("a.tar.gz", gzip.compress(plain[: 512 + 6656])),
        ("a.tar.gz", gzip.compress(plain[: 512 + 6656 + 100])),
        ("a.tar.gz", b""),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(BadArchive, match="damaged or truncated"):
            read_archive(path)


def test_a_broken_header_is_not_the_end_of_the_archive(tmp_path: Path) -> None:
    made = make_tar(tmp_path / "a.tar.gz", [("pkg/a.py", b"a"), ("pkg/b.py", b"b")])
    plain = bytearray(gzip.decompress(made.read_bytes()))
    plain[1024:1028] = b"XXXX"
    made.write_bytes(gzip.compress(bytes(plain)))
    with pytest.raises(BadArchive, match="at byte 1024"):
        read_archive(made)


def test_damaged_members(tmp_path: Path) -> None:
    made = tmp_path / "a.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archived:
        archived.writestr("pkg/a.py", b"CONTENT")
    made.write_bytes(made.read_bytes().replace(b"CONTENT", b"CONTEND"))
    with pytest.raises(BadArchive, match="CRC") as caught:
        read_archive(made)
    assert caught.value.where == "a.whl: pkg/a.py"


def test_an_encrypted_member(tmp_path: Path) -> None:
    made = make_zip(tmp_path / "a.whl", [("pkg/a.py", b"x")])
    data = bytearray(made.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    made.write_bytes(data)
    with pytest.raises(BadArchive, match="encrypted") as caught:
        read_archive(made)
    assert caught.value.where == "a.whl: pkg/a.py"


def test_an_unusual_compression(tmp_path: Path) -> None:
    made = tmp_path / "a.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_BZIP2) as archived:
        archived.writestr("pkg/a.py", b"x" * 100)
    with pytest.raises(BadArchive, match="compression method 12") as caught:
        read_archive(made)
    assert caught.value.where == "a.whl: pkg/a.py"


def test_a_member_that_is_not_as_long_as_declared(tmp_path: Path) -> None:
    made = make_zip(tmp_path / "a.whl", [("pkg/a.py", b"x" * 100)])
    data = bytearray(made.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 5000)
    made.write_bytes(data)
    with pytest.raises(BadArchive, match="5000 bytes are declared, 100 came out") as caught:
        read_archive(made)
    assert caught.value.where == "a.whl: pkg/a.py"
    # More comes out than declared; the check sum is that of the declared part.
    for taken in (10, 11):
        data[at + 24 : at + 28] = struct.pack("<I", 10)
        data[at + 16 : at + 20] = struct.pack("<I", zlib.crc32(b"x" * taken))
        made.write_bytes(data)
        with pytest.raises(BadArchive, match=r"CRC|10 bytes are declared, 11 came out") as caught:
            read_archive(made)
        assert caught.value.where == "a.whl: pkg/a.py"


def test_an_archive_that_blows_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "RATIO_FROM", 1 << 20)
    made = make_zip(tmp_path / "a.whl", [("a", b"x"), ("pkg/bomb", bytes(8 << 20))])
    with pytest.raises(BadArchive, match="unpacks to more than 1 MiB") as caught:
        read_archive(made)
    assert caught.value.where == "a.whl: pkg/bomb"
    made = make_tar(tmp_path / "a.tar.gz", [("pkg/bomb", bytes(8 << 20))])
    with pytest.raises(BadArchive, match="unpacks to more than 1 MiB"):
        read_archive(made)


def test_not_an_archive(tmp_path: Path) -> None:
    for name in ("a.whl", "a.tar.gz"):
        (tmp_path / name).write_bytes(b"<html>")
        with pytest.raises(BadArchive, match="damaged"):
            read_archive(tmp_path / name)
    with pytest.raises(BadArchive, match=r"not a \.whl"):
        read_archive(tmp_path / "a.rar")


# Wheels


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


# Source distributions

PKG_INFO = b"Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"


def make_sdist(path: Path, files: Mapping[str, bytes]) -> Path:
    members = {"PKG-INFO": PKG_INFO, **files}
    return make_tar(path, [(f"tiny-1.0/{name}", data) for name, data in members.items()])


def test_an_sdist_in_repository_layout(tmp_path: Path) -> None:
    made = make_sdist(
        tmp_path / "tiny-1.0.tar.gz",
        {
            "csrc/a.cu": b"cu", "tiny/a.py": b"py", "tests/t.py": b"t", "tiny/_version.py": b"v",
            "tiny.egg-info/SOURCES.txt": b"",
        },
    )  # fmt: skip
    rules = {"tiny/": "tiny/", "csrc/": "tiny/data/csrc/"}
    inside, outside = read_sdist(made, config("sdist", **rules))
    assert sorted(inside) == [b"csrc/a.cu", b"tests/t.py", b"tiny/a.py"]
    assert sorted(outside) == [b"tiny/_version.py"]


def test_an_sdist_in_package_layout(tmp_path: Path) -> None:
    made = make_sdist(
        tmp_path / "tiny-1.0.tar.gz",
        {"tiny/a.py": b"py", "tiny/_version.py": b"v", "pyproject.toml": b""},
    )
    inside, outside = read_sdist(made, config("sdist", **{"python/tiny/": "tiny/"}))
    assert sorted(inside) == [b"python/tiny/a.py"]
    assert sorted(outside) == [b"tiny/_version.py"]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"tiny-1.0/a.py": b"", "other/b.py": b""}, "one folder"),
        ({"tiny-1.0/a.py": b""}, "no PKG-INFO"),
        ({"tiny-1.0/PKG-INFO": PKG_INFO, "tiny-1.0/x": b""}, "no layout rule"),
    ],
)
def test_what_is_no_sdist(tmp_path: Path, members: dict[str, bytes], words: str) -> None:
    made = make_tar(tmp_path / "tiny-1.0.tar.gz", list(members.items()))
    with pytest.raises(BadArchive, match=words):
        read_sdist(made, config("sdist"))


def test_a_link_that_leaves_the_tree_once_the_top_folder_is_gone(tmp_path: Path) -> None:
    made = make_tar(
        tmp_path / "tiny-1.0.tar.gz",
        [
            ("tiny-1.0/PKG-INFO", PKG_INFO),
            ("tiny-1.0/tiny/a.py", b""),
            (tar_entry("tiny-1.0/tiny/l", tarfile.SYMTYPE, "../../x"), b""),
        ],
    )
    with pytest.raises(BadArchive, match="out of the tree") as caught:
        read_sdist(made, config("sdist"))
    assert caught.value.where == "tiny-1.0.tar.gz: tiny/l"
