"""0014: hybrid GDN models take the FlashInfer attention backend on SM12x."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import (
    CAPABILITIES,
    ConditionGate,
    Device,
    Dtype,
    FunctionGate,
    Raised,
)

ATTENTION = "python/sglang/srt/layers/attention/"
WRAPPER = FunctionGate("sglang", ATTENTION + "attention_registry.py", "attn_backend_wrapper")
DEFAULT = FunctionGate(
    "sglang",
    "python/sglang/srt/server_args.py",
    "ServerArgs._handle_attention_backend_compatibility",
    reads="attention_backend",
)
# Where later releases choose; it returns what is to be changed.
LATER_DEFAULT = FunctionGate(
    "sglang", "python/sglang/srt/arg_groups/overrides.py", "_attention_backend_default"
)
CUTLASS_FMHA = ConditionGate(
    "sglang",
    ATTENTION + "flashinfer_backend.py",
    "FlashInferAttnBackend.__init__",
    "fmha_backend = 'cutlass'",
    enclosing=-1,
)
KERNELS = FunctionGate("flashinfer", "flashinfer/utils.py", "determine_attention_backend")
# What later releases ask of the model before they come to the gate.
LATER = {
    "initialize_linear_attn_config": lambda server_args: None,
    "resolve_linear_attn_backends": lambda **kwargs: None,
    "mambaish_config": lambda config: SimpleNamespace(full_attention_layer_ids=[3]),
    "hybrid_kda_config": lambda config: None,
    "flashinfer_gdn_prefill_default": lambda runner: None,
    "is_minimax_sparse": lambda config: False,
    "is_qwen_qsa": lambda config: False,
    **{
        name: type(name, (), {})
        for name in ("Dots3Config", "InklingMMConfig", "InklingModelConfig", "ZayaConfig",
                     "Lfm2Config", "Lfm2MoeConfig", "Lfm2VlConfig")
    },
}  # fmt: skip
SM12X = ("12.0", "12.1")
OTHERS = tuple(capability for capability in CAPABILITIES if capability not in SM12X)
BLACKWELL = ("10.0", "10.3", "11.0")


@pytest.fixture
def wrapped(decision_table: Any) -> Any:
    """What wraps the full attention backend of a model, by capability."""

    def table(backend: str, *, gdn: bool = True, **kwargs: object) -> dict[str, object]:
        runner = SimpleNamespace(
            mambaish_config=SimpleNamespace(full_attention_layer_ids=[3]),
            hybrid_gdn_config=SimpleNamespace() if gdn else None,
            model_config=SimpleNamespace(
                hf_config=SimpleNamespace(), hf_text_config=SimpleNamespace(), quantization=None
            ),
            is_draft_worker=False,
            prefill_attention_backend_str=backend,
            decode_attention_backend_str=backend,
            mamba2_config=None if gdn else SimpleNamespace(),
            use_mla_backend=False,
            server_args=SimpleNamespace(attention_backend=backend),
        )
        found: dict[str, object] = decision_table(
            WRAPPER,
            runner,
            "full",
            stubs={
                "check_environments": lambda: None,
                "GDNAttnBackend": lambda runner: "gdn",
                "Mamba2AttnBackend": lambda runner: "mamba2",
                "HybridLinearAttnBackend": lambda full, linear, layers: (full, linear, layers),
                "logger": SimpleNamespace(info=print),
                **LATER,
                "hybrid_gdn_config": lambda config: SimpleNamespace() if gdn else None,
                "mamba2_config": lambda config: None if gdn else SimpleNamespace(),
            },
            **kwargs,
        )
        return found

    return table


@pytest.fixture
def default(decision_table: Any, tree: Any) -> Any:
    """The full attention backend that Qwen3-Next gets when none is asked for, by capability."""

    def table(**kwargs: object) -> dict[str, object]:
        hf_config = SimpleNamespace(architectures=["Qwen3NextForCausalLM"])
        config = SimpleNamespace(
            hf_config=hf_config,
            context_len=4096,
            is_encoder_decoder=False,
            has_attention_sinks=False,
        )
        server = SimpleNamespace(
            get_model_config=lambda: config,
            use_mla_backend=lambda: False,
            attention_backend=None,
            prefill_attention_backend=None,
            decode_attention_backend=None,
            speculative_algorithm=None,
            speculative_eagle_topk=None,
            kv_cache_dtype="auto",
            page_size=1,
            device="cuda",
            model_path="qwen3-next",
            disable_radix_cache=False,
        )
        later = tree.exists("sglang", LATER_DEFAULT.path)
        found: dict[str, Any] = decision_table(
            LATER_DEFAULT if later else DEFAULT,
            server,
            stubs={
                "is_flashinfer_available": lambda: True,
                "logger": SimpleNamespace(debug=print, info=print, warning=print),
                "register_post_process": lambda function: function,
                "use_mla_backend": lambda view: False,
                "model_config_of": lambda view: config,
                "current_platform": SimpleNamespace(is_out_of_tree=lambda: False),
                "is_mps": lambda: False,
                "resolving_view": lambda view: view,
                "resolved_view": lambda view: view,
            },
            **kwargs,
        )
        return {c: row["attention_backend"] if later else row for c, row in found.items()}

    return table


def of(table: dict[str, object], capabilities: tuple[str, ...]) -> dict[str, object]:
    """Some rows; of a refusal its type, as the message may name the new choice."""
    rows = {capability: table[capability] for capability in capabilities}
    return {c: row.type if isinstance(row, Raised) else row for c, row in rows.items()}


@pytest.mark.tier("static")
def test_flashinfer_is_accepted_on_sm12x_and_nothing_else_moves(
    wrapped: Any, baseline: Any
) -> None:
    after, before = wrapped("flashinfer"), wrapped("flashinfer", trees=baseline)
    assert of(after, SM12X) == dict.fromkeys(SM12X, ("full", "gdn", [3]))
    assert of(after, OTHERS) == of(before, OTHERS)
    assert after["9.0"] == ("full", "gdn", [3])
    # Later releases let it in on all of Blackwell.
    assert len({str(row) for row in of(after, BLACKWELL).values()}) == 1


@pytest.mark.tier("static")
@pytest.mark.parametrize("backend", ["triton", "trtllm_mha", "fa3", "torch_native"])
def test_other_backends_are_as_before(wrapped: Any, baseline: Any, backend: str) -> None:
    after = wrapped(backend)
    assert of(after, CAPABILITIES) == of(wrapped(backend, trees=baseline), CAPABILITIES)
    assert isinstance(after["12.0"], Raised) == (backend in ("fa3", "torch_native"))


@pytest.mark.tier("static")
def test_other_hybrid_models_are_as_before(wrapped: Any, baseline: Any) -> None:
    after = wrapped("flashinfer", gdn=False)
    assert after == wrapped("flashinfer", gdn=False, trees=baseline)
    assert after["12.0"] == ("full", "mamba2", [3])


@pytest.mark.tier("static")
def test_the_default_backend_of_sm12x_starts(wrapped: Any, default: Any) -> None:
    for capability, backend in default(capabilities=SM12X).items():
        assert backend == "flashinfer"
        answer = wrapped(backend, capabilities=(capability,))[capability]
        assert not isinstance(answer, Raised), f"{capability}: {answer}"


@pytest.mark.tier("static")
def test_flashinfer_has_kernels_for_what_is_accepted(wrapped: Any, decision_table: Any) -> None:
    """Neither CUTLASS FMHA (SM100) nor FA3 (SM90) is behind it on SM12x, but FA2."""
    accepted = {c for c, a in wrapped("flashinfer").items() if not isinstance(a, Raised)}
    assert accepted >= set(SM12X)
    runner = SimpleNamespace(
        server_args=SimpleNamespace(
            enable_piecewise_cuda_graph=False, disable_piecewise_cuda_graph=True
        ),
        model_config=SimpleNamespace(hf_config=SimpleNamespace(), head_dim=128, v_head_dim=128),
    )
    cutlass = decision_table(
        CUTLASS_FMHA,
        names={"model_runner": runner},
        stubs={"check_cuda_graph_backend": lambda *args: False},  # later releases ask
    )
    bf16 = Dtype("bfloat16")
    kernels = decision_table(KERNELS, Device("cuda:0"), 0, False, False, bf16, bf16)
    assert cutlass["10.0"] is True
    assert kernels["9.0"] == "fa3"
    for capability in SM12X:
        assert cutlass[capability] is False
        assert kernels[capability] == "fa2"
