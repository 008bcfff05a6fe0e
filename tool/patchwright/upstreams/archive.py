"""Reads zip and tar archives as hostile input: all of it is checked, or it is refused.

Every refusal names the member. Nothing is written to disk here; an archive is returned
as a mapping of paths to files, in memory, after the last check has passed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from patchwright.errors import PatchwrightError
from patchwright.quoting import display
from patchwright.store import FILE, SYMLINK
from patchwright.upstreams.layout import File, PathMap, file_and_folder

# What an archive may unpack to. The largest wheels around unpack to about 2 GiB.
MAX_TOTAL = 4 << 30
# Source code packs by 3 to 8, compiled kernels by 2 to 4; small archives may be odd.
MAX_RATIO, RATIO_FROM = 100, 64 << 20
_CHUNK = 1 << 20

_DRIVE = re.compile(rb"[A-Za-z]:")
# Names that git, or a file system that folds names, takes for its own folder.
_GIT_FOLDERS = frozenset({b".git", b"git~1"})


class BadArchive(PatchwrightError):
    """An archive that is refused (exit code 3); the message names the member."""


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def path_fault(path: bytes) -> str | None:  # noqa: PLR0911
    """Return why a path inside an upstream is refused, or None."""
    if not path:
        return "the name is empty"
    if b"\0" in path:
        return "the name contains a NUL byte"
    if path.startswith(b"/"):
        return "the path is absolute"
    if b"\\" in path:
        return "the name contains a backslash"
    if _DRIVE.match(path):
        return "the path begins with a drive letter"
    for part in path.split(b"/"):
        if part in (b"", b".", b".."):
            return (
                "the path leaves the archive" if part == b".." else "the path is not in normal form"
            )
        if len(part) > 255:
            return "the name is longer than 255 bytes"
        if _folded(part) in _GIT_FOLDERS:
            return "the path goes through git's own folder"
    return None


def link_fault(path: bytes, target: bytes) -> str | None:
    """Return why a symbolic link at ``path`` is refused, or None."""
    if not target or b"\0" in target or b"\\" in target:
        return "the link has a bad target"
    up = 0
    parts = target.split(b"/")
    while up < len(parts) and parts[up] == b"..":
        up += 1
    # ".." after a name could climb from wherever another link leads to.
    if target.startswith(b"/") or up > path.count(b"/") or b".." in parts[up:]:
        return f"the link points out of the tree, to {display(target)}"
    return None


def link_faults(paths: PathMap, path: bytes, target: bytes) -> str | None:
    """Return why a link at a repository path is refused, there or where it is installed."""
    installed = paths.placed(path)
    return link_fault(path, target) or (link_fault(installed, target) if installed else None)


def read_archive(path: Path) -> dict[bytes, File]:
    """Return the files of a ``.whl``, ``.zip`` or ``.tar.gz``.

    All files have mode 100644: the x bits in an archive follow the machine that packed
    it and are not the same in two archives of one version. Raises BadArchive.
    """
    if not path.name.endswith((".whl", ".zip", ".tar.gz", ".tgz")):
        _refuse(path, None, "this is not a .whl, .zip or .tar.gz archive")
    try:
        return _read_zip(path) if path.name.endswith((".whl", ".zip")) else _read_tar(path)
    except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error) as error:
        _refuse(path, None, f"the archive is damaged or truncated ({error})")


class _Contents:
    """Collects the files of one archive and refuses what may not stand beside them."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        self.files: dict[bytes, File] = {}
        self._folders: set[bytes] = set()
        self._names: dict[str, bytes] = {}

    def path(self, raw: bytes) -> bytes:
        fault = path_fault(raw)
        if fault:
            _refuse(self.archive, raw, fault)
        return raw

    def add_folder(self, path: bytes) -> None:
        self._folders.add(self.path(path))

    def add(self, path: bytes, file: File) -> None:
        self.path(path)
        # Two spellings of one accented name are one file on some file systems.
        name = unicodedata.normalize("NFC", path.decode("utf-8", "surrogateescape"))
        if name in self._names:
            _refuse(self.archive, path, "the archive has two members of this name")
        self._names[name] = path
        self.files[path] = file

    def finish(self) -> dict[bytes, File]:
        both = file_and_folder(self.files) or min(self._folders & self.files.keys(), default=None)
        if both is not None:
            _refuse(self.archive, both, "the member is both a file and a folder")
        return self.files


def _read_zip(path: Path) -> dict[bytes, File]:
    contents = _Contents(path)
    budget = _budget(path)
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            # ``filename`` was cut at a NUL byte; the original was not.
            utf8 = info.flag_bits & 0x800
            raw = info.orig_filename.encode("utf-8" if utf8 else "cp437", "surrogateescape")
            if raw.endswith(b"/"):
                contents.add_folder(raw.rstrip(b"/"))
                continue
            contents.path(raw)
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG):
                what = "a symbolic link" if kind == stat.S_IFLNK else "a special file"
                _refuse(path, raw, f"the member is {what}")
            if info.flag_bits & 0x1:
                _refuse(path, raw, "the member is encrypted")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                _refuse(path, raw, f"compression method {info.compress_type} is not in use")
            budget(info.file_size, raw)
            # zipfile stops at the declared size; one byte more shows whether more comes.
            declared = info.file_size
            info.file_size += 1
            try:
                with archive.open(info) as stream:
                    data = stream.read()
            except (OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
                _refuse(path, raw, f"the member is damaged ({error})")
            if len(data) != declared:
                _refuse(path, raw, f"{declared} bytes are declared, {len(data)} came out")
            contents.add(raw, File(FILE, data))
    return contents.finish()


def _read_tar(path: Path) -> dict[bytes, File]:
    contents = _Contents(path)
    # All of it first: tarfile stops at the end marker, before the check sum of gzip.
    raw = _gunzip(path)
    end = 0
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
        for member in archive:
            name = member.name.encode("utf-8", "surrogateescape").removeprefix(b"./")
            if member.isdir():
                if name.strip(b"/") not in (b"", b"."):
                    contents.add_folder(name.rstrip(b"/"))
            else:
                contents.add(name, _tar_file(contents, archive, member, name))
            held = member.size if member.isreg() else 0
            end = max(end, member.offset_data + -(-held // 512) * 512)
    # tarfile takes a broken header for the end of the archive.
    if len(raw) - end < 512 or raw[end:].strip(b"\0"):
        _refuse(path, None, f"the archive is damaged or truncated at byte {end} of the tar file")
    return contents.finish()


def _tar_file(
    contents: _Contents, archive: tarfile.TarFile, member: tarfile.TarInfo, name: bytes
) -> File:
    path = contents.archive
    contents.path(name)
    target = member.linkname.encode("utf-8", "surrogateescape")
    if member.issym():
        fault = link_fault(name, target)
        if fault:
            _refuse(path, name, fault)
        return File(SYMLINK, target)
    if member.islnk():
        # A hard link names an earlier member, counted from the top of the archive.
        target = target.removeprefix(b"./")
        if path_fault(target) or target not in contents.files:
            _refuse(path, name, f"the link points out of the tree, to {display(target)}")
        return contents.files[target]
    if not member.isreg() or member.issparse():
        _refuse(path, name, "the member is a special file")
    try:
        stream = archive.extractfile(member)
        data = stream.read() if stream is not None else b""
    except (OSError, EOFError, tarfile.TarError) as error:
        _refuse(path, name, f"the member is damaged or truncated ({error})")
    if len(data) != member.size:
        _refuse(path, name, f"{member.size} bytes are declared, {len(data)} came out")
    return File(FILE, data)


def _gunzip(path: Path) -> bytes:
    budget = _budget(path)
    with gzip.open(path, "rb") as stream:
        return b"".join(_chunks(stream, lambda size: budget(size, None)))


def _chunks(stream: gzip.GzipFile, count: Callable[[int], None]) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK):
        count(len(chunk))
        yield chunk


def _budget(path: Path) -> Callable[[int, bytes | None], None]:
    """Return a function that counts bytes and refuses an archive that blows up."""
    limit = min(MAX_TOTAL, max(RATIO_FROM, path.stat().st_size * MAX_RATIO))
    total = 0

    def count(size: int, member: bytes | None) -> None:
        nonlocal total
        total += size
        if total > limit:
            _refuse(path, member, f"the archive unpacks to more than {limit >> 20} MiB")

    return count


def _folded(part: bytes) -> bytes:
    # Trailing dots and spaces, and characters without width, are dropped by some.
    text = part.decode("utf-8", "surrogateescape").rstrip(" .")
    text = "".join(c for c in text if unicodedata.category(c) != "Cf")
    return text.lower().encode("utf-8", "surrogateescape")


def _refuse(archive: Path, member: bytes | None, reason: str) -> NoReturn:
    where = archive.name if member is None else f"{archive.name}: {display(member)}"
    raise BadArchive(
        reason, where=where,
        next_step="get the archive again from a source that you trust; do not install this one",
    )  # fmt: skip
