"""How a move of pins is told: lines for people, one mapping for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from patchwright.quoting import printable

if TYPE_CHECKING:
    from patchwright.upstreaming.bump import Bump
    from patchwright.upstreaming.moves import Move
    from patchwright.upstreaming.trial import Without

_MANY = 12  # lines of one kind that are printed; --json has all
_WORDS = {True: "T", False: "F", None: "?"}


def lines(bump: Bump, *, range_diffs: bool) -> Iterator[str]:
    """Yield the whole report."""
    yield ", ".join(map(str, bump.pins))
    yield ""
    yield from brief(bump)
    yield from _others(bump)
    yield from _functions(bump)
    yield from _gates(bump)
    if bump.needed:
        yield ""
        yield "the environment:"
        for needed in bump.needed:
            yield f"  {'! ' if needed.breaks else ''}{printable(needed.said)}"
    yield from _range_diffs(bump, range_diffs)
    yield ""
    yield from _summary(bump)


def brief(bump: Bump) -> Iterator[str]:
    """Yield what becomes of each patch, and why."""
    for move in bump.moves:
        yield f"{move.number:04d} {word(bump, move):<24} {printable(move.patch.title)}"
        for line in _why(bump, move):
            yield f"     {printable(line)}"


def word(bump: Bump, move: Move) -> str:
    """Return the verdict on a patch in a word or two."""
    if move.number in bump.obsolete and move.verdict != "upstream":
        return f"{move.verdict}, obsolete"
    return move.verdict


def _why(bump: Bump, move: Move) -> Iterator[str]:
    if move.reason:
        yield from move.reason.splitlines()
    if move.number in bump.held:
        yield f"it needs {bump.held[move.number]:04d}, which is not carried: nothing was run for it"
    if bump.trial is None:
        return
    without = bump.trial.without[move.number]
    yield from _without(move, without)
    for answer in bump.trial.answers:
        if answer.question.number != move.number or answer.verdict in ("none", "unproven"):
            continue
        if answer.verdict == "passed":
            yield "static: passed"
        elif not (answer.verdict == "vacuous" and without.outcome == "passed"):
            yield f"static: {answer.verdict}: {_first(answer.reason)}"


def _without(move: Move, without: Without) -> Iterator[str]:
    """Say what the smoke test says of the new pin without the patch."""
    total = len(without.tests)
    bad = [*without.ended("failed"), *without.ended("error")]
    if without.outcome == "passed":
        yield "obsolete: its smoke test passes on the new pin without it"
    elif without.obsolete:
        yield (f"obsolete: the {len(without.deciding)} tests that show what it is for pass on the "
               f"new pin without it; of {total} these do not: {_some(bad)}")  # fmt: skip
    elif without.outcome == "failed" and not move.carried:
        but = "but" if move.verdict == "upstream" else "still needed:"
        yield (f"{but} without it {len(without.ended('failed'))} of the {total} tests of its smoke "
               f"test fail: {_first(without.reason)}")  # fmt: skip
    elif without.outcome == "error" and not move.carried:
        yield (f"whether it is obsolete cannot be told: its smoke test cannot judge there, "
               f"{len(without.ended('error')) or 'all'} of its {total} tests break: "
               f"{_first(without.reason)}")  # fmt: skip


def _others(bump: Bump) -> Iterator[str]:
    """Yield what the static tier finds wrong with patches for the upstreams that stay."""
    moved = {move.number for move in bump.moves}
    found = [
        answer for answer in (bump.trial.answers if bump.trial is not None else ())
        if answer.verdict in ("failed", "error", "vacuous") and answer.question.number not in moved
    ]  # fmt: skip
    if found:
        yield ""
        yield "patches for what stays, on the new trees:"
    for answer in found:
        patch = bump.project.series.get(answer.question.number)
        yield f"  {patch.number:04d} {answer.verdict}: {printable(_first(answer.reason))}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _first(reason: str) -> str:
    return reason.splitlines()[0] if reason else ""


def _functions(bump: Bump) -> Iterator[str]:
    if bump.touched:
        yield ""
        yield "changed by upstream under a patch that applies:"
        for each in bump.touched:
            yield (f"  {each.number:04d} {each.path}::{each.function}: +{each.added} "
                   f"-{each.removed} lines")  # fmt: skip


def _gates(bump: Bump) -> Iterator[str]:
    if not bump.gates:
        return
    counts = Counter(change.word for change in bump.gates)
    yield ""
    yield "gates: " + ", ".join(f"{counts[w]} {_GATE_WORDS[w]}" for w in _GATE_WORDS if counts[w])
    for kind in ("removes", "adds"):
        found = [change for change in bump.gates if change.word == kind]
        for change in found[:_MANY]:
            gate = change.gate
            row = "".join(_WORDS[value] for value in gate.values.values())
            yield (
                f"  {'vanished' if kind == 'removes' else 'new     '} {row} {gate.place} "
                f"{gate.kind} {gate.function or '<module>'}: {printable(gate.condition)[:90]}"
            )
        if len(found) > _MANY:
            yield f"  … {len(found) - _MANY} more (--json has all)"


_GATE_WORDS = {
    "adds": "new", "removes": "vanished", "opens": "opened", "closes": "closed",
    "moves": "moved", "rewrites": "rewritten",
}  # fmt: skip


def _range_diffs(bump: Bump, whole: bool) -> Iterator[str]:
    from patchwright.upstreaming.bump import full_range_diff

    for name, text in bump.range_diffs.items():
        if not text:
            continue
        yield ""
        yield f"range-diff of the patches for {name}:"
        shown = full_range_diff(bump, name) if whole else text
        for line in shown.splitlines():
            yield f"  {printable(line)}".rstrip()


def _summary(bump: Bump) -> Iterator[str]:
    counts = Counter(word(bump, move) for move in bump.moves)
    yield ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "no patches"
    if bump.trial is not None:
        answers = Counter(a.verdict for a in bump.trial.answers)
        yield "static tier on the new trees: " + ", ".join(
            f"{count} {verdict}" for verdict, count in answers.items() if verdict != "none"
        )
    names = " ".join(f"{pin.new.name} {pin.new.version}" for pin in bump.pins)
    if bump.open:
        numbers = ",".join(str(move.number) for move in bump.open)
        done = [str(move.number) for move in bump.open if move.number in bump.obsolete]
        left = [str(move.number) for move in bump.open if move.number not in bump.obsolete]
        if done and left:
            yield (f"obsolete by their tests, though they conflict: --without {','.join(done)}; "
                   f"left to resolve: {', '.join(left)}")  # fmt: skip
        yield (
            f"nothing is written; `patchwright bump {names} --accept` opens the first conflict, "
            f"with --without {numbers} it leaves them out"
        )
    else:
        yield f"nothing is written; `patchwright bump {names} --accept` writes it"


def _tests(without: Without) -> dict[str, list[str]]:
    return {outcome: list(without.ended(outcome)) for outcome in ("passed", "failed", "error")} \
        | {"deciding": list(without.deciding)}  # fmt: skip


def as_json(bump: Bump) -> dict[str, Any]:
    """Return the whole report for programs."""
    trial = bump.trial
    return {
        "pins": [
            {"upstream": pin.new.name, "from": pin.old.version, "to": pin.new.version,
             "revision": pin.new.revision, "tree": pin.tree}
            for pin in bump.pins
        ],
        "written": False,
        "patches": [
            {
                "number": move.number, "upstream": move.upstream, "verdict": move.verdict,
                "obsolete": move.number in bump.obsolete, "reason": move.reason,
                "tree": move.tree, "offsets": list(move.offsets), "renamed": dict(move.renamed),
                "needs": bump.held.get(move.number),
                "blocks": [
                    {"path": p.path, "line": p.line, "function": p.function,
                     "standing": p.standing} for p in move.places
                ],
                "without": None if trial is None else trial.without[move.number].outcome,
                "without_reason": "" if trial is None else trial.without[move.number].reason,
                "without_tests": None if trial is None else _tests(trial.without[move.number]),
            }
            for move in bump.moves
        ],
        "static": None if trial is None else [
            {"number": a.question.number, "verdict": a.verdict, "reason": a.reason}
            for a in trial.answers
        ],
        "functions": [
            {"number": t.number, "path": t.path, "function": t.function, "added": t.added,
             "removed": t.removed} for t in bump.touched
        ],
        "gates": None if bump.gates is None else [
            {"change": c.word, "before": c.before.to_json() if c.before else None,
             "after": c.after.to_json() if c.after else None} for c in bump.gates
        ],
        "environment": [{"said": n.said, "breaks": n.breaks} for n in bump.needed],
        "range_diff": dict(bump.range_diffs),
    }  # fmt: skip
