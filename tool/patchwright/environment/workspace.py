"""flashinfer's JIT workspace: which compiled modules are there, and what they are made from.

A module is a folder ``cached_ops/NAME`` below ``.cache/flashinfer/VERSION/ARCH`` with
build.ninja, objects and NAME.so (flashinfer 0.6.3, jit/env.py and jit/core.py). An existing
build.ninja is not written again, and ninja compares times alone, so old flags and old
objects can stay in use. What `prebuild` made, or a program that `run` started, has a
manifest with the content of all that went into it; of other modules only the times can be
told.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

MANIFEST = "patchwright.json"
MODULES = "cached_ops"
PACKAGE = "flashinfer"
_GENERATORS = ("jit", "compilation_context.py")
_DEPS = b"# ninjadeps\n"


@dataclass(frozen=True)
class Manifest:
    """What a module was made from: sha256 of each file by path, of build.ninja, and of the
    results by name. ``entry`` is its generator, ``path::name``, where that is known.
    """

    entry: str
    ninja: str
    inputs: Mapping[str, str]
    results: Mapping[str, str]

    def write(self, folder: Path) -> None:
        """Write it beside the module."""
        from patchwright.files import sweep, write_atomically

        sweep(folder, MANIFEST)
        write_atomically(folder / MANIFEST, json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Return a module's manifest, None where there is none that can be read."""
        try:
            content = json.loads((folder / MANIFEST).read_bytes())
            entry, ninja = str(content["entry"]), str(content["ninja"])
            return cls(entry, ninja, dict(content["inputs"]), dict(content["results"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


Word = Literal["fresh", "stale", "rebuilt"]


class Verdict(NamedTuple):
    """``fresh``: made from what is installed; ``stale``: not, or that cannot be ruled out.

    ``rebuilt``: the next start compiles it anew by itself.
    """

    name: str
    folder: Path
    verdict: Word
    why: str = ""


@dataclass
class Hashes:
    """Digests of files, each read once."""

    known: dict[str, str] = field(default_factory=dict)

    def of(self, path: str) -> str:
        """Return a file's sha256, empty where it cannot be read."""
        if path not in self.known:
            try:
                with open(path, "rb") as stream:  # noqa: PTH123 - thousands of them
                    self.known[path] = hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError:
                self.known[path] = ""
        return self.known[path]


def base(variables: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of flashinfer's workspaces for a program with these variables."""
    home = variables.get("FLASHINFER_WORKSPACE_BASE") or variables.get("HOME") or str(Path.home())
    return Path(home) / ".cache" / PACKAGE


def modules(folder: Path) -> Iterator[Path]:
    """Yield the compiled modules below ``folder`` (one version), of every architecture."""
    for place in sorted(folder.glob(f"*/{MODULES}/*")):
        if (place / f"{place.name}.so").is_file():
            yield place


def made_before(folder: Path, version: str) -> set[str]:
    """Return the generators of what `prebuild` made for any patched state of a version."""
    places = [p for p in folder.glob("*") if p.name.partition("+")[0] == version.partition("+")[0]]
    manifests = [Manifest.read(module) for place in places for module in modules(place)]
    return {m.entry for m in manifests if m is not None and m.entry}


def judge(module: Path, packages: Path, hashes: Hashes) -> Verdict:
    """Say whether a module was made from the files that are installed below ``packages``."""
    verdict, why = _by_manifest(module, hashes) or _by_times(module, packages)
    return Verdict(module.name, module, verdict, why)


def _by_manifest(module: Path, hashes: Hashes) -> tuple[Word, str] | None:
    """Judge by content; None where there is no manifest, or ninja has run since."""
    manifest = Manifest.read(module)
    if manifest is None:
        return None
    for path, digest in manifest.inputs.items():
        if hashes.of(path) != digest:
            return "stale", f"compiled from another {path}"
    results = {"build.ninja": manifest.ninja, **manifest.results}
    same = all(hashes.of(str(module / name)) == digest for name, digest in results.items())
    return ("fresh", "") if same else None


def _by_times(module: Path, packages: Path) -> tuple[Word, str]:
    deps = read_deps(module / ".ninja_deps")
    if not deps:
        return "stale", "what it was compiled from is not recorded"
    inside = f"{packages}/"
    for output, inputs in deps.items():
        made = _status(output)
        if made is None:
            continue
        for path in inputs:
            if not path.startswith(inside):
                continue
            status = _status(path)
            if status is None:
                return "stale", f"compiled from {path}, which is gone"
            if status.st_mtime_ns > made.st_mtime_ns:
                return "rebuilt", f"{path} is newer: ninja compiles it again"
            # The change time cannot be set back, as installers do with the other one.
            if status.st_ctime_ns > made.st_mtime_ns:
                return "stale", f"compiled before {path} was put in place"
    return _by_flags(module, packages)


def _by_flags(module: Path, packages: Path) -> tuple[Word, str]:
    written = _status(str(module / "build.ninja"))
    if written is None:
        return "rebuilt", "its build.ninja is gone"
    for place in generators(packages):
        if place.stat().st_ctime_ns > written.st_mtime_ns:
            return "stale", f"its flags were written before {place} was put in place"
    return "fresh", ""


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - thousands of them
    except OSError:
        return None


def generators(packages: Path) -> list[Path]:
    """Return the files whose code decides sources and flags of the modules."""
    found = []
    for name in _GENERATORS:
        place = packages / PACKAGE / name
        found += sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return [place for place in found if place.is_file()]


def read_deps(path: Path) -> dict[str, list[str]]:
    """Return output to inputs from a ninja deps log (version 4); empty for any other file.

    Format: ninja's deps_log.h: records of paths, numbered as they come, and of outputs
    with their time and the numbers of their inputs; the last record of an output counts.
    """
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    if not data.startswith(_DEPS) or data[len(_DEPS) : len(_DEPS) + 4] != b"\4\0\0\0":
        return {}
    names: list[str] = []
    found: dict[str, list[str]] = {}
    at = len(_DEPS) + 4
    try:
        while at + 4 <= len(data):
            (size,) = struct.unpack_from("<I", data, at)
            at += 4
            length = size & 0x7FFFFFFF
            record = data[at : at + length]
            if len(record) < length:
                break  # ninja was killed while it wrote
            at += length
            if size >> 31:
                numbers = struct.unpack(f"<{length // 4}I", record)
                found[names[numbers[0]]] = [names[n] for n in numbers[3:]]
            else:
                names.append(os.fsdecode(record[:-4].rstrip(b"\0")))
    except (struct.error, IndexError):
        return {}
    return found
