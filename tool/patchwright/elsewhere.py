"""What other machines found out about a question: shown with its origin, never counted here.

A verdict from elsewhere needs every run of the question, controls included, from one
host and one device. It matches on the trees and the test; Python, harness and compiler
may be others there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from patchwright.evidence import Record
from patchwright.smoke.evidenced import Result
from patchwright.verify import judge

if TYPE_CHECKING:
    from patchwright.imported import Origin
    from patchwright.smoke.evidenced import Evidenced
    from patchwright.smoke.run import Run
    from patchwright.verify import Question

# The first one found is shown: no success hides a failure on another machine.
_ORDER = ("error", "failed", "vacuous", "passed")


@dataclass(frozen=True)
class Elsewhere:
    """A verdict from other machines; ``source`` names host, device and day."""

    verdict: str
    why: str
    source: str


def found_elsewhere(tests: Evidenced, question: Question) -> Elsewhere | None:
    """Return what imported evidence says about a question, or None.

    The runs of one host on one device are judged together, the newest record of each;
    among several hosts and devices the worst verdict is returned.
    """
    if not tests.imported.imports:
        return None
    runs = list(dict.fromkeys(run for _, run in (*question.runs, *question.controls)))
    if not runs:
        return None
    found = [
        elsewhere
        for records in _by_place(tests, runs).values()
        if len(records) == len(runs) and (elsewhere := _judged(question, records)) is not None
    ]
    return min(found, key=lambda e: _ORDER.index(e.verdict), default=None)


def _by_place(
    tests: Evidenced, runs: Sequence[Run]
) -> dict[tuple[str, str], dict[Run, tuple[Origin, Record]]]:
    places: dict[tuple[str, str], dict[Run, tuple[Origin, Record]]] = {}
    for run in runs:
        for origin, record in tests.imported.by_subject.get(tests.subject(run), ()):
            place = places.setdefault((record.host, record.device), {})
            if run not in place or record.when >= place[run][1].when:
                place[run] = origin, record
    return places


def _judged(question: Question, records: Mapping[Run, tuple[Origin, Record]]) -> Elsewhere | None:
    results = {
        run: Result(
            record.outcome, record.reason, record.seconds, made=False,
            device=record.inputs.environment.get("device", ""),
        )
        for run, (_, record) in records.items()
    }  # fmt: skip
    answer = judge(replace(question, settled=None), results)
    if answer.verdict not in _ORDER:
        return None
    _, latest = max(records.values(), key=lambda pair: pair[1].when)
    device = f" ({latest.device})" if latest.device else ""
    # From a file that anyone may have written: no line breaks, no terminal's commands.
    why = "".join(c if c.isprintable() else " " for c in answer.reason)
    return Elsewhere(answer.verdict, why, f"{latest.host}{device}, {latest.when[:10]}")
