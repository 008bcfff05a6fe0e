"""Starts that a bisection takes, beside git bisect run and plain delta debugging.

    python bench/bisecting.py [--seeds 200] [--kinds 1000] [--git]

Simulated series of 8 to 128 patches with one culprit at a uniform position. Counted are
starts beyond the two ends, which all three need, and (all) the starts of the ends too:
the lower one is repeated before a name. ``named`` has a traceback that names the
culprit's file, ``none`` has none, ``misled`` one that names another patch. ddmin is the
minimising delta debugging of Zeller and Hildebrandt. git bisect and ddmin confirm nothing.

Then the share of right and wrong names where a bad state starts all the same in 0, 10 and
30 % of its runs, and ``--kinds`` series of each kind of truth, one run per state. ``--git``
also runs the real ``git bisect run`` for a few series.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tool"), str(ROOT / "tests")]

from simulated import Solved, Truth, git_bisect_runs, problem, solve  # noqa: E402
from truths import KINDS  # noqa: E402

SIZES = (8, 16, 32, 64, 128)
ENDS = 2  # starts of the two ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--kinds", type=int, default=1000)
    parser.add_argument("--git", action="store_true")
    options = parser.parse_args()
    starts(options.seeds)
    accuracy(options.seeds)
    kinds(options.kinds)
    if options.git:
        real_git()


def starts(seeds: int) -> None:
    print("starts beyond the two ends, mean (most); all starts, mean")
    print(
        f"{'patches':>8} {'named':>18} {'none':>18} {'misled':>18} {'git bisect':>18} {'ddmin':>18}"
    )
    for size in SIZES:
        columns: dict[str, list[int]] = {}
        total: dict[str, list[int]] = {}
        for seed in range(seeds):
            chance = random.Random(seed)
            culprit, other = chance.sample(range(1, size + 1), 2)
            truth = Truth((frozenset({culprit}),))
            for name, trace in (("named", ((culprit,),)), ("none", ()), ("misled", ((other,),))):
                question = problem(size)
                solved = solve(question, replace(truth, trace=trace))
                assert solved.names == {frozenset({culprit})}
                columns.setdefault(name, []).append(solved.beyond_bracket(question))
                total.setdefault(name, []).append(solved.probes)
            columns.setdefault("git", []).append(git_bisect_runs(size, culprit))
            found, tests = ddmin(size, frozenset({culprit}).issubset)
            assert found == {culprit}
            columns.setdefault("ddmin", []).append(tests)
        cells = []
        for name, made in columns.items():
            everything = statistics.mean(total.get(name, [n + ENDS for n in made]))
            cells.append(f"{statistics.mean(made):.1f} ({max(made)}); {everything:.1f}")
        print(f"{size:>8} " + " ".join(f"{cell:>18}" for cell in cells))


def accuracy(seeds: int) -> None:
    print("\n16 patches, no trace: right / wrong / says that it did not fail, in %; mean starts")
    print(f"{'flaky':>6} {'':>12} {'right':>6} {'wrong':>6} {'passed':>7} {'starts':>7}")
    contestants: dict[str, Callable[[float, int, int], tuple[set[int] | None, int]]] = {
        "default": lambda flaky, culprit, seed: ours(flaky, culprit, seed, 1),
        "--runs 3": lambda flaky, culprit, seed: ours(flaky, culprit, seed, 3),
        "git bisect": git_flaky,
        "ddmin": ddmin_flaky,
    }
    for flaky in (0.0, 0.1, 0.3):
        for name, find in contestants.items():
            right = wrong = passed = 0
            made = []
            for seed in range(seeds):
                culprit = random.Random(seed).randint(1, 16)
                found, tests = find(flaky, culprit, seed)
                made.append(tests)
                right += found == {culprit}
                passed += found is None
                wrong += found is not None and found != {culprit}
            shares = [100 * n / seeds for n in (right, wrong, passed)]
            print(f"{flaky:>6.0%} {name:>12} {shares[0]:>6.1f} {shares[1]:>6.1f} {shares[2]:>7.1f}"
                  f" {statistics.mean(made):>7.1f}")  # fmt: skip


def kinds(seeds: int) -> None:
    print(
        f"\n{seeds} series of 16 patches of each kind of truth, one run per state, no trace; in %"
    )
    print(f"{'':>28} {'flaky':>6} {'right':>6} {'part':>6} {'ends':>6} {'set':>6} {'wrong':>6}"
          f" {'starts':>7} {'stated':>7}")  # fmt: skip
    for kind in KINDS:
        for flaky in (0.0, 0.1, 0.3):
            counts: Counter[str] = Counter()
            starts, stated = [], []
            for seed in range(seeds):
                question, truth, names = kind(random.Random(seed))
                solved = solve(question, replace(truth, rate=1 - flaky), 10**6 + seed)
                counts[_grade(solved, names, set(truth.failing))] += 1
                starts.append(solved.probes)
                if solved.answer.kind == "culprits":
                    stated.append(solved.answer.confidence)
            shares = [100 * counts[g] / seeds for g in ("right", "part", "ends", "set", "wrong")]
            sure = f"{100 * statistics.mean(stated):>7.2f}" if stated else f"{'-':>7}"
            print(f"{kind.__name__:>28} {flaky:>6.0%} "
                  + " ".join(f"{share:>6.1f}" for share in shares)
                  + f" {statistics.mean(starts):>7.1f} {sure}", flush=True)  # fmt: skip


def _grade(solved: Solved, names: set[frozenset[int]], failing: set[frozenset[int]]) -> str:
    """Say how an answer is: ``part`` names what fails, but not all, or what a later patch
    repairs; ``ends``: it says that the ends do not differ, or not which patch; ``set``: what
    is named holds more than what fails.
    """
    if solved.answer.kind == "culprits":
        if solved.names == names:
            return "right"
        if solved.names <= failing:
            return "part"
        inside = all(any(group <= name for group in failing) for name in solved.names)
        return "set" if inside and frozenset() not in failing else "wrong"
    if solved.answer.kind == "range":
        return "set" if any(group <= set(solved.answer.within) for group in failing) else "wrong"
    if solved.answer.kind in ("base-fails", "hidden") and not names:
        return "right"
    return "ends" if solved.answer.kind in ("starts", "untestable") else "wrong"


def ours(flaky: float, culprit: int, seed: int, runs: int) -> tuple[set[int] | None, int]:
    truth = Truth((frozenset({culprit}),), rate=1 - flaky)
    solved = solve(problem(16, runs=runs), truth, seed)
    if solved.answer.kind == "starts":
        return None, solved.probes
    return set().union(*solved.names), solved.probes


def git_flaky(flaky: float, culprit: int, seed: int) -> tuple[set[int] | None, int]:
    chance = random.Random(seed)
    low, high, tests = 0, 16, ENDS
    while high - low > 1:
        middle = low + (high - low) // 2
        tests += 1
        if middle >= culprit and chance.random() >= flaky:
            high = middle
        else:
            low = middle
    return {high}, tests


def ddmin_flaky(flaky: float, culprit: int, seed: int) -> tuple[set[int] | None, int]:
    chance = random.Random(seed)
    found, tests = ddmin(16, lambda state: culprit in state and chance.random() >= flaky)
    return found, tests + ENDS


def ddmin(size: int, fails: Callable[[set[int]], bool]) -> tuple[set[int], int]:
    """Return the set that ddmin reduces the series to, and the tests that it made."""
    known: dict[frozenset[int], bool] = {frozenset(): False}

    def failing(state: list[int]) -> bool:
        key = frozenset(state)
        if key not in known:
            known[key] = fails(set(state))
        return known[key]

    state, parts = list(range(1, size + 1)), 2
    while len(state) >= 2:
        chunks = list(_split(state, parts))
        smaller = next((chunk for chunk in chunks if failing(chunk)), None)
        if smaller is not None:
            state, parts = smaller, 2
            continue
        rests = [[n for n in state if n not in chunk] for chunk in chunks]
        rest = next((rest for rest in rests if failing(rest)), None) if parts > 2 else None
        if rest is not None:
            state, parts = rest, max(parts - 1, 2)
        elif parts < len(state):
            parts = min(len(state), 2 * parts)
        else:
            break
    return set(state), len(known) - 1


def _split(state: list[int], parts: int) -> Iterator[list[int]]:
    for part in range(parts):
        yield state[part * len(state) // parts : (part + 1) * len(state) // parts]


def real_git() -> None:
    """Check the count for git bisect run against git itself."""
    print("\ngit bisect run itself, runs made (counted here)")
    for size, culprit in ((8, 3), (16, 1), (16, 9), (37, 30), (64, 50), (100, 77)):
        with tempfile.TemporaryDirectory(prefix="bench-bisect-") as folder:
            made = _git_runs(Path(folder), size, culprit)
        print(f"{size:>8} culprit {culprit:>3}: {made} ({git_bisect_runs(size, culprit)})")


def _git_runs(folder: Path, size: int, culprit: int) -> int:
    def git(*args: str) -> str:
        who = ["-c", "user.name=b", "-c", "user.email=b@localhost"]
        return subprocess.run(["git", *who, *args], cwd=folder, capture_output=True, text=True,
                              check=True).stdout  # fmt: skip

    git("init", "--quiet")
    for n in range(size + 1):
        (folder / "n").write_text(str(n), encoding="ascii")
        git("add", "n")
        git("commit", "--quiet", "-m", str(n))
    log = folder.parent / f"{folder.name}.runs"
    git("bisect", "start", "HEAD", f"HEAD~{size}")
    git("bisect", "run", "sh", "-c", f"echo x >>{log}; test $(cat n) -lt {culprit}")
    made = len(log.read_text(encoding="ascii").split())
    log.unlink()
    return made


if __name__ == "__main__":
    main()
