"""Which upstream commit turned a patch: it stopped applying, or its smoke test changed sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from patchwright.errors import AnswerNo
from patchwright.series import Series
from patchwright.upstreaming.history import Commit, History
from patchwright.upstreaming.moves import Move, Mover
from patchwright.upstreaming.pins import moved_project

if TYPE_CHECKING:
    from patchwright.project import Project

Side = Literal["applies", "smoke"]


@dataclass(frozen=True)
class Turn:
    """The commit at which ``what`` went from ``before`` to ``after``.

    ``what`` is ``applies`` (the verdict on the patch) or ``smoke`` (how its test ends at
    the static tier without the patch). ``reason`` is that of the state after it.
    """

    what: Side
    commit: Commit
    before: str
    after: str
    reason: str
    probes: int


def turns(
    project: Project, history: History, number: int, old: str, new: str, *, smoke: bool = True
) -> tuple[Turn, ...]:
    """Return the commits between two revisions at which a patch turned.

    Each search halves: where a patch turned more than once, one of the turns is found.
    Raises AnswerNo where nothing differs between the two ends.
    """
    patch = project.series.get(number)
    commits = history.between(history.needed(old), history.needed(new))
    start = Commit(history.needed(old), "")
    line = (start, *commits)
    prober = _Prober(project, history, number)
    found = [_search("applies", line, prober.applies, project.progress)]
    if smoke and patch.smoke:
        found.append(_search("smoke", line, prober.ends, project.progress))
    turned = tuple(turn for turn in found if turn is not None)
    if not turned:
        raise AnswerNo(
            f"{number:04d} stands at {new} as it does at {old}"
            + (", and so does its smoke test" if smoke and patch.smoke else ""),
            next_step="choose a later revision",
        )
    return turned


def _search(
    what: Side, line: Sequence[Commit], ask: Callable[[Commit], tuple[str, str]],
    say: Callable[[str], None],
) -> Turn | None:  # fmt: skip
    """Return where the answer changes along ``line``; None where both ends agree."""
    low, high = 0, len(line) - 1
    before, (after, reason) = ask(line[low])[0], ask(line[high])
    probes = 2
    if before == after:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        say(f"{what}: {high - low} commits left, trying {line[middle]}")
        answer, why = ask(line[middle])
        probes += 1
        if answer == before:
            low = middle
        else:
            high, after, reason = middle, answer, why
    return Turn(what, line[high], before, after, reason, probes)


class _Prober:
    """Asks what becomes of one patch on the tree of a commit."""

    def __init__(self, project: Project, history: History, number: int) -> None:
        self.project = project
        self.history = history
        self.number = number
        self._name = history.config.name
        self._moves: dict[str, tuple[Move, ...]] = {}

    def applies(self, commit: Commit) -> tuple[str, str]:
        """Return ``applies``, ``upstream`` or ``does not apply``, and why."""
        move = next(m for m in self._moved(commit) if m.number == self.number)
        word = "applies" if move.carried else move.verdict
        return (word if word in ("applies", "upstream") else "does not apply"), move.reason

    def ends(self, commit: Commit) -> tuple[str, str]:
        """Return how the smoke test ends without the patch, and why."""
        from patchwright.upstreaming.trial import without_each

        moves = self._moved(commit)
        move = next(m for m in moves if m.number == self.number)
        carried = {m.number: m.patch for m in moves if m.carried}
        wanted = set(self.project.series.closure(self.number)) - {self.number}
        patches = tuple(
            carried.get(p.number, p) for p in self.project.series.patches
            if p.number in wanted and (p.number in carried or p.upstream != self._name)
        )  # fmt: skip
        locked = self.project.locked_upstream(self._name)
        pristine = self.project.pristine(self._name)
        at = moved_project(self.project, {}, Series(patches))
        for other in self.project.config.upstreams:
            at.use(self.project.locked_upstream(other))
        # The tree of a commit is nobody's pin: its id keeps it apart from all of them.
        at.use(replace(locked, commit=commit.oid, revision=commit.oid),
               replace(pristine, tree=self.history.tree(commit.oid)))  # fmt: skip
        ended = without_each(at, [move])[self.number]
        return ended.outcome, ended.reason

    def _moved(self, commit: Commit) -> tuple[Move, ...]:
        if commit.oid not in self._moves:
            series = self.project.series
            wanted = set(series.closure(self.number))
            own = moved_project(
                self.project, {}, Series(tuple(p for p in series.patches if p.number in wanted))
            )
            for other in self.project.config.upstreams:
                own.use(self.project.locked_upstream(other))
            version = self.project.upstream(self._name).version
            mover = Mover(own, {self._name: self.history.tree(commit.oid)}, {self._name: version})
            self._moves[commit.oid] = mover.moves()
        return self._moves[commit.oid]
