"""The content of an environment that was just built: finished, checked, and its digest."""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from patchwright.environment.hashes import KnownHashes
from patchwright.environment.metadata import (
    read_record,
    recorded_hash,
    refreshed_record,
)
from patchwright.environment.patched import Changes, PatchedDistribution
from patchwright.errors import InputError, PatchwrightError
from patchwright.quoting import display

# What installers write for themselves: it differs from one installation to the next.
_BOOKKEEPING = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json",
                "uv_build.json")  # fmt: skip
_MACHINE_ONLY = ("direct_url.json", "uv_cache.json", "uv_build.json")
_EPOCH, _SPAN = 1_000_000_000, 100_000_000  # seconds since 1970: September 2001; three years


@dataclass(frozen=True)
class Installed:
    """One distribution in ``site-packages``; ``info`` is its ``.dist-info`` folder."""

    name: str
    version: str
    info: Path


def site_packages(environment: Path) -> Path:
    """Return the folder that an environment's packages lie in."""
    found = sorted((environment / "lib").glob("python3*/site-packages"))
    if len(found) != 1:
        raise PatchwrightError(
            "this is not a virtual environment: it has no site-packages", where=str(environment),
            next_step="run `patchwright rebuild`",
        )  # fmt: skip
    return found[0]


def installed(site: Path) -> dict[str, Installed]:
    """Return what is installed, by canonical name."""
    from packaging.utils import canonicalize_name

    found: dict[str, Installed] = {}
    for info in sorted(site.glob("*.dist-info")):
        name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
        found[canonicalize_name(name)] = Installed(canonicalize_name(name), version, info)
    return found


def finish(site: Path, patched: Iterable[str]) -> None:
    """Remove what only this machine has; give files of ``patched`` times by their content.

    ninja and bytecode go by times: other content must have another one, the same content
    the same, or what one rebuild compiled would be compiled again after the next. These
    files are no hard links; those of other distributions may be, and stay as they are.
    """
    names = set(patched)
    for distribution in installed(site).values():
        extra = [n for n in _MACHINE_ONLY if (distribution.info / n).exists()]
        if extra:
            info = os.fsencode(distribution.info.name)
            changes: Changes = {info + b"/" + name.encode(): None for name in extra}
            record = (distribution.info / "RECORD").read_bytes()
            _write(
                site, {**changes, info + b"/RECORD": refreshed_record(record, changes, info, info)}
            )
        if distribution.name in names:
            for path, digest, _ in _rows(distribution):
                file = site / os.fsdecode(path)
                if digest and file.is_file():
                    time = content_time(digest)
                    os.utime(file, (time, time))


def change(site: Path, distribution: Installed, patched: PatchedDistribution) -> None:
    """Turn an installed pristine distribution into the patched one."""
    info = os.fsencode(distribution.info.name)
    files = {
        info + b"/" + os.fsencode(path.relative_to(distribution.info)): path.read_bytes()
        for path in distribution.info.rglob("*")
        if path.is_file()
    }
    changes = patched.complete(info, files, lambda path: (site / os.fsdecode(path)).read_bytes())
    _write(site, changes)
    for folder in (*sorted(distribution.info.rglob("*"), reverse=True), distribution.info):
        if folder.is_dir():
            folder.rmdir()


def _write(site: Path, changes: Changes) -> None:
    """Remove and create files; never in place: they may be hard links into uv's cache."""
    for path in changes:
        (site / os.fsdecode(path)).unlink(missing_ok=True)
    for path, data in changes.items():
        if data is not None:
            file = site / os.fsdecode(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            time = content_time(recorded_hash(data))
            os.utime(file, (time, time))


def content_time(digest: str) -> int:
    """Return the time of a file by its recorded hash, in seconds since 1970."""
    return _EPOCH + int.from_bytes(hashlib.sha256(digest.encode()).digest()[:4]) % _SPAN


class Claim(NamedTuple):
    """What a distribution's RECORD says of one installed file; ``digest`` may be empty."""

    distribution: str
    digest: str


def claims(site: Path) -> dict[bytes, list[Claim]]:
    """Return every installed file with the distributions that have it in their RECORDs.

    Bytecode and what installers write for themselves are left out. Now and then two
    distributions have one file (``build_backend.py`` at the root): the last one installed
    has its content there.
    """
    found: dict[bytes, list[Claim]] = {}
    for distribution in installed(site).values():
        skipped = {os.fsencode(f"{distribution.info.name}/{name}") for name in _BOOKKEEPING}
        for path, digest, _ in _rows(distribution):
            if path not in skipped and not path.endswith(b".pyc"):
                found.setdefault(path, []).append(Claim(distribution.name, digest))
    return found


def losers(site: Path, hashes: KnownHashes) -> list[str]:
    """Return the distributions to install again so that every file is of who should have it.

    An installer that works in parallel lets chance decide which of two distributions has
    a file that both bring. Here it is the last one by name.
    """
    found = set()
    for path, claimed in claims(site).items():
        if len({claim.digest for claim in claimed}) > 1:
            last = max(claimed)
            if next(hashes.of([_place(site, path)])) != last.digest:
                found.add(last.distribution)
    return sorted(found)


def refuse_disputed(site: Path, upstreams: Iterable[str]) -> None:
    """Raise InputError where two of these distributions bring one file with other content."""
    own = set(upstreams)
    for path, claimed in claims(site).items():
        theirs = [claim for claim in claimed if claim.distribution in own]
        if len({claim.digest for claim in theirs}) > 1:
            names = " and ".join(sorted(claim.distribution for claim in theirs))
            raise InputError(
                f"{names} both bring this file, with other content", where=display(path),
                next_step="leave one of the two upstreams out, or ask them to rename it",
            )  # fmt: skip


def digest_of(site: Path, hashes: KnownHashes) -> tuple[str, dict[str, str]]:
    """Check every file against RECORD and return the digest of it all, and each version.

    The digest covers the path and sha256 of every installed file but bytecode and what
    installers write for themselves. Raises PatchwrightError for the first file that is
    missing or has other content: then uv's cache holds a file that somebody changed.
    """
    total = hashlib.sha256()
    claimed = claims(site)
    paths = sorted(claimed)
    for path, actual in zip(paths, hashes.of([_place(site, p) for p in paths]), strict=True):
        recorded = {claim.digest for claim in claimed[path] if claim.digest}
        if not actual or (recorded and actual not in recorded):
            name = claimed[path][0].distribution
            said = "is missing" if not actual else f"has other content than {name} recorded"
            raise PatchwrightError(
                f"the file {said}", where=display(path),
                next_step=f"run `uv cache clean {name}` (a cached file was edited in place), then "
                "rebuild again",
            )  # fmt: skip
        total.update(b"%d %s %s\n" % (len(path), path, actual.encode()))
    hashes.save()
    return total.hexdigest(), {d.name: d.version for d in installed(site).values()}


def _rows(distribution: Installed) -> list[tuple[bytes, str, str]]:
    try:
        return read_record((distribution.info / "RECORD").read_bytes())
    except (OSError, csv.Error) as error:
        raise PatchwrightError(
            f"the list of {distribution.name}'s files cannot be read: {error}",
            where=str(distribution.info), next_step="rebuild again",
        ) from error  # fmt: skip


def _place(site: Path, path: bytes) -> bytes:
    return os.path.join(os.fsencode(site), path)  # noqa: PTH118 (bytes)


def compiled_from(site: Path, names: Iterable[str], prefixes: Iterable[str]) -> str:
    """Return the digest of what RECORD says of the files below ``prefixes``; empty: none.

    ``names`` are the distributions that have them. Compiled objects are keyed by it.
    """
    wanted = tuple(os.fsencode(prefix) for prefix in prefixes)
    there: Mapping[str, Installed] = installed(site)
    rows = sorted(
        (path, digest)
        for name in sorted(set(names) & there.keys())
        for path, digest, _ in _rows(there[name])
        if path.startswith(wanted)
    )
    text = b"".join(b"%d %s %s\n" % (len(p), p, d.encode()) for p, d in rows)
    return hashlib.sha256(text).hexdigest() if rows else ""
