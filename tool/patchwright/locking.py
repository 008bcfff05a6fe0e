"""Makes a lock from what is wanted, and checks one against what is there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from patchwright.errors import PatchwrightError
from patchwright.lock import (
    Disagreement,
    Lock,
    LockedPatch,
    LockedUpstream,
    patch_file,
    upstream_disagreements,
)

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.applying.verdicts import ApplyVerdict
    from patchwright.project import Project
    from patchwright.series import Series
    from patchwright.upstreams import Pristine


@dataclass(frozen=True)
class Outcome:
    """The lock that was made, or the verdicts that stood in its way.

    ``notes`` are facts of its environment that a user should know.
    """

    lock: Lock | None
    verdicts: tuple[ApplyVerdict, ...]
    notes: tuple[str, ...] = ()

    @property
    def refused(self) -> tuple[ApplyVerdict, ...]:
        """The patches that do not apply."""
        return tuple(v for v in self.verdicts if not v.ok)


def make_lock(
    project: Project, *, upgrade: bool = False, packages: Collection[str] = (),
    keep_environment: bool = False,
) -> Outcome:  # fmt: skip
    """Resolve and import every upstream, apply the whole series, resolve the environment.

    Writes nothing. What did not change in pyproject.toml keeps what the lock has, unless
    ``upgrade``, or unless ``packages`` (canonical names) has it. ``keep_environment`` leaves
    the environment as it is locked, for whatever pins that was: ``lock --check`` says so.
    Raises InputError for a patch that was made for another pin, and for a package that is
    not there to upgrade.
    """
    from patchwright.applying.chain import Chain
    from patchwright.environment.locking import make_environment
    from patchwright.environment.patched import distribution_name
    from patchwright.environment.wheels import lock_wheels

    # All that the files alone can tell is told before any download.
    series = project.series
    for problem in series.check_pins(
        {u.name: u.version for u in project.config.upstreams.values()}
    ):
        raise problem
    moved = {distribution_name(u): u.name for u in project.config.upstreams.values()}
    own = {moved[name] for name in packages if name in moved}
    upstreams = []
    for name in sorted(project.config.upstreams):
        anew = upgrade or name in own
        entry = project.resolve(name) if anew else project.locked_upstream(name)
        pristine = _imported(project, entry)
        upstreams.append(replace(entry, tree=pristine.tree, outside=pristine.outside))
    state, verdicts = Chain(project).apply(series.patches)
    if not all(verdict.ok for verdict in verdicts):
        return Outcome(None, verdicts)
    patches = _patches(project, series, verdicts)
    if keep_environment:
        kept = project.lock.environment if project.lock is not None else {}
        return Outcome(Lock(tuple(upstreams), patches, kept), verdicts)
    others = None if upgrade else [name for name in packages if name not in moved]
    environment = make_environment(project, upstreams, others)
    notes: tuple[str, ...] = ()
    table: dict[str, object] = {}
    if environment is not None:
        environment = lock_wheels(project, environment, state)
        notes = environment.facts()
        table = environment.to_table()
    return Outcome(Lock(tuple(upstreams), patches, table), verdicts, notes)


def _patches(
    project: Project, series: Series, verdicts: Sequence[ApplyVerdict]
) -> tuple[LockedPatch, ...]:
    return tuple(
        LockedPatch(
            patch_file(project.root, patch.path), verdict.upstream, patch.sha256, verdict.tree or ""
        )
        for patch, verdict in zip(series.patches, verdicts, strict=True)
    )


def relocked(project: Project, series: Series) -> Lock | None:
    """Return the lock with ``series`` in place of its patches; its pins stay.

    None where there is no lock, where its pins disagree with pyproject.toml, and where
    a patch does not apply or was made for another pin: ``make_lock`` tells why.
    """
    from patchwright.applying.chain import Chain

    lock = project.lock
    if lock is None or {u.name for u in lock.upstreams} != set(project.config.upstreams):
        return None
    if any(
        upstream_disagreements(u, project.config.upstreams[u.name], project.root)
        for u in lock.upstreams
    ) or series.check_pins({u.name: u.version for u in lock.upstreams}):
        return None
    state, verdicts = Chain(project).apply(series.patches)
    if not all(verdict.ok for verdict in verdicts):
        return None
    patches = _patches(project, series, verdicts)
    return replace(lock, patches=patches, environment=_with_wheels(project, state))


def _with_wheels(project: Project, state: State) -> dict[str, object]:
    """Return the lock's environment with the wheels of a new state of the series.

    Where they cannot be made (no network, and the archive is gone from the cache) it has
    none: `lock --check` names them, and the next `lock` makes them.
    """
    from patchwright.environment.locking import locked_environment
    from patchwright.environment.wheels import lock_wheels

    environment = locked_environment(project)
    if environment is None:
        return {}
    try:
        return lock_wheels(project, environment, state).to_table()
    except PatchwrightError:
        return replace(environment, wheels={}).to_table()


def check_lock(project: Project, lock: Lock) -> list[Disagreement]:
    """Return every disagreement between the lock, pyproject.toml and the patches.

    What can be told from the files alone comes first; only when all of that agrees are
    the trees compared, which imports the pins where the cache lacks them.
    """
    return project.stale() or _trees(project, lock)


def _imported(project: Project, entry: LockedUpstream) -> Pristine:
    """Import what ``entry`` names without believing its tree ids: they are the question."""
    project.use(replace(entry, tree="", outside=""))
    return project.pristine(entry.name)


def _trees(project: Project, lock: Lock) -> list[Disagreement]:
    from patchwright.applying.chain import Chain
    from patchwright.environment.wheels import wheel_disagreements

    found = []
    for entry in lock.upstreams:
        pristine = _imported(project, entry)
        for key, locked, actual in (
            ("tree", entry.tree, pristine.tree),
            ("outside", entry.outside, pristine.outside),
        ):
            if locked != actual:
                found.append(Disagreement(f"upstream {entry.name}: {key}", locked, actual))
    series = project.series
    state, verdicts = Chain(project).apply(series.patches)
    locked_trees = {patch.file: patch.tree for patch in lock.patches}
    for patch, verdict in zip(series.patches, verdicts, strict=True):
        file = patch_file(project.root, patch.path)
        after = verdict.tree if verdict.ok else None
        if after != locked_trees[file]:
            shown = after or f"none, as it does not apply ({verdict.verdict}: {verdict.reason})"
            found.append(Disagreement(f"patch {file}: tree", locked_trees[file], shown))
    return found or wheel_disagreements(project, state)
