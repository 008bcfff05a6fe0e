"""0006: no allreduce launch asks for a larger cluster than the device has, or loses threads."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest

from patchwright.smoke.cexpressions import constants, functions
from patchwright.smoke.outcomes import SmokeError

GENERATOR = "flashinfer/jit/comm.py::gen_trtllm_comm_module"
COMM = "include/flashinfer/comm/"
UTILS = "include/flashinfer/utils.cuh"
FUSION = "allreduce_fusion_kernel_launcher"
MOE = ("moereduction_allreduce_fusion_kernel_launcher",
       "moefinalize_allreduce_fusion_kernel_launcher")  # fmt: skip
LAMPORT = "lamport_style_one_shot_all_reduce_norm_kernel_launcher"
LAUNCHERS = {
    FUSION: "trtllm_allreduce_fusion.cuh",
    **dict.fromkeys(MOE, "trtllm_moe_allreduce_fusion.cuh"),
    LAMPORT: "trtllm_allreduce.cuh",
}
# Of each launcher those hidden sizes whose launch covers the token without the patch: FP4 takes
# an odd cluster for some, the lamport kernel drops warps of others, the MoE kernels round up.
HIDDEN = {
    "fusion": (1024, 2048, 2880, 4096, 5120, 6144, 7168, 8192, 12288),
    "fusion-fp4": (1024, 2048, 2880, 4096, 5120, 6144, 8192, 12288),
    "moereduction": (2048, 4096, 5120, 6144, 7168, 8192),
    "moefinalize": (2048, 4096, 5120, 6144, 7168, 8192),
    "lamport": (4096, 5120, 6144, 7168, 8192),
}
# 16 bytes of 16-bit elements each.
VECTOR = 8
# Reported sizes: none at all, less than the 8 that is asked for, 8 and more.
SMALL, LARGE = (0, 1, 2, 3, 4, 5, 6, 7), (8, 16)
AROUND = """\
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
using std::min;
using cudaError_t = int;
using cudaStream_t = void*;
enum { cudaSuccess, cudaErrorNotSupported, cudaLaunchAttributeProgrammaticStreamSerialization,
       cudaLaunchAttributeClusterDimension };
struct cudaLaunchAttribute {
  int id;
  struct { int programmaticStreamSerializationAllowed; struct { int x, y, z; } clusterDim; } val;
};
struct cudaLaunchConfig_t {
  int gridDim, blockDim, dynamicSmemBytes; cudaStream_t stream; cudaLaunchAttribute* attrs;
  int numAttrs;
};
#define FLASHINFER_CHECK(condition, ...) if (!(condition)) throw std::runtime_error(#condition)
#define FLASHINFER_CUDA_CALL(call) call
#define FLASHINFER_LOG_WARN(...)
int sm_version, sm_count, largest;
// What is simulated of the device: its size, and the largest cluster; 0 is one without clusters.
template <typename Kernel> int cudaOccupancyMaxPotentialClusterSize(
    int* size, Kernel, cudaLaunchConfig_t const*) {
  if (largest == 0) return cudaErrorNotSupported;
  *size = largest;
  return cudaSuccess;
}
int cudaGetLastError() { return cudaSuccess; }
namespace utils {
int getSMVersion() { return sm_version; }
int getSMRegisters() { return 65536; }
}
int get_sm_count() { return sm_count; }
bool use_oneshot(int) { return true; }
// What later releases decide by as well: no case here asks for any of it.
enum class QuantType { kNone, kFP8, kFP4, kPerTokenGroupFP8Packed, kDynamicFP8, kMXFP8 };
enum class QuantizationSFLayout { SWIZZLED_128x4, SWIZZLED_8x4, LINEAR };
enum class AllReduceFusionPattern { kNone, kFP8, kFP4 };
template <AllReduceFusionPattern Pattern> constexpr QuantType GetQuantType = QuantType(Pattern);
template <typename T> struct AllReduceFusionParams {
  int nranks, size, hidden_dim; bool use_oneshot, trigger_completion_at_end; cudaStream_t stream;
  int block_quant_group_size = 0; void *quant_out = nullptr, *scale_out = nullptr;
  QuantizationSFLayout layout = QuantizationSFLayout::LINEAR;
};
template <typename T> using MoeReductionAllReduceFusionParams = AllReduceFusionParams<T>;
template <typename T> using MoeFinalizeAllReduceFusionParams = AllReduceFusionParams<T>;
template <typename T> struct AllReduceParams {
  size_t elts_total; struct { int hidden_size; } fusion_params;
};
template <AllReduceFusionPattern, typename, int, bool, bool = true>
int get_registers_per_thread_oneshot() { return 64; }
template <AllReduceFusionPattern, typename, int, bool>
int get_registers_per_thread_twoshot() { return 64; }
template <AllReduceFusionPattern, typename T, int, bool, bool = true>
void allreduce_fusion_kernel_oneshot_lamport(AllReduceFusionParams<T>) {}
template <typename T, int, bool, bool, bool, bool>
void moereduce_allreduce_fusion_kernel_oneshot_lamport(AllReduceFusionParams<T>) {}
template <typename T, int, bool, bool, bool, typename = T>
void moefinalize_allreduce_fusion_kernel_oneshot_lamport(AllReduceFusionParams<T>) {}
template <int, typename T, int, bool = false, bool = false, bool = true>
void lamport_style_one_shot_all_reduce_norm_kernel(AllReduceParams<T>) {}
int launched(cudaLaunchConfig_t const& cfg) {
  int cluster = 1;
  for (int i = 0; i < cfg.numAttrs; ++i)
    if (cfg.attrs[i].id == cudaLaunchAttributeClusterDimension)
      cluster = cfg.attrs[i].val.clusterDim.x;
  return printf("%d %d %d\\n", cfg.gridDim, cfg.blockDim, cluster), cudaSuccess;
}
template <typename... Any> int cudaLaunchKernelEx(cudaLaunchConfig_t* cfg, Any...) {
  return launched(*cfg);
}
template <AllReduceFusionPattern, typename, int, bool, bool = true, typename P>
int launch_oneshot_lamport(P const&, cudaLaunchConfig_t& cfg) { return launched(cfg); }
template <AllReduceFusionPattern, typename, int, bool, typename P, typename... Any>
int launch_twoshot_sync(P const&, cudaLaunchConfig_t& cfg, Any...) { return launched(cfg); }
template <typename, int, bool, bool, bool, bool, typename P>
int launch_oneshot_moereduce_lamport(P const&, cudaLaunchConfig_t& cfg) { return launched(cfg); }
template <typename, int, bool, bool, bool, typename, typename P>
int launch_oneshot_moefinalize_lamport(P const&, cudaLaunchConfig_t& cfg) { return launched(cfg); }
"""
MAIN = """
int main(int, char** argv) {
  sm_version = atoi(argv[1]), sm_count = atoi(argv[2]), largest = atoi(argv[3]);
  char kind;
  int tokens, hidden;
  while (scanf(" %c %d %d", &kind, &tokens, &hidden) == 3) {
    AllReduceFusionParams<short> fusion{2, tokens * hidden, hidden, true, true, nullptr};
    AllReduceParams<short> plain{size_t(tokens) * hidden, {hidden}};
    constexpr auto none = AllReduceFusionPattern::kNone, fp4 = AllReduceFusionPattern::kFP4;
    try { switch (kind) {
      case 'n': allreduce_fusion_kernel_launcher<none, short, 2, true>(fusion, true); break;
      case '4': allreduce_fusion_kernel_launcher<fp4, short, 2, true>(fusion, true); break;
      case 'r': moereduction_allreduce_fusion_kernel_launcher<short, 2, true, true, true, true>(
          fusion, true); break;
      case 'f': moefinalize_allreduce_fusion_kernel_launcher<short, 2, true, true, true, short>(
          fusion, true); break;
      default: lamport_style_one_shot_all_reduce_norm_kernel_launcher<short, 2, false, false>(
          plain, true, nullptr);
    } } catch (std::runtime_error const&) {
      puts("0 0 0");  // refused
    }
  }
}
"""
LETTER = {"fusion": "n", "fusion-fp4": "4", "moereduction": "r", "moefinalize": "f", "lamport": "l"}
TOKENS = (1, 8, 64)


class Launch(NamedTuple):
    """What is launched, in blocks and threads; zeros where upstream refuses."""

    grid: int
    block: int
    cluster: int


def definition(text: str, name: str) -> str:
    """Return a function as it stands in the source, template head included."""
    (function,) = functions(text, name)
    head = re.findall(
        rf"\n((?:template <[^;{{}}]*>\s+)?[^;{{}}()]*\b{name}\([^;{{}}]*\)) \{{", text
    )
    if len(head) != 1:
        raise SmokeError(f"the head of {name} is not found")
    return f"{head[0]} {function.body}\n"


@cache
def launchers(trees: Any) -> str:
    """Return the four launchers of a tree, and all that decides, as a program for the host."""
    texts = {name: trees.text("flashinfer", COMM + name) for name in set(LAUNCHERS.values())}
    details = {
        name: value for text in texts.values() for name, value in constants(text).items()
        if re.match("k[A-Z]", name)
    }  # fmt: skip
    utils = trees.text("flashinfer", UTILS)
    asking = [
        definition(utils, name)
        for name in re.findall(r"\ninline \w+ (\w+)\(", utils)
        if "cudaOccupancyMaxPotentialClusterSize" in functions(utils, name)[0].body
    ]
    lamport = definition(texts[LAUNCHERS[LAMPORT]], "heuristic_min_warp_number")
    launchers = (definition(texts[header], name) for name, header in LAUNCHERS.items())
    constant = "".join(f"constexpr int {name} = {value};" for name, value in details.items())
    return "\n".join(
        [AROUND, f"namespace details {{ {constant} }}", *asking, lamport, *launchers, MAIN]
    )


@pytest.fixture(scope="session")
def launches(host_program: Any) -> Callable[..., dict[Any, Launch]]:
    """What upstream's own launchers launch, run on the host, by launcher, tokens and hidden."""

    @cache
    def table(trees: Any, largest: int, *, sm: int = 120, sms: int = 188) -> dict[Any, Launch]:
        cases = [(kind, t, h) for kind, sizes in HIDDEN.items() for h in sizes for t in TOKENS]
        asked = "".join(f"{LETTER[kind]} {tokens} {hidden}\n" for kind, tokens, hidden in cases)
        done = host_program(launchers(trees)).run(sm, sms, largest, data=asked)
        lines = done.stdout.splitlines()
        assert len(lines) == len(cases), done.stderr
        return {
            case: Launch(*map(int, line.split())) for case, line in zip(cases, lines, strict=True)
        }

    return table


def threads(kind: str, hidden: int) -> int:
    """The threads that one token needs; the MoE and lamport kernels take whole warps."""
    needed = hidden // VECTOR
    return needed if kind.startswith("fusion") else -(-needed // 32) * 32


@pytest.mark.tier("static")
@pytest.mark.parametrize("largest", SMALL)
def test_no_launch_asks_for_more_than_the_device_has(
    launches: Any, tree: Any, largest: int
) -> None:
    for case, launch in launches(tree, largest).items():
        if threads(case[0], case[2]) > 1024 * max(largest, 1):
            continue  # More than the largest cluster can hold: no launch is right.
        assert launch.cluster <= max(largest, 1), f"{case}: {launch}"
        assert launch.block * launch.cluster == threads(case[0], case[2]), f"{case}: {launch}"
        assert launch.block <= 1024
        assert launch.grid % launch.cluster == 0


@pytest.mark.tier("static")
@pytest.mark.parametrize("largest", LARGE)
@pytest.mark.parametrize(("sm", "sms"), [(90, 132), (100, 148), (103, 160), (120, 188), (121, 48)])
def test_a_device_with_clusters_of_eight_launches_as_before(
    launches: Any, tree: Any, baseline: Any, sm: int, sms: int, largest: int
) -> None:
    after = launches(tree, largest, sm=sm, sms=sms)
    assert after == launches(baseline, largest, sm=sm, sms=sms)
    assert after["fusion", 1, 7168] == Launch(4, 224, 4)
    assert after["fusion", 1, 8192] == Launch(8, 128, 8)
    assert after["moereduction", 1, 8192] == Launch(8, 128, 8)
    assert after["lamport", 1, 7168] == Launch(7, 128, 7)


@pytest.mark.tier("static")
def test_before_sm90_the_fusion_launches_no_cluster(
    launches: Any, tree: Any, baseline: Any
) -> None:
    def fusion(trees: Any) -> dict[Any, Launch]:
        found = launches(trees, 0, sm=89, sms=128)
        return {case: launch for case, launch in found.items() if case[0] == "fusion"}

    assert fusion(tree) == fusion(baseline)
    assert {launch.cluster for launch in fusion(tree).values() if launch.block} == {1}


@pytest.mark.tier("static")
@pytest.mark.parametrize("arch", ["12.0a", "12.1a"])
def test_sm12x_has_the_launchers(jit_spec: Any, arch: str) -> None:
    spec = jit_spec(GENERATOR, arch=arch)
    for source in ("trtllm_allreduce", "trtllm_allreduce_fusion", "trtllm_moe_allreduce_fusion"):
        assert spec.source(f"{source}.cu").name == f"{source}.cu"
