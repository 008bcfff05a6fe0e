"""What the reference architecture compiles of a source and the target does not.

Each source is preprocessed for both with the module's own flags, as nvcc's device pass
does it; a line that only one of them has is mapped back to its file, its function and
the directive that decides.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from patchwright.audit.guards import branches
from patchwright.audit.knowledge import Knowledge
from patchwright.audit.sources import Lost, Sources
from patchwright.audit.trees import StoredTrees
from patchwright.audit.verdicts import code_of_audit, write
from patchwright.smoke import device_code
from patchwright.smoke.compiler import Compiler, find_compiler, wheel_includes
from patchwright.smoke.jit import JitSpec, jit_spec, target
from patchwright.smoke.outcomes import Blocked, SmokeError, UpstreamRefused
from patchwright.smoke.preprocessed import Preprocessed, lines_of_one
from patchwright.smoke.trees import Trees
from patchwright.upstreams.layout import PathMap

# Where a module's generated sources lie: another folder for each run and architecture.
_GENERATED = "/generated/"
# What keeps a header from being included twice decides nothing.
_ONCE = re.compile(r"!defined\(\w*_(?:H|HPP|CUH)_*\)")
# Reasons that may be gone at the next run.
_PASSING = re.compile(r"needs more|within \S+ s\b|without an answer")


@dataclass(frozen=True)
class Loss:
    """A directive by which lines are lost.

    ``loss`` is as in ``sources.Lost``, ``text`` where no directive is known to decide, or
    ``outside`` for a header that is not upstream's, such as the toolkit's.
    """

    path: str
    line: int
    condition: str
    function: str
    loss: str
    lines: int


@dataclass(frozen=True)
class Compared:
    """One source of one module for two architectures.

    ``why`` is empty, or why it cannot be told. ``lost`` counts the lines that only the
    reference has, ``own`` those that only the target has; ``flags`` tells whether the
    flags differ.
    """

    module: str
    source: str
    lost: int = 0
    own: int = 0
    flags: bool = False
    losses: tuple[Loss, ...] = ()
    why: str = ""


def spec_for(
    trees: Trees, generator: str, arch: str, knowledge: Knowledge, *, force: bool = False,
    reference: str = "10.0a",
) -> JitSpec:  # fmt: skip
    """Return a module's spec for an architecture.

    ``force`` takes the reference's and puts the target in its place where the generator
    refuses or is of another architecture. Raises what ``jit_spec`` raises.
    """
    name = generator.partition("::")[2]
    kwargs = (knowledge.arguments.get(name) or ({},))[0]
    try:
        spec = jit_spec(trees, generator, arch=arch, kwargs=kwargs, cuda="13.0")
        if not force or target(arch) in spec.targets:
            return spec
    except UpstreamRefused:
        if not force:
            raise
    other = jit_spec(trees, generator, arch=reference, kwargs=kwargs, cuda="13.0")
    code = f"arch=compute_{target(arch)},code=sm_{target(arch)}"
    made = dataclasses.replace(other, arch=(arch,), gencode=(code,))
    # The workspace with generated sources lives as long as the spec that made it.
    object.__setattr__(made, "_kept", other)
    return made


class GuardAudit:
    """Compares the sources of modules; keeps what it found by content."""

    def __init__(
        self, trees: Trees, stored: StoredTrees, upstream: str, knowledge: Knowledge,
        cache_dir: Path, *, reference: str, wanted: str, force: bool,
    ) -> None:  # fmt: skip
        self.trees, self.stored, self.upstream = trees, stored, upstream
        self.knowledge, self.force = knowledge, force
        self.reference, self.target = reference, wanted
        self.folder = cache_dir / "audit" / "guards"
        self.sources = Sources(stored, upstream)
        self.compiler: Compiler = find_compiler()
        self._digests: dict[Path, str] = {}
        self._branches: dict[str, list[tuple[int, int, str]]] = {}

    def modules(
        self, names: Sequence[str], files: Mapping[str, Collection[str]],
        say: Callable[[str], None] = lambda _: None,
    ) -> list[Compared]:  # fmt: skip
        """Compare the CUDA sources of modules (``path::generator``), two at a time.

        ``files`` names those of a module by file name; without an entry it is all.
        """
        tasks: list[tuple[str, Path, JitSpec, JitSpec]] = []
        found: list[Compared] = []
        asked: dict[str, dict[str, str]] = {}
        for name in names:
            known = self._recall_module(name) if name not in files else None
            if known is not None:
                found += known
                continue
            say(f"asking {name.rpartition('::')[2]}")
            asked[name] = {}
            try:
                first = spec_for(self.trees, name, self.reference, self.knowledge)
                second = spec_for(self.trees, name, self.target, self.knowledge, force=self.force,
                                  reference=self.reference)  # fmt: skip
            except (SmokeError, UpstreamRefused, Blocked) as error:
                found.append(Compared(name, "", why=" ".join(str(error).split())))
                continue
            tasks += [
                (name, s, first, second)
                for s in first.sources
                if s.suffix == ".cu" and s.name in files.get(name, [s.name])
            ]
        done = 0

        def one(task: tuple[str, Path, JitSpec, JitSpec]) -> Compared:
            nonlocal done
            result, needs = self._source(*task)
            asked[task[0]].update((n, d) for n, d in needs.items() if not self._in_tree(n))
            done += 1
            say(f"{done}/{len(tasks)} {task[1].name}")
            return result

        with ThreadPoolExecutor(2) as pool:
            made = found + list(pool.map(one, tasks))
        for name, needs in asked.items():
            rows = [row for row in made if row.module == name]
            if name not in files and not any(_PASSING.search(row.why) for row in rows):
                record = {"needs": needs, "rows": [asdict(row) for row in rows]}
                write(self._module_path(name), record)
        return sorted(made, key=lambda row: (names.index(row.module), row.source))

    @cached_property
    def _surroundings(self) -> str:
        """Everything that all modules are compared with: trees, compiler, headers, targets."""
        folders = (self.compiler.home / "include", *wheel_includes(self.compiler))
        # A header that was missing may be there now.
        headers = sorted(p.name for folder in folders for p in folder.glob("*"))
        parts = (repr(self.stored.state), self.compiler.identity, repr(headers), self.reference,
                 self.target, str(self.force), repr(self.knowledge.arguments),
                 code_of_audit())  # fmt: skip
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _module_path(self, name: str) -> Path:
        key = hashlib.sha256(f"{self._surroundings}\0{name}".encode()).hexdigest()
        return self.folder / key[:2] / f"{key}.json"

    def _recall_module(self, name: str) -> list[Compared] | None:
        data = self._recall(self._module_path(name))
        with suppress(KeyError, TypeError, AttributeError):
            return [_row(dict(row)) for row in data["rows"]] if data else None
        return None

    def _source(
        self, module: str, source: Path, first: JitSpec, second: JitSpec
    ) -> tuple[Compared, dict[str, str]]:
        """Return the comparison and the files that it was made from, with their digests."""
        key = self._key(source, first, second)
        path = self.folder / key[:2] / f"{key}.json"
        data = self._recall(path)
        with suppress(KeyError, TypeError, AttributeError):
            if data:
                return _row(dict(data["result"]) | {"module": module}), data["needs"]
        try:
            texts = [
                device_code.preprocess(spec, _own(spec, source), arch, compiler=self.compiler)
                for spec, arch in ((first, self.reference), (second, self.target))
            ]
        except (SmokeError, UpstreamRefused, Blocked) as error:
            return Compared(module, source.name, why=" ".join(str(error).split())), {}
        result = self._compared(module, source, *texts)
        generated = tuple(f"{spec.workspace}/" for spec in (first, second))
        needs = {
            self._named(name): self._digest(Path(name))
            for name in frozenset().union(*(text.files for text in texts))
            if not name.startswith(generated)
        }
        write(path, {"needs": needs, "result": asdict(result)})
        return result, needs

    def _named(self, path: str) -> str:
        """Return a file's name: the same wherever the tree and the toolkit stand."""
        for folder, name in ((self.trees.site, ""), (self.compiler.home, "$cuda_home/")):
            if path.startswith(f"{folder}/"):
                return name + path[len(f"{folder}/") :]
        return path

    def _in_tree(self, name: str) -> bool:
        return not name.startswith(("/", "$cuda_home/"))

    def _place(self, name: str) -> Path:
        if name.startswith("$cuda_home/"):
            return self.compiler.home / name.removeprefix("$cuda_home/")
        return self.trees.site / name

    def _key(self, source: Path, first: JitSpec, second: JitSpec) -> str:
        parts = [self.compiler.identity, code_of_audit(), source.name, self._digest(source)]
        for spec in (first, second):
            # A generated source includes what is generated beside it.
            beside = _own(spec, source).parent
            if beside.is_relative_to(spec.workspace):
                parts += [self._digest(p) for p in sorted(beside.iterdir()) if p.is_file()]
            parts += [spec.name, *spec.nvcc_flags, *spec.gencode]
        return hashlib.sha256("\0".join((*parts, self.reference, self.target)).encode()).hexdigest()

    def _recall(self, path: Path) -> dict[str, Any] | None:
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            data = json.loads(path.read_bytes())
            if all(self._digest(self._place(n)) == d for n, d in data["needs"].items()):
                return dict(data)
        return None

    def _digest(self, path: Path) -> str:
        if path not in self._digests:
            self._digests[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self._digests[path]

    def _compared(
        self, module: str, source: Path, first: Preprocessed, second: Preprocessed
    ) -> Compared:
        lost, own = lines_of_one(*(placed(text.marked, text.site) for text in (first, second)))
        places: dict[str, list[int]] = {}
        for line in lost:
            places.setdefault(line.path, []).append(line.number)
        losses = [loss for path, numbers in places.items() for loss in self._places(path, numbers)]
        return Compared(module, source.name, len(lost), len(own),
                        first.flags != second.flags, tuple(losses))  # fmt: skip

    def _places(self, installed: str, numbers: list[int]) -> list[Loss]:
        layout = self.trees._sources[self.upstream].layout
        path = PathMap(layout).to_repository(installed.encode())
        name = path.decode() if path is not None else installed
        guards: list[Lost] = []
        if path is not None:
            with suppress(SmokeError):
                guards = self.sources.lost(name, target(self.reference), target(self.target))
        counts: dict[Lost | None, int] = {}
        for number in numbers:
            around = [g for g in guards if g.line < number <= g.last]
            guard = max(around, key=lambda g: g.line, default=None)
            if guard is None and path is not None:
                guard = self._branch(name, number)
            counts[guard] = counts.get(guard, 0) + 1
        return [
            Loss(name, g.line, g.condition, g.function, g.loss, n)
            if g is not None
            else Loss(name, numbers[0], "", "", "outside" if path is None else "text", n)
            for g, n in counts.items()
        ]

    def _branch(self, path: str, line: int) -> Lost | None:
        """Return the innermost branch around a line, whatever macro decides it."""
        if path not in self._branches:
            text = ""
            with suppress(SmokeError):
                text = self.stored.text(self.upstream, path)
            self._branches[path] = branches(text)
        for first, last, condition in self._branches[path]:
            if first < line < last and not _ONCE.fullmatch(condition):
                return Lost(path, first, last, condition, "", False, "code")
        return None


def placed(marked: str, site: Path) -> str:
    """Return preprocessed text with the same paths for both architectures.

    Files of the tree become relative to it, generated ones to their folder, also where
    a check names its file in the text.
    """
    folders = set()
    at = marked.find(_GENERATED)
    while at >= 0:
        start = max(marked.rfind(mark, 0, at) for mark in '"\n') + 1
        folders.add(marked[start : at + len(_GENERATED)])
        at = marked.find(_GENERATED, at + 1)
    for folder in folders:
        if folder.startswith("/") and not folder.startswith(f"{site}/"):
            marked = marked.replace(folder, "generated/")
    return marked.replace(f'"{site}/', '"')


def _own(spec: JitSpec, source: Path) -> Path:
    """Return a spec's own file for a source: generated ones lie in each spec's workspace."""
    same = (s for s in spec.sources if s.name == source.name)
    return min(same, key=lambda s: s.parent.name != source.parent.name, default=source)


def _row(data: dict[str, Any]) -> Compared:
    losses = tuple(Loss(**loss) for loss in data.pop("losses"))
    return Compared(**data, losses=losses)


def summary(found: Sequence[Compared]) -> Mapping[str, int]:
    """Return how many sources lose a kernel, a barrier, other code, nothing, or cannot be told.

    ``outside`` are those in which only headers differ that are not upstream's.
    """
    counts = dict.fromkeys(("kernel", "barrier", "code", "outside", "nothing", "cannot tell"), 0)
    for one in found:
        kinds = {loss.loss for loss in one.losses}
        if one.why:
            counts["cannot tell"] += 1
        elif not one.lost:
            counts["nothing"] += 1
        else:
            worst = "outside" if kinds == {"outside"} else "code"
            counts[next((k for k in ("kernel", "barrier") if k in kinds), worst)] += 1
    return counts
