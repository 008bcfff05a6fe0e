"""What an evaluation was asked for and answered: an answer never depends on what was asked before.

Evaluation is cut off in two places: where a question comes to itself, and where calls are
nested too deeply. What was answered beyond a cut holds only for the way on which it was
asked, so it is remembered only for such ways: whatever is asked first, in whichever order
and with however much on record, every question has one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

# Calls within calls; what lies deeper is unknown.
DEPTH = 8


@dataclass(slots=True)
class _Open:
    """A question that is being answered.

    ``met`` are the questions above it that it came back to, ``within`` those below it
    whose answers rest on one above them (``calls``: those of them that are calls);
    ``height`` is how deep its calls are nested, ``cut`` tells whether some were nested too
    deeply.
    """

    met: set[Hashable] = field(default_factory=set)
    within: set[Hashable] = field(default_factory=set)
    calls: set[Hashable] = field(default_factory=set)
    height: int = 0
    cut: bool = False
    machine: bool = False


# Not frozen: many are made, and a frozen one takes three times as long.
@dataclass(slots=True)
class _Answer:
    value: Any
    within: frozenset[Hashable]
    calls: frozenset[Hashable]
    height: int
    machine: bool


class Known:
    """Answers that are remembered: by question, and by question and depth where cut off."""

    def __init__(self) -> None:
        self.whole: dict[Hashable, _Answer] = {}
        self.cut: dict[tuple[Hashable, int], _Answer] = {}


class Answers:
    """Answers by question, for one capability.

    Those on the way to which the capability was not looked at are in ``common``, which
    evaluations for other capabilities may share.
    """

    def __init__(self) -> None:
        self.common = Known()
        self.depth = 0
        # Statements run for the question at hand.
        self.steps = 0
        self._open: set[Hashable] = set()
        self._calling: set[Hashable] = set()
        self._way: list[_Open] = []
        self._known = Known()

    @property
    def is_deep(self) -> bool:
        """Whether calls are nested too deeply for another one; this is noted."""
        if self.depth < DEPTH:
            return False
        if self._way:
            self._way[-1].cut = True
        return True

    def looked(self) -> None:
        """Note that what is being answered looked at the capability."""
        if self._way:
            self._way[-1].machine = True

    def ask(
        self, question: Hashable, answer: Callable[[], Any], meanwhile: Callable[[], Any],
        *, call: bool = False, apart: bool = False,
    ) -> Any:  # fmt: skip
        """Return the answer to a question, made by ``answer`` where it is not known.

        ``meanwhile`` answers where the question comes to itself. ``call`` tells that
        answering it is a call, which is nested in those around it. One that is ``apart``
        is answered as if no other calls were under way: many calls ask it, and it makes
        many of the same.
        """
        found = self._remembered(question)
        if found is not None:
            return found.value
        if question in self._open or question in self._calling:
            self._way[-1].met.add(question)
            return meanwhile()
        one, calls = _Open(), self._calling
        if apart:
            self._calling = set()
        is_call = call and not apart
        under_way = self._calling if is_call else self._open
        under_way.add(question)
        self._way.append(one)
        before, self.steps = self.steps, 0
        self.depth += call
        try:
            value = answer()
        finally:
            self.depth -= call
            self.steps = before + 1
            self._way.pop()
            under_way.discard(question)
            self._calling = calls
        one.height += call
        if apart:
            one.calls.clear()
        one.met.discard(question)
        if self._way:
            above = self._way[-1]
            above.met |= one.met
            above.within |= one.within
            above.calls |= one.calls
            above.height = max(above.height, one.height)
            above.cut = above.cut or one.cut
            above.machine = above.machine or one.machine
            if one.met:
                (above.calls if is_call else above.within).add(question)
        if not one.met:
            made = _Answer(
                value, frozenset(one.within), frozenset(one.calls), one.height, one.machine
            )
            known = self._known if one.machine else self.common
            if one.cut:
                known.cut[question, self.depth] = made
            else:
                known.whole[question] = made
        return value

    def _remembered(self, question: Hashable) -> _Answer | None:
        own, common = self._known, self.common
        found, cut = common.whole.get(question) or own.whole.get(question), False
        if found is None or found.height > DEPTH - self.depth:
            deep = (question, self.depth)
            found, cut = common.cut.get(deep) or own.cut.get(deep), True
        if found is None or not (
            found.within.isdisjoint(self._open) and found.calls.isdisjoint(self._calling)
        ):
            return None
        self.steps += 1
        if self._way:
            above = self._way[-1]
            above.within |= found.within
            above.calls |= found.calls
            above.height = max(above.height, found.height)
            above.cut = above.cut or cut
            above.machine = above.machine or found.machine
        return found
