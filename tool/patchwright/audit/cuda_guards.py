"""What the reference architecture compiles of a source and the target does not.

Each source is preprocessed for both with the module's own flags, as nvcc's device pass
does it; a line that only one of them has is mapped back to its file, its function and
the directive that decides.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from patchwright.audit.knowledge import Knowledge
from patchwright.audit.sources import Lost, Sources
from patchwright.audit.trees import StoredTrees
from patchwright.audit.verdicts import write
from patchwright.smoke import device_code
from patchwright.smoke.compiler import Compiler, find_compiler
from patchwright.smoke.jit import JitSpec, jit_spec, target
from patchwright.smoke.outcomes import Blocked, SmokeError, UpstreamRefused
from patchwright.smoke.preprocessed import Preprocessed
from patchwright.smoke.trees import Trees
from patchwright.upstreams.layout import PathMap


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
        for name in names:
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
            return found + list(pool.map(one, tasks))

    def _source(self, module: str, source: Path, first: JitSpec, second: JitSpec) -> Compared:
        key = self._key(source, first, second)
        path = self.folder / key[:2] / f"{key}.json"
        known = self._recall(path)
        if known is not None:
            losses = tuple(Loss(**loss) for loss in known.pop("losses"))
            return Compared(**known, losses=losses)
        try:
            texts = [
                device_code.preprocess(spec, source, arch, compiler=self.compiler)
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
        parts = [self.compiler.identity, source.name, _digest(source)]
        for spec in (first, second):
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
        mine, theirs = set(first.lines), set(second.lines)
        lost = [line for line in first.lines if line not in theirs]
        own = [line for line in second.lines if line not in mine]
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
