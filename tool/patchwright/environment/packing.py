"""Patched wheels: the locked wheel with the patched files in, the same bytes everywhere.

Members are stored, not compressed: what a compressor makes of them differs from one
version of zlib to the next. Order, times, modes and the writing system are fixed.
"""

from __future__ import annotations

import io
import os
import posixpath
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.environment.metadata import patched_info_name, recorded_hash, write_record
from patchwright.errors import InputError
from patchwright.quoting import display
from patchwright.store import EXECUTABLE, FILE
from patchwright.upstreams.layout import File
from patchwright.upstreams.wheel import checked_members, placement

if TYPE_CHECKING:
    from patchwright.config import UpstreamConfig
    from patchwright.environment.patched import PatchedDistribution

_TIME = (1980, 1, 1, 0, 0, 0)  # the first that a zip archive can hold
_OBJECT = re.compile(rb"\.so(?:\.[0-9]+)*$|\.(?:pyd|dylib|dll)$")
# What a compiler or a build backend reads. In a pure wheel some of it is data, compiled on
# the user's machine; in a compiled wheel the object was made from it already.
_SOURCE = re.compile(
    rb"\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|hxx|inl|pyx|pxd|pxi|rs|go|f|f90|s|cmake|proto)$",
    re.IGNORECASE,
)
_BUILD_FILES = frozenset({
    b"CMakeLists.txt", b"Cargo.toml", b"Makefile", b"meson.build", b"pyproject.toml",
    b"setup.cfg", b"setup.py",
})  # fmt: skip


def pack(config: UpstreamConfig, archive: Path, patched: PatchedDistribution) -> tuple[str, bytes]:
    """Return name and bytes of the patched wheel that the pristine ``archive`` becomes.

    Raises InputError where a patch touches what a compiled wheel does not honour,
    BadArchive for a damaged archive.
    """
    members, info = checked_members(archive, config)
    places = placement(archive.name, members)
    _refuse_unhonoured(archive.name, members, places, patched)
    new_info = patched_info_name(info, patched.version, patched.new_version)
    data_old, data_new = (name.removesuffix(b".dist-info") + b".data/" for name in (info, new_info))
    info_files = {n: f.data for n, f in members.items() if n.startswith(info + b"/")}
    changes = patched.complete(info, info_files, lambda path: members[places[path]].data)
    result = dict(members)
    # Removals first: a file may give way to a folder of its name.
    for path in [path for path, data in changes.items() if data is None]:
        result.pop(places.get(path, path), None)
    for path, data in changes.items():
        if data is not None:
            name = places.get(path, path)
            mode = members[name].mode if name in members else FILE
            result[name] = File(mode, data)
    for name in list(result):
        if name.startswith(data_old):
            result[data_new + name[len(data_old) :]] = result.pop(name)
    for name in (b"RECORD", b"RECORD.jws", b"RECORD.p7s"):
        result.pop(new_info + b"/" + name, None)
    _, _, *tags = archive.name.split("-")
    stem = os.fsdecode(new_info.removesuffix(b".dist-info"))
    return "-".join((stem, *tags)), _archive(result, new_info)


def _archive(members: Mapping[bytes, File], info: bytes) -> bytes:
    rows = {n: (recorded_hash(f.data), str(len(f.data))) for n, f in members.items()}
    record = info + b"/RECORD"
    content = {**members, record: File(FILE, write_record({**rows, record: ("", "")}))}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        # The metadata last, as the specification of wheels recommends.
        for name in sorted(content, key=lambda n: (n.startswith(info + b"/"), n)):
            entry = zipfile.ZipInfo(name.decode("utf-8"), _TIME)
            entry.create_system = 3
            executable = content[name].mode == EXECUTABLE
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            archive.writestr(entry, content[name].data)
    return out.getvalue()


def _refuse_unhonoured(
    where: str, members: Mapping[bytes, File], places: Mapping[bytes, bytes],
    patched: PatchedDistribution,
) -> None:  # fmt: skip
    """Refuse changes that nothing would ever read, in a wheel with compiled objects."""
    objects = {path for path in places if _OBJECT.search(path)}
    if not objects:
        return
    modules = {posixpath.join(*_split(path)) for path in objects}
    for path in sorted(patched.changes):
        reason = ""
        if _OBJECT.search(path) or _SOURCE.search(path) or _name(path) in _BUILD_FILES:
            reason = "only a build from source honours it"
        elif path.endswith(b".py") and path.removesuffix(b".py") in modules:
            reason = "a compiled module of its name is imported in its place"
        if reason:
            raise InputError(
                f"a patch of {patched.upstream} changes this file, but the wheel is compiled: "
                f"{reason}",
                where=f"{where}: {display(path)}",
                next_step='take the upstream with source = "sdist" or "git", or leave the '
                "patch out",
            )  # fmt: skip


def _split(path: bytes) -> tuple[bytes, bytes]:
    folder, name = posixpath.split(path)
    return folder, name.partition(b".")[0]


def _name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]
