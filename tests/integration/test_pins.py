"""What the static harness finds on the real pins (fetched, or from the user's cache)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.audit.guards import Guard, guards
from patchwright.errors import PatchwrightError
from patchwright.smoke.cexpressions import (
    Symbol,
    constants,
    evaluate,
    functions,
    stores,
    subscripts,
)
from patchwright.smoke.decisions import (
    CAPABILITIES,
    CAPABILITY,
    MISSING,
    ConditionGate,
    Expression,
    FunctionGate,
    PerCapability,
    Raised,
    Tensor,
    ValueGate,
    decision_table,
)
from patchwright.smoke.route import route
from patchwright.smoke.trees import Trees

ROOT = Path(__file__).resolve().parents[2]
SRT = "python/sglang/srt/"
FP8 = SRT + "layers/quantization/fp8_utils.py"
BLACKWELL = ("10.0", "10.3", "11.0", "12.0", "12.1")
ADJUST = "ServerArgs._handle_model_specific_adjustments"


@pytest.fixture(scope="module")
def pins(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    """The pristine trees of this repository's own upstreams."""
    from patchwright.applying.chain import State
    from patchwright.materialise import write_tree
    from patchwright.project import Project
    from patchwright.smoke.protocol import sources_of
    from patchwright.smoke.sites import site_tree

    project = Project.open(ROOT)
    try:
        trees = {name: project.pristine(name).tree for name in project.config.upstreams}
    except PatchwrightError as error:
        pytest.skip(f"needs the pins: {error}")
    state = State(tuple(sorted(trees.items())))
    tree = site_tree(project, state)
    site = tmp_path_factory.mktemp("pins") / "site"
    write_tree(project.store, tree, site)
    listing = {path: (entry.mode, entry.oid) for path, entry in project.store.files(tree)}
    return Trees(site, state.trees, sources_of(project.config), listing)


def accepted(table: dict[str, object]) -> tuple[str, ...]:
    """The capabilities that a gate lets through."""
    assert tuple(table) == CAPABILITIES
    return tuple(capability for capability, value in table.items() if value is True)


def rest_of(table: dict[str, object], *names: str) -> dict[str, object]:
    return {name: value for name, value in table.items() if name not in names}


def test_the_fusion_gate_knows_hopper_and_sm100(pins: Trees) -> None:
    gate = FunctionGate(
        "sglang", SRT + "layers/communicator.py", "apply_flashinfer_allreduce_fusion"
    )
    stubs = {
        "is_dp_attention_enabled": lambda: False,
        "get_global_server_args": lambda: SimpleNamespace(enable_flashinfer_allreduce_fusion=True),
    }
    assert accepted(decision_table(pins, gate, 128, stubs=stubs)) == ("9.0", "10.0", "10.3")
    assert accepted(decision_table(pins, gate, 128, stubs=stubs, cuda="12.4")) == ("9.0",)
    stubs["is_flashinfer_available"] = lambda: False
    assert accepted(decision_table(pins, gate, 128, stubs=stubs)) == ()


def test_the_fusion_is_switched_on_where_the_gate_is(pins: Trees) -> None:
    gate = ConditionGate(
        "sglang", SRT + "server_args.py", ADJUST, "self.enable_flashinfer_allreduce_fusion = True"
    )
    server = SimpleNamespace(
        enable_flashinfer_allreduce_fusion=False,
        enable_dp_attention=False,
        nnodes=1,
        moe_a2a_backend="none",
    )
    names = {"self": server, "model_arch": "Qwen3MoeForCausalLM"}
    assert accepted(decision_table(pins, gate, names=names)) == ("9.0", "10.0", "10.3")
    names["model_arch"] = "LlamaForCausalLM"
    assert accepted(decision_table(pins, gate, names=names)) == ()


@pytest.mark.parametrize(
    ("deep_gemm", "expected"),
    [
        (SimpleNamespace(), {"9.0": "deepgemm_w8a8_block_fp8_linear_with_fallback"}
         | dict.fromkeys(BLACKWELL, "deepgemm_w8a8_block_fp8_linear_with_fallback")),
        (MISSING, {"9.0": "cutlass_w8a8_block_fp8_linear_with_fallback"}
         | dict.fromkeys(BLACKWELL, "flashinfer_gemm_w8a8_block_fp8_linear_with_fallback")),
    ],
    ids=["deep-gemm", "no-deep-gemm"],
)  # fmt: skip
def test_the_block_fp8_backend(pins: Trees, deep_gemm: Any, expected: dict[str, str]) -> None:
    gate = FunctionGate(
        "sglang", SRT + "layers/quantization/fp8_utils.py", "_dispatch_auto_backend"
    )
    found = decision_table(pins, gate, stubs={"deep_gemm": deep_gemm})
    assert found == dict.fromkeys(("8.0", "8.9"), "triton_w8a8_block_fp8_linear") | expected


def test_the_green_contexts_end_at_hopper(pins: Trees) -> None:
    gate = FunctionGate("sglang", SRT + "multiplex/pdmux_context.py", "get_arch_constraints")
    found = decision_table(pins, gate, CAPABILITY)
    assert rest_of(found, *BLACKWELL) == {"8.0": (4, 2), "8.9": (4, 2), "9.0": (8, 8)}
    assert found["12.1"] == Raised("ValueError", "Unsupported compute capability: 12.1")


def test_deep_gemm_is_on_for_all_of_blackwell(pins: Trees) -> None:
    path = SRT + "layers/deep_gemm_wrapper/configurer.py"
    there = {"deep_gemm": SimpleNamespace()}
    enabled = FunctionGate("sglang", path, "ENABLE_JIT_DEEPGEMM")
    assert accepted(decision_table(pins, enabled, stubs=there)) == ("9.0", *BLACKWELL)
    off = {"SGLANG_ENABLE_JIT_DEEPGEMM": "0"}
    assert accepted(decision_table(pins, enabled, stubs=there, env=off)) == ()
    assert accepted(decision_table(pins, enabled, stubs={"deep_gemm": MISSING})) == ()
    blackwell = FunctionGate("sglang", path, "DEEPGEMM_BLACKWELL")
    assert accepted(decision_table(pins, blackwell, stubs=there)) == BLACKWELL


def test_conditions_and_values_all_over_both_upstreams(pins: Trees) -> None:
    gpt_oss = ConditionGate(
        "sglang", SRT + "server_args.py", ADJUST, 'self.moe_runner_backend = "flashinfer_mxfp4"'
    )
    assert (
        accepted(decision_table(pins, gpt_oss, names={"is_mxfp4_quant_format": True})) == BLACKWELL
    )
    hybrid = ConditionGate(
        "sglang", SRT + "layers/attention/attention_registry.py", "attn_backend_wrapper",
        "assert ..., ...", mentions="is_blackwell",
    )  # fmt: skip
    assert accepted(decision_table(pins, hybrid)) == BLACKWELL
    xqa = ConditionGate(
        "flashinfer", "flashinfer/xqa.py", "xqa", "raise RuntimeError(...)",
        mentions="get_compute_capability",
    )  # fmt: skip
    assert accepted(decision_table(pins, xqa)) == ("8.0", "8.9", "11.0")
    mla = ConditionGate(
        "flashinfer", "flashinfer/mla.py", "trtllm_batch_decode_with_kv_cache_mla",
        "raise ValueError(...)", mentions="!= 12",
    )  # fmt: skip
    fp8 = {"query": Tensor(dtype="float8_e4m3fn"), "kv_cache": Tensor(dtype="float8_e4m3fn")}
    refused = accepted(decision_table(pins, mla, names=fp8))
    assert refused == tuple(c for c in CAPABILITIES if not c.startswith("12"))
    backend = ValueGate("flashinfer", mla.path, mla.function, "backend")
    found = decision_table(pins, backend, names={"query": Tensor()})
    assert [name for name, value in found.items() if value == "trtllm-gen"] == ["10.0", "10.3"]


def test_a_table_by_capability_has_no_row_for_sm12x(pins: Trees) -> None:
    gate = FunctionGate(
        "sglang", SRT + "distributed/device_communicators/torch_symm_mem.py",
        "TorchSymmMemCommunicator.__init__", reads="disabled",
    )  # fmt: skip
    found = decision_table(
        pins, gate, SimpleNamespace(), SimpleNamespace(group_name="group"), "cuda:0",
        torch={
            "cuda.set_device": lambda device: None,
            "distributed.get_world_size": lambda group: 8,
            "distributed._symmetric_memory.empty": lambda *args, **kwargs: "buffer",
            "distributed._symmetric_memory.rendezvous": lambda *args: SimpleNamespace(
                multicast_ptr=1
            ),
        },
    )  # fmt: skip
    assert rest_of(found, "11.0", "12.0", "12.1") == {
        "8.0": True, "8.9": True, "9.0": False, "10.0": False, "10.3": False
    }  # fmt: skip
    assert found["12.0"] == Raised("KeyError", "12")


def test_the_capabilities_that_a_decorator_lists(pins: Trees) -> None:
    number = PerCapability(lambda capability: capability[0] * 10 + capability[1])
    for name, expected in (
        ("_trtllm_gemm_fp4_requirement", ("10.0", "10.3")),
        ("_cutlass_gemm_fp4_requirement", BLACKWELL),
    ):
        gate = FunctionGate(
            "flashinfer", "flashinfer/gemm/gemm_base.py", f"{name}.is_compute_capability_supported"
        )
        assert accepted(decision_table(pins, gate, number)) == expected


def test_upstreams_own_values_are_arguments(pins: Trees) -> None:
    gate = FunctionGate("flashinfer", "flashinfer/fused_moe/core.py", "is_trtllm_moe_supported")
    bf16 = Expression("DtypeTrtllmGen.Bfloat16")
    # At the pin it hands an index to a function that wants a device.
    of = {"get_compute_capability": PerCapability(lambda capability: lambda device: capability)}
    assert accepted(decision_table(pins, gate, bf16, bf16, stubs=of)) == BLACKWELL


def test_an_import_time_gate(pins: Trees) -> None:
    gate = FunctionGate("sglang", SRT + "layers/moe/token_dispatcher/standard.py", "fp4_quantize")
    stubs = {"flashinfer.fp4_quantize": "flashinfer", "sgl_kernel.scaled_fp4_quant": "sgl_kernel"}
    found = decision_table(pins, gate, stubs=stubs)
    assert [c for c, value in found.items() if value == "flashinfer"] == ["12.0", "12.1"]


@pytest.mark.parametrize(
    ("upstream", "path", "function", "entries"),
    [
        ("sglang", "layers/flashinfer_comm_fusion.py", "flashinfer_allreduce_residual_rmsnorm",
         ["flashinfer/jit/comm.py::gen_trtllm_comm_module"]),
        ("sglang", "layers/layernorm.py", "RMSNorm.forward_with_allreduce_fusion",
         ["flashinfer/jit/comm.py::gen_trtllm_comm_module"]),
        ("sglang", "layers/quantization/fp8_utils.py",
         "flashinfer_gemm_w8a8_block_fp8_linear_with_fallback",
         [f"flashinfer/jit/gemm/core.py::gen_{name}_module"
          for name in ("gemm_sm100", "gemm_sm120", "trtllm_gen_gemm")]),
        ("sglang", "layers/quantization/fp8_utils.py",
         "flashinfer_deepgemm_w8a8_block_fp8_linear_with_fallback",
         ["flashinfer/jit/gemm/fp8_blockscale.py::gen_fp8_blockscale_gemm_sm90_module"]),
        ("sglang", "layers/moe/token_dispatcher/standard.py", "StandardDispatcher.dispatch",
         [f"flashinfer/fp4_quantization.py::gen_fp4_quantization_sm{arch}_module"
          for arch in (100, 103, 110, 120, 121, 90)]),
        ("sglang", "layers/quantization/modelopt_quant.py", "ModelOptNvFp4FusedMoEMethod.apply",
         [f"flashinfer/jit/fused_moe.py::gen_cutlass_fused_moe_sm{arch}_module"
          for arch in (100, 103, 120, 89, 90)]),
        ("sglang", "layers/communicator.py", "CommunicateSummableTensorPairFn.execute", []),
    ],
)  # fmt: skip
def test_routes(pins: Trees, upstream: str, path: str, function: str, entries: list[str]) -> None:
    found = route(pins, upstream, SRT + path, function)
    assert sorted(item.entry for item in found) == entries
    assert {item.generator_upstream for item in found} <= {"flashinfer"}


def test_only_seventeen_guards_tell_sm100a_from_sm120a(pins: Trees) -> None:
    sources = [
        path
        for path in pins.files("flashinfer")
        if path.startswith(("csrc/", "include/")) and not path.endswith((".py", ".rst"))
    ]
    hopper = "CUTLASS_ARCH_MMA_SM90A_ENABLED"
    only_90a: dict[str, dict[str, int | None]] = {
        "90a": {hopper: 1}, "100a": {hopper: None}, "120a": {hopper: None}
    }  # fmt: skip
    found: list[tuple[str, Guard]] = [
        (path, guard)
        for path in sources
        for guard in guards(
            pins.text("flashinfer", path), ("90a", "100a", "120a"), also=hopper, by_target=only_90a
        )
        if guard.directive != "else"
    ]
    differ = [(p, g) for p, g in found if g.taken["100a"] != g.taken["120a"]]
    lost = [(p, g) for p, g in differ if g.taken["100a"] is True and g.taken["120a"] is False]
    assert (len(differ), len(lost)) == (17, 15)
    comm = "include/flashinfer/comm/trtllm_allreduce.cuh"
    assert [g.line for p, g in lost if p == comm] == [
        417, 455, 485, 533, 711, 895, 950, 991, 1053, 1207, 1265, 1335, 1444
    ]  # fmt: skip
    assert {p for p, _ in lost} == {comm, "csrc/xqa/mha.cu", "csrc/xqa/utils.cuh"}
    of_hopper = [g for _, g in found if g.taken["90a"] is True and g.taken["120a"] is False]
    assert len(of_hopper) == 133
    assert len([g for g in of_hopper if g.taken["100a"] is not True]) == 118


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_lamport_pointers_are_not_where_the_kernels_read_them(pins: Trees, ranks: int) -> None:
    array = "lamport_peer_comm_buffer_ptrs"
    header = pins.text("flashinfer", "include/flashinfer/comm/trtllm_allreduce.cuh")
    (pack,) = functions(
        pins.text("flashinfer", "csrc/trtllm_allreduce.cu"), "trtllm_custom_all_reduce"
    )
    known = constants(header)
    assert known["MAX_RANKS_PER_NODE"] == 16
    given = {**known, "tp_size": ranks, f"{array}_0.has_value()": 1}
    stored = stores(pack.body, array, given)
    assert stored[ranks + 1] == Symbol(f"{array}_1.value().data_ptr()", 1)
    names = {"ping": 1, "pong": 1, "rank": 1, "params.local_rank": 1, **known}
    assert {evaluate(read.index, names) for read in subscripts(header, array)} == {17}
