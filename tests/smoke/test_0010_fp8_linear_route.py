"""0010: block-wise FP8 linear layers on SM12x reach a kernel that exists there."""

from __future__ import annotations

import ast
from functools import cache
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

FP8_UTILS = "python/sglang/srt/layers/quantization/fp8_utils.py"
GEMM = "flashinfer/gemm/gemm_base.py"
AUTO = FunctionGate("sglang", FP8_UTILS, "_dispatch_auto_backend")
EXPLICIT = FunctionGate("sglang", FP8_UTILS, "_dispatch_explicit_backend")
OPTION = FunctionGate("sglang", FP8_UTILS, "Fp8GemmRunnerBackend")
AUTO_ARGS = 'type("Args", (), {"fp8_gemm_runner_backend": "auto"})'
# In the module's own words: read the option, then say what was made of it.
ASKED_FOR_AUTO = Expression(
    f"(initialize_fp8_gemm_config(*({AUTO_ARGS},)"
    "[: initialize_fp8_gemm_config.__code__.co_argcount]), get_fp8_gemm_runner_backend())[1].value"
)
CUTLASS = "cutlass_w8a8_block_fp8_linear_with_fallback"
TRTLLM = "flashinfer_gemm_w8a8_block_fp8_linear_with_fallback"
TRITON = "triton_w8a8_block_fp8_linear"
# What runs on SM12x: the patch takes CUTLASS; a release between took Triton by itself.
THERE = {CUTLASS, TRITON}
SM12X = ("12.0", "12.1")
OTHERS = tuple(capability for capability in CAPABILITIES if capability not in SM12X)
STUBS = {
    "sgl_kernel": SimpleNamespace(),
    "flashinfer": SimpleNamespace(gemm=SimpleNamespace()),
    "is_flashinfer_available": lambda: True,
    "deep_gemm": MISSING,
    "get_exec": lambda: SimpleNamespace(kernel=SimpleNamespace(fp8_gemm_runner_backend="auto")),
}
DEEP_GEMM = {"deep_gemm": SimpleNamespace()}


@pytest.fixture
def auto(decision_table: Any) -> Any:
    """The automatic choice by capability."""

    def table(stubs: dict[str, object] | None = None, **kwargs: object) -> dict[str, object]:
        given = STUBS | (stubs or {})
        # Later releases answer "auto" for some devices already where they read the option.
        read = decision_table(OPTION, ASKED_FOR_AUTO, stubs=given, **kwargs)
        found: dict[str, object] = decision_table(AUTO, stubs=given, **kwargs)
        for capability, backend in read.items():
            if backend != "Fp8GemmRunnerBackend.AUTO":
                member = Expression(str(backend))
                rest = kwargs | {"capabilities": (capability,)}
                found |= decision_table(EXPLICIT, member, stubs=given, **rest)
        return found

    return table


@pytest.fixture
def explicit(decision_table: Any) -> Any:
    """What an explicit --fp8-gemm-backend gives, by capability."""

    def table(backend: str, **kwargs: object) -> dict[str, object]:
        member = Expression(f"Fp8GemmRunnerBackend.{backend}")
        found: dict[str, object] = decision_table(EXPLICIT, member, stubs=STUBS, **kwargs)
        return found

    return table


def of(table: dict[str, object], capabilities: tuple[str, ...]) -> dict[str, object]:
    return {capability: table[capability] for capability in capabilities}


@cache
def from_flashinfer(tree: ast.Module) -> dict[str, str]:
    """What a file imports from FlashInfer: its own name for it, and the name there."""
    return {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flashinfer")
        for alias in node.names
    }


def backends_of(trees: Any, function: str) -> list[tuple[str, str]]:
    """The calls of FlashInfer's GEMMs in a function of fp8_utils: (callee, backend)."""
    tree = trees.ast("sglang", FP8_UTILS)
    imported = from_flashinfer(tree)
    (found,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function)
    return [
        (imported[call.func.id], str(keyword.value.value))
        for call in ast.walk(found)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in imported
        for keyword in call.keywords
        if keyword.arg == "backend" and isinstance(keyword.value, ast.Constant)
    ]


def accepted(trees: Any, decision_table: Any, gemm: str, backend: str) -> object:
    """The capabilities (120 is 12.0) that FlashInfer's check for a backend accepts."""
    tree = trees.ast("flashinfer", GEMM)
    (found,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == gemm)
    (checks,) = (
        call.args[0]
        for call in found.decorator_list
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "backend_requirement"
    )
    assert isinstance(checks, ast.Dict)
    (checker,) = (
        value.id
        for key, value in zip(checks.keys, checks.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == backend and isinstance(value, ast.Name)
    )
    gate = FunctionGate("flashinfer", GEMM, f"{checker}._supported_ccs")
    return decision_table(gate, trees=trees, capabilities=("12.0",))["12.0"]


def wanted(before: dict[str, object]) -> set[object]:
    """Return what SM12x may get: CUTLASS, or what upstream chooses by itself if that runs."""
    own = set(of(before, SM12X).values())
    return {CUTLASS} | (own if own <= THERE else set())


@pytest.mark.tier("static")
def test_sm12x_gets_a_kernel_of_its_own_and_nothing_else_moves(auto: Any, baseline: Any) -> None:
    after, before = auto(), auto(trees=baseline)
    assert set(of(after, SM12X).values()) <= wanted(before)
    assert of(after, OTHERS) == of(before, OTHERS)
    assert of(after, ("8.9", "10.0", "10.3")) == {
        "8.9": TRITON,
        "10.0": TRTLLM,
        "10.3": TRTLLM,
    }


@pytest.mark.tier("static")
def test_sm12x_gets_it_where_deep_gemm_can_be_imported(auto: Any, baseline: Any) -> None:
    after, before = auto(DEEP_GEMM), auto(DEEP_GEMM, trees=baseline)
    assert set(of(after, SM12X).values()) <= wanted(before)
    assert of(after, OTHERS) == of(before, OTHERS)


@pytest.mark.tier("static")
def test_without_flashinfer_and_with_an_old_cuda_as_before(auto: Any, baseline: Any) -> None:
    without = {"is_flashinfer_available": lambda: False}
    assert auto(without) == auto(without, trees=baseline)
    assert auto(cuda="12.4") == auto(cuda="12.4", trees=baseline)
    assert auto(cuda="12.4")["12.0"] == TRITON
    assert auto()["12.0"] in wanted(auto(trees=baseline))


@pytest.mark.tier("static")
def test_the_choice_is_one_that_flashinfer_accepts(
    auto: Any, decision_table: Any, tree: Any
) -> None:
    """Follow each automatic choice into FlashInfer's own check for the backend it names."""
    asked: dict[str, list[str]] = {}
    for capability, function in auto().items():
        for gemm, backend in backends_of(tree, str(function)):
            number = int(capability.replace(".", ""))
            verdict = accepted(tree, decision_table, gemm, backend)
            assert isinstance(verdict, set)
            asked.setdefault("yes" if number in verdict else "no", []).append(capability)
    if asked:  # Later releases find out the backend's name where they call.
        assert {"10.0", "10.3"} <= set(asked["yes"]), "positive control: SM100 is accepted"
    assert set(of(auto(), SM12X).values()) <= THERE or asked
    refused = set(asked.get("no", ())) & set(SM12X)
    assert not refused, f"FlashInfer's own check refuses the chosen backend on {sorted(refused)}"


@pytest.mark.tier("static")
def test_an_explicit_trtllm_is_refused_on_sm12x(explicit: Any, baseline: Any) -> None:
    after = explicit("FLASHINFER_TRTLLM")
    before = explicit("FLASHINFER_TRTLLM", trees=baseline)
    for capability, answer in of(after, SM12X).items():
        assert isinstance(answer, Raised), f"accepted: {answer}"
        assert answer.type == "RuntimeError"
        # In the patch's words, or in upstream's own.
        assert "--fp8-gemm-backend=cutlass" in answer.message or answer == before[capability]
    assert of(after, OTHERS) == of(before, OTHERS)
    assert after["10.0"] == TRTLLM


@pytest.mark.tier("static")
@pytest.mark.parametrize("backend", ["CUTLASS", "TRITON", "FLASHINFER_DEEPGEMM"])
def test_other_explicit_choices_are_as_before(
    explicit: Any, auto: Any, baseline: Any, backend: str
) -> None:
    assert explicit(backend) == explicit(backend, trees=baseline)
    assert auto()["12.0"] in wanted(auto(trees=baseline))
