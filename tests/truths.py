"""The kinds of truth that a bisection has to find, as seeded series of 16 patches."""

from __future__ import annotations

import random
from collections.abc import Callable

from patchwright.bisecting.outcomes import Outcome, Problem
from simulated import Truth, problem

SIZE = 16
Names = set[frozenset[int]]
# A question, a truth, and the sets that are to be named (None: a culprit's needs differ).
Case = tuple[Problem, Truth, Names]


def one(*numbers: int) -> Names:
    return {frozenset({n}) for n in numbers}


def two_of(chance: random.Random) -> tuple[int, int]:
    first, second = sorted(chance.sample(range(1, SIZE + 1), 2))
    return first, second


def three_of(chance: random.Random) -> tuple[int, int, int]:
    first, second, third = sorted(chance.sample(range(1, SIZE + 1), 3))
    return first, second, third


def later(chance: random.Random, number: int) -> list[int]:
    return [n for n in range(number + 1, SIZE + 1) if chance.random() < 0.4]


def single(chance: random.Random) -> Case:
    culprit = chance.randint(1, SIZE)
    return problem(SIZE), Truth((frozenset({culprit}),)), one(culprit)


def pair(chance: random.Random) -> Case:
    both = frozenset(two_of(chance))
    return problem(SIZE), Truth((both,)), {both}


def untestable_stretch(chance: random.Random) -> Case:
    breaker, culprit, repair = three_of(chance)
    return problem(SIZE), Truth((frozenset({culprit}),), breakers={breaker: repair}), one(culprit)


def other_failure_in_the_middle(chance: random.Random) -> Case:
    breaker, culprit, repair = three_of(chance)
    other = Outcome("failed", "error | KeyError | x.py:f | other", detail="KeyError: other")
    truth = Truth((frozenset({culprit}),), breakers={breaker: repair}, broken=other)
    return problem(SIZE), truth, one(culprit)


def two_culprits(chance: random.Random) -> Case:
    first, second = two_of(chance)
    truth = Truth((frozenset({first}), frozenset({second})))
    return problem(SIZE), truth, one(first, second)


def cured_and_broken(chance: random.Random) -> Case:
    cure, culprit = two_of(chance)
    return problem(SIZE), Truth((frozenset({culprit}),), cure=cure), one(culprit)


def repaired_and_broken_again(chance: random.Random) -> Case:
    first, repair, last = three_of(chance)
    truth = Truth((frozenset({first}), frozenset({last})), repaired={first: repair})
    return problem(SIZE), truth, one(last)


def declared_dependants(chance: random.Random) -> Case:
    culprit = chance.randint(1, SIZE)
    needs = {n: frozenset({culprit}) for n in later(chance, culprit)}
    return problem(SIZE, needs=needs), Truth((frozenset({culprit}),)), one(culprit)


def textual_dependants(chance: random.Random) -> Case:
    culprit = chance.randint(1, SIZE)
    textual = dict.fromkeys(later(chance, culprit), culprit)
    return problem(SIZE), Truth((frozenset({culprit}),), textual=textual), one(culprit)


def dependants_by_import(chance: random.Random) -> Case:
    culprit = chance.randint(1, SIZE)
    hidden = dict.fromkeys(later(chance, culprit)[:2], culprit)
    return problem(SIZE), Truth((frozenset({culprit}),), hidden_needs=hidden), one(culprit)


def need_by_import(chance: random.Random) -> Case:
    need, culprit = two_of(chance)
    return problem(SIZE), Truth((frozenset({culprit}),), hidden_needs={culprit: need}), one(culprit)


def needs_all_over(chance: random.Random) -> Case:
    needs = {
        n: frozenset(chance.sample(range(1, n), min(n - 1, chance.randint(0, 2))))
        for n in range(2, SIZE + 1)
    }
    culprit = chance.randint(1, SIZE)
    return problem(SIZE, needs=needs), Truth((frozenset({culprit}),)), one(culprit)


def failing_base(chance: random.Random) -> Case:
    return problem(SIZE), Truth((frozenset(),)), set()


def hidden(chance: random.Random) -> Case:
    return problem(SIZE), Truth((frozenset(),), cure=chance.randint(1, SIZE)), set()


# Those with patches to name.
NAMED: list[Callable[[random.Random], Case]] = [
    single, pair, untestable_stretch, other_failure_in_the_middle, two_culprits, cured_and_broken,
    repaired_and_broken_again, declared_dependants, textual_dependants, dependants_by_import,
    need_by_import, needs_all_over,
]  # fmt: skip
KINDS = [*NAMED, failing_base, hidden]
