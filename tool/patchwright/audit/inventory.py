"""The gates of all upstreams of one state: which files to look at, and what is on record.

A file's gates are kept by its content and by what its evaluation looked into: a patch to
one file has only what depends on it evaluated again. Files are evaluated in as many
processes as there are cores; an answer never depends on which, or on what came before.
"""

from __future__ import annotations

import gc
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from patchwright.audit.answers import Known
from patchwright.audit.findings import GateScanner
from patchwright.audit.gates import CAPABILITIES, Gate
from patchwright.audit.gathered import gates_of
from patchwright.audit.marks import Marks, Place
from patchwright.audit.mentions import Facts, facts
from patchwright.audit.modules import Less, MarkedModules
from patchwright.audit.record import Record
from patchwright.audit.scanner import Found, Scan
from patchwright.audit.trees import StoredTrees
from patchwright.audit.workers import Workers
from patchwright.files import write_atomically
from patchwright.smoke.bindings import Module
from patchwright.smoke.outcomes import SmokeError

_SKIPPED = re.compile(r"(?:^|/)(?:tests?|test_\w+|3rdparty|benchmarks?|docs?)(?:/|\.py$)")
_ROUNDS = 3
# Bytes of source whose syntax trees a process holds: a byte makes 20 to 30 of them.
_LARGEST = 7_000_000
_Names = dict[bytes, list[str]]


@dataclass
class Inventory:
    """The gates of one state, by upstream and file; ``unread`` are files with why."""

    gates: list[Gate] = field(default_factory=list)
    unread: list[tuple[str, str, str]] = field(default_factory=list)
    files: int = 0
    scanned: int = 0
    # Of each upstream, the names that depend on the GPU, each with the files that bind it.
    names: dict[str, dict[bytes, set[str]]] = field(default_factory=dict)

    def marks(self, trees: StoredTrees, cache_dir: Path | None = None) -> Marks:
        """Return what says which lines of the same trees are worth evaluating."""
        marks = Marks(trees, cache_dir)
        for upstream, names in self.names.items():
            marks.add(upstream, names)
        return marks


class Marked(GateScanner):
    """A scanner that knows which lines of every module mention an architecture."""

    marks: Marks

    def marked(self, module: Module) -> Sequence[int]:
        """Return the lines of a module that mention an architecture."""
        return self.marks.lines((module.upstream, module.path))


def inventory(
    trees: StoredTrees, upstreams: Iterable[str], cache_dir: Path | None = None
) -> Inventory:
    """Return the gates of the given upstreams, from the record where nothing changed."""
    upstreams = tuple(upstreams)
    key = _state_key(trees, upstreams)
    path = None if cache_dir is None else cache_dir / "audit" / "states" / f"{key}.json"
    known = _recalled(path)
    if known is None:
        known = _made(trees, upstreams, cache_dir)
        if path is not None:
            _keep(path, known)
    return known


def _made(trees: StoredTrees, upstreams: Sequence[str], cache_dir: Path | None) -> Inventory:
    result = Inventory()
    # Syntax trees are many small objects that live to the end: collecting finds nothing.
    collecting = gc.isenabled()
    gc.disable()
    try:
        marks = Marks(trees, cache_dir)
        evaluation = _Evaluation(marks)
        with Workers(evaluation.answer) as workers:
            for upstream in upstreams:
                _Upstream(upstream, marks, workers, cache_dir).find(result)
        marks.record.save()
    finally:
        # Nor will it later: the first collection would only go through all of them.
        gc.freeze()
        if collecting:
            gc.enable()
    result.names = marks.names
    result.gates.sort(key=lambda g: (g.upstream, g.path, g.line, g.kind))
    return result


class _Upstream:
    """Finds the gates of one upstream's files; what is evaluated is evaluated by workers."""

    def __init__(self, name: str, marks: Marks, workers: Workers, cache_dir: Path | None) -> None:
        self.name = name
        self.marks = marks
        self.trees = marks.trees
        self.workers = workers
        path = None
        if cache_dir is not None:
            path = cache_dir / "audit" / "files" / f"{name}-{code_digest()[:32]}.json"
        self.record = Record(path)

    def find(self, result: Inventory) -> None:
        """Add the gates of the files that ask for an architecture, or ask one that does."""
        every = [p for p in self.trees.files(self.name) if _is_wanted(p)]
        result.files += len(every)
        self._learn(every)
        places: list[Place] = []
        astray: list[str] = []
        for path in every:
            if _is_module(self.trees, self.name, path):
                places.append((self.name, path))
            elif self.marks.asks((self.name, path)):
                astray.append(path)
        result.unread += _astray(self.name, astray)
        self._find_names(places)
        wanted = [p for p in places if self.marks.asks(p) or self.marks.named(p)]
        for place, answer in self._answers("gates", wanted).items():
            if isinstance(answer, str):
                result.unread.append((*place, answer))
            else:
                result.gates += [Gate.from_json(gate) for gate in answer]
        result.scanned += self._scanned
        self.record.save()

    def _learn(self, paths: Sequence[str]) -> None:
        unknown = self.marks.unknown((self.name, path) for path in paths)
        for found in self.workers.run("facts", dict.fromkeys(unknown, 20_000)):
            self.marks.learn(found)

    def _find_names(self, places: Sequence[Place]) -> None:
        """Find the module-level names that depend on the GPU, and those that depend on these."""
        self.marks.add(self.name, {})
        wanted = [p for p in places if self.marks.asks(p)]
        for _ in range(_ROUNDS):
            found: dict[bytes, set[str]] = {}
            for place, names in self._answers("names", wanted).items():
                for name in names if isinstance(names, list) else ():
                    if _is_telling(name):
                        found.setdefault(name.encode(), set()).add(place[1])
            before = {name: set(paths) for name, paths in self.marks.names[self.name].items()}
            self.marks.add(self.name, found)
            fresh = {name for name, paths in found.items() if paths - before.get(name, set())}
            if not fresh:
                break
            wanted = [p for p in places if fresh & self.marks.named(p)]

    _scanned = 0

    def _answers(self, what: str, places: Sequence[Place]) -> dict[Place, Any]:
        """Return what evaluation says of files: made where it is not on record."""
        keys = {place: self._key(what, place) for place in places}
        found: dict[Place, Any] = {}
        todo: dict[Place, int] = {}
        for place, key in keys.items():
            known = self._recall(key)
            if known is None:
                todo[place] = self.marks.facts(place).size
            else:
                found[place] = known
        for answers in self.workers.run(what, todo, self.marks.names):
            for place, answer, touched in answers:
                found[place] = answer
                if touched is not None:
                    self._keep(keys[place], answer, touched)
                    self._scanned += what == "gates"
        return {place: found[place] for place in places}

    def _key(self, what: str, place: Place) -> str:
        parts = (what, *place, self.marks.stamp_of(place))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _recall(self, key: str) -> Any:
        with suppress(ValueError, TypeError):
            for answer, needs, stamp in self.record.get(key) or ():
                if stamp == self._stamp(needs):
                    return answer
        return None

    def _keep(self, key: str, answer: Any, touched: Iterable[str]) -> None:
        needs = sorted(touched)
        others = self.record.get(key)
        others = others[:7] if isinstance(others, list) else []
        self.record.keep(key, [[answer, needs, self._stamp(needs)], *others])

    def _stamp(self, needs: Iterable[str]) -> str:
        text = "\0".join(self.marks.stamp(dotted) for dotted in needs)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class _Evaluation:
    """Evaluates files in one process."""

    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self._less: dict[Place, Less] = {}
        self._start_anew()

    def _start_anew(self) -> None:
        """Forget all syntax trees, and what is known of them."""
        self.modules = MarkedModules(self.marks, self._less)
        self._forget()

    def _forget(self) -> None:
        self._scanners: dict[str, Marked] = {}
        # What does not depend on the capability is found once for all of them, with what it
        # rests on.
        self._common = Known()
        self._needs: dict[str, set[str]] = {}

    def answer(self, method: str, argument: tuple[list[Place], Any]) -> Any:
        """Return what a process is asked for; see Workers."""
        places, names = argument
        gc.disable()
        if method == "facts":
            return self._facts(places)
        for upstream, known in names.items():
            self.marks.add(upstream, known)
        # What is worth evaluating grows with the names: nothing is taken over.
        self._forget()
        self.modules.renew()
        make = self._names if method == "names" else self._gates
        found: list[tuple[Place, Any, set[str] | None]] = []
        for place in places:
            if self.modules.size > _LARGEST:
                self._start_anew()
                gc.collect()
            try:
                answer, touched = make(self.modules.at(*place))
            except SmokeError as error:
                found.append((place, str(error), None))
            except RecursionError:
                found.append((place, "its expressions are nested too deeply", None))
            else:
                found.append((place, answer, touched))
        return found

    def _facts(self, places: Sequence[Place]) -> dict[Place, Facts]:
        read = self.marks.trees.peek
        return {place: facts(read(*place), self.marks.packages) for place in places}

    def _names(self, module: Module) -> tuple[list[str], set[str]]:
        scanner = self._scanner("12.0")
        lines = self.marks.lines((module.upstream, module.path))
        found = sorted(scanner.scan(module, lines, inside=False).names)
        return found, scanner.needed_by(module)

    def _gates(self, module: Module) -> tuple[list[dict[str, Any]], set[str]]:
        lines = self.marks.lines((module.upstream, module.path))
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
        gates = gates_of(module, scans, self.modules.tables(module))
        return [gate.to_json() for gate in gates], touched

    def _scanner(self, capability: str) -> Marked:
        if capability not in self._scanners:
            major, _, minor = capability.partition(".")
            scanner = self._scanners[capability] = Marked(self.modules, (int(major), int(minor)))
            scanner.marks, scanner.common, scanner.needs = self.marks, self._common, self._needs
        return self._scanners[capability]


def _astray(upstream: str, paths: Sequence[str]) -> list[tuple[str, str, str]]:
    """Tell of files that no package holds, those of one folder together."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    return [
        (upstream, members[0] if len(members) == 1 else f"{folder}/ ({len(members)} files)",
         f"not in {upstream}'s packages: nothing imports it")
        for folder, members in folders.items()
    ]  # fmt: skip


def _is_wanted(path: str) -> bool:
    return path.endswith(".py") and _SKIPPED.search(path) is None


def _is_module(trees: StoredTrees, upstream: str, path: str) -> bool:
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return any(
        trees.module(".".join(parts[start:])) == (upstream, path) for start in range(len(parts))
    )


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


# States that were looked at before


def _state_key(trees: StoredTrees, upstreams: Sequence[str]) -> str:
    text = f"{code_digest()} {trees.digest} {upstreams}"
    return hashlib.sha256(text.encode()).hexdigest()


def _recalled(path: Path | None) -> Inventory | None:
    if path is None:
        return None
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        data = json.loads(path.read_bytes())
        names = {
            upstream: {name.encode(): set(paths) for name, paths in found.items()}
            for upstream, found in data["names"].items()
        }
        gates = [Gate.from_json(gate) for gate in data["gates"]]
        unread = [(str(u), str(p), str(why)) for u, p, why in data["unread"]]
        return Inventory(gates, unread, int(data["files"]), 0, names)
    return None


def _keep(path: Path, found: Inventory) -> None:
    data = {
        "gates": [gate.to_json() for gate in found.gates], "unread": found.unread,
        "files": found.files,
        "names": {
            upstream: {name.decode(): sorted(paths) for name, paths in names.items()}
            for upstream, names in found.names.items()
        },
    }  # fmt: skip
    # A cache that cannot be written is no reason to stop.
    with suppress(OSError):
        write_atomically(path, json.dumps(data).encode())
