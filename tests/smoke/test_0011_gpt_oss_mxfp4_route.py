"""0011: gpt-oss in MXFP4 gets MoE kernels on SM12x that exist there."""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import CAPABILITIES, FunctionGate
from patchwright.smoke.route import route

SERVER_ARGS = "python/sglang/srt/server_args.py"
MXFP4 = "python/sglang/srt/layers/quantization/mxfp4.py"
CHOICE = FunctionGate(
    "sglang",
    SERVER_ARGS,
    "ServerArgs._handle_model_specific_adjustments",
    reads="moe_runner_backend",
)
# Where later releases choose; they return what is to be changed.
LATER = FunctionGate(
    "sglang", "python/sglang/srt/arg_groups/model_overrides/gpt_oss.py", "_gpt_oss_overrides"
)
# Which kernel of FlashInfer's stands behind flashinfer_mxfp4: later releases have several, and
# hand over to a function of their own for each.
_KERNEL = "_fi_kernel"
KERNEL = FunctionGate("sglang", MXFP4, "Mxfp4MoEMethod.__init__", reads=_KERNEL)
APPLY = FunctionGate("sglang", MXFP4, "Mxfp4MoEMethod.apply")
RUNNERS = tuple(
    f"python/sglang/srt/layers/moe/moe_runner/flashinfer_{name}.py"
    for name in ("cutlass", "trtllm")
)
CHOSEN = {
    "super": lambda: SimpleNamespace(__init__=lambda: None),
    "get_moe_runner_backend": lambda: SimpleNamespace(
        is_flashinfer_mxfp4=lambda: True,
        is_triton_kernels=lambda: False,
        is_marlin=lambda: False,
        is_deep_gemm=lambda: False,
    ),
    "get_moe_a2a_backend": lambda: SimpleNamespace(is_megamoe=lambda: False),
    "get_exec": lambda: SimpleNamespace(
        moe=SimpleNamespace(flashinfer_mxfp4_moe_precision="default")
    ),
}
SWIZZLE = FunctionGate("sglang", MXFP4, "_swizzle_mxfp4")
SM12X = ("12.0", "12.1")
ABSENT = ("triton", "sgl_kernel", "torchvision", "compressed_tensors", "gguf")
MEMORY = {"sglang.srt.utils.common.get_nvgpu_memory_capacity": 97887.0}  # MiB
FEW = ("9.0", "10.0", "12.0")
OTHERS = tuple(capability for capability in CAPABILITIES if capability not in SM12X)


class Anything:
    """A layer, or its input: whatever is asked of it is there, and decides nothing."""

    def __getattr__(self, name: str) -> int:
        return 1


@pytest.fixture
def choice(decision_table: Any, tree: Any) -> Any:
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
            "dtype": "auto",
        }
        later = tree.exists("sglang", LATER.path)
        found: dict[str, object] = decision_table(
            LATER if later else CHOICE,
            SimpleNamespace(**(server | changes)),
            *((config,) if later else ()),
            **evaluated,
            stubs={
                "_register_for": lambda *architectures: lambda function: function,
                "resolving_view": lambda server: server,
                "is_triton_kernels_available": lambda: triton_kernels,
                "get_nvidia_driver_version": lambda: (580,),  # later releases ask
                "sglang.srt.configs.model_config.is_deepseek_nsa": lambda config: False,
                "parse_connector_type": lambda path: "none",
                "logger": SimpleNamespace(info=print, warning=print),
            },
        )
        if later:
            asked = changes.get("moe_runner_backend", "auto")
            return {
                capability: row.get("moe_runner_backend", asked) if isinstance(row, dict) else row
                for capability, row in found.items()
            }
        return found

    return table


@cache
def modules(trees: Any, start: FunctionGate) -> set[tuple[str, ...]]:
    """The generators of fused MoE modules that a function of sglang's leads to."""
    return {
        (found.generator_upstream, *found.entry.split("::"))
        for found in route(trees, "sglang", start.path, start.name)
        if found.generator.startswith("flashinfer/jit/fused_moe.py::")
    }


@pytest.fixture
def built(decision_table: Any, tree: Any) -> Any:
    """Whether FlashInfer builds for a GPU what flashinfer_mxfp4 runs there."""

    def table(capability: str) -> bool:
        start = runs(capability) if _KERNEL.encode() in tree.read("sglang", MXFP4) else APPLY
        found = modules(tree, start)
        assert found, f"{start.name} leads to no module that is built"
        return any(int(capability.partition(".")[0]) in majors(*entry) for entry in found)

    def runs(capability: str) -> FunctionGate:
        """What later releases run: the function that takes what the layer hands over."""
        chosen = decision_table(
            KERNEL, SimpleNamespace(), "prefix", capabilities=(capability,), stubs=CHOSEN
        )[capability]
        layer = SimpleNamespace(
            use_deep_gemm=False,
            use_marlin=False,
            use_flashinfer=True,
            _fi_kernel=chosen,
            _padded_hidden=0,
            moe_runner_config=SimpleNamespace(activation="swiglu"),
            runner=SimpleNamespace(run=lambda given, weights: type(weights).__name__),
            intermediate_size_per_partition=0,
            hidden_size=0,
            flashinfer_mxfp4_moe_precision="default",
        )
        handed = decision_table(APPLY, layer, Anything(), Anything(), capabilities=(capability,))
        (found,) = (
            FunctionGate("sglang", path, node.name)
            for path in RUNNERS
            for node in tree.ast("sglang", path).body
            if isinstance(node, ast.FunctionDef)
            for argument in node.args.args
            if isinstance(argument.annotation, ast.Name)
            and argument.annotation.id == handed[capability]
        )
        return found

    def majors(upstream: str, path: str, name: str) -> set[int]:
        given: set[int] = set()

        def flags(supported_major_versions: list[int], **kwargs: object) -> list[str]:
            given.update(supported_major_versions)
            return []

        decision_table(
            FunctionGate(upstream, path, name),
            capabilities=("10.0",),
            stubs={
                "jit_env": SimpleNamespace(
                    FLASHINFER_CSRC_DIR=PurePath("csrc"),
                    FLASHINFER_CUBIN_DIR=PurePath("cubins"),
                    FLASHINFER_GEN_SRC_DIR=PurePath("generated"),
                ),
                "get_cubin": lambda *args: "cubin",
                "get_artifact": lambda *args: "cubin",  # its name in later releases
                "get_meta_hash": lambda *args: "hash",
                "ArtifactPath": SimpleNamespace(TRTLLM_GEN_BMM="bmm"),
                "ensure_symlink": lambda *args: None,
                "verify_symlinked_headers": lambda *args: None,
                "write_filtered_metainfo": lambda *args: None,
                "CheckSumHash": SimpleNamespace(TRTLLM_GEN_BMM="checksum"),
                "current_compilation_context": SimpleNamespace(get_nvcc_flags_list=flags),
                "is_cuda_version_at_least": lambda version: True,
                "gen_cutlass_fused_moe_module": lambda *args: None,
                "gen_jit_spec": lambda *args, **kwargs: None,
            },
        )
        # The kernels of trtllm-gen are binaries for SM100 and SM103: a list that has 12 as well
        # (0.7.4) makes none for it.
        return given & {10} if "trtllm_gen" in name else given

    return table


@pytest.fixture
def swizzled(decision_table: Any) -> Any:
    """Layouts and constraints that triton_kernels is given, by capability."""

    def table(**kwargs: object) -> dict[str, object]:
        constraints: dict[str, object] = {}

        class Tensor:
            shape = (1, 64, 32)

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
        details = SimpleNamespace(opt_flags=SimpleNamespace(update_opt_flags_constraints=update))
        package = SimpleNamespace(
            matmul_ogs_details=details,
            matmul_details=details,  # its name in later releases
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
                stubs={
                    "triton_kernels": package,
                    "_pad_hopper_mxfp4_scale": lambda scale, k_size: scale,
                },
                **kwargs,
            )
        return found

    return table


def of(table: dict[str, object], capabilities: tuple[str, ...]) -> dict[str, object]:
    return {capability: table[capability] for capability in capabilities}


@pytest.mark.tier("static")
def test_sm12x_gets_kernels_that_exist_there_and_nothing_else_moves(
    choice: Any, baseline: Any, built: Any
) -> None:
    after, before = choice(), choice(trees=baseline)
    # The patch takes triton_kernels; later releases take a FlashInfer kernel for SM12x.
    for capability in SM12X:
        if after[capability] != "flashinfer_mxfp4" or not built(capability):
            assert after[capability] == "triton_kernel"
    assert of(after, OTHERS) == of(before, OTHERS)
    assert after["9.0"] == "triton_kernel"
    assert after["10.0"] == after["10.3"] == "flashinfer_mxfp4"


@pytest.mark.tier("static")
@pytest.mark.parametrize(
    "server",
    [{"ep_size": 2, "tp_size": 2}, {"quantization": "mxfp4"}, {"triton_kernels": False}],
    ids=lambda server: next(iter(server)),
)
def test_where_triton_kernels_do_not_apply_none_is_chosen(
    choice: Any, baseline: Any, built: Any, server: dict[str, object]
) -> None:
    after = choice(capabilities=FEW, **server)
    before = choice(capabilities=FEW, trees=baseline, **server)
    if after["12.0"] != "flashinfer_mxfp4" or not built("12.0"):
        assert after["12.0"] == "auto"
    assert after["9.0"] == before["9.0"] == "auto"
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
def test_what_is_chosen_builds_for_the_gpu(choice: Any, built: Any) -> None:
    """Follow the FlashInfer kernel to its MoE module, and ask that for which GPUs it builds."""
    asked = choice(capabilities=("10.0", "10.3", *SM12X))
    sent = {c for c, backend in asked.items() if backend == "flashinfer_mxfp4"}
    assert {"10.0", "10.3"} <= sent
    assert [c for c in sorted(sent) if not built(c)] == []


@pytest.mark.tier("static")
def test_sm12x_gets_layouts_for_the_kernel_without_tma(
    choice: Any, swizzled: Any, baseline: Any
) -> None:
    after, before = swizzled(), swizzled(trees=baseline)
    assert of(after, OTHERS) == of(before, OTHERS)
    assert after["10.0"][0][2] == (("epilogue_subtile", 1), ("is_persistent", True))
    assert after["9.0"][0][2] == (("split_k", 1),)
    sent = choice(capabilities=SM12X)
    for capability in SM12X:
        if sent[capability] == "flashinfer_mxfp4":
            continue  # triton_kernels have no part in it
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
