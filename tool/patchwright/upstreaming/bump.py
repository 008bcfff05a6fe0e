"""A move of pins, worked out whole before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from patchwright.errors import AnswerNo
from patchwright.locking import make_lock
from patchwright.series import Series
from patchwright.upstreaming.gates_aside import evaluated, inventories
from patchwright.upstreaming.moves import OPEN, Move, Mover
from patchwright.upstreaming.pins import Target, moved_config, moved_project
from patchwright.upstreaming.range_diff import range_diff
from patchwright.upstreaming.requirements import Needed, needed
from patchwright.upstreaming.trial import Trial, trial
from patchwright.upstreaming.underneath import Touched, touched

if TYPE_CHECKING:
    from patchwright.audit.gates import Change
    from patchwright.config import UpstreamConfig
    from patchwright.editing.carrying import Resolution
    from patchwright.lock import Lock, LockedUpstream
    from patchwright.patch import Patch
    from patchwright.project import Project

Say = Callable[[str], None]


class NothingToDo(AnswerNo):
    """Every upstream is at its target already."""


@dataclass(frozen=True)
class Pin:
    """One upstream's move."""

    old: UpstreamConfig
    new: UpstreamConfig
    tree: str

    def __str__(self) -> str:
        was, now = self.old.version, self.new.version
        if was == now:
            was, now = self.old.revision or was, self.new.revision or now
        return f"{self.old.name} {was} -> {now}"


@dataclass(frozen=True)
class Bump:
    """All that is known of a move before it is made.

    ``held`` are patches that cannot take part because they need one that does not (its
    number). ``trial`` and ``gates`` are None where they were not asked for. ``lock`` is
    the lock as it would be; None where a patch stands in the way.
    """

    project: Project
    candidate: Project
    pins: tuple[Pin, ...]
    moves: tuple[Move, ...]
    held: Mapping[int, int]
    without: frozenset[int]
    touched: tuple[Touched, ...]
    needed: tuple[Needed, ...]
    range_diffs: Mapping[str, str]
    lock: Lock | None = None
    trial: Trial | None = None
    gates: tuple[Change, ...] | None = None

    @property
    def open(self) -> tuple[Move, ...]:
        """The patches that stand in the way."""
        return tuple(move for move in self.moves if move.verdict in OPEN)

    @property
    def obsolete(self) -> tuple[int, ...]:
        """The patches whose smoke test, or what decides in it, passes on the new pin without
        them."""
        if self.trial is None:
            return ()
        return tuple(n for n, without in self.trial.without.items() if without.obsolete)

    @property
    def bad(self) -> tuple[int, ...]:
        """The patches that the static tier finds wrong on the new pin (obsolete ones aside)."""
        if self.trial is None:
            return ()
        found = {
            a.question.number for a in self.trial.answers
            if a.verdict in ("failed", "error", "vacuous")
        } - set(self.obsolete)  # fmt: skip
        return tuple(sorted(found))


def work_out(
    project: Project, wanted: Sequence[Target], *, without: Collection[int] = (),
    resolved: Mapping[int, Resolution] | None = None, static: bool = True, gates: bool = True,
    say: Say = lambda _: None,
) -> Bump:  # fmt: skip
    """Work out a move: nothing of the project is changed.

    Imports the new pins into the cache; runs at the static tier are kept as evidence.
    Raises NothingToDo, and InputError and PatchwrightError as resolving does.
    """
    project.series.check_numbers(without)
    configs = {}
    for target in wanted:
        config = moved_config(project, target)
        if config != project.upstream(target.upstream):
            configs[target.upstream] = config
    if not configs:
        raise NothingToDo(
            "the pin is there already: "
            + ", ".join(f"{t.upstream} {project.upstream(t.upstream).version}" for t in wanted),
            next_step="nothing to do",
        )
    fresh = moved_project(project, configs, project.series)
    pins = tuple(
        Pin(project.upstream(name), config, fresh.pristine(name).tree)
        for name, config in configs.items()
    )
    # What the pins resolved to is known: nobody is asked twice.
    locked = {
        name: (fresh if name in configs else project).locked_upstream(name)
        for name in project.config.upstreams
    }
    with evaluated(project, configs, locked, wanted=static and gates):
        bump = _moved(project, configs, locked, pins, without, resolved, say)
        if static:
            bump = replace(bump, trial=trial(
                project, bump.candidate, bump.moves,
                lambda run, result, done, total: say(
                    f"{done}/{total} {run.test.stem} {run.tier}: {result.outcome}"),
            ))  # fmt: skip
        if gates:
            say("evaluating the gates of both pins")
    if gates:
        bump = replace(bump, gates=_gates(project, bump.candidate, tuple(configs)))
    return bump


def _moved(
    project: Project, configs: Mapping[str, UpstreamConfig], locked: Mapping[str, LockedUpstream],
    pins: tuple[Pin, ...], without: Collection[int],
    resolved: Mapping[int, Resolution] | None, say: Say,
) -> Bump:  # fmt: skip
    """Move the series: all that is known before anything runs."""
    mover = Mover(
        project, {pin.new.name: pin.tree for pin in pins},
        {pin.new.name: pin.new.version for pin in pins}, without, resolved,
    )  # fmt: skip
    moves = mover.moves(say)
    patches = mover.series(moves)
    kept, held = standing(patches, moves, project.series)
    candidate = moved_project(project, configs, Series(kept, project.series.off))
    for entry in locked.values():
        candidate.use(entry)
    bump = Bump(
        project, candidate, pins, moves, held, frozenset(without),
        touched(project.store, moves), needed(project, candidate, configs),
        {pin.new.name: _range_diff(mover, pin, moves, brief=True) for pin in pins},
    )  # fmt: skip
    if not bump.open and not held:
        # Resolving the environment takes the network and minutes, and it may have no answer
        # before the other upstream moves as well: that is for `lock`, and said in `needed`.
        bump = replace(bump, lock=make_lock(candidate, keep_environment=True).lock)
    return bump


def standing(
    patches: Sequence[Patch], moves: Sequence[Move], series: Series
) -> tuple[tuple[Patch, ...], dict[int, int]]:
    """Return the patches that have what they need, and those that do not (with what)."""
    lost = {move.number for move in moves if not move.carried and move.verdict != "upstream"}
    held: dict[int, int] = {}
    kept = []
    for patch in patches:
        own = (need.number for need in series.get(patch.number).depends)
        need = next((n for n in own if n in lost or n in held), None)
        if need is None:
            kept.append(patch)
        else:
            held[patch.number] = need
    return tuple(kept), held


def full_range_diff(bump: Bump, upstream: str) -> str:
    """Return the range-diff of one upstream's series with its text."""
    return _range_diff_of(bump.project, upstream, bump.moves, brief=False)


def _range_diff(mover: Mover, pin: Pin, moves: Sequence[Move], *, brief: bool) -> str:
    return _range_diff_of(mover.project, pin.new.name, moves, brief=brief)


def _range_diff_of(project: Project, name: str, moves: Sequence[Move], *, brief: bool) -> str:
    own = [move for move in moves if move.upstream == name]
    if not own:
        return ""

    def title(move: Move) -> str:
        return f"{move.number:04d} {move.patch.title}"

    old = [("", own[0].base), *((title(m), m.made) for m in own if m.made)]
    new = [("", own[0].on), *((title(m), m.tree) for m in own if m.tree is not None)]
    return range_diff(project.store, old, new, brief=brief)


def _gates(project: Project, candidate: Project, names: tuple[str, ...]) -> tuple[Change, ...]:
    """Return the gates that differ between the pristine trees of the old and the new pins."""
    from patchwright.audit.gates import FEEDING, changes

    before, after = inventories(project, candidate, names)
    found = changes(before.gates, after.gates)
    return tuple(change for change in found if change.gate.kind not in FEEDING)
