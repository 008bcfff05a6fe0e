"""The content of an environment that was just built: finished, checked, and its digest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from patchwright.environment.hashes import KnownHashes
from patchwright.environment.installed import Distribution, distributions
from patchwright.environment.metadata import recorded_hash, refreshed_record
from patchwright.environment.patched import Changes, PatchedDistribution
from patchwright.errors import InputError, PatchwrightError
from patchwright.quoting import display

_MACHINE_ONLY = ("direct_url.json", "uv_cache.json", "uv_build.json")
_EPOCH, _SPAN = 1_000_000_000, 100_000_000  # seconds since 1970: September 2001; three years


class Content:
    """What is installed in ``site``. Each RECORD is read once for as long as it is the same."""

    def __init__(self, site: Path) -> None:
        self.site = site
        self._read: dict[bytes, tuple[tuple[int, ...], Distribution]] = {}

    @property
    def distributions(self) -> dict[str, Distribution]:
        """The distributions that are there now, by canonical name."""
        found = distributions(self.site)
        for name, distribution in found.items():
            try:
                status = (distribution.place / "RECORD").stat()
            except OSError:
                continue
            same = (status.st_ino, status.st_size, status.st_mtime_ns)
            before = self._read.get(distribution.info)
            if before is not None and before[0] == same:
                found[name] = before[1]
            else:
                self._read[distribution.info] = same, distribution
        return found


def finish(content: Content) -> None:
    """Remove what only this machine has."""
    site = content.site
    for distribution in content.distributions.values():
        info = distribution.info
        extra = [n for n in _MACHINE_ONLY if (distribution.place / n).exists()]
        if extra:
            changes: Changes = {info + b"/" + name.encode(): None for name in extra}
            record = (distribution.place / "RECORD").read_bytes()
            _write(
                site, {**changes, info + b"/RECORD": refreshed_record(record, changes, info, info)}
            )


def change(distribution: Distribution, patched: PatchedDistribution) -> None:
    """Turn an installed pristine distribution into the patched one."""
    info, place, site = distribution.info, distribution.place, distribution.folder
    files = {
        info + b"/" + os.fsencode(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file()
    }
    changes = patched.complete(info, files, lambda path: (site / os.fsdecode(path)).read_bytes())
    _write(site, changes)
    for folder in (*sorted(place.rglob("*"), reverse=True), place):
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


def _disputed(there: Iterable[Distribution]) -> dict[bytes, list[tuple[str, str]]]:
    """Return the files that several distributions bring with other content: who, and the hash.

    Now and then that happens (``build_backend.py`` at the root): the last one installed has
    its content there.
    """
    seen, both = set[bytes](), set[bytes]()
    there = list(there)
    for distribution in there:
        both.update(distribution.files.keys() & seen)
        seen.update(distribution.files)
    claims: dict[bytes, list[tuple[str, str]]] = {path: [] for path in both}
    for distribution in there:
        for path in both & distribution.files.keys():
            claims[path].append((distribution.name, distribution.files[path]))
    return {path: rows for path, rows in claims.items() if len({row[1] for row in rows}) > 1}


def losers(
    content: Content, hashes: KnownHashes, upstreams: Collection[str],
    take: Callable[[bytes, str, bytes], bool],
) -> list[str]:  # fmt: skip
    """Return the distributions that lack a file which they should have, the least first.

    An installer that works in parallel lets chance decide which of two distributions has
    a file that both bring. Here it is the upstream, else the last one by name. To install
    one again takes files from others, but only from those that come after it. ``take``
    may have the right file for a path, by its hash, and put it into its place.
    """

    def rank(name: str) -> tuple[bool, str]:
        return name in upstreams, name

    found = set()
    for path, claims in _disputed(content.distributions.values()).items():
        name, digest = max(claims, key=lambda claim: rank(claim[0]))
        place = _place(content.site, path)
        if hashes.of([place]) != [digest] and not take(path, digest, place):
            found.add(name)
    return sorted(found, key=rank)


def refuse_disputed(content: Content, upstreams: Iterable[str]) -> None:
    """Raise InputError where two of these distributions bring one file with other content."""
    there = content.distributions
    own = [there[name] for name in sorted(set(upstreams) & there.keys())]
    for path, claims in sorted(_disputed(own).items()):
        names = " and ".join(name for name, _ in claims)
        raise InputError(
            f"{names} both bring this file, with other content", where=display(path),
            next_step="leave one of the two upstreams out, or ask them to rename it",
        )  # fmt: skip


def digest_of(
    content: Content, hashes: KnownHashes, known: Mapping[bytes, str]
) -> tuple[str, dict[str, str]]:
    """Check every file against RECORD and return the digest of it all, and each version.

    The digest covers the path and sha256 of every installed file but bytecode and what
    installers write for themselves. ``known`` are hashes of files that were read before.
    Raises PatchwrightError for the first file that is missing or has other content: then
    uv's cache holds a file that somebody changed.
    """
    there = content.distributions
    recorded = {path: digest for d in there.values() for path, digest in d.files.items()}
    asked = [path for path in recorded if path not in known]
    root = os.fsencode(content.site) + b"/"
    found = hashes.of([root + path for path in asked])
    actual = {**known, **dict(zip(asked, found, strict=True))}
    rows = []
    for path in sorted(recorded):
        if actual[path] != recorded[path] or not actual[path]:
            _refuse_other(there.values(), path, actual[path])
        rows.append(b"%d %s %s\n" % (len(path), path, actual[path].encode()))
    hashes.save()
    digest = hashlib.sha256(b"".join(rows)).hexdigest()
    return digest, {name: d.version for name, d in there.items()}


def _refuse_other(there: Iterable[Distribution], path: bytes, actual: str) -> None:
    """Raise PatchwrightError unless somebody recorded this content, or nobody recorded any."""
    claims = [(d.name, d.files[path]) for d in there if path in d.files]
    digests = [digest for _, digest in claims if digest]
    if actual and (actual in digests or not digests):
        return
    names = [name for name, _ in claims]
    said = "is missing" if not actual else f"has other content than {' and '.join(names)} recorded"
    raise PatchwrightError(
        f"the file {said}", where=display(path),
        next_step=f"run `uv cache clean {' '.join(names)}` (a cached file was edited in place), "
        "then rebuild again; where that changes nothing, the RECORD in the wheel is wrong",
    )  # fmt: skip


def _place(site: Path, path: bytes) -> bytes:
    return os.fsencode(site) + b"/" + path


def compiled_from(there: Mapping[str, Distribution], prefixes: Iterable[str]) -> str:
    """Return the digest of what RECORD says of the files below ``prefixes``; empty: none.

    ``there`` are the distributions that have them. Compiled objects are keyed by it.
    """
    wanted = tuple(os.fsencode(prefix) for prefix in prefixes)
    rows = sorted(
        (path, digest)
        for _, distribution in sorted(there.items())
        for path, digest, _ in distribution.rows
        if path.startswith(wanted)
    )
    text = b"".join(b"%d %s %s\n" % (len(p), p, d.encode()) for p, d in rows)
    return hashlib.sha256(text).hexdigest() if rows else ""
