"""The answer in words and as data; nothing here prints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from patchwright.bisecting.outcomes import Answer, Culprit, Problem, Run, State
from patchwright.bisecting.shown import Shown

# The audit's verdict and its reason, by patch number.
Audited = Mapping[int, tuple[str, str]]

# Exit codes: 0 nothing is wrong, 1 the answer is no, 3 nothing could be tested.
_CODES = {"starts": 0, "untestable": 3}


def exit_code(answer: Answer) -> int:
    """Return the exit code that an answer stands for."""
    return _CODES.get(answer.kind, 1)


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers in short: ``1-5, 7``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def named(state: State, problem: Problem) -> str:
    """Return a state in words, the shorter way: by what is in it, or by what is not."""
    inside = state - problem.bottom
    base = f"1-{max(problem.bottom)}" if problem.bottom else "base"
    if not inside:
        return base
    if state == problem.top:
        return "all"
    out = problem.top - state
    more = state - problem.top
    if more:
        return f"all and {ranges(more)}"
    if len(out) <= len(inside):
        return f"all but {ranges(out)}"
    return f"base + {ranges(inside)}" if not problem.bottom else ranges(state)


def both(numbers: Collection[int]) -> str:
    """Return patch numbers as a list in words."""
    return " and ".join(f"{n:04d}" for n in sorted(numbers))


def lines(
    answer: Answer, problem: Problem, log: Sequence[Run], title: Callable[[int], str],
    audited: Audited,
) -> list[str]:  # fmt: skip
    """Return the answer as lines of text; ``title`` gives a patch's upstream and subject.

    ``audited`` gives the audit's verdict and its reason by patch number.
    """
    ends = {
        "starts": _starts, "base-fails": _base_fails, "untestable": _untestable,
        "other-failure": _other, "hidden": _hidden, "culprits": _culprits, "range": _range,
    }  # fmt: skip
    told = ends[answer.kind](answer, problem, log, title)
    if answer.needed and answer.kind != "hidden":
        told.append(f"needed: {both(answer.needed)}: without it the lower end fails otherwise")
    for number in sorted({*answer.candidates, *(n for c in answer.culprits for n in c.patches)}):
        if number in audited:
            verdict, why = audited[number]
            told.append(f"audit of {number:04d}: {verdict}" + (f": {why}" if why else ""))
    if not audited and answer.culprits:
        told.append(
            "audit: this selection was not audited; `patchwright audit` says what its gates lead to"
        )
    told += [f"note: {note}" for note in answer.notes]
    for side in answer.side:
        told.append(f"side finding: {named(side.state, problem)} fails otherwise: {side.detail}")
    if answer.kind in ("culprits", "range"):
        told += _sure(answer, problem)
    return sorted(told, key=lambda line: line.startswith("Next: "))  # the next step comes last


_Title = Callable[[int], str]


def _starts(answer: Answer, problem: Problem, log: Sequence[Run], title: _Title) -> list[str]:
    runs = sum(run.state == problem.top for run in log)
    times = "one start" if runs == 1 else f"{runs} starts"
    return [
        f"no failure: {named(problem.top, problem)} started in {times}",
        "Next: if it fails now and then, repeat with --runs 5 --fresh",
    ]


def _base_fails(answer: Answer, problem: Problem, log: Sequence[Run], title: _Title) -> list[str]:
    if problem.bottom:
        return [
            f"--good {max(problem.bottom)} is bad: it fails the same way",
            f"  {_detail(problem.bottom, log)}",
            "Next: give a smaller --good, or none",
        ]
    return [
        f"not a patch: {named(problem.bottom, problem)} fails the same way",
        f"  {_detail(problem.bottom, log)}",
        "Next: look at the environment: driver, packages, model; if some prefix of the series "
        "starts, name it with --good N",
    ]  # fmt: skip


def _untestable(answer: Answer, problem: Problem, log: Sequence[Run], title: _Title) -> list[str]:
    if answer.limited:
        return ["not decided: the limit was reached before both ends were judged",
                "Next: allow more with --max-probes"]  # fmt: skip
    state = problem.top if not answer.candidates else problem.bottom
    return [
        f"cannot be tested: {named(state, problem)}",
        f"  {_detail(state, log)}",
        "Next: correct what stands above, and run the same command again",
    ]


def _other(answer: Answer, problem: Problem, log: Sequence[Run], title: _Title) -> list[str]:
    signature = next((r.outcome.signature for r in log if r.state == problem.top), "")
    return [
        f"another failure: {named(problem.top, problem)} fails, but not as asked for",
        f"  {_detail(problem.top, log)}",
        f"Next: its signature is {signature!r}; give a --signature that it holds, or none",
    ]


def _hidden(answer: Answer, problem: Problem, log: Sequence[Run], title: _Title) -> list[str]:
    return [
        f"hidden: the lower end fails otherwise; {both(answer.needed)} cures that, and then the "
        "failure shows",
        f"  either {both(answer.candidates)} breaks it or it was there before, behind the other",
        "Next: cure the lower end first, or name a state that starts with --good N",
    ]


def _culprits(answer: Answer, problem: Problem, log: Sequence[Run], title: _Title) -> list[str]:
    told = []
    for culprit in answer.culprits:
        told += _culprit(culprit, problem, log, title)
    out = ",".join(str(n) for c in answer.culprits for n in c.patches[-1:])
    told.append(f"Next: `patchwright show {answer.culprits[0].patches[-1]}`, or go on with "
                f"`patchwright start --without {out}`")  # fmt: skip
    return told


def _culprit(culprit: Culprit, problem: Problem, log: Sequence[Run], title: _Title) -> list[str]:
    told = [f"culprit: {n:04d} {title(n)}" for n in culprit.patches]
    if len(culprit.patches) > 1:
        told.append(f"  {both(culprit.patches)} fail together; none of them does alone")
    if culprit.missing:
        told.append(f"  needs {both(culprit.missing)}, left out by the selection: with it, "
                    "the server starts")  # fmt: skip
    if culprit.needs:
        told.append(f"  tested with its needs {both(culprit.needs)}")
    if culprit.learned:
        told.append(f"  fails otherwise without {both(culprit.learned)}, an undeclared need")
    told.append(f"  fails: {named(culprit.fails, problem)}: {_detail(culprit.fails, log)}")
    told += [f"  starts: {named(state, problem)}" for state in culprit.starts]
    if culprit.undecided:
        told.append(f"  not shown: {culprit.undecided}")
    return told


def _range(answer: Answer, problem: Problem, log: Sequence[Run], title: _Title) -> list[str]:
    told = _culprits(answer, problem, log, title)[:-1] if answer.culprits else []
    more = "one more" if answer.culprits else "at least one"
    told += [f"range: {more} of {ranges(answer.candidates)} takes part"]
    told += [f"  {n:04d} {title(n)}" for n in answer.candidates[:20]]
    if set(answer.within) != set(answer.candidates):
        told.append(f"  shown by a failure: all that takes part is in {ranges(answer.within)}; "
                    "the narrower range rests on starts")  # fmt: skip
    told.append(
        "Next: the same command with a higher --max-probes goes on from here" if answer.limited
        else "Next: what lies between cannot be tested one by one; look at these patches"
    )  # fmt: skip
    return told


def _sure(answer: Answer, problem: Problem) -> list[str]:
    rate = answer.failure_rate
    shows = "every time" if rate is None or rate == 1 else f"in {rate:.0%} of the starts"
    told = [f"confidence {min(answer.confidence, 0.999):.1%}: the failure showed {shows}"]
    if answer.kind == "culprits":
        text = f"another culprit would have shown with {min(answer.completeness, 0.999):.1%}"
        more = "; for more, repeat with --runs 3" if problem.runs == 1 and rate == 1 else ""
        told.append(text + more)
    return told


def _detail(state: State, log: Sequence[Run]) -> str:
    failed = [r.outcome for r in log if r.state == state and r.outcome.kind != "started"]
    return (failed[-1].detail or failed[-1].signature) if failed else ""


def shown_lines(found: Sequence[Shown], title: _Title) -> list[str]:
    """Return what the static tier shows, as lines of text."""
    told = []
    for item in found:
        told.append(f"culprit: {item.number:04d} {title(item.number)}")
        for number, reason in item.missing:
            told.append(f"  needs {number:04d}, which the selection leaves out: {reason}")
        if item.cured:
            told.append("  with it, its smoke test passes")
        told += [f"  {line}" for line in item.reason.splitlines()[:4]]
    told.append("shown by the static tier; no server was started")
    first = found[0]
    step = (
        f"take {both([n for n, _ in first.missing])} into the selection" if first.cured
        else f"`patchwright verify {first.number}`"
    )  # fmt: skip
    told.append(f"Next: {step}; to search by starts, add --start or --probe CMD")
    return told


def data(answer: Answer, problem: Problem, log: Sequence[Run], audited: Audited) -> dict[str, Any]:
    """Return the answer and the log as data for JSON."""
    return {
        "answer": answer.kind,
        "signature": answer.signature,
        "culprits": [_culprit_data(culprit, audited) for culprit in answer.culprits],
        "candidates": list(answer.candidates),
        "within": list(answer.within),
        "needed": list(answer.needed),
        "notes": list(answer.notes),
        "side_findings": [
            {"signature": s.signature, "detail": s.detail, "patches": sorted(s.state)}
            for s in answer.side
        ],
        "confidence": round(answer.confidence, 4),
        "completeness": round(answer.completeness, 4),
        "failure_rate": answer.failure_rate,
        "limited": answer.limited,
        "starts": sum(run.source == "probe" for run in log),
        "runs": [
            {"patches": sorted(run.state), "outcome": run.outcome.kind,
             "signature": run.outcome.signature, "detail": run.outcome.detail,
             "seconds": round(run.outcome.seconds, 3), "source": run.source,
             "suspects": [list(group) for group in run.outcome.suspects]}
            for run in log
        ],
    }  # fmt: skip


def _culprit_data(culprit: Culprit, audited: Audited) -> Mapping[str, Any]:
    return {
        "patches": list(culprit.patches), "needs": list(culprit.needs),
        "undeclared_needs": list(culprit.learned), "missing_needs": list(culprit.missing),
        "fails": sorted(culprit.fails), "starts": [sorted(s) for s in culprit.starts],
        "undecided": culprit.undecided,
        "audit": [{"patch": n, "verdict": audited[n][0], "why": audited[n][1]}
                  for n in culprit.patches if n in audited],
    }  # fmt: skip


def shown_data(found: Sequence[Shown]) -> dict[str, Any]:
    """Return what the static tier shows as data for JSON."""
    return {
        "answer": "shown",
        "culprits": [
            {"patches": [item.number], "missing_needs": [n for n, _ in item.missing],
             "cured": item.cured, "reason": item.reason}
            for item in found
        ],
        "starts": 0,
        "runs": [],
    }  # fmt: skip
