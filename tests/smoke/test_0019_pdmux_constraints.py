"""0019: PD multiplexing divides the SMs of GPUs after SM90 by CUDA's rule for them."""

from __future__ import annotations

from typing import Any

import pytest

from patchwright.smoke.decisions import CAPABILITIES, CAPABILITY, FunctionGate, Raised

PDMUX = "python/sglang/srt/multiplex/pdmux_context.py"
CONSTRAINTS = FunctionGate("sglang", PDMUX, "get_arch_constraints")
DIVIDE = FunctionGate("sglang", PDMUX, "divide_sm")
SM12X = ("12.0", "12.1")
AFTER_SM90 = ("10.0", "10.3", "11.0", *SM12X)
BEFORE = tuple(capability for capability in CAPABILITIES if capability not in AFTER_SM90)


@pytest.mark.tier("static")
def test_the_rule_of_cuda_and_the_older_rows_as_before(decision_table: Any, baseline: Any) -> None:
    """cuda.h, cuDevSmResourceSplit: "Compute Architecture 9.0+: ... 8 SMs ... multiple of 8"."""
    after = decision_table(CONSTRAINTS, CAPABILITY)
    before = decision_table(CONSTRAINTS, CAPABILITY, trees=baseline)
    assert {c: after[c] for c in AFTER_SM90} == dict.fromkeys(AFTER_SM90, (8, 8))
    assert {c: after[c] for c in BEFORE} == {c: before[c] for c in BEFORE}
    assert (after["8.0"], after["8.9"], after["9.0"]) == ((4, 2), (4, 2), (8, 8))


@pytest.mark.tier("static")
@pytest.mark.parametrize("capability", [(5, 2), (6, 1), (7, 0), (7, 5)])
def test_rows_that_no_supported_gpu_has_are_as_before(
    decision_table: Any, baseline: Any, capability: tuple[int, int]
) -> None:
    one = ("9.0",)
    after = decision_table(CONSTRAINTS, capability, capabilities=one)
    assert after == decision_table(CONSTRAINTS, capability, capabilities=one, trees=baseline)
    assert isinstance(after["9.0"], Raised) == (capability == (5, 2))


@pytest.mark.tier("static")
@pytest.mark.parametrize("sms", [188, 170, 48, 148], ids=["PRO-6000", "5090", "Spark", "B200"])
def test_the_partitions_keep_the_rule(decision_table: Any, sms: int) -> None:
    """Each group: at least 8 SMs for either side, prefill in multiples of 8, none left out."""
    for capability, divisions in decision_table(
        DIVIDE, sms, CAPABILITY, 6, capabilities=("10.0", *SM12X)
    ).items():
        assert not isinstance(divisions, Raised), f"{capability}: {divisions}"
        assert 1 <= len(divisions) <= 6
        for prefill, decode in divisions:
            assert prefill + decode == sms
            assert prefill >= decode >= 8
            assert prefill % 8 == 0
