"""A place to import tiny upstreams into, from wheels, sdists and git."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

from patchwright.config import Layout, LayoutRule, UpstreamConfig
from patchwright.lock import LockedUpstream
from patchwright.store import ObjectStore
from patchwright.upstreams import Pristine, import_upstream, resolve

LAYOUT = Layout(
    (LayoutRule(b"python/tiny/", b"tiny/"), LayoutRule(b"csrc/", b"tiny/data/csrc/")),
    ("tiny/_version.py",),
)
REPOSITORY = {"python/tiny/a.py": b"A = 1\n", "python/tiny/b.py": b"", "csrc/k.cu": b"\xff\r\n"}
INSTALLED: dict[str, str | bytes] = {
    "tiny/a.py": b"A = 1\n", "tiny/b.py": b"", "tiny/data/csrc/k.cu": b"\xff\r\n",
    "tiny/_version.py": "V = 1\n", "tiny/ops.so": b"\x7fELF",
}  # fmt: skip


class Place:
    """A project folder, a cache, and the import into it."""

    def __init__(self, folder: Path, cache: str = "cache") -> None:
        self.root = folder / "project"
        self.cache = folder / cache
        self.root.mkdir(exist_ok=True)
        self.said: list[str] = []

    @property
    def store(self) -> ObjectStore:
        return ObjectStore(self.cache / "objects.git")

    def resolve(self, config: UpstreamConfig) -> LockedUpstream:
        return resolve(config, self.root, self.cache, progress=self.said.append)

    def run(self, config: UpstreamConfig, locked: LockedUpstream | None = None) -> Pristine:
        return import_upstream(
            config, locked or self.resolve(config), self.store, self.cache,
            root=self.root, progress=self.said.append,
        )  # fmt: skip

    def files(self, tree: str) -> dict[str, bytes]:
        store = self.store
        return {path.decode(): store.blob(entry.oid) for path, entry in store.files(tree)}


def wanted(**how: Any) -> UpstreamConfig:
    values: dict[str, Any] = {
        "name": "tiny", "source": "wheel", "distribution": "tiny", "version": "1.0", "path": None,
        "git": None, "revision": None, "packages": ("tiny",), "layout": LAYOUT,
    }  # fmt: skip
    return UpstreamConfig(**values | how)


def make_sdist(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "tiny-1.0.tar.gz"
    info = b"Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in {"PKG-INFO": info, **files}.items():
            member = tarfile.TarInfo(f"tiny-1.0/{name}")
            member.size = len(data)
            archive.addfile(member, BytesIO(data))
    return path


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make_repository(folder: Path, files: dict[str, bytes] | None = None) -> Path:
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, files or REPOSITORY)
    return folder


def commit(folder: Path, files: dict[str, bytes]) -> str:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "a commit")
    return git(folder, "rev-parse", "HEAD")
