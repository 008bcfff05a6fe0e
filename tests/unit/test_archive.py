"""Hostile archives: each is refused with the member named, and nothing is returned."""

from __future__ import annotations

import gzip
import hashlib
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest

from archives import make_tar, make_zip, tar_entry
from patchwright.store import FILE, SYMLINK
from patchwright.upstreams import archive
from patchwright.upstreams.archive import BadArchive, link_fault, path_fault, read_archive
from patchwright.upstreams.layout import File

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
