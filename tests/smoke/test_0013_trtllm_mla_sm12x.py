"""0013: trtllm_mla starts on SM12x only where FlashInfer has a kernel behind it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import (
    CAPABILITIES,
    Dtype,
    FunctionGate,
    Raised,
    Tensor,
)

GATE = FunctionGate(
    "sglang",
    "python/sglang/srt/server_args.py",
    "ServerArgs._handle_attention_backend_compatibility",
    reads="page_size",
)
# Where later releases decide: first what is refused, then the page size that is changed.
LATER = "python/sglang/srt/arg_groups/overrides.py"
LATER_CHECK = FunctionGate("sglang", LATER, "_mla_kv_cache_dtype_checks")
LATER_PAGE = FunctionGate("sglang", LATER, "_mla_backend_page_constraints")
BACKEND = "python/sglang/srt/layers/attention/trtllm_mla_backend.py"
DECODE = FunctionGate("flashinfer", "flashinfer/mla.py", "trtllm_batch_decode_with_kv_cache_mla")
LATER_DECODE = replace(DECODE, path="flashinfer/mla/_core.py")
TRTLLM_GEN = "flashinfer/jit/attention/modules.py::gen_trtllm_gen_fmha_module"
CONSTANTS = "include/flashinfer/trtllm/common.h"
RUNNER = "include/flashinfer/trtllm/fmha/fmhaRunner.cuh"
SM12X = ("12.0", "12.1")
ABSENT = ("triton", "sgl_kernel", "torchvision", "compressed_tensors", "gguf")
MEMORY = {"sglang.srt.utils.common.get_nvgpu_memory_capacity": 97887.0}  # MiB
OTHERS = tuple(capability for capability in CAPABILITIES if capability not in SM12X)
# DeepSeek-V3 with DP attention: each rank has all 128 heads.
XQA = {
    "decode_attention_backend": "trtllm_mla",
    "kv_cache_dtype": "fp8_e4m3",
    "tp_size": 8,
    "dp_size": 8,
    "enable_dp_attention": True,
}


@pytest.fixture
def starts(decision_table: Any, tree: Any) -> Any:
    """The page size of a DeepSeek-V3 server by capability, or upstream's refusal."""

    def table(*, heads: int = 128, **changes: object) -> dict[str, object]:
        evaluated = {k: changes.pop(k) for k in ("trees", "cuda", "capabilities") if k in changes}
        config = SimpleNamespace(
            context_len=4096,
            num_attention_heads=heads,
            hf_config=SimpleNamespace(architectures=["DeepseekV3ForCausalLM"]),
            is_encoder_decoder=False,
            get_num_kv_heads=lambda tp_size: 1,
        )
        server = {
            "get_model_config": lambda: config,
            "use_mla_backend": lambda: True,
            "attention_backend": None,
            "prefill_attention_backend": None,
            "decode_attention_backend": None,
            "kv_cache_dtype": "auto",
            "page_size": 1,
            "speculative_algorithm": None,
            "speculative_eagle_topk": None,
            "tp_size": 1,
            "dp_size": 1,
            "enable_dp_attention": False,
            "device": "cuda",
            # What later releases ask as well.
            "model_path": "deepseek-v3",
            "disable_radix_cache": False,
            "is_embedding": False,
        }
        if tree.exists("sglang", LATER):
            view = SimpleNamespace(speculative_draft_attention_backend=None, **(server | changes))
            stubs = {
                "register_post_process": lambda function: function,
                "logger": SimpleNamespace(info=print, warning=print),
            }
            checked = decision_table(LATER_CHECK, view, stubs=stubs, **evaluated)
            pages = decision_table(LATER_PAGE, view, stubs=stubs, **evaluated)
            return {
                c: answer if isinstance(answer, Raised) else pages[c].get("page_size", 1)
                for c, answer in checked.items()
            }
        found: dict[str, object] = decision_table(
            GATE,
            SimpleNamespace(**(server | changes)),
            stubs={
                "is_flashinfer_available": lambda: True,
                "logger": SimpleNamespace(info=print, warning=print),
            },
            **evaluated,
        )
        return found

    return table


def refused(table: dict[str, object]) -> tuple[str, ...]:
    return tuple(c for c, answer in table.items() if isinstance(answer, Raised))


@pytest.mark.tier("static")
def test_sm12x_is_refused_and_nothing_else_moves(starts: Any, baseline: Any) -> None:
    after = starts(attention_backend="trtllm_mla")
    before = starts(attention_backend="trtllm_mla", trees=baseline)
    assert set(refused(after)) >= set(SM12X)
    assert {c: after[c] for c in OTHERS} == {c: before[c] for c in OTHERS}
    assert refused(after) == ("8.0", "8.9", "9.0", *SM12X)
    assert after["10.0"] == after["10.3"] == 64


@pytest.mark.tier("static")
@pytest.mark.parametrize(
    "server",
    [
        {"attention_backend": "trtllm_mla", "kv_cache_dtype": "fp8_e4m3"},
        XQA | {"prefill_attention_backend": "trtllm_mla"},
        XQA | {"kv_cache_dtype": "auto"},
        XQA | {"kv_cache_dtype": "bf16"},
        XQA | {"speculative_algorithm": "EAGLE"},
        XQA | {"enable_dp_attention": False},
        XQA | {"heads": 64},
    ],
    ids=["fp8", "prefill", "auto", "bf16", "speculative", "tp", "heads"],
)
def test_every_condition_of_xqa_is_asked(
    starts: Any, baseline: Any, server: dict[str, object]
) -> None:
    few = ("10.0", *SM12X)
    after = starts(capabilities=few, **server)
    for capability in SM12X:
        answer = after[capability]
        assert isinstance(answer, Raised), f"{capability} starts"
        assert answer.type == "ValueError"
        assert "SM12x" in answer.message
    before = starts(capabilities=("10.0",), trees=baseline, **server)
    assert after["10.0"] == before["10.0"] == 64


@pytest.mark.tier("static")
def test_prefill_alone_is_refused_on_sm12x(starts: Any, baseline: Any) -> None:
    server = {"prefill_attention_backend": "trtllm_mla", "decode_attention_backend": "flashinfer"}
    after, before = starts(**server), starts(trees=baseline, **server)
    assert refused(after) == SM12X
    assert {c: after[c] for c in OTHERS} == {c: before[c] for c in OTHERS}


@pytest.mark.tier("static")
@pytest.mark.parametrize(
    "server",
    [XQA, {"attention_backend": "flashinfer"}, {"attention_backend": "triton"}, {}],
    ids=["xqa", "flashinfer", "triton", "default"],
)
def test_what_has_a_kernel_starts_as_before(
    starts: Any, baseline: Any, server: dict[str, object]
) -> None:
    few = ("9.0", "10.0", *SM12X)
    after = starts(capabilities=few, **server)
    assert after == starts(capabilities=few, trees=baseline, **server)
    assert not set(SM12X) & set(refused(after))


@pytest.mark.tier("static")
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "bfloat16"])
@pytest.mark.parametrize("tokens", [1, 2])
def test_the_conditions_are_those_of_flashinfers_decode(
    starts: Any, decision_table: Any, tree: Any, dtype: str, tokens: int
) -> None:
    """For each server that is let in, FlashInfer's own function must not raise."""
    query = Tensor((4, tokens, 128, 576), Dtype(dtype))
    server = XQA | {
        "kv_cache_dtype": "fp8_e4m3" if dtype == "float8_e4m3fn" else "bf16",
        "speculative_algorithm": None if tokens == 1 else "EAGLE",
    }
    answers = decision_table(
        DECODE if tree.exists("flashinfer", DECODE.path) else LATER_DECODE,
        kwargs={
            "query": query,
            "kv_cache": Tensor((9, 1, 64, 576), Dtype(dtype)),
            "workspace_buffer": None,
            "qk_nope_head_dim": 128,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "block_tables": Tensor((4, 1), Dtype("int32")),
            "seq_lens": Tensor((4,), Dtype("int32")),
            "max_seq_len": 64,
        },
        capabilities=SM12X,
        cuda="13.0",  # later releases build it for SM121 with CUDA 12.9 and newer
        stubs={
            "xqa_batch_decode_with_kv_cache_mla": lambda *args: "xqa",
        },
    )
    runs = {c for c, answer in answers.items() if answer == "xqa"}
    let_in = set(SM12X) - set(refused(starts(capabilities=SM12X, **server)))
    assert let_in <= runs, f"FlashInfer refuses: {answers}"
    if dtype == "float8_e4m3fn" and tokens == 1:
        assert runs == set(SM12X)
    else:
        assert not runs, f"FlashInfer has a kernel for {dtype} there now: let it in"


@pytest.mark.tier("static")
def test_the_condition_is_that_of_flashinfers_prefill(starts: Any, route: Any, tree: Any) -> None:
    """For each server whose prefill is let in, the runner that it ends in must accept the GPU."""
    ends = {found.entry for found in route("sglang", BACKEND, "TRTLLMMLABackend.forward_extend")}
    assert TRTLLM_GEN in ends
    values = dict(re.findall(r"int32_t (kSM_\w+) = (\d+);", tree.text("flashinfer", CONSTANTS)))
    (check,) = re.findall(
        r"FLASHINFER_CHECK\(([^,;]*),\s*\"Unsupported architecture\"\)",
        tree.text("flashinfer", RUNNER),
    )
    accepted = {int(values[name]) for name in re.findall(r"mSM == (kSM_\w+)", check)}
    assert {100, 103} <= accepted
    answers = starts(attention_backend="trtllm_mla", kv_cache_dtype="fp8_e4m3", capabilities=SM12X)
    wrong = [
        c for c in set(SM12X) - set(refused(answers)) if int(c.replace(".", "")) not in accepted
    ]
    assert not wrong, f"FlashInfer's runner accepts {sorted(accepted)}, not {wrong}"


def prepare(arguments: list[str]) -> str:
    """Parse a command line as sglang does, and return its refusal, or the backend."""
    from sglang.srt.server_args import prepare_server_args

    try:
        return str(prepare_server_args(arguments).attention_backend)
    except ValueError as error:
        return f"refused: {error}"


@pytest.mark.tier("import")
@pytest.mark.parametrize(
    ("capability", "starts"), [("9.0", False), ("10.0", True), ("12.0", False), ("12.1", False)]
)
def test_the_real_server_refuses_it(
    imported: Any, tmp_path: Path, capability: str, starts: bool
) -> None:
    config = {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
        "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "q_lora_rank": 32,
        "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "intermediate_size": 128, "moe_intermediate_size": 32, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    arguments = f"--device cuda --load-format dummy --model-path {tmp_path}"
    arguments += " --skip-tokenizer-init --attention-backend trtllm_mla"
    found = imported(
        prepare, arguments=arguments.split(), capability=capability, stubs=ABSENT, answers=MEMORY
    )
    assert (found == "trtllm_mla") is starts, found
    assert ("SM12x the TRTLLM MLA" in found) is (capability in SM12X), found
