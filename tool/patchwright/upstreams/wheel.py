"""Reads a wheel, from the archive or as an installer unpacked it, and checks its RECORD.

The result is the same for both: the files in installed layout, without what an
installer adds or rewrites.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import re
from collections.abc import Mapping
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import NoReturn

from patchwright.config import UpstreamConfig
from patchwright.errors import InputError
from patchwright.quoting import display
from patchwright.store import FILE
from patchwright.upstreams.archive import BadArchive, path_fault, read_archive
from patchwright.upstreams.layout import File

# In .dist-info: the record itself and its signatures, and what installers write there.
_BOOKKEEPING = frozenset({
    b"RECORD", b"RECORD.jws", b"RECORD.p7s", b"INSTALLER", b"REQUESTED", b"direct_url.json",
    b"uv_cache.json", b"uv_build.json",
})  # fmt: skip
_INFO = re.compile(rb"([^/]+\.dist-info)/RECORD")
# Python packaging's binary distribution format: NAME-VERSION.data/SCHEME/path.
_DATA = re.compile(rb"([^/]+)-[^/-]+\.data/([^/]+)/(.+)", re.DOTALL)
_SCRIPT = re.compile(rb"bin/[^/]+")
_HASHES = frozenset({"sha256", "sha384", "sha512"})


def read_wheel(path: Path, config: UpstreamConfig) -> dict[bytes, File]:
    """Return the files of a wheel in installed layout. Raises BadArchive."""
    members, info = checked_members(path, config)
    placed = {target: members[name] for target, name in placement(path.name, members).items()}
    return _without_bookkeeping(placed, info)


def checked_members(path: Path, config: UpstreamConfig) -> tuple[dict[bytes, File], bytes]:
    """Return a wheel's members and the name of its ``.dist-info`` folder.

    Every member but signatures has the hash that RECORD says. Raises BadArchive.
    """
    members = read_archive(path)
    info = _info(path.name, members)
    recorded = _record(path.name, members[info + b"/RECORD"].data)
    for name, file in members.items():
        if name == info + b"/RECORD" or _is_signature(info, name):
            continue
        if name not in recorded:
            _refuse(path.name, name, "RECORD does not list the member")
        _check(path.name, name, file.data, recorded[name])
    for name in recorded:
        if name not in members:
            _refuse(path.name, name, "RECORD lists the member, but it is missing")
    check_identity(path.name, members[info + b"/METADATA"].data, config)
    return members, info


def read_installed(folder: Path, config: UpstreamConfig) -> dict[bytes, File]:
    """Return the files that an installer put into ``folder``, which held nothing else.

    Only what RECORD lists is taken, and each file has to have the recorded hash: the
    installer's cache may hold files that somebody edited in place, through a hard link.
    Raises BadArchive.
    """
    records = list(folder.glob("*.dist-info/RECORD"))
    where = config.distribution or config.name
    if len(records) != 1:
        _refuse(where, b"RECORD", f"the installation has {len(records)} RECORD files, not one")
    info = records[0].parent.name.encode()
    recorded = _record(where, records[0].read_bytes())
    files: dict[bytes, File] = {}
    for name in sorted(recorded):
        # Scripts name this machine's interpreter in their first line.
        if name == info + b"/RECORD" or _SCRIPT.fullmatch(name):
            continue
        path = folder / name.decode("utf-8", "surrogateescape")
        if path.is_symlink() or not path.is_file():
            _refuse(where, name, "RECORD lists the member, but it is missing")
        data = path.read_bytes()
        _check(where, name, data, recorded[name])
        files[name] = File(FILE, data)
    if info + b"/METADATA" not in files:
        _refuse(where, info + b"/METADATA", "the member is missing")
    check_identity(where, files[info + b"/METADATA"].data, config)
    return _without_bookkeeping(files, info)


def _info(where: str, members: Mapping[bytes, File]) -> bytes:
    found = [match[1] for match in map(_INFO.fullmatch, members) if match]
    if len(found) != 1:
        _refuse(where, b"RECORD", f"the wheel has {len(found)} RECORD files, not one")
    if found[0] + b"/METADATA" not in members:
        _refuse(where, found[0] + b"/METADATA", "the member is missing")
    return found[0]


def _record(where: str, data: bytes) -> dict[bytes, str]:
    """Return path to ``algorithm=value`` (empty for RECORD itself)."""
    recorded: dict[bytes, str] = {}
    text = data.decode("utf-8", "surrogateescape")
    try:
        rows = [row for row in csv.reader(text.splitlines()) if row]
    except csv.Error as error:
        _refuse(where, b"RECORD", f"RECORD cannot be read ({error})")
    for row in rows:
        name = row[0].encode("utf-8", "surrogateescape")
        fault = path_fault(name)
        if fault or len(row) != 3:
            _refuse(where, name, f"RECORD has a bad line: {fault or 'three fields are expected'}")
        if recorded.setdefault(name, row[1]) != row[1]:
            _refuse(where, name, "RECORD lists the member twice, with two hashes")
    return recorded


def _check(where: str, name: bytes, data: bytes, expected: str) -> None:
    algorithm, _, value = expected.partition("=")
    if algorithm not in _HASHES:
        _refuse(where, name, f"RECORD gives no sha256 (or better) for it, but {expected!r}")
    digest = hashlib.new(algorithm, data).digest()
    actual = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    if actual != value.rstrip("="):
        _refuse(where, name, f"RECORD says {expected}, the member has {algorithm}={actual}")


def placement(where: str, members: Mapping[bytes, File]) -> dict[bytes, bytes]:
    """Return where an installer with one target folder puts each member: path to member.

    ``NAME.data/SCHEME/`` is spread. Scripts are left out: installers rewrite them.
    """
    files: dict[bytes, bytes] = {}
    for name in members:
        match = _DATA.fullmatch(name)
        target = name
        if match:
            scheme = match[2]
            if scheme == b"scripts":
                continue
            if scheme not in (b"purelib", b"platlib", b"data", b"headers"):
                _refuse(where, name, f"{display(scheme)} is not an installation scheme")
            target = match[3]
            if scheme == b"headers":
                target = b"include/" + match[1] + b"/" + target
        if target in files or (match and target in members):
            _refuse(where, name, f"a second member is installed as {display(target)}")
        files[target] = name
    return files


def _without_bookkeeping(files: Mapping[bytes, File], info: bytes) -> dict[bytes, File]:
    left_out = {info + b"/" + name for name in _BOOKKEEPING}
    return {name: file for name, file in files.items() if name not in left_out}


def _is_signature(info: bytes, name: bytes) -> bool:
    return name in (info + b"/RECORD.jws", info + b"/RECORD.p7s")


def check_identity(where: str, metadata: bytes, config: UpstreamConfig) -> None:
    """Raise InputError where the metadata name another project or version."""
    from packaging.utils import canonicalize_name, canonicalize_version

    headers = BytesHeaderParser().parsebytes(metadata)
    name, version = str(headers["Name"] or ""), str(headers["Version"] or "")
    if config.distribution is not None and canonicalize_name(name) != canonicalize_name(
        config.distribution
    ):
        raise InputError(
            f"the archive is {name!r}, pyproject.toml wants {config.distribution!r}",
            where=where, next_step=f"correct distribution or path of upstream {config.name}",
        )  # fmt: skip
    if canonicalize_version(version) != canonicalize_version(config.version):
        raise InputError(
            f"the archive has version {version!r}, pyproject.toml wants {config.version!r}",
            where=where, next_step=f"correct version or path of upstream {config.name}",
        )  # fmt: skip


def _refuse(where: str, member: bytes, reason: str) -> NoReturn:
    raise BadArchive(
        reason, where=f"{where}: {display(member)}",
        next_step="get the wheel again from a source that you trust; do not install this one",
    )  # fmt: skip
