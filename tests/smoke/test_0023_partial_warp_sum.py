"""0023: the allreduce fusion's block sum is right for blocks whose last warp is partial."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from patchwright.smoke.cexpressions import functions
from patchwright.smoke.outcomes import Blocked

HEADER = "include/flashinfer/comm/trtllm_allreduce_fusion.cuh"
GENERATOR = "flashinfer/jit/comm.py::gen_trtllm_comm_module"
SOURCE = "trtllm_allreduce_fusion.cu"
# The block of hidden size 2880 (gpt-oss) in 16 bits, then tails of one, 16 and 31 lanes, and
# a block that is smaller than a warp.
PARTIAL = (180, 129, 144, 159, 20)
WHOLE = (32, 128, 192, 512)
# One block, a coroutine per CUDA thread, run in turn. A lane that takes part in a shuffle waits
# for the others of its warp; one that does not exist answers with the reader's own value, as
# hardware was seen to do. What a shuffle's mask names beyond the lanes that exist is counted.
AROUND = """\
#include <ucontext.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>
using std::max;
using std::min;
template <typename A, typename B> constexpr A ceil_div(A a, B b) { return (a + b - 1) / b; }
#define __device__
#define __inline__ inline
#define __forceinline__ inline
struct Index { unsigned int x; } threadIdx, blockDim;
struct Thread { ucontext_t context; std::vector<char> stack; bool done; };
std::vector<Thread> threads;
ucontext_t scheduler;
bool moved;
struct Rendezvous {
  int size, waiting, turn;
  void wait() {
    int now = turn;
    moved = true;
    if (++waiting == size) { waiting = 0; ++turn; }
    while (turn == now) swapcontext(&threads[threadIdx.x].context, &scheduler);
  }
};
struct Warp { int lanes; Rendezvous step; float value[32]; };
std::vector<Warp> warps;
Rendezvous block;
int missing;
void __syncthreads() { block.wait(); }
template <typename T> T __shfl_xor_sync(unsigned int mask, T value, int other, int width) {
  int lane = threadIdx.x % 32;
  Warp& warp = warps[threadIdx.x / 32];
  if (width != 32 || !(mask >> lane & 1)) std::abort();
  if (warp.lanes < 32 && mask >> warp.lanes) ++missing;
  warp.value[lane] = value;
  warp.step.wait();
  int partner = lane ^ other;
  T found = partner < warp.lanes ? warp.value[partner] : value;
  warp.step.wait();
  return found;
}
#define __shared__
"""
MAIN = """
float sum;
void run() {
  float value = 1 + threadIdx.x % 7;
  blockReduceSumV2<float, 1>(&value);
  if (threadIdx.x == 0) sum = value;
  threads[threadIdx.x].done = true;
}
int main(int, char** argv) {
  int size = atoi(argv[1]), left = size;
  blockDim.x = size;
  block.size = size;
  for (int first = 0; first < size; first += 32) {
    int lanes = min(32, size - first);
    warps.push_back({lanes, {lanes}});
  }
  threads.resize(size);
  for (auto& thread : threads) {
    thread.stack.resize(1 << 14);
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.data();
    thread.context.uc_stack.ss_size = thread.stack.size();
    thread.context.uc_link = &scheduler;
    makecontext(&thread.context, run, 0);
  }
  while (left) {
    moved = false;
    for (int i = 0; i < size; ++i) {
      if (threads[i].done) continue;
      threadIdx.x = i;
      swapcontext(&scheduler, &threads[i].context);
      if (threads[i].done) { --left; moved = true; }
    }
    if (!moved) return 2;
  }
  printf("%.1f %d\\n", sum, missing);
}
"""
# The kernel that sglang's fusion launches at small batches: bf16, two ranks.
KERNEL = """\
#include "flashinfer/comm/trtllm_allreduce_fusion.cuh"
namespace flashinfer::trtllm_allreduce_fusion {
template __global__ void allreduce_fusion_kernel_oneshot_lamport<
    AllReduceFusionPattern::kARResidualRMSNorm, __nv_bfloat16, 2, false, true>(
    AllReduceFusionParams<__nv_bfloat16>);
}
"""
ON_DEVICE = """\
#include "flashinfer/comm/trtllm_allreduce_fusion.cuh"
#include "tvm_ffi_utils.h"
__global__ void sum(float* output) {
  float value = 1 + threadIdx.x % 7;
  flashinfer::trtllm_allreduce_fusion::utils::blockReduceSumV2<float, 1>(&value);
  if (threadIdx.x == 0) *output = value;
}
void block_sum(TensorView output, int64_t size) {
  sum<<<1, size, 0, get_stream(output.device())>>>(static_cast<float*>(output.data_ptr()));
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(block_sum, block_sum);
"""


def needs(module: str) -> Any:
    """Import a module of the environment under test; Blocked where it cannot be."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Blocked(f"needs {error.name or module} in the environment") from error


def wanted(size: int) -> float:
    """The sum of what the program gives to each thread."""
    return float(sum(1 + thread % 7 for thread in range(size)))


@cache
def reduction(trees: Any) -> str:
    """Return upstream's block sum as a program for the host."""
    text = trees.text("flashinfer", HEADER)
    # What a release has of these two: the mask of a whole warp, under one name or the other.
    names = r"#define FINAL_MASK .*|static constexpr .*\bk(?:WarpSize|FullWarpMask) = .*;"
    constants = "\n".join(re.findall(names, text))
    return f"{AROUND}{constants}\n{definitions(text, 'blockReduceSumV2')}{MAIN}"


def definitions(text: str, name: str) -> str:
    """Return a reduction of the header as it stands there, after those that it calls."""
    (function,) = functions(text, name)
    calls = dict.fromkeys(re.findall(r"\b(\w*Reduce\w*)(?=<T, NUM>\()", function.body))
    (parameters,) = re.findall(rf"\bT {name}(\([^()]*\)) \{{", text)
    own = f"template <typename T, int NUM> T {name}{parameters} {function.body}\n"
    return "".join(definitions(text, called) for called in calls) + own


@pytest.fixture(scope="session")
def block_sum(host_program: Any) -> Callable[..., tuple[float, int]]:
    """Upstream's own block sum, run on the host for a block of some size.

    Returns the sum that thread 0 holds afterwards, and how many shuffles named lanes that
    do not exist.
    """

    @cache
    def answer(trees: Any, size: int) -> tuple[float, int]:
        done = host_program(reduction(trees)).run(size)
        assert done.returncode != 2, "threads wait for others that do not come"
        assert done.returncode == 0, "a lane is not in the mask of its own shuffle"
        total, missing = done.stdout.split()
        return float(total), int(missing)

    return answer


@pytest.mark.tier("static")
@pytest.mark.parametrize("size", PARTIAL)
def test_a_partial_warp_is_summed_once(block_sum: Any, tree: Any, size: int) -> None:
    total, missing = block_sum(tree, size)
    assert total == wanted(size)
    assert missing == 0, f"{missing} shuffles name lanes that do not exist"


@pytest.mark.tier("static")
@pytest.mark.parametrize("size", WHOLE)
def test_whole_warps_are_summed_as_before(
    block_sum: Any, tree: Any, baseline: Any, size: int
) -> None:
    assert block_sum(tree, size) == block_sum(baseline, size) == (wanted(size), 0)


@pytest.mark.tier("compile")
@pytest.mark.parametrize("arch", ["9.0a", "10.0a"])
def test_the_kernel_gains_a_path_for_partial_warps_and_keeps_the_other(
    jit_spec: Any, ptx: Any, baseline: Any, arch: str
) -> None:
    def shuffles(**which: Any) -> tuple[int, int]:
        """The shuffles over all lanes, and those over lanes that are computed."""
        text = ptx(jit_spec(GENERATOR, arch=arch, **which), SOURCE, text=KERNEL)
        masks = re.findall(r"shfl\.sync\.bfly\.b32\s[^;]*,\s*(\S+);", text)
        full = {"-1", *re.findall(r"mov\.[bsu]32\s+(%r\d+), -1;", text)}
        return sum(mask in full for mask in masks), sum(mask not in full for mask in masks)

    after, before = shuffles(), shuffles(trees=baseline)
    assert before == (10, 0)
    assert after == (10, 10)


@pytest.mark.tier("gpu")
@pytest.mark.parametrize("size", [*PARTIAL, *WHOLE])
def test_a_block_is_summed_on_the_device(device: Any, tmp_path: Path, size: int) -> None:
    torch, core = needs("torch"), needs("flashinfer.jit.core")
    source = tmp_path / "block_sum.cu"
    source.write_text(ON_DEVICE)
    output = torch.zeros(1, dtype=torch.float32, device=device)
    core.gen_jit_spec("block_sum", [source]).build_and_load().block_sum(output, size)
    torch.cuda.synchronize()
    assert float(output) == wanted(size)
