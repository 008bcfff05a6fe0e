"""The gates of all upstreams of one state: which files to look at, and what is on record.

A file's gates are kept by its content and by the contents of the files that its
evaluation looked into: a patch to one file has only what depends on it evaluated again.
"""

from __future__ import annotations

import gc
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from patchwright.audit.findings import GateScanner
from patchwright.audit.gates import CAPABILITIES, Gate
from patchwright.audit.interpret import SHORT
from patchwright.audit.lookup import Names
from patchwright.audit.mentions import marked, mentions, words
from patchwright.audit.pruning import parsed, pruned
from patchwright.audit.scanner import Found, Scan
from patchwright.audit.trees import StoredTrees
from patchwright.files import write_atomically
from patchwright.smoke.bindings import Module, Modules
from patchwright.smoke.outcomes import SmokeError

_SKIPPED = re.compile(r"(?:^|/)(?:tests?|test_\w+|3rdparty|benchmarks?|docs?)(?:/|\.py$)")
_ROUNDS = 3
# Bytes of source whose syntax trees are held at a time: a byte makes 20 to 30 of them.
_LARGEST = 12_000_000
_Answer = tuple[list[Gate], int] | str


@dataclass
class Inventory:
    """The gates of one state, by upstream and file; ``unread`` are files with why."""

    gates: list[Gate] = field(default_factory=list)
    unread: list[tuple[str, str, str]] = field(default_factory=list)
    files: int = 0
    scanned: int = 0
    # Of each upstream, the names that depend on the GPU.
    names: dict[str, frozenset[bytes]] = field(default_factory=dict)


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
        # Nor will it later: the first collection would only go through all of them.
        gc.freeze()
        if collecting:
            gc.enable()
    result.gates.sort(key=lambda g: (g.upstream, g.path, g.line, g.kind))
    return result


class _Pruned(Modules):
    """Modules without what is never interpreted; a tree is made again where marks grew."""

    def __init__(self, trees: StoredTrees, lines: Callable[[str, str], Sequence[int]]) -> None:
        super().__init__(trees)
        self._lines = lines
        self._made: dict[str, tuple[bytes, Module]] = {}
        self.size = 0

    def renew(self) -> None:
        """Look at the marks again."""
        self._known.clear()

    def _read(self, dotted: str, upstream: str, path: str) -> Module:
        data = self.trees.read(upstream, path)
        less = pruned(data, self._lines(upstream, path), SHORT)
        made = self._made.get(dotted)
        if made is None or made[0] != less:
            filename = str(self.trees.path(upstream, path))
            try:
                tree = parsed(data, less, filename)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                raise SmokeError(f"{upstream}: {path} is not valid Python: {error}") from error
            made = self._made[dotted] = (less, Module(dotted, upstream, path, tree, filename))
            self.size += len(less)
        return made[1]


class _Work:
    def __init__(self, trees: StoredTrees, folder: Path | None) -> None:
        self.trees = trees
        self.folder = folder
        self.names: frozenset[bytes] = frozenset()
        self._mentioning: dict[str, bool] = {}
        self._interned: dict[bytes, bytes] = {}
        self._words: dict[str, frozenset[bytes]] = {}
        self._lines: dict[tuple[str, str, int], Sequence[int]] = {}
        self._start_anew()

    def _start_anew(self) -> None:
        """Forget all syntax trees, and what is known by the identity of their nodes."""
        self.modules = _Pruned(self.trees, self.lines_of)
        self._scanners: dict[str, Marked] = {}
        self._shared = Names()
        self._reads: dict[int, frozenset[str]] = {}

    def _keep_small(self) -> None:
        if self.modules.size > _LARGEST:
            self._start_anew()
            gc.collect()

    def upstream(self, upstream: str, result: Inventory) -> None:
        """Scan the files of an upstream that mention an architecture, or a name that does."""
        paths = [p for p in self.trees.files(upstream) if _is_wanted(p)]
        result.files += len(paths)
        self._find_names(upstream, paths)
        result.names[upstream] = self.names
        wanted = [
            p for p in paths if self._asks(upstream, p) or self._named(upstream, p, self.names)
        ]
        for path, answer in self._files(upstream, wanted).items():
            if isinstance(answer, str):
                result.unread.append((upstream, path, answer))
            else:
                result.gates += answer[0]
                result.scanned += answer[1]

    def _find_names(self, upstream: str, paths: Sequence[str]) -> None:
        """Find the module-level names that depend on the GPU, and those that depend on these."""
        self.names = frozenset()
        wanted = [p for p in paths if self._asks(upstream, p)]
        for _ in range(_ROUNDS):
            found = {name for names in self._names_of(upstream, wanted).values() for name in names}
            fresh = frozenset(n.encode() for n in found if _is_telling(n)) - self.names
            if not fresh:
                break
            self.names |= fresh
            self.modules.renew()
            wanted = [p for p in paths if self._named(upstream, p, fresh)]
        self._scanners = {}
        self.modules.renew()

    def _asks(self, upstream: str, path: str) -> bool:
        oid = self.trees.oid(upstream, path)
        if oid not in self._mentioning:
            self._mentioning[oid] = mentions(self.trees.read(upstream, path))
        return self._mentioning[oid]

    def _named(self, upstream: str, path: str, names: frozenset[bytes]) -> frozenset[bytes]:
        """Return which of the names stand in a file."""
        oid = self.trees.oid(upstream, path)
        if oid not in self._words:
            found = words(self.trees.read(upstream, path))
            self._words[oid] = frozenset(self._interned.setdefault(w, w) for w in found)
        return names & self._words[oid]

    def _names_of(self, upstream: str, paths: Sequence[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        keys = {path: self._key(upstream, path, "names") for path in paths}
        for path, key in keys.items():
            recorded = self._recall(key)
            if recorded is not None:
                found[path] = list(recorded["names"])
        # What is worth evaluating grows with the names: nothing is taken over.
        self._scanners = {}
        for path in paths:
            if path not in found:
                found[path] = self._names_in(self._scanner("12.0"), upstream, path, keys[path])
                self._keep_small()
        return found

    def _names_in(self, scanner: Marked, upstream: str, path: str, key: str) -> list[str]:
        try:
            module = self.modules.at(upstream, path)
            names = sorted(scanner.scan(module, self.lines(module), inside=False).names)
        except (SmokeError, RecursionError):
            return []
        self._keep(key, [], names, scanner.needed_by(module))
        return names

    def _files(self, upstream: str, paths: Sequence[str]) -> dict[str, _Answer]:
        """Return each file's gates, or why there are none; made where none is on record."""
        found: dict[str, _Answer] = {}
        keys = {path: self._key(upstream, path) for path in paths}
        for path, key in keys.items():
            recorded = self._recall(key)
            if recorded is not None:
                found[path] = [Gate.from_json(g) for g in recorded["gates"]], 0
        todo = [path for path in paths if path not in found]
        return found | self._made(upstream, todo, keys)

    def _key(self, upstream: str, path: str, what: str = "gates") -> str:
        named = b",".join(sorted(self._named(upstream, path, self.names))).decode()
        parts = (code_digest(), what, upstream, path, self.trees.oid(upstream, path), named)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _made(
        self, upstream: str, paths: Sequence[str], keys: Mapping[str, str]
    ) -> dict[str, _Answer]:
        found: dict[str, _Answer] = {}
        for path in paths:
            self._keep_small()
            try:
                gates, touched = self._scan(self.modules.at(upstream, path))
            except SmokeError as error:
                found[path] = str(error)
            except RecursionError:
                found[path] = "its expressions are nested too deeply"
            else:
                self._keep(keys[path], gates, [], touched)
                found[path] = gates, 1
        return found

    def _scan(self, module: Module) -> tuple[list[Gate], set[str]]:
        lines = self.lines(module)
        scans: dict[str, dict[tuple[int, int, str], Found]] = {}
        touched: set[str] = set()
        first_scan: Scan | None = None
        for capability in CAPABILITIES:
            scanner = self._scanner(capability)
            scan = scanner.scan(module, lines, first_scan)
            first_scan = first_scan or scan
            scans[capability] = scan.found
            touched |= scanner.needed_by(module)
            if not scan.found:
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
        return list(gates.values()), touched

    def _scanner(self, capability: str) -> Marked:
        if capability not in self._scanners:
            self._scanners[capability] = self._made_scanner(capability)
        return self._scanners[capability]

    def _made_scanner(self, capability: str) -> Marked:
        major, _, minor = capability.partition(".")
        scanner = Marked(self.modules, (int(major), int(minor)), self._shared)
        scanner.reads, scanner.words = self._reads, self.lines
        return scanner

    def lines(self, module: Module) -> Sequence[int]:
        """Return the lines of a module that mention an architecture."""
        return self.lines_of(module.upstream, module.path)

    def lines_of(self, upstream: str, path: str) -> Sequence[int]:
        """Return the lines of a file that mention an architecture."""
        key = (upstream, path, len(self.names))
        if key not in self._lines:
            named = self._named(upstream, path, self.names)
            self._lines[key] = marked(self.trees.read(upstream, path), named)
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


def _is_wanted(path: str) -> bool:
    return path.endswith(".py") and _SKIPPED.search(path) is None


def _is_telling(name: str) -> bool:
    """Short or common names would have every file scanned."""
    return len(name) > 5 and not name.startswith("__")


@cache
def code_digest() -> str:
    """The digest of the code that finds gates: another version may find others."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
