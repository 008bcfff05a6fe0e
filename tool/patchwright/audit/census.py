"""All JIT modules of flashinfer at once: which are built for which architecture.

The generators run as upstream wrote them, in one forked child for each architecture
list (see ``smoke/generator.py``); ``census`` is what that child calls in a generator's
place, and gives back one answer for each of them.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchwright.audit.knowledge import Knowledge
from patchwright.smoke import generator as child
from patchwright.smoke.jit import target
from patchwright.smoke.outcomes import SmokeError
from patchwright.smoke.trees import Trees

_GENCODE = re.compile(r"-gencode=(arch=compute_\w+,code=sm_(\w+))")
_CUDA = "13.0"
_DEADLINE = 180.0  # seconds, for all generators of one list
_PREFIXES = ("flashinfer/jit/", "flashinfer/")
_NO_MODULES = re.compile(
    r"gen_jit_spec$|gen_customize_|^gen_(?:fa2|fa3|attention|xqa|all_modules)$"
)


@dataclass(frozen=True)
class Generator:
    """One generator: repository path, name, the arguments that it is called with.

    ``broken`` says why a file that may have generators cannot be read; its path stands in
    the place of their names.
    """

    path: str
    name: str
    kwargs: Mapping[str, object]
    needs: tuple[str, ...] = ()  # arguments that nobody gives
    broken: str = ""

    @property
    def entry(self) -> str:
        """``path::name``; the path of a file that cannot be read."""
        return self.path if self.broken else f"{self.path}::{self.name}"


@dataclass(frozen=True)
class Cell:
    """What a generator answers for one architecture list.

    ``word`` is ``builds``, ``refused``, ``other`` (it is compiled, but not for what was
    asked), ``drops`` (some of a list are left out) or ``cannot-tell``.
    """

    word: str
    why: str = ""
    targets: tuple[str, ...] = ()


class _Census:
    """What stands in a JIT spec's place: its ninja file holds the answers."""

    name = "census"
    sources: tuple[str, ...] = ()

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        self.answers = answers
        self.ninja_path = Path("census.json").absolute()

    def write_ninja(self) -> None:
        """Write the answers."""
        self.ninja_path.write_text(json.dumps(self.answers), encoding="utf-8")


def census(jobs: Sequence[Sequence[Any]]) -> _Census:
    """Call each (module, function, kwargs) and note what comes back; runs in the child."""
    from patchwright.smoke import torch_stub

    answers = []
    for module, function, kwargs in jobs:
        answer: dict[str, Any] = {}
        try:
            given = {
                k: torch_stub.lookup(v) if isinstance(v, str) and v.startswith("torch.") else v
                for k, v in kwargs.items()
            }
            spec = getattr(importlib.import_module(module), function)(**given)
            spec.write_ninja()
            text = Path(spec.ninja_path).read_text("utf-8")
            answer = {"name": spec.name, "targets": [m[1] for m in _GENCODE.findall(text)],
                      "sources": [str(s) for s in spec.sources]}  # fmt: skip
        except RuntimeError as error:
            answer = {"refused": str(error)}
        except BaseException as error:
            # One generator that cannot run must not end the others.
            answer = {"broken": f"{type(error).__name__}: {error}"}
        answers.append(answer)
    return _Census(answers)


def generators(trees: Trees, upstream: str, knowledge: Knowledge) -> list[Generator]:
    """Return the functions that give a JIT module, those below ``jit/`` before their twins."""
    found: dict[str, Generator] = {}
    for path in sorted(trees.files(upstream), key=lambda p: (not p.startswith(_PREFIXES[0]), p)):
        if not path.endswith(".py") or not path.startswith(_PREFIXES) or "/data/" in path:
            continue
        if b"gen_" not in trees.read(upstream, path):
            continue
        try:
            tree = trees.ast(upstream, path)
        except SmokeError as error:
            found[path] = Generator(path, path, {}, broken=str(error))
            continue
        for node in tree.body:
            if (
                isinstance(node, ast.FunctionDef)
                and node.name.startswith("gen_")
                and not _NO_MODULES.search(node.name)
                and node.name not in found
            ):
                for generator in _called_with(path, node, knowledge):
                    found[node.name] = generator
    return list(found.values())


def _called_with(path: str, node: ast.FunctionDef, knowledge: Knowledge) -> list[Generator]:
    required = [a.arg for a in node.args.args[: len(node.args.args) - len(node.args.defaults)]]
    declared = knowledge.arguments.get(node.name)
    if not required:
        return [Generator(path, node.name, {})]
    if declared:
        return [Generator(path, node.name, kwargs) for kwargs in declared]
    return [Generator(path, node.name, {}, tuple(required))]


def run_census(trees: Trees, upstream: str, wanted: Sequence[Generator], arch: str) -> list[Cell]:
    """Return what each generator answers for an architecture list (``10.0a 12.0a``)."""
    asked = tuple(arch.split())
    jobs = [
        [_module(trees, upstream, g.path), g.name, dict(g.kwargs)]
        for g in wanted
        if not g.needs and not g.broken
    ]
    packages = tuple(sorted({p for u in trees.upstreams for p in trees.packages(u)}))
    workspace = Path(tempfile.mkdtemp(prefix="patchwright-census-"))
    try:
        call = child.Call(
            trees.site, packages, __name__, "census", (jobs,), {}, asked, _CUDA, workspace
        )
        answer = child.run(call, _DEADLINE)
        if "refused" in answer:
            raise SmokeError(str(answer["refused"]))
        answers = iter(json.loads(str(answer["ninja"])))
    except SmokeError as error:
        return [Cell("cannot-tell", str(error)) for _ in wanted]
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
    return [
        Cell("cannot-tell", g.broken or f"needs the arguments {', '.join(g.needs)}")
        if g.needs or g.broken
        else _cell(next(answers), asked)
        for g in wanted
    ]


def _cell(answer: Mapping[str, Any], asked: Sequence[str]) -> Cell:
    if "broken" in answer:
        return Cell("cannot-tell", str(answer["broken"]).partition("\n")[0])
    if "refused" in answer:
        text = str(answer["refused"]).partition("\n")[0]
        return Cell("refused" if "architectures" in text else "cannot-tell", text)
    targets = tuple(dict.fromkeys(answer["targets"]))
    wanted = [target(a) for a in asked]
    lacking = [a for a, t in zip(asked, wanted, strict=True) if t not in targets]
    if not targets:
        return Cell("cannot-tell", "it names no architecture")
    if not lacking:
        return Cell("builds", "", targets)
    shown = ", ".join(f"sm_{t}" for t in targets)
    if len(lacking) < len(asked):
        return Cell("drops", f"silently drops {', '.join(lacking)}: built for {shown}", targets)
    return Cell("other", f"built for {shown} whatever is asked", targets)


def _module(trees: Trees, upstream: str, path: str) -> str:
    parts = trees.path(upstream, path).relative_to(trees.site).with_suffix("").parts
    return ".".join(parts)
