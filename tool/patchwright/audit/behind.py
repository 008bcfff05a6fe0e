"""What stands behind the gates, with a compiler: modules and sources by name, on one state."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from patchwright.audit.census import Generator, generators, run_census
from patchwright.audit.cuda_guards import Compared, GuardAudit, spec_for
from patchwright.audit.kernels import Object, compare_objects, dynamic_requests
from patchwright.audit.knowledge import Knowledge, load
from patchwright.audit.sites import site_of
from patchwright.audit.sources import Sources
from patchwright.audit.trees import StoredTrees
from patchwright.errors import InputError
from patchwright.smoke.outcomes import Blocked, SmokeError, UpstreamRefused
from patchwright.smoke.trees import Trees

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.series import Selection

Say = Callable[[str], None]


@dataclass(frozen=True)
class Modules:
    """The generators of one state with its files in a folder."""

    trees: Trees
    stored: StoredTrees
    upstream: str
    all: tuple[Generator, ...]
    knowledge: Knowledge

    def named(self, name: str) -> list[str]:
        """Return the generators that a name stands for: a generator's, or a source's users.

        Raises InputError for a name that is neither.
        """
        own = [g.entry for g in self.all if name in (g.name, g.entry)]
        if own:
            return own
        sources = Sources(self.stored, self.upstream)
        users = []
        for generator in self.all:
            try:
                files = sources.of_generator(generator.path, generator.name)
            except SmokeError:
                continue
            if any(f == name or f.endswith(f"/{name}") for f in files):
                users.append(generator.entry)
        if not users:
            raise InputError(
                f"no JIT module and no source of one is named {name!r}",
                next_step="patchwright audit matrix lists the modules",
            )
        return users

    def texts(self, source: str) -> dict[str, str]:
        """Return a source and what it includes from the upstream, by repository path."""
        sources = Sources(self.stored, self.upstream)
        files = [f for f in self.trees.files(self.upstream) if f"/{f}".endswith(f"/{source}")]
        return {path: self.stored.text(self.upstream, path) for path in sources.closure(files)}


@contextmanager
def modules_of(project: Project, selection: Selection) -> Iterator[Modules]:
    """Yield the modules of the tree with the selected patches."""
    from patchwright.applying.chain import Chain

    knowledge = load(project.root)
    chain = Chain(project)
    state, _ = chain.apply(selection.pick(project.series))
    with site_of(project, state) as trees:
        for upstream in trees.upstreams:
            found = tuple(generators(trees, upstream, knowledge))
            if found:
                stored = StoredTrees.of(project, state)
                yield Modules(trees, stored, upstream, found, knowledge)
                return
        raise InputError("no upstream of this project has JIT modules")


def compare_guards(
    project: Project, selection: Selection, names: Sequence[str], arch: str, reference: str,
    force: bool, say: Say,
) -> list[Compared]:  # fmt: skip
    """Compare the sources of modules; all that are built for both where none is named."""
    _require_archs(arch, reference)
    untold: list[Compared] = []
    with modules_of(project, selection) as found:
        # The files that are asked of a module; none: all of them.
        files: dict[str, set[str]] = {}
        if names:
            entries = {name: found.named(name) for name in names}
            wanted = list(dict.fromkeys(e for users in entries.values() for e in users))
            whole = {e for n, es in entries.items() if not n.endswith(".cu") for e in es}
            for name, users in entries.items():
                for entry in set(users) - whole:
                    files.setdefault(entry, set()).add(name.rpartition("/")[2])
        else:
            say("asking the generators")
            cells = [run_census(found.trees, found.upstream, found.all, a)
                     for a in (reference, arch)]  # fmt: skip
            wanted = []
            for generator, *answers in zip(found.all, *cells, strict=True):
                reasons = [c.why for c in answers if c.word == "cannot-tell"]
                if reasons:
                    untold.append(Compared(generator.entry, "", why=reasons[0]))
                elif all(c.word == "builds" for c in answers):
                    wanted.append(generator.entry)
        try:
            audit = GuardAudit(
                found.trees, found.stored, found.upstream, found.knowledge, project.cache_dir,
                reference=reference, wanted=arch, force=force,
            )  # fmt: skip
        except Blocked as error:
            return [*(Compared(name, "", why=str(error)) for name in wanted), *untold]
        return [*audit.modules(wanted, files, say), *untold]


def _require_archs(*archs: str) -> None:
    for arch in archs:
        if not re.fullmatch(r"\d+\.\d[af]?", arch):
            raise InputError(
                f"{arch!r} is not an architecture", next_step="name one such as 12.0a or 10.0a"
            )


def compare_source(
    project: Project, selection: Selection, source: str, arch: str, reference: str, force: bool,
    memory: int, say: Say,
) -> list[tuple[str, Object | str]]:  # fmt: skip
    """Compile a source for both, as a module that has it; a text says why it cannot be told.

    The next module that has it is asked where one cannot be built for both.
    """
    _require_archs(arch, reference)
    rows: list[tuple[str, Object | str]] = []
    with modules_of(project, selection) as found:
        for entry in found.named(source):
            name = entry.rpartition("::")[2]
            try:
                first = spec_for(found.trees, entry, reference, found.knowledge)
                second = spec_for(found.trees, entry, arch, found.knowledge, force=force,
                                  reference=reference)  # fmt: skip
            except (SmokeError, UpstreamRefused, Blocked) as error:
                rows.append((name, " ".join(str(error).split())))
                continue
            say(f"compiling {source} of {name} twice")
            try:
                made = compare_objects(
                    (first, reference),
                    (second, arch),
                    source.rpartition("/")[2],
                    memory=memory,
                    rewrites=found.knowledge.rewrites,
                )
                more = dynamic_requests(found.texts(source), major=arch.partition(".")[0])
                rows.append((name, replace(made, problems=(*made.problems, *more))))
            except (SmokeError, UpstreamRefused, Blocked) as error:
                rows.append((name, " ".join(str(error).split())))
            break
    return rows
