"""Several starts at a time: what the search asks for, and what it would ask next."""

from __future__ import annotations

from collections.abc import Sequence

from patchwright.bisecting.outcomes import Answer, Ask, Outcome, Problem, Run
from patchwright.bisecting.search import decide
from patchwright.bisecting.verdicts import Verdicts


def plan(problem: Problem, log: Sequence[Run], jobs: int) -> list[Ask] | Answer:
    """Return up to ``jobs`` states worth probing at the same time, or the answer.

    The first is what ``decide`` asks for; the others are what it would ask next, were the
    first ones to fail or to start.
    """
    first = decide(problem, log)
    if isinstance(first, Answer):
        return first
    target = Verdicts(problem, log).target
    asks = [first]
    ahead: list[tuple[list[Run], Ask]] = [(list(log), first)]
    while ahead and len(asks) < jobs:
        known, ask = ahead.pop(0)
        for outcome in (Outcome("failed", target), Outcome("started")):
            then = [*known, Run(ask.state, outcome)]
            following = decide(problem, then) if outcome.kind == "started" or target else None
            if isinstance(following, Ask):
                ahead.append((then, following))
                if len(asks) < jobs and following.state not in {a.state for a in asks}:
                    asks.append(following)
        if len(ahead) > 4 * jobs:
            break
    return asks
