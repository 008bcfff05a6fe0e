"""0011: gpt-oss in MXFP4 gets MoE kernels on SM12x that exist there."""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import CAPABILITIES, FunctionGate

SERVER_ARGS = "python/sglang/srt/server_args.py"
MXFP4 = "python/sglang/srt/layers/quantization/mxfp4.py"
CHOICE = FunctionGate(
    "sglang",
    SERVER_ARGS,
    "ServerArgs._handle_model_specific_adjustments",
    reads="moe_runner_backend",
)
SWIZZLE = FunctionGate("sglang", MXFP4, "_swizzle_mxfp4")
SM12X = ("12.0", "12.1")
ABSENT = ("triton", "sgl_kernel", "torchvision", "compressed_tensors", "gguf")
MEMORY = {"sglang.srt.utils.common.get_nvgpu_memory_capacity": 97887.0}  # MiB
FEW = ("9.0", "10.0", "12.0")
OTHERS = tuple(capability for capability in CAPABILITIES if capability not in SM12X)


@pytest.fixture
def choice(decision_table: Any) -> Any:
    """The MoE runner backend of a gpt-oss server by capability."""

    def table(
        *, method: str | None = "mxfp4", triton_kernels: bool = True, **changes: object
    ) -> dict[str, object]:
        evaluated = {
            key: changes.pop(key) for key in ("trees", "cuda", "capabilities") if key in changes
        }
        config = SimpleNamespace(
            architectures=["GptOssForCausalLM"],
            quantization_config={"quant_method": method} if method else None,
        )
        server = {
            "model_path": "gpt-oss",
            "get_model_config": lambda: SimpleNamespace(hf_config=config),
            "attention_backend": None,
            "prefill_attention_backend": None,
            "decode_attention_backend": None,
            "moe_runner_backend": "auto",
            "moe_a2a_backend": "none",
            "ep_size": 1,
            "tp_size": 1,
            "nnodes": 1,
            "quantization": None,
            "enable_dp_attention": False,
            "enable_flashinfer_allreduce_fusion": False,
        }
        found: dict[str, object] = decision_table(
            CHOICE,
            SimpleNamespace(**(server | changes)),
            **evaluated,
            stubs={
                "is_triton_kernels_available": lambda: triton_kernels,
                "get_nvidia_driver_version": lambda: (580,),  # later releases ask
                "sglang.srt.configs.model_config.is_deepseek_nsa": lambda config: False,
                "parse_connector_type": lambda path: "none",
                "logger": SimpleNamespace(info=print, warning=print),
            },
        )
        return found

    return table


@pytest.fixture
def swizzled(decision_table: Any) -> Any:
    """Layouts and constraints that triton_kernels is given, by capability."""

    def table(**kwargs: object) -> dict[str, object]:
        constraints: dict[str, object] = {}

        class Tensor:
            def transpose(self, *axes: int) -> Tensor:
                return self

        def update(given: dict[str, object]) -> None:
            constraints.clear()
            constraints.update(given)

        def convert(tensor: object, layout: object, **options: object) -> object:
            return (layout, tuple(sorted(options.items())), tuple(sorted(constraints.items())))

        layouts = SimpleNamespace(
            StridedLayout="strided",
            make_default_matmul_mxfp4_w_layout=lambda mx_axis: ("value", {"mx_axis": mx_axis}),
            make_default_matmul_mxfp4_w_scale_layout=lambda mx_axis, num_warps: (
                "scale",
                {"mx_axis": mx_axis, "num_warps": num_warps},
            ),
        )
        package = SimpleNamespace(
            matmul_ogs_details=SimpleNamespace(
                opt_flags=SimpleNamespace(update_opt_flags_constraints=update)
            ),
            numerics=SimpleNamespace(InFlexData=lambda: "flex"),
            tensor=SimpleNamespace(
                FP4="fp4",
                convert_layout=convert,
                wrap_torch_tensor=lambda tensor, dtype=None: tensor,
            ),
            tensor_details=SimpleNamespace(layout=layouts),
        )
        found: dict[str, object] = {}
        for capability in CAPABILITIES:
            # One at a time: what one capability constrains must not be seen by the next.
            constraints.clear()
            found |= decision_table(
                SWIZZLE,
                Tensor(),
                Tensor(),
                8,
                capabilities=(capability,),
                stubs={"triton_kernels": package},
                **kwargs,
            )
        return found

    return table


def of(table: dict[str, object], capabilities: tuple[str, ...]) -> dict[str, object]:
    return {capability: table[capability] for capability in capabilities}


@pytest.mark.tier("static")
def test_sm12x_gets_triton_kernels_and_nothing_else_moves(choice: Any, baseline: Any) -> None:
    after, before = choice(), choice(trees=baseline)
    assert of(after, SM12X) == dict.fromkeys(SM12X, "triton_kernel")
    assert of(after, OTHERS) == of(before, OTHERS)
    assert after["9.0"] == "triton_kernel"
    assert after["10.0"] == after["10.3"] == "flashinfer_mxfp4"


@pytest.mark.tier("static")
@pytest.mark.parametrize(
    "server",
    [{"ep_size": 2, "tp_size": 2}, {"quantization": "mxfp4"}, {"triton_kernels": False}],
    ids=lambda server: next(iter(server)),
)
def test_where_triton_kernels_do_not_apply_the_choice_is_that_of_sm90(
    choice: Any, baseline: Any, server: dict[str, object]
) -> None:
    after = choice(capabilities=FEW, **server)
    before = choice(capabilities=FEW, trees=baseline, **server)
    assert after["12.0"] == after["9.0"] == before["9.0"] == "auto"
    assert after["10.0"] == before["10.0"]


@pytest.mark.tier("static")
@pytest.mark.parametrize(
    "server",
    [{"method": None}, {"moe_runner_backend": "triton"}, {"cuda": "12.4"}],
    ids=lambda server: next(iter(server)),
)
def test_other_servers_are_as_before(choice: Any, baseline: Any, server: dict[str, object]) -> None:
    before = choice(capabilities=FEW, trees=baseline, **server)
    assert choice(capabilities=FEW, **server) == before


@pytest.mark.tier("static")
def test_what_is_chosen_builds_for_the_gpu(choice: Any, route: Any, decision_table: Any) -> None:
    """Follow the FlashInfer kernel to its MoE module, and ask that for which GPUs it builds."""
    (found,) = (
        found
        for found in route("sglang", MXFP4, "Mxfp4MoEMethod.apply")
        if found.generator.startswith("flashinfer/jit/fused_moe.py::")
    )
    path, _, name = found.generator.partition("::")
    majors: set[int] = set()

    def flags(supported_major_versions: list[int]) -> list[str]:
        majors.update(supported_major_versions)
        return []

    decision_table(
        FunctionGate(found.generator_upstream, path, name),
        capabilities=("10.0",),
        stubs={
            "jit_env": SimpleNamespace(
                FLASHINFER_CSRC_DIR=PurePath("csrc"), FLASHINFER_CUBIN_DIR=PurePath("cubins")
            ),
            "get_cubin": lambda *args: "cubin",
            "get_meta_hash": lambda *args: "hash",
            "CheckSumHash": SimpleNamespace(TRTLLM_GEN_BMM="checksum"),
            "current_compilation_context": SimpleNamespace(get_nvcc_flags_list=flags),
            "gen_jit_spec": lambda *args, **kwargs: None,
        },
    )
    assert 10 in majors, "positive control: the module builds for SM100"
    asked = choice(capabilities=("10.0", "10.3", *SM12X))
    sent = {c for c, backend in asked.items() if backend == "flashinfer_mxfp4"}
    refused = sorted(c for c in sent & set(SM12X) if int(c.partition(".")[0]) not in majors)
    assert {"10.0", "10.3"} <= sent
    assert not refused, f"{found.describe()}\nbuilds for {sorted(majors)}, not for {refused}"


@pytest.mark.tier("static")
def test_sm12x_gets_layouts_for_the_kernel_without_tma(swizzled: Any, baseline: Any) -> None:
    after, before = swizzled(), swizzled(trees=baseline)
    assert of(after, OTHERS) == of(before, OTHERS)
    assert after["10.0"][0][2] == (("epilogue_subtile", 1), ("is_persistent", True))
    assert after["9.0"][0][2] == (("split_k", 1),)
    for capability in SM12X:
        (value, _, constraints), flex, (scale, _, _) = after[capability]
        assert (value, flex, scale) == ("strided", "flex", "strided")
        assert dict(constraints)["is_persistent"] is False


def prepare(arguments: list[str]) -> str:
    """Parse a command line as sglang does, and return the MoE runner backend."""
    from sglang.srt.server_args import prepare_server_args

    return str(prepare_server_args(arguments).moe_runner_backend)


@pytest.mark.tier("import")
@pytest.mark.parametrize(
    ("capability", "backend"),
    [("9.0", "triton_kernel"), ("10.0", "flashinfer_mxfp4"), ("12.0", "triton_kernel"),
     ("12.1", "triton_kernel")],
)  # fmt: skip
def test_the_real_server_chooses_for_the_gpu(
    imported: Any, tmp_path: Path, capability: str, backend: str
) -> None:
    config = {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": 256,
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16,
        "num_key_value_heads": 2, "intermediate_size": 64, "num_local_experts": 4,
        "num_experts_per_tok": 2, "torch_dtype": "bfloat16", "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"],
        "quantization_config": {"quant_method": "mxfp4"},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    arguments = f"--device cuda --load-format dummy --model-path {tmp_path}"
    found = imported(
        prepare, arguments=[*arguments.split(), "--skip-tokenizer-init"],
        capability=capability, stubs=ABSENT,
        answers=MEMORY | {"sglang.srt.utils.common.is_triton_kernels_available": True},
    )  # fmt: skip
    assert found == backend
