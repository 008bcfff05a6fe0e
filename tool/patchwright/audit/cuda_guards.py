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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from patchwright.audit.knowledge import Knowledge
from patchwright.audit.sources import Lost, Sources
from patchwright.audit.trees import StoredTrees
from patchwright.audit.verdicts import code_of_audit, write
from patchwright.smoke import device_code
from patchwright.smoke.compiler import Compiler, find_compiler
from patchwright.smoke.jit import JitSpec, jit_spec, target
from patchwright.smoke.outcomes import Blocked, SmokeError, UpstreamRefused
from patchwright.smoke.preprocessed import Line, Preprocessed
from patchwright.smoke.trees import Trees
from patchwright.upstreams.layout import PathMap

# Where a module's generated sources lie: another folder for each run and architecture.
_GENERATED = re.compile(r"/[^\s\"]*/generated/")


@dataclass(frozen=True)
class Loss:
    """A directive by which lines are lost: ``loss`` as in ``sources.Lost``."""

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

    def modules(
        self, names: Sequence[str], say: Callable[[str], None] = lambda _: None
    ) -> list[Compared]:
        """Compare every CUDA source of the modules (``path::generator``), two at a time."""
        tasks: list[tuple[str, Path, JitSpec, JitSpec]] = []
        found: list[Compared] = []
        asked = []
        for name in names:
            known = self._recall_module(name)
            if known is not None:
                found += known
                continue
            say(f"asking {name.rpartition('::')[2]}")
            asked.append(name)
            try:
                first = spec_for(self.trees, name, self.reference, self.knowledge)
                second = spec_for(self.trees, name, self.target, self.knowledge, force=self.force,
                                  reference=self.reference)  # fmt: skip
            except (SmokeError, UpstreamRefused, Blocked) as error:
                found.append(Compared(name, "", why=str(error)))
                continue
            tasks += [(name, s, first, second) for s in first.sources if s.suffix == ".cu"]
        done = 0

        def one(task: tuple[str, Path, JitSpec, JitSpec]) -> Compared:
            nonlocal done
            result = self._source(*task)
            done += 1
            say(f"{done}/{len(tasks)} {task[1].name}")
            return result

        with ThreadPoolExecutor(2) as pool:
            made = found + list(pool.map(one, tasks))
        for name in asked:
            rows = [row for row in made if row.module == name]
            # What the machine lacked at this moment may be there at the next.
            if not any(row.why.startswith("needs more") for row in rows):
                write(self._module_path(name), [asdict(row) for row in rows])
        return sorted(made, key=lambda row: (names.index(row.module), row.source))

    @cached_property
    def _surroundings(self) -> str:
        """Everything that all modules are compared with: trees, compiler, headers, targets."""
        headers = sorted(p.name for p in (self.compiler.home / "include").glob("*"))
        parts = (repr(self.stored.state), self.compiler.identity, repr(headers), self.reference,
                 self.target, str(self.force), repr(self.knowledge.arguments),
                 code_of_audit())  # fmt: skip
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _module_path(self, name: str) -> Path:
        key = hashlib.sha256(f"{self._surroundings}\0{name}".encode()).hexdigest()
        return self.folder / key[:2] / f"{key}.json"

    def _recall_module(self, name: str) -> list[Compared] | None:
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            rows = json.loads(self._module_path(name).read_bytes())
            return [_row(dict(row)) for row in rows]
        return None

    def _source(self, module: str, source: Path, first: JitSpec, second: JitSpec) -> Compared:
        key = self._key(source, first, second)
        path = self.folder / key[:2] / f"{key}.json"
        known = self._recall(path)
        if known is not None:
            return _row(known)
        try:
            texts = [
                device_code.preprocess(spec, _own(spec, source), arch, compiler=self.compiler)
                for spec, arch in ((first, self.reference), (second, self.target))
            ]
        except (SmokeError, UpstreamRefused, Blocked) as error:
            return Compared(module, source.name, why=" ".join(str(error).split()))
        result = self._compared(module, source, *texts)
        needs = {
            str(Path(name).relative_to(self.trees.site)): _digest(Path(name))
            for text in texts
            for name in text.files
            if Path(name).is_relative_to(self.trees.site)
        }
        write(path, {"needs": needs, "result": asdict(result)})
        return result

    def _key(self, source: Path, first: JitSpec, second: JitSpec) -> str:
        parts = [self.compiler.identity, code_of_audit(), source.name, _digest(source)]
        for spec in (first, second):
            # A generated source includes what is generated beside it.
            beside = _own(spec, source).parent
            if beside.is_relative_to(spec.workspace):
                parts += [_digest(p) for p in sorted(beside.iterdir()) if p.is_file()]
            parts += [spec.name, *spec.nvcc_flags, *spec.gencode]
        return hashlib.sha256("\0".join((*parts, self.reference, self.target)).encode()).hexdigest()

    def _recall(self, path: Path) -> dict[str, Any] | None:
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            data = json.loads(path.read_bytes())
            if all(_digest(self.trees.site / n) == d for n, d in data["needs"].items()):
                return dict(data["result"])
        return None

    def _compared(
        self, module: str, source: Path, first: Preprocessed, second: Preprocessed
    ) -> Compared:
        one, other = ([placed(line) for line in text.lines] for text in (first, second))
        mine, theirs = set(one), set(other)
        lost = [line for line in one if line not in theirs]
        own = [line for line in other if line not in mine]
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
            counts[guard] = counts.get(guard, 0) + 1
        return [
            Loss(name, g.line, g.condition, g.function, g.loss, n)
            if g is not None
            else Loss(name, numbers[0], "", "", "text", n)
            for g, n in counts.items()
        ]


def placed(line: Line) -> Line:
    """Return a line with the same path of a generated file for both architectures.

    The path stands in the text as well, where a check names its file.
    """
    return line._replace(
        path=_GENERATED.sub("generated/", line.path), text=_GENERATED.sub("generated/", line.text)
    )


def _own(spec: JitSpec, source: Path) -> Path:
    """Return a spec's own file for a source: generated ones lie in each spec's workspace."""
    same = (s for s in spec.sources if s.name == source.name)
    return min(same, key=lambda s: s.parent.name != source.parent.name, default=source)


def _row(data: dict[str, Any]) -> Compared:
    losses = tuple(Loss(**loss) for loss in data.pop("losses"))
    return Compared(**data, losses=losses)


def summary(found: Sequence[Compared]) -> Mapping[str, int]:
    """Return how many sources lose a kernel, a barrier, other code, nothing, or cannot be told."""
    counts = {"kernel": 0, "barrier": 0, "code": 0, "nothing": 0, "cannot tell": 0}
    for one in found:
        kinds = {loss.loss for loss in one.losses}
        if one.why:
            counts["cannot tell"] += 1
        elif not one.lost:
            counts["nothing"] += 1
        else:
            counts[next((k for k in ("kernel", "barrier") if k in kinds), "code")] += 1
    return counts


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
