"""JUnit XML: the counts are those of the verdicts, and the text is always XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from patchwright.applying.chain import State
from patchwright.elsewhere import Elsewhere
from patchwright.junit import format_junit
from patchwright.patch import Patch
from patchwright.series import Series
from patchwright.verify import Answer, Question

PATCH = (
    b"From 1111111111111111111111111111111111111111 Mon Sep 17 00:00:00 2001\n"
    b"From: A Tester <tester@example.org>\nDate: Wed, 1 Jan 2020 00:00:00 +0000\n"
    b"Subject: [PATCH] gate: <open> & \x0b \"quoted\"\n\nWhy.\n\n---\nUpstream: tiny 1.0\n\n"
    b" a | 2 +-\n\ndiff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n"
)  # fmt: skip


@pytest.fixture(scope="module")
def series() -> Series:
    return Series((Patch.parse(PATCH, Path("0001-tiny-gate.patch")),))


def answer(verdict: str, tier: str = "static", **more: object) -> Answer:
    state = State((("tiny", "1" * 40),))
    question = Question(1, tier, "step", trees=state, control_trees=state)
    values: dict[str, object] = {"reason": f"why {verdict}", "seconds": 0.5, **more}
    return Answer(question, verdict, **values)  # type: ignore[arg-type]


def parsed(series: Series, *answers: Answer, required: tuple[str, ...] = ()) -> ET.Element:
    return ET.fromstring(format_junit(series, answers, required))


def counts(element: ET.Element) -> tuple[int, ...]:
    names = ("tests", "failures", "errors", "skipped")
    return tuple(int(element.attrib[name]) for name in names)


def test_counts_are_those_of_the_verdicts(series: Series) -> None:
    verdicts = ("passed", "failed", "vacuous", "error", "blocked", "unproven", "none")
    root = parsed(series, *map(answer, verdicts), answer("passed", "gpu"))
    assert (root.tag, counts(root)) == ("testsuites", (7, 2, 1, 2))
    static, gpu = root.findall("testsuite")
    assert (static.get("name"), counts(static)) == ("static", (6, 2, 1, 2))
    assert (gpu.get("name"), counts(gpu)) == ("gpu", (1, 0, 0, 0))
    assert (root.get("time"), static.get("time")) == ("3.500", "3.000")
    assert len(root.findall(".//failure")) == 2
    assert len(root.findall(".//error")) == 1
    assert len(root.findall(".//skipped")) == 2


def test_each_case_says_what_and_why(series: Series) -> None:
    case = parsed(series, answer("failed", control="failed")).find(".//testcase")
    assert case is not None
    assert case.get("classname") == "static.tiny"
    assert case.get("name", "").startswith("0001 gate: <open> &")
    failure = case.find("failure")
    assert failure is not None
    assert (failure.get("message"), failure.get("type")) == ("why failed", "failed")
    properties = {p.get("name"): p.get("value") for p in case.iter("property")}
    assert properties["tree tiny"] == properties["control-tree tiny"] == "1" * 40
    assert properties["control"] == "failed"


def test_a_blocked_tier_that_is_required_is_an_error(series: Series) -> None:
    answers = (answer("blocked", "gpu"), answer("blocked", "compile"))
    assert counts(parsed(series, *answers)) == (2, 0, 0, 2)
    root = parsed(series, *answers, required=("gpu",))
    assert counts(root) == (2, 0, 1, 1)
    error = root.find(".//error")
    assert error is not None
    assert (error.get("type"), error.get("message")) == ("blocked", "why blocked")


def test_what_xml_cannot_hold_is_escaped(series: Series) -> None:
    dirty = "\x00\x1b[31m\ud800\ufffe\x7f\U0001f600 tab\t & <x> ]]>"
    root = parsed(series, answer("error", reason=dirty, logs=(dirty,)))
    error, log = root.find(".//error"), root.find(".//system-out")
    assert error is not None
    assert log is not None
    assert error.text == log.text
    assert log.text == "\\x00\\x1b[31m\\ud800\\ufffe\x7f\U0001f600 tab\t & <x> ]]>"


def test_evidence_from_elsewhere_is_told_but_stays_skipped(series: Series) -> None:
    elsewhere = Elsewhere("passed", "", "gpubox, 2026-01-01")
    root = parsed(series, answer("blocked", "gpu", elsewhere=elsewhere))
    assert counts(root) == (1, 0, 0, 1)
    values = [p.get("value") for p in root.iter("property") if p.get("name") == "elsewhere"]
    assert values == ["passed on gpubox, 2026-01-01 (imported, not counted)"]
