"""0009: DeepGEMM is off on SM12x, however it is asked for; elsewhere nothing moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import (
    CAPABILITIES,
    MISSING,
    Expression,
    FunctionGate,
    Raised,
)

CONFIGURER = "python/sglang/srt/layers/deep_gemm_wrapper/configurer.py"
FP8_UTILS = "python/sglang/srt/layers/quantization/fp8_utils.py"
SWITCHES = ("ENABLE_JIT_DEEPGEMM", "DEEPGEMM_BLACKWELL", "DEEPGEMM_SCALE_UE8M0")
DEEPGEMM = "deepgemm_w8a8_block_fp8_linear_with_fallback"
SM12X = ("12.0", "12.1")
OTHERS = tuple(capability for capability in CAPABILITIES if capability not in SM12X)
INSTALLED = {"deep_gemm": SimpleNamespace()}
FP8_STUBS = {
    **INSTALLED,
    "is_flashinfer_available": lambda: True,
    "flashinfer": SimpleNamespace(gemm=SimpleNamespace()),
    "sgl_kernel": SimpleNamespace(),
}


@pytest.fixture
def switch(decision_table: Any) -> Any:
    """A switch of the wrapper by capability."""

    def table(name: str, **kwargs: object) -> dict[str, object]:
        found: dict[str, object] = decision_table(
            FunctionGate("sglang", CONFIGURER, name), **({"stubs": INSTALLED} | kwargs)
        )
        return found

    return table


@pytest.fixture
def linear(decision_table: Any) -> Any:
    """Which implementation a block-wise FP8 linear layer gets, by capability."""

    def table(backend: str, **kwargs: object) -> dict[str, object]:
        name = "_dispatch_auto_backend" if backend == "AUTO" else "_dispatch_explicit_backend"
        args = () if backend == "AUTO" else (Expression(f"Fp8GemmRunnerBackend.{backend}"),)
        gate = FunctionGate("sglang", FP8_UTILS, name)
        found: dict[str, object] = decision_table(gate, *args, stubs=FP8_STUBS, **kwargs)
        return found

    return table


def of(table: dict[str, object], capabilities: tuple[str, ...]) -> dict[str, object]:
    return {capability: table[capability] for capability in capabilities}


@pytest.mark.tier("static")
@pytest.mark.parametrize("name", SWITCHES)
def test_it_is_off_on_sm12x_and_nowhere_else(switch: Any, baseline: Any, name: str) -> None:
    after, before = switch(name), switch(name, trees=baseline)
    assert of(after, SM12X) == dict.fromkeys(SM12X, False)
    assert of(after, OTHERS) == of(before, OTHERS)
    on = {"10.0", "10.3"} if name != SWITCHES[0] else {"9.0", "10.0", "10.3"}
    # Whether SM110 is Blackwell to it differs between releases.
    assert {c for c in OTHERS if after[c]} - {"11.0"} == on


@pytest.mark.tier("static")
def test_the_environment_variable_cannot_switch_it_on(switch: Any) -> None:
    found = {
        value: switch(SWITCHES[0], env={"SGLANG_ENABLE_JIT_DEEPGEMM": value})
        for value in ("0", "1")
    }
    assert of(found["1"], SM12X) == dict.fromkeys(SM12X, False)
    assert found["1"]["9.0"] is True
    assert not any(found["0"].values())


@pytest.mark.tier("static")
def test_without_the_package_it_is_off_as_before(switch: Any, baseline: Any) -> None:
    without = {"stubs": {"deep_gemm": MISSING}}
    assert switch(SWITCHES[0], **without) == switch(SWITCHES[0], trees=baseline, **without)
    assert not any(switch(SWITCHES[0], **without).values())
    assert switch(SWITCHES[0])["12.0"] is False


@pytest.mark.tier("static")
def test_fp8_linear_layers_do_not_reach_it_on_sm12x(linear: Any, baseline: Any) -> None:
    after, before = linear("AUTO"), linear("AUTO", trees=baseline)
    assert DEEPGEMM not in of(after, SM12X).values()
    assert of(after, OTHERS) == of(before, OTHERS)
    assert of(after, ("9.0", "10.0")) == dict.fromkeys(("9.0", "10.0"), DEEPGEMM)


@pytest.mark.tier("static")
def test_asking_for_it_on_sm12x_is_refused_with_upstreams_message(
    linear: Any, baseline: Any
) -> None:
    after, before = linear("DEEP_GEMM"), linear("DEEP_GEMM", trees=baseline)
    for answer in of(after, SM12X).values():
        assert isinstance(answer, Raised), f"accepted: {answer}"
        assert "DeepGEMM is not available" in answer.message
    assert of(after, OTHERS) == of(before, OTHERS)
    assert after["9.0"] == DEEPGEMM
