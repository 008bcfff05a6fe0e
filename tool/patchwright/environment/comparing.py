"""How installed distributions differ from what their RECORDs say."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

from patchwright.environment.hashes import KnownHashes
from patchwright.environment.installed import Distribution, distributions
from patchwright.errors import InputError

_OTHER_ALGORITHMS = ("sha384", "sha512")
_AT_ONCE = 64  # files in one task: a thread for each costs more than reading it


class Difference(NamedTuple):
    """One way in which a distribution is not what its RECORD says; ``path`` from its folder."""

    distribution: str
    path: bytes
    what: Literal["changed", "missing", "extra"]


def differences(
    compared: Sequence[Distribution], hashes: KnownHashes | None = None
) -> list[Difference]:
    """Return every changed, missing and extra file of these distributions, sorted.

    Bytecode is not compared here. Files are hashed by several threads; extra are files in
    a distribution's own folders that no RECORD beside it lists.
    """
    hashes = hashes or KnownHashes()
    tasks: list[list[tuple[Distribution, bytes, str, str]]] = [[]]
    for distribution in compared:
        for path, digest, size in distribution.rows:
            if path.endswith(b".pyc") or not digest:
                continue
            if len(tasks[-1]) >= _AT_ONCE:
                tasks.append([])
            tasks[-1].append((distribution, path, digest, size))
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        parts = pool.map(lambda task: _compared(task, hashes), tasks)
        found = [difference for part in parts for difference in part]
    hashes.save()
    return sorted(_own(found, compared) + _extra(compared))


def _own(found: list[Difference], compared: Sequence[Distribution]) -> list[Difference]:
    """Leave out changed files that another distribution brought to the same place.

    Real ones do: flashinfer-python and torch-c-dlpack-ext both install build_backend.py,
    and the last one wins.
    """
    folders = {d.name: d.folder for d in compared}
    left = []
    for difference in found:
        folder = folders[difference.distribution]
        place = os.fsencode(folder) + b"/" + difference.path
        others = distributions(folder) if difference.what == "changed" else {}
        if not any(
            path == difference.path and digest
            and _compare(place, digest, size, KnownHashes()) is None
            for other in others.values() for path, digest, size in _rows(other)
        ):  # fmt: skip
            left.append(difference)
    return left


def _compared(
    task: Iterable[tuple[Distribution, bytes, str, str]], hashes: KnownHashes
) -> list[Difference]:
    found = []
    for distribution, path, digest, size in task:
        what = _compare(os.fsencode(distribution.folder) + b"/" + path, digest, size, hashes)
        if what is not None:
            found.append(Difference(distribution.name, path, what))
    return found


def _compare(
    place: bytes, row: str, size: str, hashes: KnownHashes
) -> Literal["changed", "missing"] | None:
    """Compare one file with its row in RECORD; None where they agree."""
    algorithm, _, value = row.partition("=")
    try:
        # Asked before it is opened: a pipe would be waited for.
        status = os.stat(place)  # noqa: PTH116 - thousands of them
        if not stat.S_ISREG(status.st_mode) or (size and status.st_size != int(size)):
            return "changed"
        if algorithm in _OTHER_ALGORITHMS:
            with open(place, "rb") as stream:  # noqa: PTH123
                other = hashlib.file_digest(stream, algorithm).digest()
            same = base64.urlsafe_b64encode(other).rstrip(b"=").decode() == value.rstrip("=")
        else:
            digest = hashes.get(status, strict=True) or hashes.read(place, status)
            same = digest == row.rstrip("=")
    except FileNotFoundError:
        return "missing"
    except (OSError, ValueError):
        return "changed"
    return None if same else "changed"


def _extra(compared: Sequence[Distribution]) -> list[Difference]:
    """Return the files that stand in the distributions' folders and in no RECORD."""
    found: list[Difference] = []
    for folder in {d.folder for d in compared}:
        owners: dict[bytes, str] = {}
        wanted = [d for d in compared if d.folder == folder]
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
                    others = (d for d in distributions(folder).values() if d not in wanted)
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
