"""0021: fmha_v2_prefill_deepseek accepts SM121, for which its kernels are the same as for SM120."""

from __future__ import annotations

import ast
import re
from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import CAPABILITIES, FunctionGate, Raised, Tensor, ValueGate

PREFILL = FunctionGate("flashinfer", "flashinfer/prefill.py", "fmha_v2_prefill_deepseek")
MODULES = "flashinfer/jit/attention/modules.py"
KERNELS = "csrc/fmha_v2/"
SM12X = ("12.0", "12.1")


def no_program(*args: object, **kwargs: object) -> None:
    raise FileNotFoundError("no program can be started here")


@pytest.fixture
def accepted(decision_table: Any) -> Any:
    """Whether a DeepSeek prefill in 16 bits is run, by capability."""

    def table(*, cuda: str = "12.9", dimension: int = 192, **kwargs: Any) -> dict[str, bool]:
        ran: list[object] = []
        query, value = (Tensor((1, 8, 16, size), "bfloat16") for size in (dimension, 128))
        module = SimpleNamespace(run=lambda *args: ran.append(args))
        answers = decision_table(
            PREFILL,
            query, query, value, value, 16, 192, 8,
            cuda=cuda,
            kwargs={"scale_softmax": 1.0},
            stubs={
                name: lambda: module
                for name in ("get_trtllm_fmha_v2_module", "get_trtllm_fmha_v2_sm120_module")
            },
            **kwargs,
        )  # fmt: skip
        taken = {c: not isinstance(answer, Raised) for c, answer in answers.items()}
        assert len(ran) == sum(taken.values())
        for answer in answers.values():
            assert not isinstance(answer, Raised) or answer.type in ("ValueError", "AssertionError")
        return taken

    return table


@pytest.mark.tier("static")
def test_both_capabilities_of_sm12x_are_accepted(accepted: Any, baseline: Any) -> None:
    after, before = accepted(), accepted(trees=baseline)
    assert after == {c: c in SM12X for c in CAPABILITIES}
    # SM120 was accepted before, and every refusal but that of SM121 stays.
    assert {c: after[c] for c in CAPABILITIES if c != "12.1"} == {
        c: before[c] for c in CAPABILITIES if c != "12.1"
    }


@pytest.mark.tier("static")
def test_a_cuda_without_the_target_is_refused(accepted: Any) -> None:
    assert [c for c, taken in accepted(cuda="12.8").items() if taken] == ["12.0"]
    assert not any(accepted(cuda="12.4").values())


@pytest.mark.tier("static")
def test_other_head_sizes_stay_refused(accepted: Any) -> None:
    assert not any(accepted(dimension=160).values())


@pytest.mark.tier("static")
def test_what_is_accepted_is_built(accepted: Any, decision_table: Any, tree: Any) -> None:
    names = [n.name for n in tree.ast("flashinfer", MODULES).body if isinstance(n, ast.FunctionDef)]
    (generator,) = (n for n in names if re.fullmatch(r"gen_trtllm_fmha_v2_(sm120_)?module", n))
    # It builds a program with nvcc to write the kernels: only its targets are evaluated.
    targets = ValueGate("flashinfer", MODULES, generator, "nvcc_flags")
    for capability, taken in accepted().items():
        if taken:
            flags = decision_table(
                targets,
                env={"FLASHINFER_CUDA_ARCH_LIST": f"{capability}a"},
                capabilities=(capability,),
                stubs={"subprocess.run": no_program},  # later releases ask nvcc what it knows
            )[capability]
            number = capability.replace(".", "")
            assert flags[0] == f"-gencode=arch=compute_{number}a,code=sm_{number}a"


@pytest.mark.tier("static")
def test_no_kernel_source_tells_sm121_from_sm120(accepted: Any, guards: Any, tree: Any) -> None:
    assert accepted()["12.1"]
    sources = [path for path in tree.files("flashinfer") if path.startswith(KERNELS)]
    decided = 0
    for path in sources:
        if "__CUDA_ARCH" in tree.text("flashinfer", path):
            for guard in guards("flashinfer", path, ("80", "120a", "121a")):
                taken = guard.taken
                assert taken["121a"] == taken["120a"], f"{path}:{guard.line}: {guard.condition}"
                decided += taken["80"] != taken["120a"]
    # The kernels do decide by architecture, and the evaluation sees it.
    assert decided
