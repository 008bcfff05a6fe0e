"""The JIT modules that a selection of patches touches, and those that a name stands for."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from patchwright.environment.prebuild import Job

if TYPE_CHECKING:
    from patchwright.audit.behind import Modules
    from patchwright.audit.census import Generator
    from patchwright.project import Project
    from patchwright.series import Selection


def touched(project: Project, selection: Selection, also: Collection[str] = ()) -> list[Job]:
    """Return the generators whose code, sources or headers the patches change, and ``also``.

    ``also`` are entries (``path::name``); those that are no more are left out. Raises
    InputError where no upstream has JIT modules.
    """
    from patchwright.applying.chain import Chain
    from patchwright.audit.behind import modules_of
    from patchwright.audit.sources import Sources
    from patchwright.audit.trees import StoredTrees
    from patchwright.environment.patched import differences
    from patchwright.smoke.outcomes import SmokeError

    chain = Chain(project)
    before = StoredTrees.of(project, chain.base())
    with modules_of(project, selection) as found:
        state, _ = chain.apply(selection.pick(project.series))
        changed = {
            path.decode("utf-8", "replace")
            for path, _ in differences(
                project.store, chain.base().tree(found.upstream), state.tree(found.upstream)
            )
        }
        sources = Sources(found.stored, found.upstream)
        wanted = []
        for generator in found.all:
            if generator.entry in also:
                wanted.append(generator)
                continue
            if generator.path in changed and _differs(found, before, generator):
                wanted.append(generator)
                continue
            try:
                files = sources.closure(sources.of_generator(generator.path, generator.name))
            except SmokeError:
                continue
            if changed.intersection(files):
                wanted.append(generator)
        return jobs(found, wanted)


def named(project: Project, selection: Selection, names: Sequence[str]) -> tuple[list[Job], bool]:
    """Return the generators that ``names`` stand for: a module, a generator, a source.

    The second value tells that a name has to be looked for among the modules' own names:
    the generators are then all that there are. Raises InputError.
    """
    from patchwright.audit.behind import modules_of
    from patchwright.errors import InputError

    with modules_of(project, selection) as found:
        wanted: list[Generator] = []
        for name in names:
            own = [g for g in found.all if name in (g.name, g.entry, _module_name(g))]
            try:
                entries = {g.entry for g in own} or set(found.named(name))
            except InputError:
                return jobs(found, [g for g in found.all if not g.needs]), True
            wanted += [g for g in found.all if g.entry in entries and g not in wanted]
        return jobs(found, wanted), False


def jobs(found: Modules, wanted: Sequence[Generator]) -> list[Job]:
    """Return how each generator is called in an environment."""
    made = []
    for generator in wanted:
        place = found.trees.path(found.upstream, generator.path).relative_to(found.trees.site)
        module = ".".join(place.with_suffix("").parts)
        if not generator.needs:
            made.append(Job(generator.entry, module, generator.name, dict(generator.kwargs)))
    return made


def _module_name(generator: Generator) -> str:
    return generator.name.removeprefix("gen_").removesuffix("_module")


def _differs(found: Modules, before: object, generator: Generator) -> bool:
    """Return whether a generator, or the rest of its file but for other generators, changed."""
    from patchwright.audit.trees import StoredTrees
    from patchwright.smoke.outcomes import SmokeError

    assert isinstance(before, StoredTrees)
    texts = []
    for trees in (before, found.stored):
        try:
            tree = trees.ast(found.upstream, generator.path)
        except (SmokeError, KeyError):
            return True
        texts.append([
            ast.dump(node) for node in tree.body
            if not isinstance(node, ast.FunctionDef)
            or not node.name.startswith("gen_") or node.name == generator.name
        ])  # fmt: skip
    return texts[0] != texts[1]
