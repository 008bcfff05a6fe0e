"""0003: the allreduce kernels have bodies and barriers on SM12x too; SM90 and SM100 do not move."""

from __future__ import annotations

import importlib
import time
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
from patchwright.smoke.outcomes import Blocked

GENERATOR = "flashinfer/jit/comm.py::gen_trtllm_comm_module"
SOURCE = "trtllm_allreduce.cu"
LAMPORT = "lamport_peer_comm_buffer_ptrs"
HEADER = "include/flashinfer/comm/trtllm_allreduce.cuh"
# A kernel below this part of its reference has lost its body: an empty one is 256 bytes,
# the smallest that kept its body was seen at 0.8.
HOLLOW = 0.25
# Upstream's codes: AllReduceFusionOp and AllReduceStrategyType.
RESIDUAL_RMS_NORM, ONESHOT = 1, 4


def needs(module: str) -> Any:
    """Import a module of the environment under test; Blocked where it cannot be."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Blocked(f"needs {error.name or module} in the environment") from error


@pytest.fixture
def device() -> Any:
    """The device under test; Blocked without one of SM12x."""
    torch = needs("torch")
    found = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    if found is None or found[0] != 12:
        name = "none" if found is None else f"sm_{found[0]}{found[1]}"
        raise Blocked(f"needs one sm_120 or sm_121 device; found {name}")
    return torch.device("cuda")


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


@pytest.mark.tier("gpu")
@pytest.mark.parametrize("tokens", [1, 8, 16])
def test_two_ranks_on_one_device_match_the_reference(device: Any, tokens: int) -> None:
    """Each rank is a stream of its own: a pointer to a peer's buffer is one of this device."""
    torch, comm = needs("torch"), needs("flashinfer.jit.comm")
    try:
        module = comm.gen_trtllm_comm_module().build_and_load()
    except RuntimeError as error:
        pytest.fail(str(error))
    hidden, ranks = 4096, range(2)

    def random(*shape: int) -> Any:
        return torch.randn(shape, dtype=torch.bfloat16, device=device)

    # A slot per sender in each of three buffers, negative zero where nobody has written.
    buffers = [
        [torch.full((2 * tokens * hidden,), -0.0, dtype=torch.bfloat16, device=device)
         for _ in ranks] for _ in range(3)
    ]  # fmt: skip
    pointers = [torch.tensor([own.data_ptr() for own in buffer]) for buffer in buffers]
    unused = torch.zeros(2, dtype=torch.int64)
    residual, weight = random(tokens, hidden), random(hidden)
    streams = [torch.cuda.Stream() for _ in ranks]
    for flag in range(1, 7):  # Twice around the three buffers.
        inputs = [random(tokens, hidden) for _ in ranks]
        sums, norms = ([torch.zeros_like(residual) for _ in ranks] for _ in range(2))
        torch.cuda.synchronize()
        for rank in ranks:
            with torch.cuda.stream(streams[rank]):
                module.trtllm_custom_all_reduce(
                    inputs[rank], norms[rank], 2, rank, tokens, RESIDUAL_RMS_NORM, ONESHOT, 0,
                    False, flag, unused, unused, unused, None, residual, weight, None, 1e-6,
                    sums[rank], *pointers,
                )  # fmt: skip
        finish(streams)
        wanted = sum(part.float() for part in (*inputs, residual))
        scale = torch.rsqrt(wanted.pow(2).mean(-1, keepdim=True) + 1e-6)
        for rank in ranks:
            assert torch.allclose(sums[rank].float(), wanted, rtol=0.02, atol=0.05)
            normed = wanted * scale * weight.float()
            assert torch.allclose(norms[rank].float(), normed, rtol=0.02, atol=0.05)


def finish(streams: Any) -> None:
    """Wait for both ranks; a rank that waits for ever is a failure, not a hang."""
    deadline = time.monotonic() + 30
    try:
        while not all(stream.query() for stream in streams):
            assert time.monotonic() < deadline, "a rank still waits for what its peer sent"
            time.sleep(0.01)
    except RuntimeError as error:
        pytest.fail(f"a kernel died: {error}")
