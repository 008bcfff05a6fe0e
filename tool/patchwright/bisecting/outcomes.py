"""What the search is told and what it answers; nothing here runs anything.

A state is the set of patch numbers that are applied. Patches that the search may leave
out or take in are those of the selection; a state may name one outside it where a need
was left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

State = frozenset[int]
NOTHING: State = frozenset()
Kind = Literal["started", "failed", "untestable"]


@dataclass(frozen=True)
class Outcome:
    """What one probe of a state came to.

    ``signature`` tells failures apart (empty unless ``failed``). ``suspects`` are groups
    of patch numbers, the likeliest first, whose files stand in the traceback. ``detail``
    is the inner error, for people.
    """

    kind: Kind
    signature: str = ""
    suspects: tuple[tuple[int, ...], ...] = ()
    detail: str = ""
    seconds: float = 0.0
    log: str = field(default="", repr=False)


@dataclass(frozen=True)
class Run:
    """One line of the log. ``source`` is ``probe`` for a start that was made just now,
    ``record`` for one that was on record, ``applying`` for a state whose patches do not
    apply: only the first one costs anything. ``tree`` is what the state's patches make of
    the upstreams that are started; one start on record answers for all states of a tree.
    """

    state: State
    outcome: Outcome
    source: Literal["probe", "record", "applying"] = "probe"
    tree: str = ""


@dataclass(frozen=True)
class Problem:
    """The question.

    ``patches`` in series order; ``bottom`` and ``top`` are the states between which the
    failure came in. ``needs`` maps a patch to those it directly needs, within ``top``;
    ``left_out`` to those it needs and the selection leaves out, with their own needs.
    ``signature`` is a pattern that the failure's signature must contain; empty: that of
    the first failure of ``top``. ``runs``: clean runs that a good state needs at least,
    and runs of the two ends.
    """

    patches: tuple[int, ...]
    bottom: State
    top: State
    needs: Mapping[int, frozenset[int]] = field(default_factory=dict)
    left_out: Mapping[int, frozenset[int]] = field(default_factory=dict)
    signature: str = ""
    runs: int = 1
    confidence: float = 0.9999
    max_probes: int | None = None
    suspected: tuple[int, ...] = ()

    @cached_property
    def _closures(self) -> dict[int, State]:
        found: dict[int, State] = {}
        for number in sorted(self.top):
            needs = self.needs.get(number, frozenset()) & self.top
            found[number] = frozenset((number,)).union(*(found.get(n, State((n,))) for n in needs))
        return found

    def closure(self, numbers: Iterable[int]) -> State:
        """Return the patches with all that they need."""
        return State().union(*(self._closures[n] for n in numbers))

    def dependants(self, numbers: Collection[int]) -> State:
        """Return the patches that need one of ``numbers``, these included."""
        return frozenset(n for n, c in self._closures.items() if not c.isdisjoint(numbers))

    def without(self, state: State, numbers: Collection[int]) -> State:
        """Return ``state`` less ``numbers`` and all that needs them."""
        return state - self.dependants(numbers)

    def matches(self, signature: str, first: str) -> bool:
        """Return whether a failure is the one that is searched for."""
        if self.signature:
            return re.search(self.signature, signature) is not None
        return signature == first


@dataclass(frozen=True)
class Culprit:
    """Patches that fail together, and none of them without the others.

    ``needs`` are those without which they cannot be tested (declared, or found on the
    way: ``learned``). ``fails`` is the smallest state that was seen to fail with them;
    ``starts`` the states without one of them that were seen to start. ``undecided`` says
    what could not be shown. ``missing`` are needs outside the selection that cure it.
    """

    patches: tuple[int, ...]
    needs: tuple[int, ...] = ()
    learned: tuple[int, ...] = ()
    fails: State = NOTHING
    starts: tuple[State, ...] = ()
    undecided: str = ""
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class SideFinding:
    """Another failure that was met on the way and not followed."""

    signature: str
    detail: str
    state: State


AnswerKind = Literal[
    "culprits",  # found, and confirmed
    "range",  # at least one of ``candidates`` takes part; more could not be decided
    "base-fails",  # the lower end fails the same way: no patch is needed for it
    "starts",  # the upper end does not fail
    "untestable",  # one of the ends gives no answer
    "other-failure",  # the upper end fails, but not with the signature asked for
    "hidden",  # the failure shows as soon as ``needed`` cure another one
]


@dataclass(frozen=True)
class Answer:
    """What is known at the end.

    ``candidates`` (kinds range and hidden): at least one of them takes part, and if one
    patch alone is to blame, it is among them; every patch that takes part is in
    ``within``. ``confidence`` is the chance that what is said is not luck: of culprits,
    that starts without them were; else that a state that was taken to be good is a bad
    one. ``completeness``: the chance with which another culprit, were there one, would
    have shown in the starts of the rest. ``failure_rate`` is how often the failure
    shows, estimated from the runs of bad states; None where there were none.
    """

    kind: AnswerKind
    signature: str = ""
    culprits: tuple[Culprit, ...] = ()
    candidates: tuple[int, ...] = ()
    within: tuple[int, ...] = ()
    needed: tuple[int, ...] = ()
    side: tuple[SideFinding, ...] = ()
    notes: tuple[str, ...] = ()
    confidence: float = 1.0
    completeness: float = 0.0
    failure_rate: float | None = None
    limited: bool = False


@dataclass(frozen=True)
class Ask:
    """The state that has to be probed next, and what for."""

    state: State
    why: str
