"""0015: NVFP4 MoE layers take FlashInfer's CUTLASS kernels on SM12x, built as they must be."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import CAPABILITIES, FunctionGate
from patchwright.smoke.outcomes import SmokeError

CHOICE = FunctionGate(
    "sglang",
    "python/sglang/srt/server_args.py",
    "ServerArgs._handle_moe_kernel_config",
    reads="moe_runner_backend",
)
# Where later releases choose; they return what is to be changed.
LATER = FunctionGate(
    "sglang",
    "python/sglang/srt/arg_groups/overrides.py",
    "_moe_runner_backend_quant_constraints",
)
MODELOPT = "python/sglang/srt/layers/quantization/modelopt_quant.py"
APPLY = "ModelOptNvFp4FusedMoEMethod.apply"
MODULE = "flashinfer/jit/fused_moe.py::gen_cutlass_fused_moe_sm120_module"
SM12X = ("12.0", "12.1")
OTHERS = tuple(capability for capability in CAPABILITIES if capability not in SM12X)
ABSENT = ("triton", "sgl_kernel", "torchvision", "compressed_tensors", "gguf")
MEMORY = {"sglang.srt.utils.common.get_nvgpu_memory_capacity": 97887.0}  # MiB
FEW = ("9.0", "10.0", "12.0")


@pytest.fixture
def choice(decision_table: Any, tree: Any) -> Any:
    """The MoE runner backend of a server by capability.

    ``checkpoint`` is the quantization that the checkpoint's own files name.
    """

    def table(
        *,
        model: str = "Qwen3MoeForCausalLM",
        checkpoint: str | None = "modelopt_fp4",
        **changes: object,
    ) -> dict[str, object]:
        evaluated = {k: changes.pop(k) for k in ("trees", "cuda", "capabilities") if k in changes}
        server = {
            "get_model_config": lambda: SimpleNamespace(
                quantization=changes.get("quantization") or checkpoint,
                hf_config=SimpleNamespace(architectures=[model]),
            ),
            "quantization": "modelopt_fp4",
            "moe_runner_backend": "auto",
            "moe_a2a_backend": "none",
            "ep_size": 1,
            "tp_size": 2,
            "disable_shared_experts_fusion": False,
        }
        later = tree.exists("sglang", LATER.path)
        found: dict[str, object] = decision_table(
            LATER if later else CHOICE,
            SimpleNamespace(**(server | changes)),
            stubs={
                "logger": SimpleNamespace(info=print, warning=print),
                "register_post_process": lambda function: function,
            },
            **evaluated,
        )
        if later:
            asked = changes.get("moe_runner_backend", "auto")
            return {
                capability: row.get("moe_runner_backend", asked) if isinstance(row, dict) else row
                for capability, row in found.items()
            }
        return found

    return table


def of(table: dict[str, object], capabilities: tuple[str, ...]) -> dict[str, object]:
    return {capability: table[capability] for capability in capabilities}


@pytest.mark.tier("static")
@pytest.mark.parametrize("quantization", ["modelopt_fp4", None])
def test_sm12x_gets_flashinfer_cutlass_and_nothing_else_moves(
    choice: Any, baseline: Any, quantization: str | None
) -> None:
    after = choice(quantization=quantization)
    before = choice(quantization=quantization, trees=baseline)
    assert of(after, SM12X) == dict.fromkeys(SM12X, "flashinfer_cutlass")
    assert of(after, OTHERS) == of(before, OTHERS)
    # Later releases choose it on SM110 as well.
    assert {after[capability] for capability in OTHERS if capability != "11.0"} == {"auto"}


@pytest.mark.tier("static")
@pytest.mark.parametrize("ep_size", [1, 4])
def test_expert_parallel_sizes_that_the_kernel_takes(choice: Any, ep_size: int) -> None:
    found = choice(ep_size=ep_size, tp_size=4, capabilities=SM12X)
    assert found == dict.fromkeys(SM12X, "flashinfer_cutlass")


@pytest.mark.tier("static")
@pytest.mark.parametrize(
    "server",
    [
        {"ep_size": 2, "tp_size": 4},
        {"moe_a2a_backend": "deepep"},
        {"moe_runner_backend": "cutlass"},
        {"moe_runner_backend": "triton"},
        {"quantization": "fp8"},
        {"quantization": "modelopt_fp8"},
        {"quantization": None, "checkpoint": None},
        {"quantization": None, "checkpoint": "fp8"},
        {"model": "Llama4ForConditionalGeneration"},
        {"cuda": "12.4"},
    ],
    ids=lambda server: "-".join(f"{key}-{value}" for key, value in server.items()),
)
def test_other_servers_are_as_before(choice: Any, baseline: Any, server: dict[str, object]) -> None:
    after = choice(capabilities=FEW, **server)
    assert after == choice(capabilities=FEW, trees=baseline, **server)
    assert after["12.0"] == server.get("moe_runner_backend", "auto")


@pytest.mark.tier("static")
def test_the_module_behind_it_is_built_with_its_barriers(
    choice: Any, route: Any, jit_spec: Any
) -> None:
    """CUTLASS compiles the grid dependency barriers of SM100 and newer only with the flag."""
    routes = {found.entry for found in route("sglang", MODELOPT, APPLY)}
    if not routes:
        raise SmokeError(f"{APPLY} leads to no module that can be followed")
    assert MODULE in routes
    assert choice(capabilities=SM12X) == dict.fromkeys(SM12X, "flashinfer_cutlass")
    for capability in SM12X:
        spec = jit_spec(MODULE, arch=f"{capability}a")
        assert spec.dropped == ()
        without = [
            name
            for name, line in spec.compile_lines.items()
            if name.endswith(".cu") and "-DCUTLASS_ENABLE_GDC_FOR_SM100=1" not in line
        ]
        assert not without, f"compiled without their barriers: {len(without)} sources"


def prepare(arguments: list[str]) -> str:
    """Parse a command line as sglang does, and return the MoE runner backend."""
    from sglang.srt.server_args import prepare_server_args

    return str(prepare_server_args(arguments).moe_runner_backend)


@pytest.mark.tier("import")
@pytest.mark.parametrize(
    ("capability", "backend"),
    [("9.0", "auto"), ("10.0", "flashinfer_trtllm"), ("12.0", "flashinfer_cutlass"),
     ("12.1", "flashinfer_cutlass")],
)  # fmt: skip
def test_the_real_server_chooses_for_the_gpu(
    imported: Any, tmp_path: Path, capability: str, backend: str
) -> None:
    config = {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 256,
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16,
        "num_key_value_heads": 2, "intermediate_size": 128, "moe_intermediate_size": 32,
        "num_experts": 4, "num_experts_per_tok": 2, "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    arguments = f"--device cuda --load-format dummy --model-path {tmp_path}"
    arguments += " --skip-tokenizer-init --quantization modelopt_fp4"
    found = imported(
        prepare, arguments=arguments.split(), capability=capability, stubs=ABSENT, answers=MEMORY
    )
    assert found == backend
