"""0002: the host stores every lamport buffer pointer where the kernels read it."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest

from patchwright.smoke.cexpressions import (
    Symbol,
    Value,
    constants,
    evaluate,
    functions,
    stores,
    subscripts,
)
from patchwright.smoke.outcomes import Blocked, SmokeError

SOURCE = "csrc/trtllm_allreduce.cu"
HEADER = "include/flashinfer/comm/trtllm_allreduce.cuh"
PACKER = "trtllm_custom_all_reduce"
LAMPORT = "lamport_peer_comm_buffer_ptrs"
BUFFERS = 3
RANKS = (2, 4, 8)


def packed(trees: Any, array: str, ranks: int) -> dict[int, Value]:
    """Return what the host stores to a pointer array of the kernel's parameters."""
    (packer,) = functions(trees.text("flashinfer", SOURCE), PACKER)
    given = {f"{LAMPORT}_{buffer}.has_value()": 1 for buffer in range(BUFFERS)}
    return stores(packer.body, array, given | sizes(trees) | {"tp_size": ranks})


def sizes(trees: Any) -> dict[str, int]:
    return constants(trees.text("flashinfer", HEADER))


def refuses(trees: Any, ranks: int) -> bool:
    """Whether a check that stands before the first store refuses this number of ranks."""
    (packer,) = functions(trees.text("flashinfer", SOURCE), PACKER)
    start = packer.body[: packer.body.index("peer_comm_buffer_ptrs[")]
    values = sizes(trees) | {"tp_size": ranks}
    operators = {"LE": "<=", "LT": "<", "GE": ">=", "GT": ">", None: ","}
    for relation, condition in re.findall(r"ICHECK(?:_(\w\w))?\((.*?)\)\s*(?:<<|;)", start, re.S):
        left, _, right = condition.partition(",")
        text = f"({left}) {operators[relation]} ({right})" if relation else condition
        try:
            if not evaluate(text, values):
                return True
        except SmokeError:
            continue  # It checks something else than the number of ranks.
    return False


@pytest.mark.tier("static")
@pytest.mark.parametrize("ranks", RANKS)
def test_every_pointer_is_where_the_kernels_read_it(tree: Any, ranks: int) -> None:
    stored, given = packed(tree, LAMPORT, ranks), sizes(tree)
    reads = {read.index for read in subscripts(tree.text("flashinfer", HEADER), LAMPORT)}
    for index, buffer, rank in product(sorted(reads), range(BUFFERS), range(ranks)):
        # The kernel takes the buffers in turn, as ``ping`` and as ``pong``.
        names = {"ping": buffer, "pong": buffer, "rank": rank, "params.local_rank": rank}
        at = evaluate(index, given | names)
        assert isinstance(at, int)
        assert stored.get(at) == Symbol(f"{LAMPORT}_{buffer}.value().data_ptr()", rank), (
            f"{ranks} ranks: the kernels read rank {rank} of buffer {buffer} at "
            f"[{index}] = {at}, where the host stores {stored.get(at, 'nothing')}"
        )


@pytest.mark.tier("static")
def test_more_ranks_than_there_is_room_for_are_refused(tree: Any) -> None:
    room = sizes(tree)["MAX_RANKS_PER_NODE"]
    assert refuses(tree, room + 1)
    assert not refuses(tree, room)


@pytest.mark.tier("static")
def test_sixteen_ranks_are_packed_as_before(tree: Any, baseline: Any) -> None:
    assert packed(tree, LAMPORT, 16) == packed(baseline, LAMPORT, 16)


@pytest.mark.tier("static")
@pytest.mark.parametrize("ranks", [*RANKS, 16])
@pytest.mark.parametrize(
    "array", ["peer_comm_buffer_ptrs", "peer_barrier_ptrs_in", "peer_barrier_ptrs_out"]
)
def test_the_other_pointers_are_packed_as_before(
    tree: Any, baseline: Any, array: str, ranks: int
) -> None:
    after = packed(tree, array, ranks)
    assert after == packed(baseline, array, ranks)
    assert sorted(after) == list(range(ranks))


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


@pytest.fixture
def bodied(device: Any) -> None:
    """Blocked on SM12x, where the kernel that reads the pointers is empty before 0003."""
    if device.capability[0] == 12:
        raise Blocked(
            "needs an sm_90 or sm_100 device: on SM12x the lamport kernel is empty before "
            "0003, whose test covers both"
        )


@pytest.mark.tier("gpu")
@pytest.mark.parametrize("hidden", [4096, 7168])
def test_two_ranks_on_one_device_match_the_reference(bodied: None, ranks: Any, hidden: int) -> None:
    ranks(
        2, custom_allreduce, build, reference, share_device=True, hidden=hidden, tokens=[1, 8, 16]
    )


@pytest.mark.tier("multi-gpu")
def test_a_rank_per_device_matches_the_reference(bodied: None, machine: Any, ranks: Any) -> None:
    for count in (2, 4, 8):
        if count <= len(machine.devices):
            ranks(count, custom_allreduce, build, reference, hidden=7168, tokens=[1, 8, 16])
