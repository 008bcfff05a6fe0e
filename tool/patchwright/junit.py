"""The results of verify as JUnit XML, for CI systems: a suite per tier, a case per question."""

from __future__ import annotations

import platform
import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from patchwright import __version__
from patchwright.series import Series
from patchwright.verify import Answer

# What each verdict is in JUnit's terms. ``none`` is left out: there is no such test.
_ELEMENTS = {
    "failed": "failure", "vacuous": "failure", "error": "error",
    "blocked": "skipped", "unproven": "skipped",
}  # fmt: skip
_COUNTS = {"failure": "failures", "error": "errors", "skipped": "skipped"}
# All that XML 1.0 does not allow in a document, lone surrogates included.
_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def format_junit(
    series: Series, answers: Sequence[Answer], required: Collection[str] = ()
) -> bytes:
    """Return the XML of ``answers``. A blocked case of a ``required`` tier is an error."""
    root = ET.Element("testsuites", name="patchwright verify")
    shown = [answer for answer in answers if answer.verdict != "none"]
    for tier in dict.fromkeys(answer.question.tier for answer in shown):
        own = [answer for answer in shown if answer.question.tier == tier]
        suite = ET.SubElement(
            root, "testsuite", name=tier, hostname=_valid(platform.node()),
            timestamp=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S"),
        )  # fmt: skip
        _properties(suite, {"patchwright": __version__, "python": platform.python_version()})
        for answer in own:
            _case(suite, series, answer, answer.question.tier in required)
        _count(suite)
    _count(root)
    ET.indent(root)
    data: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return data + b"\n"


def _case(suite: ET.Element, series: Series, answer: Answer, required: bool) -> None:
    question = answer.question
    patch = series.get(question.number)
    case = ET.SubElement(
        suite, "testcase", classname=_valid(f"{question.tier}.{patch.upstream or 'patch'}"),
        name=_valid(f"{question.number:04d} {patch.title} ({question.context})"),
        time=f"{answer.seconds:.3f}",
    )  # fmt: skip
    facts = {"verdict": answer.verdict, "control": answer.control or ""}
    for label, state in (("tree", question.trees), ("control-tree", question.control_trees)):
        facts |= {f"{label} {name}": tree for name, tree in (state.trees if state else ())}
    if (found := answer.elsewhere) is not None:
        facts["elsewhere"] = f"{found.verdict} on {found.source} (imported, not counted)"
    _properties(case, {name: value for name, value in facts.items() if value})
    element = _ELEMENTS.get(answer.verdict)
    if answer.verdict == "blocked" and required:
        element = "error"
    if element is None:
        return
    message = _valid(answer.reason)
    told = ET.SubElement(case, element, message=message)
    if element != "skipped":
        told.set("type", answer.verdict)
        told.text = message
    if answer.logs and element != "skipped":
        ET.SubElement(case, "system-out").text = _valid("\n".join(answer.logs))


def _count(target: ET.Element) -> None:
    cases = list(target.iter("testcase"))
    target.set("tests", str(len(cases)))
    for element, name in _COUNTS.items():
        target.set(name, str(sum(case.find(element) is not None for case in cases)))
    target.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")


def _properties(parent: ET.Element, values: dict[str, str]) -> None:
    properties = ET.SubElement(parent, "properties")
    for name, value in values.items():
        ET.SubElement(properties, "property", name=_valid(name), value=_valid(value))


def _valid(text: str) -> str:
    """Return ``text`` with escapes in place of what XML cannot hold."""
    return _INVALID.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
