"""0012: CUTLASS FMHA is refused on SM12x, where its kernels are traps; SM10x and SM11x keep it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import (
    CAPABILITIES,
    ConditionGate,
    Device,
    FunctionGate,
    Raised,
)
from patchwright.smoke.outcomes import UpstreamRefused

MODULES = "flashinfer/jit/attention/modules.py"
GENERATOR = f"{MODULES}::gen_fmha_cutlass_sm100a_module"
CHOICE = FunctionGate("flashinfer", "flashinfer/prefill.py", "get_fmha_module")
AUTOMATIC = FunctionGate("flashinfer", "flashinfer/utils.py", "determine_attention_backend")
SOURCE = "fmha_cutlass_sm100.cu"
TYPES = ("torch.bfloat16", "torch.bfloat16", "torch.bfloat16", "torch.int32")
SHAPE = (128, 128, 0, False, False)
SM12X = ("12.0", "12.1")
OTHERS = tuple(c for c in CAPABILITIES if c not in SM12X)


@pytest.fixture
def chosen(decision_table: Any) -> Any:
    """What a call that asks for CUTLASS FMHA gets, by capability."""

    def table(*, cuda: str = "13.0", **kwargs: Any) -> dict[str, object]:
        module = SimpleNamespace(build_and_load=lambda: "fmha_cutlass_sm100a")
        found: dict[str, object] = decision_table(
            CHOICE, *TYPES, *SHAPE, Device("cuda"), cuda=cuda,
            stubs={"gen_fmha_cutlass_sm100a_module": lambda *_: module}, **kwargs,
        )  # fmt: skip
        return found

    return table


@pytest.mark.tier("static")
def test_sm12x_is_refused_with_a_way_out(chosen: Any) -> None:
    for capability, answer in chosen().items():
        if capability in SM12X:
            assert isinstance(answer, Raised), f"{capability} gets {answer}"
            assert answer.type == "ValueError"
            assert "SM12x" in answer.message
            assert "backend='fa2'" in answer.message


@pytest.mark.tier("static")
@pytest.mark.parametrize("cuda", ["13.0", "12.8", "12.4"])
def test_the_other_capabilities_get_what_they_got(chosen: Any, baseline: Any, cuda: str) -> None:
    after, before = chosen(cuda=cuda), chosen(cuda=cuda, trees=baseline)
    assert {c: after[c] for c in OTHERS} == {c: before[c] for c in OTHERS}
    accepted = {c for c, answer in after.items() if answer == "fmha_cutlass_sm100a"}
    wanted = {"13.0": {"10.0", "10.3", "11.0"}, "12.8": {"10.0", "10.3"}, "12.4": set()}
    assert accepted == wanted[cuda]


@pytest.mark.tier("static")
@pytest.mark.parametrize("arch", ["12.0a", "12.1a", "12.0f"])
def test_the_module_is_not_generated_for_sm12x(jit_spec: Any, arch: str) -> None:
    with pytest.raises(UpstreamRefused, match=r"No supported CUDA architectures .* \[10, 11\]"):
        jit_spec(GENERATOR, arch=arch, args=(*TYPES, *SHAPE))


@pytest.mark.tier("static")
def test_a_mixed_list_leaves_sm12x_out(jit_spec: Any) -> None:
    spec = jit_spec(GENERATOR, arch="10.0a 12.0a", args=(*TYPES, *SHAPE))
    assert spec.targets == ("100a",)


@pytest.mark.tier("static")
@pytest.mark.parametrize("arch", ["10.0a", "10.3a", "11.0a"])
def test_the_other_archs_are_built_as_before(jit_spec: Any, baseline: Any, arch: str) -> None:
    spec = jit_spec(GENERATOR, arch=arch, args=(*TYPES, *SHAPE))
    assert spec == jit_spec(GENERATOR, arch=arch, args=(*TYPES, *SHAPE), trees=baseline)
    assert spec.targets == (arch.replace(".", ""),)


@pytest.mark.tier("static")
def test_the_way_out_is_there(decision_table: Any, jit_spec: Any) -> None:
    """What the message names is what is chosen automatically, and it is built for SM12x."""
    automatic = decision_table(AUTOMATIC, Device("cuda"), 0, False, False, *TYPES[:2])
    assert {automatic[c] for c in SM12X} == {"fa2"}
    for capability in SM12X:
        spec = jit_spec(
            f"{MODULES}::gen_batch_prefill_module",
            arch=f"{capability}a",
            args=("fa2", *TYPES, 128, 128, 0, False, False, False),
        )
        assert spec.dropped == ()


@pytest.mark.tier("static")
@pytest.mark.parametrize(
    ("path", "function", "assigns"),
    [
        ("flashinfer_backend.py", "FlashInferAttnBackend.__init__", 'fmha_backend = "cutlass"'),
        (
            "flashinfer_mla_backend.py",
            "FlashInferMLAAttnBackend.__init__",
            'self.fmha_backend = "cutlass"',
        ),
    ],
)
def test_sglang_does_not_ask_for_it_on_sm12x(
    decision_table: Any, path: str, function: str, assigns: str
) -> None:
    runner = SimpleNamespace(
        server_args=SimpleNamespace(
            enable_piecewise_cuda_graph=False, disable_piecewise_cuda_graph=True
        ),
        model_config=SimpleNamespace(head_dim=128, v_head_dim=128),
    )
    gate = ConditionGate(
        "sglang", f"python/sglang/srt/layers/attention/{path}", function, assigns, enclosing=-1
    )
    asked = decision_table(
        gate,
        names={"model_runner": runner, "self": SimpleNamespace()},
        stubs={"check_cuda_graph_backend": lambda *args: False},  # later releases ask
    )
    assert (asked["10.0"], asked["12.0"], asked["12.1"]) == (True, False, False)


@pytest.mark.tier("compile")
@pytest.mark.parametrize("arch", ["12.0a", "12.1a"])
def test_no_module_is_built_whose_instructions_are_traps(
    jit_spec: Any, preprocess: Any, arch: str
) -> None:
    def instructions(arch: str) -> tuple[int, int]:
        """The tcgen05 instructions in the device text, and the atoms replaced by a trap."""
        spec = jit_spec(GENERATOR, arch=arch, args=(*TYPES, *SHAPE))
        text = preprocess(spec, SOURCE).text
        return text.count("tcgen05."), text.count("Attempting to use SM100_")

    there, traps = instructions("10.0a")
    assert there > 100
    assert traps == 0
    try:
        there, traps = instructions(arch)
    except UpstreamRefused:
        return  # Nothing is built, so nothing can be launched.
    assert not traps, f"{there} tcgen05 instructions are left, {traps} atoms are traps"
