"""0021: fmha_v2_prefill_deepseek accepts SM121, for which its kernels are the same as for SM120."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import CAPABILITIES, Device, FunctionGate, Raised, ValueGate

PREFILL = FunctionGate("flashinfer", "flashinfer/prefill.py", "fmha_v2_prefill_deepseek")
# The generator builds a program with nvcc to write the kernels: only its targets are evaluated.
TARGETS = ValueGate(
    "flashinfer",
    "flashinfer/jit/attention/modules.py",
    "gen_trtllm_fmha_v2_module",
    "nvcc_flags",
)
KERNELS = "csrc/fmha_v2/"
SM12X = ("12.0", "12.1")


@pytest.fixture
def accepted(decision_table: Any) -> Any:
    """Whether a DeepSeek prefill in 16 bits is run, by capability."""

    def table(*, cuda: str = "12.9", dimension: int = 192, **kwargs: Any) -> dict[str, bool]:
        ran: list[object] = []
        output = SimpleNamespace(dtype="bfloat16")
        query, value = (
            SimpleNamespace(device=Device("cuda"), dtype="bfloat16", shape=(1, 8, 16, size))
            for size in (dimension, 128)
        )
        answers = decision_table(
            PREFILL,
            query, query, value, output, 16, 192, 8,
            cuda=cuda,
            kwargs={"scale_softmax": 1.0},
            stubs={
                "get_trtllm_fmha_v2_module": lambda: SimpleNamespace(
                    run=lambda *args: ran.append(args)
                )
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
    assert not any(accepted(dimension=128).values())


@pytest.mark.tier("static")
def test_what_is_accepted_is_built(accepted: Any, decision_table: Any) -> None:
    for capability, taken in accepted().items():
        if taken:
            flags = decision_table(
                TARGETS,
                env={"FLASHINFER_CUDA_ARCH_LIST": f"{capability}a"},
                capabilities=(capability,),
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
