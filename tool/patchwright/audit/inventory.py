"""The gates of all upstreams of one state: which files to look at, and what is on record.

A file's gates are kept by its content and by the contents of the files that its
evaluation looked into: a patch to one file has only what depends on it evaluated again.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import pickle
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from patchwright.audit.findings import GateScanner
from patchwright.audit.gates import CAPABILITIES, Gate
from patchwright.audit.lookup import Names
from patchwright.audit.scanner import Found
from patchwright.audit.trees import StoredTrees
from patchwright.files import write_atomically
from patchwright.smoke.bindings import Module, Modules
from patchwright.smoke.outcomes import SmokeError

# A line without any of these words asks for no architecture by itself.
_WORDS = re.compile(
    rb"(?i)sm_?\d{2,3}|capabilit|blackwell|hopper|\barchs?\b|_arch\b|arch_|_arch_|CUDA_ARCH|device_sm"
    rb"|nvcc_flags|gencode|compute_\d|support_pdl|major_versions|get_device_properties|sm_version"
    rb"|[\"'](?:80|86|89|90|100|103|110|120|121)[af]?[\"']"
)
_SKIPPED = re.compile(r"(?:^|/)(?:tests?|test_\w+|3rdparty|benchmarks?|docs?)(?:/|\.py$)")
_ROUNDS = 3
_FORKED = 24  # files: below it a second process does not pay
_Answer = tuple[list[Gate], list[str], int] | str


@dataclass
class Inventory:
    """The gates of one state, by upstream and file; ``unread`` are files with why."""

    gates: list[Gate] = field(default_factory=list)
    unread: list[tuple[str, str, str]] = field(default_factory=list)
    files: int = 0
    scanned: int = 0


class Marked(GateScanner):
    """A scanner that knows which lines of every module mention an architecture."""

    words: Callable[[Module], Sequence[int]]

    def marked(self, module: Module) -> Sequence[int]:
        """Return the lines of a module that mention an architecture."""
        return self.words(module)


def inventory(
    trees: StoredTrees, upstreams: Iterable[str], cache_dir: Path | None = None
) -> Inventory:
    """Return the gates of the given upstreams, from the record where nothing changed."""
    work = _Work(trees, None if cache_dir is None else cache_dir / "audit" / "gates")
    result = Inventory()
    # Syntax trees are many small objects that live to the end: collecting finds nothing.
    collecting = gc.isenabled()
    gc.disable()
    try:
        for upstream in upstreams:
            work.upstream(upstream, result)
    finally:
        if collecting:
            gc.enable()
    result.gates.sort(key=lambda g: (g.upstream, g.path, g.line, g.kind))
    return result


class _Work:
    def __init__(self, trees: StoredTrees, folder: Path | None) -> None:
        self.trees = trees
        self.folder = folder
        self.modules = Modules(trees)
        self.names: set[str] = set()
        self._patterns: tuple[int, re.Pattern[bytes]] = (-1, _WORDS)
        self._words: tuple[int, re.Pattern[bytes]] = (-1, _WORDS)
        self._lines: dict[tuple[str, int], Sequence[int]] = {}
        self._scanners: dict[str, Marked] = {}
        self._shared = Names()
        self._reads: dict[int, frozenset[str]] = {}

    def upstream(self, upstream: str, result: Inventory) -> None:
        """Scan an upstream; again the files that read a name found to depend on the GPU."""
        paths = [p for p in self.trees.files(upstream) if _is_wanted(p)]
        result.files += len(paths)
        done: dict[str, list[Gate]] = {}
        self.names = set()
        fresh: set[str] = set()
        for number in range(_ROUNDS):
            pattern = self._pattern() if number == 0 else _of_names(fresh)
            found: set[str] = set()
            wanted = [p for p in paths if pattern.search(self.trees.read(upstream, p)) is not None]
            for path, answer in self._files(upstream, wanted).items():
                if isinstance(answer, str):
                    if number == 0:
                        result.unread.append((upstream, path, answer))
                    continue
                done[path], names, made = answer
                result.scanned += made
                found.update(names)
            fresh = {n for n in found - self.names if _is_telling(n)}
            self.names |= fresh
            if not fresh:
                break
        result.gates += [gate for gates in done.values() for gate in gates]

    def _pattern(self) -> re.Pattern[bytes]:
        if self._patterns[0] != len(self.names):
            words = "|".join(sorted(map(re.escape, self.names)))
            added = rf"|\b(?:{words})\b".encode() if words else b""
            self._patterns = len(self.names), re.compile(_WORDS.pattern + added)
        return self._patterns[1]

    def _files(self, upstream: str, paths: Sequence[str]) -> dict[str, _Answer]:
        """Return each file's gates, or why there are none; what is not on record in two halves."""
        found: dict[str, _Answer] = {}
        keys = {path: self._key(upstream, path) for path in paths}
        for path, key in keys.items():
            recorded = self._recall(key)
            if recorded is not None:
                found[path] = [Gate.from_json(g) for g in recorded["gates"]], recorded["names"], 0
        todo = [path for path in paths if path not in found]
        if len(todo) < _FORKED or (os.cpu_count() or 1) < 2:
            return found | self._made(upstream, todo, keys)
        # The gates of a file with many more lines than others take longer: deal them out.
        todo.sort(key=lambda path: len(self.trees.read(upstream, path)))
        halves = todo[0::2], todo[1::2]
        return found | in_two(
            lambda: self._made(upstream, halves[0], keys),
            lambda: self._made(upstream, halves[1], keys),
        )

    def _key(self, upstream: str, path: str) -> str:
        data = self.trees.read(upstream, path)
        names = sorted({m.decode() for m in self._named().findall(data)}) if self.names else []
        parts = (code_digest(), upstream, path, self.trees.oid(upstream, path), ",".join(names))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _named(self) -> re.Pattern[bytes]:
        known = len(self.names)
        if self._words[0] != known:
            self._words = known, _of_names(self.names)
        return self._words[1]

    def _made(
        self, upstream: str, paths: Sequence[str], keys: Mapping[str, str]
    ) -> dict[str, _Answer]:
        found: dict[str, _Answer] = {}
        for path in paths:
            try:
                gates, names, touched = self._scan(self.modules.at(upstream, path))
            except SmokeError as error:
                found[path] = str(error)
            except RecursionError:
                found[path] = "its expressions are nested too deeply"
            else:
                self._keep(keys[path], gates, names, touched)
                found[path] = gates, names, 1
        return found

    def _scan(self, module: Module) -> tuple[list[Gate], list[str], set[str]]:
        lines = self.lines(module)
        scans: dict[str, dict[tuple[int, int, str], Found]] = {}
        touched: set[str] = set()
        names: set[str] = set()
        only: set[str] | None = None
        for capability in CAPABILITIES:
            scanner = self._scanner(capability)
            scan = scanner.scan(module, lines, only)
            # Which conditions there are is the same for all capabilities.
            only = {found.function for found in scan.found.values()} if only is None else only
            scans[capability] = scan.found
            names |= scan.names
            touched |= scanner.needed_by(module)
            if not scan.found and not scan.names:
                break
        gates: dict[tuple[int, int, str], Gate] = {}
        for key in sorted({key for found in scans.values() for key in found}):
            by_capability = {c: found[key] for c, found in scans.items() if key in found}
            kinds = [f.kind for f in by_capability.values()]
            first = max(by_capability.values(), key=lambda f: (kinds.count(f.kind), f.kind))
            gates[key] = Gate(
                kind=first.kind, upstream=module.upstream, path=module.path, line=key[0],
                end_line=getattr(first.node, "end_lineno", None) or key[0],
                function=first.function, condition=first.condition,
                values={c: by_capability[c].value if c in by_capability else None for c in scans},
                # A place that the walk does not come to is not reached.
                reached={c: by_capability[c].reached if c in by_capability else False
                         for c in scans},
                effect=first.effect, assumed=any(f.assumed for f in by_capability.values()),
            )  # fmt: skip
        return list(gates.values()), sorted(names), touched

    def _scanner(self, capability: str) -> Marked:
        if capability not in self._scanners:
            major, _, minor = capability.partition(".")
            scanner = Marked(self.modules, (int(major), int(minor)), self._shared)
            scanner.reads = self._reads
            scanner.words = self.lines
            self._scanners[capability] = scanner
        return self._scanners[capability]

    def lines(self, module: Module) -> Sequence[int]:
        """Return the lines of a module that mention an architecture."""
        key = (module.dotted, len(self.names))
        if key not in self._lines:
            pattern = self._pattern()
            data = self.trees.read(module.upstream, module.path)
            ends = [match.start() for match in re.finditer(rb"\n", data)]
            self._lines[key] = tuple(
                sorted({bisect_left(ends, m.start()) + 1 for m in pattern.finditer(data)})
            )
        return self._lines[key]

    # The record

    def _recall(self, key: str) -> dict[str, Any] | None:
        if self.folder is None:
            return None
        try:
            variants = json.loads((self.folder / key[:2] / f"{key}.json").read_bytes())
            for variant in variants:
                if all(self._oid_of(dotted) == oid for dotted, oid in variant["needs"].items()):
                    return dict(variant)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return None

    def _oid_of(self, dotted: str) -> str | None:
        place = self.trees.module(dotted)
        return self.trees.oid(*place) if place is not None else None

    def _keep(self, key: str, gates: list[Gate], names: list[str], touched: set[str]) -> None:
        if self.folder is None:
            return
        path = self.folder / key[:2] / f"{key}.json"
        variant = {
            "needs": {dotted: self._oid_of(dotted) for dotted in sorted(touched)},
            "names": names,
            "gates": [gate.to_json() for gate in gates],
        }
        others: list[Any] = []
        with suppress(OSError, ValueError):
            others = json.loads(path.read_bytes())[:7]
        # A cache that cannot be written is no reason to stop.
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps([variant, *others]).encode())


def in_two(
    first: Callable[[], dict[str, _Answer]], second: Callable[[], dict[str, _Answer]]
) -> dict[str, _Answer]:
    """Return both results, the second made in a forked child at the same time."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "wb") as stream:
                pickle.dump(second(), stream)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    try:
        found = first()
        with os.fdopen(reader, "rb") as stream:
            data = stream.read()
    finally:
        _, status = os.waitpid(pid, 0)
    # A child that was killed has its half done here.
    return found | (pickle.loads(data) if status == 0 else second())  # noqa: S301


def _is_wanted(path: str) -> bool:
    return path.endswith(".py") and _SKIPPED.search(path) is None


def _is_telling(name: str) -> bool:
    """Short or common names would have every file scanned."""
    return len(name) > 5 and not name.startswith("__")


def _of_names(names: set[str]) -> re.Pattern[bytes]:
    words = "|".join(sorted(map(re.escape, names)))
    return re.compile(rf"\b(?:{words})\b".encode())


@cache
def code_digest() -> str:
    """The digest of the code that finds gates: another version may find others."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
