"""What is installed in an environment, and how it differs from what its RECORDs say.

An environment is a folder with an interpreter: a virtual one, or the prefix of a Python
in a container image. Its interpreter is asked where packages lie; nothing of them is
imported. RECORD is the list that every installer leaves (Python packaging specification
"Recording installed projects").
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import stat
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from patchwright.environment.metadata import read_record
from patchwright.errors import InputError

_START = 60.0  # seconds that an interpreter may take to say where it is
_ASK = (
    "import json, platform, sysconfig\n"
    "p = sysconfig.get_paths()\n"
    "print(json.dumps([platform.python_version(), p['purelib'], p['platlib']]))\n"
)
_ALGORITHMS = ("sha256", "sha384", "sha512")
_LARGE = 1 << 18  # bytes; smaller files are read as fast as they are looked up
_RACY = 50_000_000  # nanoseconds: a file changed again within one tick keeps its times
_AT_ONCE = 64  # files in one task: a thread for each costs more than reading it


@dataclass(frozen=True)
class Site:
    """An environment: its interpreter (``version`` as in ``3.11.4``) and its packages."""

    root: Path
    python: Path
    version: str
    packages: Path
    platform_packages: Path

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that distributions are installed into: one, seldom two."""
        return tuple(dict.fromkeys((self.packages, self.platform_packages)))

    @cached_property
    def distributions(self) -> dict[str, Distribution]:
        """Everything installed, by canonical name, as it was when first asked for."""
        return {d.name: d for folder in self.folders for d in _distributions(folder)}


@dataclass(frozen=True)
class Distribution:
    """One installed distribution; ``info`` is the name of its ``.dist-info`` folder."""

    name: str
    version: str
    folder: Path
    info: bytes

    @cached_property
    def rows(self) -> list[tuple[bytes, str, str]]:
        """The rows of RECORD: path, hash, size. InputError where there is none to read."""
        path = self.folder / os.fsdecode(self.info) / "RECORD"
        try:
            return read_record(path.read_bytes())
        except (OSError, ValueError) as error:
            raise InputError(
                f"the list of {self.name}'s files cannot be read: {error}", where=str(path),
                next_step=f"install {self.name} {self.version} again",
            ) from error  # fmt: skip

    @property
    def has_record(self) -> bool:
        """Whether its installer left a list of its files; a system's own package has none."""
        return (self.folder / os.fsdecode(self.info) / "RECORD").is_file()

    @cached_property
    def is_editable(self) -> bool:
        """Whether it only points to a source folder elsewhere."""
        path = self.folder / os.fsdecode(self.info) / "direct_url.json"
        try:
            return bool(json.loads(path.read_bytes())["dir_info"]["editable"])
        except (OSError, ValueError, KeyError, TypeError):
            return False


class Difference(NamedTuple):
    """One way in which a distribution is not what its RECORD says; ``path`` from its folder."""

    distribution: str
    path: bytes
    what: Literal["changed", "missing", "extra"]


def find_site(directory: Path) -> Site:
    """Return the environment in ``directory``; InputError where there is none that runs."""
    root = directory.absolute()
    python = next(
        (p for n in ("python", "python3") if os.access(p := root / "bin" / n, os.X_OK)), None
    )
    step = "name the folder of a virtual environment (or another Python's prefix)"
    if python is None or python.is_dir():
        what = "there is no interpreter in bin/" if root.is_dir() else "there is no such folder"
        raise InputError(what, where=str(directory), next_step=step)
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", _ASK], capture_output=True, timeout=_START, check=True,
            stdin=subprocess.DEVNULL, env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        version, pure, platform = json.loads(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        raise InputError(
            f"its interpreter does not run: {error}", where=str(python), next_step=step
        ) from error
    return Site(root, python, version, Path(pure), Path(platform))


def _distributions(folder: Path) -> Iterator[Distribution]:
    from packaging.utils import canonicalize_name

    try:
        names = sorted(e.name for e in os.scandir(os.fsencode(folder)))
    except OSError:
        return
    for name in names:
        if name.endswith(b".dist-info"):
            stem, _, version = os.fsdecode(name).removesuffix(".dist-info").rpartition("-")
            if stem:
                yield Distribution(canonicalize_name(stem), version, folder, name)


class Known:
    """Large files that were found right before, by what changes when they do.

    The change time cannot be set back. Ten gigabytes of libraries are hashed once; a
    cache in ``file`` that cannot be read or written only costs time.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self._before: dict[str, list[Any]] = {}
        self._now: dict[str, list[Any]] = {}
        if file is not None:
            with contextlib.suppress(OSError, ValueError):
                self._before = dict(json.loads(file.read_bytes()))

    def has(self, place: bytes, status: os.stat_result, recorded: str) -> bool:
        """Return whether a file was found right, and is the one that was."""
        if self._before.get(_name(place)) != _proof(status, recorded):
            return False
        self.add(place, status, recorded)
        return True

    def add(self, place: bytes, status: os.stat_result, recorded: str) -> None:
        """Note that a file is right; one that changed just now may change unseen."""
        if status.st_size >= _LARGE and time.time_ns() - status.st_ctime_ns > _RACY:
            self._now[_name(place)] = _proof(status, recorded)

    def keep(self) -> None:
        """Write what is known for the next time."""
        from patchwright.files import sweep, write_atomically

        if self.file is not None and self._now != self._before:
            with contextlib.suppress(OSError):
                sweep(self.file.parent, self.file.name)
                write_atomically(self.file, json.dumps(self._now).encode())


def _name(place: bytes) -> str:
    return place.decode("latin-1")


def _proof(status: os.stat_result, recorded: str) -> list[Any]:
    return [status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino, recorded]


def differences(
    distributions: Sequence[Distribution], known: Known | None = None
) -> list[Difference]:
    """Return every changed, missing and extra file of ``distributions``, sorted.

    Bytecode is not compared here. Files are hashed by several threads; extra are files in
    a distribution's own folders that no RECORD beside it lists.
    """
    known = known or Known()
    tasks: list[list[tuple[Distribution, bytes, str, str]]] = [[]]
    for distribution in distributions:
        for path, digest, size in distribution.rows:
            if path.endswith(b".pyc") or not digest:
                continue
            if len(tasks[-1]) >= _AT_ONCE:
                tasks.append([])
            tasks[-1].append((distribution, path, digest, size))
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        parts = pool.map(lambda task: _compared(task, known), tasks)
        found = [difference for part in parts for difference in part]
    known.keep()
    return sorted(_own(found, distributions) + _extra(distributions))


def _own(found: list[Difference], distributions: Sequence[Distribution]) -> list[Difference]:
    """Leave out changed files that another distribution brought to the same place.

    Real ones do: flashinfer-python and torch-c-dlpack-ext both install build_backend.py,
    and the last one wins.
    """
    folders = {d.name: d.folder for d in distributions}
    left = []
    for difference in found:
        folder = folders[difference.distribution]
        place = os.fsencode(folder) + b"/" + difference.path
        others = _distributions(folder) if difference.what == "changed" else ()
        if not any(
            path == difference.path and digest and _compare(place, digest, size, Known()) is None
            for other in others for path, digest, size in _rows(other)
        ):  # fmt: skip
            left.append(difference)
    return left


def _compared(
    task: Iterable[tuple[Distribution, bytes, str, str]], known: Known
) -> list[Difference]:
    found = []
    for distribution, path, digest, size in task:
        what = _compare(os.fsencode(distribution.folder) + b"/" + path, digest, size, known)
        if what is not None:
            found.append(Difference(distribution.name, path, what))
    return found


def _compare(
    place: bytes, recorded: str, size: str, known: Known
) -> Literal["changed", "missing"] | None:
    """Compare one file with its row in RECORD; None where they agree."""
    algorithm, _, value = recorded.partition("=")
    try:
        # Asked before it is opened: a pipe would be waited for.
        status = os.stat(place)  # noqa: PTH116 - thousands of them
        if not stat.S_ISREG(status.st_mode) or (size and status.st_size != int(size)):
            return "changed"
        if known.has(place, status, recorded):
            return None
        with open(place, "rb", buffering=0) as stream:  # noqa: PTH123
            data = stream.read()
    except FileNotFoundError:
        return "missing"
    except (OSError, ValueError):
        return "changed"
    if algorithm in _ALGORITHMS:
        digest = base64.urlsafe_b64encode(hashlib.new(algorithm, data).digest())
        if digest.rstrip(b"=").decode() == value.rstrip("="):
            known.add(place, status, recorded)
            return None
    return "changed"


def _extra(distributions: Sequence[Distribution]) -> list[Difference]:
    """Return the files that stand in the folders of ``distributions`` and in no RECORD."""
    found: list[Difference] = []
    for folder in {d.folder for d in distributions}:
        owners: dict[bytes, str] = {}
        wanted = [d for d in distributions if d.folder == folder]
        for distribution in wanted:
            for path, _, _ in distribution.rows:
                top = path.partition(b"/")[0]
                if b"/" in path and top not in (b"..", b"__pycache__"):
                    owners.setdefault(top, distribution.name)
        # Two distributions may share a folder (nvidia/…): what the other brought is known.
        listed = {path for d in wanted for path, _, _ in d.rows}
        strangers: set[bytes] | None = None
        for top, owner in sorted(owners.items()):
            for path in _files(os.fsencode(folder), top):
                if path in listed:
                    continue
                if strangers is None:
                    others = (d for d in _distributions(folder) if d not in wanted)
                    strangers = {path for d in others for path, _, _ in _rows(d)}
                if path not in strangers:
                    found.append(Difference(owner, path, "extra"))
    return found


def _rows(distribution: Distribution) -> list[tuple[bytes, str, str]]:
    try:
        return distribution.rows
    except InputError:
        return []


def _files(folder: bytes, top: bytes) -> Iterator[bytes]:
    """Yield the files below ``top``, bytecode left out; links to folders are not followed."""
    todo = [top]
    while todo:
        at = todo.pop()
        try:
            entries = list(os.scandir(folder + b"/" + at))
        except OSError:
            continue
        for entry in entries:
            path = at + b"/" + entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name != b"__pycache__":
                    todo.append(path)
            elif not entry.name.endswith(b".pyc"):
                yield path
