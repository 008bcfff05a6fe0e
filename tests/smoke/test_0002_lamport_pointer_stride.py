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
from patchwright.smoke.outcomes import SmokeError

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
