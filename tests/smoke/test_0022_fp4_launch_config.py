"""0022: every FP4 launch of the allreduce fusion covers its token; no other launch moves."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest

from patchwright.smoke.cexpressions import constants, functions

HEADER = "include/flashinfer/comm/trtllm_allreduce_fusion.cuh"
LAUNCHER = "allreduce_fusion_kernel_launcher"
HIDDEN = (1024, 2048, 2880, 4096, 5120, 6144, 7168, 7680, 8192, 10240, 12288, 16384)
TOKENS = (1, 2, 8, 16, 27, 64, 128, 1000)
# The threads of a token: 16 bytes each, in 16 bits.
VECTOR = 8
# What the launcher asks the CUDA runtime, its kernels and the device; a launch is printed.
AROUND = """\
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
using std::min;
using cudaError_t = int;
using cudaStream_t = void*;
enum { cudaSuccess, cudaLaunchAttributeProgrammaticStreamSerialization,
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
int sm_version, sm_count, registers;
namespace utils {
int getSMVersion() { return sm_version; }
int getSMRegisters() { return 65536; }
}
int get_sm_count() { return sm_count; }
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
template <AllReduceFusionPattern, typename, int, bool, bool = true>
int get_registers_per_thread_oneshot() { return registers; }
template <AllReduceFusionPattern, typename, int, bool>
int get_registers_per_thread_twoshot() { return registers; }
template <AllReduceFusionPattern, typename T, int, bool, bool = true>
void allreduce_fusion_kernel_oneshot_lamport(AllReduceFusionParams<T>) {}
template <typename... Any> int GetMaxClusterSize(Any...) { return 8; }
int launched(cudaLaunchConfig_t const& cfg) {
  int cluster = cfg.numAttrs ? cfg.attrs[1].val.clusterDim.x : 1;
  return printf("%d %d %d\\n", cfg.gridDim, cfg.blockDim, cluster), cudaSuccess;
}
template <AllReduceFusionPattern, typename, int, bool, bool = true, typename P>
int launch_oneshot_lamport(P const&, cudaLaunchConfig_t& cfg) { return launched(cfg); }
template <AllReduceFusionPattern, typename, int, bool, typename P, typename... Any>
int launch_twoshot_sync(P const&, cudaLaunchConfig_t& cfg, Any...) { return launched(cfg); }
"""
MAIN = """
template <AllReduceFusionPattern Pattern> void launch(int tokens, int hidden, bool oneshot) {
  AllReduceFusionParams<short> params{2, tokens * hidden, hidden, oneshot, true, nullptr};
  try {
    allreduce_fusion_kernel_launcher<Pattern, short, 2, true>(params, true);
  } catch (std::runtime_error const& refused) {
    printf("refused %s\\n", refused.what());
  }
}
int main(int, char** argv) {
  sm_version = atoi(argv[1]), sm_count = atoi(argv[2]), registers = atoi(argv[3]);
  int tokens, hidden, oneshot, fp4;
  while (scanf("%d %d %d %d", &tokens, &hidden, &oneshot, &fp4) == 4) {
    if (fp4) launch<AllReduceFusionPattern::kFP4>(tokens, hidden, oneshot);
    else launch<AllReduceFusionPattern::kNone>(tokens, hidden, oneshot);
  }
}
"""


class Device(NamedTuple):
    """An SM version, a number of SMs, and the registers of a thread of the kernel."""

    sm: int
    sms: int
    registers: int = 64


class Launch(NamedTuple):
    """What is launched, in blocks and threads."""

    grid: int
    block: int
    cluster: int


SM12X = (Device(120, 188), Device(121, 48))
OTHERS = (Device(89, 128), Device(90, 132), Device(100, 148), Device(103, 160))
Cases = dict[tuple[int, int], Launch | str]


@cache
def launcher(trees: Any) -> str:
    """Return upstream's launcher as a program for the host."""
    text = trees.text("flashinfer", HEADER)
    (function,) = functions(text, LAUNCHER)
    head = re.findall(rf"\n(template <[^;{{}}]*?\bcudaError_t {LAUNCHER}\([^;{{}}]*?\)) \{{", text)
    details = "".join(
        f"constexpr int {name} = {value};" for name, value in constants(text).items()
        if re.match("k[A-Z]", name)
    )  # fmt: skip
    return f"{AROUND}namespace details {{ {details} }}\n{head[0]} {function.body}{MAIN}"


@pytest.fixture(scope="session")
def launches(host_program: Any) -> Callable[..., Cases]:
    """Upstream's own launcher, compiled for the host: what it launches, by tokens and hidden."""

    @cache
    def table(trees: Any, device: Device, *, fp4: bool = True, oneshot: bool = True) -> Cases:
        cases = [(tokens, hidden) for tokens in TOKENS for hidden in HIDDEN]
        asked = "".join(f"{t} {h} {int(oneshot)} {int(fp4)}\n" for t, h in cases)
        done = host_program(launcher(trees)).run(*device, data=asked)
        lines = done.stdout.splitlines()
        assert len(lines) == len(cases), done.stderr
        return {
            case: line if line.startswith("refused") else Launch(*map(int, line.split()))
            for case, line in zip(cases, lines, strict=True)
        }

    return table


def covers(launch: Launch | str, hidden: int) -> bool:
    return isinstance(launch, Launch) and launch.block * launch.cluster == hidden // VECTOR


@pytest.mark.tier("static")
@pytest.mark.parametrize("registers", [32, 64, 128])
@pytest.mark.parametrize("oneshot", [True, False])
@pytest.mark.parametrize("device", [*SM12X, OTHERS[2], OTHERS[3]])
def test_every_fp4_launch_covers_the_token(
    launches: Any, tree: Any, device: Device, oneshot: bool, registers: int
) -> None:
    found = launches(tree, device._replace(registers=registers), oneshot=oneshot)
    wrong = {case: launch for case, launch in found.items() if not covers(launch, case[1])}
    assert not wrong, f"(tokens, hidden size) launched with too few threads: {wrong}"


@pytest.mark.tier("static")
@pytest.mark.parametrize("device", [*SM12X, *OTHERS])
def test_what_covered_the_token_evenly_is_launched_as_before(
    launches: Any, tree: Any, baseline: Any, device: Device
) -> None:
    after, before = launches(tree, device), launches(baseline, device)
    same = {case: launch for case, launch in before.items()
            if covers(launch, case[1]) and launch.cluster in (1, 2, 4, 8)}  # fmt: skip
    assert {case: after[case] for case in same} == same
    if device.sm >= 90:
        # Of gpt-oss and of a hidden size that 160 divides; the first never had a block of its own.
        assert after[1, 2880] == Launch(2, 180, 2)
        assert after[1, 5120] == Launch(4, 160, 4)


@pytest.mark.tier("static")
@pytest.mark.parametrize("oneshot", [True, False])
@pytest.mark.parametrize("device", [*SM12X, *OTHERS])
def test_launches_without_fp4_do_not_move(
    launches: Any, tree: Any, baseline: Any, device: Device, oneshot: bool
) -> None:
    after = launches(tree, device, fp4=False, oneshot=oneshot)
    assert after == launches(baseline, device, fp4=False, oneshot=oneshot)
    if device.sm >= 90:
        assert after[1, 7168] == Launch(4, 224, 4)
