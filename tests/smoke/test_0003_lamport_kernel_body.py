"""0003: the allreduce kernels have bodies and barriers on SM12x too; SM90 and SM100 do not move."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from patchwright.smoke.cexpressions import (
    Symbol,
    constants,
    evaluate,
    functions,
    stores,
    subscripts,
)

GENERATOR = "flashinfer/jit/comm.py::gen_trtllm_comm_module"
SOURCE = "trtllm_allreduce.cu"
LAMPORT = "lamport_peer_comm_buffer_ptrs"
HEADER = "include/flashinfer/comm/trtllm_allreduce.cuh"
# A kernel below this part of its reference has lost its body: an empty one is 256 bytes,
# the smallest that kept its body was seen at 0.8.
HOLLOW = 0.25


def between(sizes: list[int]) -> str:
    """``256`` or ``2,944 to 24,960``."""
    low, high = min(sizes), max(sizes)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


@pytest.mark.tier("static")
@pytest.mark.parametrize("target", ["120a", "121a"])
def test_sm12x_loses_nothing_that_sm100_gets(guards: Any, target: str) -> None:
    found = guards("flashinfer", HEADER, ("89", "100a", target))
    lost = [f"{g.line}: #{g.directive} {g.condition}" for g in found
            if g.taken["100a"] and not g.taken[target]]  # fmt: skip
    assert not lost, f"{len(lost)} directives drop on sm_{target} what sm_100a gets: {lost[0]}"
    # The header does decide by architecture, and the evaluation sees it.
    assert any(g.taken["100a"] and not g.taken["89"] for g in found)


@pytest.mark.tier("static")
@pytest.mark.parametrize("target", ["80", "89", "90a", "100a", "103a"])
def test_the_other_archs_take_the_same_branches(guards: Any, baseline: Any, target: str) -> None:
    after = guards("flashinfer", HEADER, (target,))
    before = guards("flashinfer", HEADER, (target,), trees=baseline)
    assert [g.taken[target] for g in after] == [g.taken[target] for g in before]


@pytest.mark.tier("static")
@pytest.mark.parametrize("arch", ["12.0a", "12.1a"])
def test_sm12x_can_reach_the_kernels(jit_spec: Any, arch: str) -> None:
    assert jit_spec(GENERATOR, arch=arch).source(SOURCE).name == SOURCE


@pytest.mark.tier("static")
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_kernel_that_sm12x_gains_finds_its_buffers(tree: Any, ranks: int) -> None:
    """With a body it follows the pointers: a wrong one is a crash where nothing happened before."""
    header, host = tree.text("flashinfer", HEADER), tree.text("flashinfer", f"csrc/{SOURCE}")
    values = constants(header) | {f"{LAMPORT}_{buffer}.has_value()": 1 for buffer in range(3)}
    (packer,) = functions(host, "trtllm_custom_all_reduce")
    stored = stores(packer.body, LAMPORT, values | {"tp_size": ranks})
    for read in subscripts(header, LAMPORT):
        for buffer, rank in product(range(3), range(ranks)):
            names = {"ping": buffer, "pong": buffer, "rank": rank, "params.local_rank": rank}
            at = evaluate(read.index, values | names)
            assert isinstance(at, int)
            found = stored.get(at)
            assert found == Symbol(f"{LAMPORT}_{buffer}.value().data_ptr()", rank), (
                f"{ranks} ranks, line {read.line}: wants rank {rank} of buffer {buffer}, "
                f"finds {found or 'what nobody stored'}"
            )


@pytest.mark.tier("compile")
@pytest.mark.parametrize("arch", ["9.0a", "10.0a"])
def test_the_other_archs_compile_the_same_text_with_the_same_flags(
    jit_spec: Any, preprocess: Any, baseline: Any, arch: str
) -> None:
    after = preprocess(jit_spec(GENERATOR, arch=arch), SOURCE)
    before = preprocess(jit_spec(GENERATOR, arch=arch, trees=baseline), SOURCE)
    assert after.flags == before.flags
    assert after == before


@pytest.mark.tier("compile")
def test_no_kernel_is_hollow_on_sm12x(jit_spec: Any, preprocess: Any, kernels_of: Any) -> None:
    specs = {arch: jit_spec(GENERATOR, arch=arch) for arch in ("12.0a", "12.1a", "10.0a")}
    # sm_121a compiles the same text: what is shown of sm_120a holds there.
    assert preprocess(specs["12.1a"], SOURCE) == preprocess(specs["12.0a"], SOURCE)
    target, reference = kernels_of([(specs[arch], SOURCE, arch) for arch in ("12.0a", "10.0a")])
    assert set(target) == set(reference)
    hollow = [n for n in target if target[n].code_size < HOLLOW * reference[n].code_size]
    sizes = [target[name].code_size for name in hollow]
    wanted = [reference[name].code_size for name in hollow]
    assert not hollow, (
        f"{len(hollow)} of {len(target)} kernels are hollow on sm_120a: {between(sizes)} bytes "
        f"against {between(wanted)} on sm_100a, such as {target[hollow[0]].demangled}"
    )


def build(side: Any) -> None:
    """Build and load the module for the device; what its generator raises is its refusal."""
    from flashinfer.jit.comm import gen_trtllm_comm_module

    with side.upstream_may_refuse():
        spec = gen_trtllm_comm_module()
    spec.build_and_load()


def reference(side: Any, parts: list[Any], residual: Any, weight: Any) -> tuple[Any, Any]:
    """Return sum and normed sum in float32."""
    total = sum(part.float() for part in parts) + residual.float()
    scale = side.torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6)
    return total, total * scale * weight.float()


def custom_allreduce(side: Any, hidden: int, tokens: list[int]) -> None:
    """Compare the lamport kernel, twice around its three buffers, with float32."""
    import torch
    from flashinfer import comm

    build(side)
    weight = 1 + side.random(hidden) / 8
    for count in tokens:
        handles = comm.trtllm_create_ipc_workspace_for_all_reduce(side.rank, side.ranks, 16, hidden)
        buffers = [torch.tensor(pointers, dtype=torch.int64) for pointers in handles]
        for flag in range(1, 7):
            parts = [side.random(count, hidden) for _ in range(side.ranks)]
            residual = side.random(count, hidden)
            out, total = side.poisoned(count, hidden), side.poisoned(count, hidden)
            side.barrier()
            comm.trtllm_custom_all_reduce(
                inp=parts[side.rank], out=out, tp_size=side.ranks, tp_rank=side.rank,
                token_num=count, fusion_op_code=comm.AllReduceFusionOp.RESIDUAL_RMS_NORM,
                strategy_code=comm.AllReduceStrategyType.ONESHOT, config_code=0,
                launch_with_pdl=True, flag_value=flag, peer_comm_buffer_ptrs=buffers[0],
                peer_barrier_ptrs_in=buffers[2], peer_barrier_ptrs_out=buffers[3], bias=None,
                residual=residual, weight=weight, weight_pre_residual_norm=None, eps=1e-6,
                intermediate_buffer=total, lamport_peer_comm_buffer_ptrs_0=buffers[4],
                lamport_peer_comm_buffer_ptrs_1=buffers[5],
                lamport_peer_comm_buffer_ptrs_2=buffers[6],
            )  # fmt: skip
            side.wait()
            wanted_total, wanted = reference(side, parts, residual, weight)
            where = f"{count} tokens of {hidden}, call {flag}"
            side.close(total, wanted_total, rtol=0.02, atol=0.05, what=f"the sum, {where}")
            side.close(out, wanted, rtol=0.02, atol=0.05, what=f"the norm, {where}")


@pytest.mark.tier("gpu")
@pytest.mark.parametrize("hidden", [4096, 7168])
def test_two_ranks_on_one_device_match_the_reference(ranks: Any, hidden: int) -> None:
    ranks(
        2, custom_allreduce, build, reference, share_device=True, hidden=hidden, tokens=[1, 8, 16]
    )


@pytest.mark.tier("multi-gpu")
def test_a_rank_per_device_matches_the_reference(machine: Any, ranks: Any) -> None:
    for count in (2, 4, 8):
        if count <= len(machine.devices):
            ranks(count, custom_allreduce, build, reference, hidden=7168, tokens=[1, 8, 16])
