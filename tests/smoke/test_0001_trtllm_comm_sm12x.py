"""0001: trtllm_comm is built for SM12x, on first use and ahead of time; nothing else moves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest
from packaging.version import Version

from patchwright.smoke.decisions import CAPABILITIES, Expression, FunctionGate, Raised
from patchwright.smoke.outcomes import SmokeError, UpstreamRefused

GENERATOR = "flashinfer/jit/comm.py::gen_trtllm_comm_module"
FUSION = "trtllm_allreduce_fusion.cu"
# The kernel that sglang's fusion launches at small batches: bf16, two ranks.
KERNEL = """\
#include "flashinfer/comm/trtllm_allreduce_fusion.cuh"
namespace flashinfer::trtllm_allreduce_fusion {
template __global__ void allreduce_fusion_kernel_oneshot_lamport<
    AllReduceFusionPattern::kARResidualRMSNorm, __nv_bfloat16, 2, false, true>(
    AllReduceFusionParams<__nv_bfloat16>);
}
"""


def gencode(arch: str) -> str:
    """``12.0a`` is ``arch=compute_120a,code=sm_120a``."""
    number = arch.replace(".", "")
    return f"arch=compute_{number},code=sm_{number}"


@pytest.mark.tier("static")
@pytest.mark.parametrize("arch", ["12.0a", "12.1a"])
def test_the_module_is_generated_for_sm12x(jit_spec: Any, arch: str) -> None:
    assert jit_spec(GENERATOR, arch=arch).gencode == (gencode(arch),)


def no_program(*args: object, **kwargs: object) -> None:
    raise FileNotFoundError("no program can be started here")


class Made:
    """A module that was asked for; also the list of one that some generators return."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __iter__(self) -> Iterator[Made]:
        return iter((self,))


def ahead_of_time(decision_table: Any, trees: Any) -> dict[str, list[str]]:
    """Return the modules that an AOT build of the communication part makes, by capability.

    Upstream's own list is evaluated, with its own detection of the targets; the generators
    that it imports are replaced by ones that only say that they were called.
    """
    path = "flashinfer/aot.py"
    nodes = list(ast.walk(trees.ast("flashinfer", path)))
    imports = [alias.name for n in nodes if isinstance(n, ast.ImportFrom) for alias in n.names]
    (gate,) = (n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == "gen_all_modules")

    def recorder(name: str) -> Any:
        def generate(*args: object, **kwargs: object) -> Made:
            return Made(f"{name}{args}{kwargs}" if args or kwargs else name)

        return generate

    def default(parameter: str) -> object:
        if parameter == "sm_capabilities":
            return Expression("detect_sm_capabilities()")
        if parameter.startswith("add_"):
            return parameter == "add_comm"
        return Expression(f"get_default_config()[{parameter.rstrip('_')!r}]")

    table = decision_table(
        FunctionGate("flashinfer", path, gate.name),
        trees=trees,
        kwargs={argument.arg: default(argument.arg) for argument in gate.args.args},
        stubs={
            "get_cuda_version": lambda: Version("13.0"),
            # Later releases ask nvcc what it knows, and name their cache by their version.
            "subprocess.run": no_program,
            "flashinfer_version": "0.0.0",
            "gen_attention": lambda *args, **kwargs: [],
            **{name: lambda: False for name in imports if name.endswith("_available")},
            **{n: recorder(n) for n in imports if n.lstrip("_").startswith("gen_")},
        },
    )
    for capability, specs in table.items():
        if isinstance(specs, Raised):
            raise SmokeError(f"the AOT list cannot be evaluated for {capability}: {specs}")
    return {capability: [spec.name for spec in specs] for capability, specs in table.items()}


@pytest.mark.tier("static")
def test_the_aot_list_gains_trtllm_comm_on_sm12x_alone(
    decision_table: Any, tree: Any, baseline: Any
) -> None:
    after, before = ahead_of_time(decision_table, tree), ahead_of_time(decision_table, baseline)
    for capability in CAPABILITIES:
        name = "gen_trtllm_comm_module"
        if capability.startswith("12."):
            assert name in after[capability]
            # Upstream may build it there already; nothing but that is new.
            before[capability] = [spec for spec in before[capability] if spec != name]
            after[capability] = [spec for spec in after[capability] if spec != name]
        assert after[capability] == before[capability]
    # The evaluation sees what upstream's list says of the other targets.
    assert "gen_trtllm_comm_module" in before["10.0"]
    assert "gen_vllm_comm_module" in before["8.0"]


@pytest.mark.tier("static")
@pytest.mark.parametrize("archs", ["10.0a 12.0a", "9.0a 10.0a 12.0a 12.1a"])
def test_a_mixed_list_loses_no_arch(jit_spec: Any, archs: str) -> None:
    spec = jit_spec(GENERATOR, arch=archs)
    assert not spec.dropped, f"asked for {archs!r}, no code for {' '.join(spec.dropped)}"
    assert sorted(spec.gencode) == sorted(gencode(arch) for arch in archs.split())


@pytest.mark.tier("static")
@pytest.mark.parametrize("arch", ["9.0a", "10.0a", "10.3a"])
def test_the_other_archs_compile_as_before(jit_spec: Any, baseline: Any, arch: str) -> None:
    after, before = jit_spec(GENERATOR, arch=arch), jit_spec(GENERATOR, arch=arch, trees=baseline)
    assert after.gencode == (gencode(arch),)
    assert after.nvcc_flags == before.nvcc_flags
    assert [path.name for path in after.sources] == [path.name for path in before.sources]


@pytest.mark.tier("static")
@pytest.mark.parametrize("arch", ["8.0", "8.9"])
def test_what_was_refused_stays_refused(jit_spec: Any, arch: str) -> None:
    with pytest.raises(UpstreamRefused, match="No supported CUDA architectures found"):
        jit_spec(GENERATOR, arch=arch)


@pytest.mark.tier("compile")
def test_the_fusion_kernel_keeps_its_body_on_sm12x(
    jit_spec: Any, preprocess: Any, kernels: Any
) -> None:
    reference = kernels(jit_spec(GENERATOR, arch="10.0a"), FUSION, text=KERNEL)
    spec = jit_spec(GENERATOR, arch="12.0a")
    # sm_121a compiles the same text of the whole source: what is shown of sm_120a holds there.
    assert preprocess(jit_spec(GENERATOR, arch="12.1a"), FUSION) == preprocess(spec, FUSION)
    target = kernels(spec, FUSION, text=KERNEL)
    assert set(target) == set(reference)
    for name, kernel in target.items():
        before = reference[name].code_size
        assert kernel.code_size > 0.7 * before, (
            f"{kernel.demangled}: {kernel.code_size} bytes on sm_120a, {before} on sm_100a"
        )


def build(side: Any) -> None:
    """Build and load the module for the device; what its generator raises is its refusal."""
    from flashinfer.jit.comm import gen_trtllm_comm_module

    with side.upstream_may_refuse():
        spec = gen_trtllm_comm_module()
    spec.build_and_load()


def initialize(side: Any) -> None:
    from flashinfer import comm

    build(side)
    buffer = side.poisoned(4096, dtype="float16")
    comm.trtllm_lamport_initialize(buffer.data_ptr(), buffer.numel(), side.torch.float16)
    side.wait()
    # Negative zero, bit for bit: the mark of a slot that nobody has written yet.
    assert bool((buffer.view(side.torch.int16) == -0x8000).all()), "not all is negative zero"


@pytest.mark.tier("gpu")
def test_the_module_runs_on_the_device(on_device: Any) -> None:
    on_device(initialize, build)


def reference(side: Any, parts: list[Any], residual: Any, weight: Any) -> tuple[Any, Any]:
    """Return sum and normed sum in float32."""
    total = sum(part.float() for part in parts) + residual.float()
    scale = side.torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6)
    return total, total * scale * weight.float()


def fused_allreduce(side: Any, hidden: int, tokens: list[int]) -> None:
    """Compare the fusion that sglang calls, with the workspace that it makes, with float32."""
    from flashinfer import comm

    build(side)
    _, workspace = comm.trtllm_create_ipc_workspace_for_all_reduce_fusion(
        side.rank, side.ranks, max(tokens), hidden
    )
    weight = 1 + side.random(hidden) / 8
    for count in tokens:
        parts = [side.random(count, hidden) for _ in range(side.ranks)]
        residual = side.random(count, hidden)
        total, out = side.poisoned(count, hidden), side.poisoned(count, hidden)
        side.barrier()
        comm.trtllm_allreduce_fusion(
            allreduce_in=parts[side.rank], world_size=side.ranks, world_rank=side.rank,
            token_num=count, hidden_dim=hidden, workspace_ptrs=workspace, launch_with_pdl=True,
            trigger_completion_at_end=False, fp32_acc=False,
            pattern_code=comm.AllReduceFusionPattern.kARResidualRMSNorm, use_oneshot=None,
            allreduce_out=None, residual_in=residual, residual_out=total, norm_out=out,
            quant_out=None, scale_out=None, rms_gamma=weight, rms_eps=1e-6, scale_factor=None,
            layout_code=None,
        )  # fmt: skip
        side.wait()
        wanted_total, wanted = reference(side, parts, residual, weight)
        where = f"{count} tokens of {hidden}"
        side.close(total, wanted_total, rtol=0.02, atol=0.05, what=f"the sum, {where}")
        side.close(out, wanted, rtol=0.02, atol=0.05, what=f"the norm, {where}")


@pytest.mark.tier("gpu")
@pytest.mark.parametrize("hidden", [4096, 7168])
def test_two_ranks_on_one_device_match_the_reference(ranks: Any, hidden: int) -> None:
    ranks(
        2, fused_allreduce, build, reference,
        share_device=True, hidden=hidden, tokens=[1, 8, 16, 64, 128],
    )  # fmt: skip


@pytest.mark.tier("multi-gpu")
def test_a_rank_per_device_matches_the_reference(machine: Any, ranks: Any) -> None:
    for count in (2, 4, 8):
        if count <= len(machine.devices):
            ranks(
                count, fused_allreduce, build, reference,
                hidden=7168, tokens=[1, 8, 16, 64, 128],
            )  # fmt: skip
