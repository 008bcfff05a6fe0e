"""Archives made for the tests, member by member, and the configuration that reads them."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Literal

from patchwright.config import Layout, LayoutRule, UpstreamConfig


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
