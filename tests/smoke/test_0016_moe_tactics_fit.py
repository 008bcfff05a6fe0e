"""0016: the fused MoE offers no tactic that cannot be launched, and loses none that can."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from patchwright.smoke.cexpressions import functions

RUNNER = "flashinfer/fused_moe/core.py"
KERNELS = "csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/"
DISPATCH = f"{KERNELS}moe_gemm/moe_gemm_template_dispatch.h"
HEURISTIC = f"{KERNELS}cutlass_heuristic.cpp"
CONFIGS = (
    "csrc/nv_internal/tensorrt_llm/cutlass_extensions/include/cutlass_extensions/gemm_configs.h"
)
# Shared memory that a block can have, in bytes, by SM version.
SHARED_MEMORY = {80: 163 << 10, 86: 99 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10,
                 103: 227 << 10, 110: 227 << 10, 120: 99 << 10, 121: 99 << 10}  # fmt: skip
# Activation and weight types; the last pair is launched by a function that does nothing.
TYPES = {"fp8": 1, "bf16": 2, "bf16-int8": 2, "bf16-fp8": 2}
# The tactics' list is upstream's own; the launcher is one that answers as upstream's do: an FP8
# kernel insists on alpha scales, then the occupancy is written, none where the stages of the
# main loop alone are more than the device has.
AROUND = """\
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>
#define ENABLE_FP8
#define TLLM_THROW(...) throw std::runtime_error("refused")
#define TLLM_LOG_TRACE(...)
struct __nv_fp8_e4m3 { char bits[1]; };
struct __nv_bfloat16 { char bits[2]; };
using Int8 = uint8_t;
int shared_memory;
namespace tensorrt_llm::cutlass_extensions {
struct EpilogueOpDefault;
enum class SplitKStyle { NO_SPLIT_K, SPLIT_K_SERIAL };
%(tiles)s
struct CutlassGemmConfig {
  enum CandidateConfigTypeParam : int { %(parameters)s };
  CutlassTileConfig tile_config_sm80; SplitKStyle split_k_style; int split_k_factor, stages;
  bool is_tma_warp_specialized = false, enableCudaKernel = false; int sm_version = 80;
  CutlassGemmConfig(CutlassTileConfig tile = CutlassTileConfig::Undefined,
                    SplitKStyle style = {}, int factor = 1, int stages = 0)
      : tile_config_sm80(tile), split_k_style(style), split_k_factor(factor), stages(stages) {}
};
struct Tile { CutlassTileConfig config; const char* name; int m, n, k; };
const Tile tiles[] = { %(table)s };
}
namespace cutlass_extensions = tensorrt_llm::cutlass_extensions;
namespace kernels = tensorrt_llm;
namespace tensorrt_llm::kernels::cutlass_kernels {
using namespace tensorrt_llm::cutlass_extensions;
template <typename T, typename W> constexpr bool isValidAmpereMOESpecialisation() { return true; }
std::vector<CutlassGemmConfig> get_candidate_configs_sm90(int) { return {}; }
std::vector<CutlassGemmConfig> get_candidate_configs_sm100(int, int) { return {}; }
std::vector<CutlassGemmConfig> get_candidate_configs_sm110(int) { return {}; }
std::vector<CutlassGemmConfig> get_candidate_configs_sm120(int) { return {}; }
std::vector<CutlassTileConfig> get_candidate_tiles(
    int const sm, CutlassGemmConfig::CandidateConfigTypeParam const config_type_param)
    %(get_candidate_tiles)s
std::vector<CutlassGemmConfig> get_candidate_configs(
    int sm, int const max_split_k,
    CutlassGemmConfig::CandidateConfigTypeParam const config_type_param)
    %(get_candidate_configs)s
// What later releases ask of a kernel for TMA; there is none that refuses here.
struct TmaWarpSpecializedGroupedGemmInput {
  enum class FpXBlockScalingType { NONE, MXFPX, NVFP4 };
  enum class EpilogueFusion { NONE };
};
template <typename T, typename W> constexpr bool isValidTmaWarpSpecializedMOESpecialisation() {
  return true;
}
namespace cutlass_kernels_oss {
template <typename T, typename W, typename O, TmaWarpSpecializedGroupedGemmInput::EpilogueFusion,
          typename... Any>
size_t calcMaxWorkspaceSizeTmaWarpSpecialized(Any...) { return 0; }
}
template <typename A, typename B, typename S, typename O> struct GroupedGemmInput {
  float const** alpha_scales = nullptr; int* occupancy = nullptr; CutlassGemmConfig gemm_config;
  bool use_fused_moe = false;
};
template <typename T, typename WeightType> struct MoeGemmRunner {
  using OutputType = T; using ScaleBiasType = T;
  static constexpr bool use_fp8 = std::is_same_v<T, __nv_fp8_e4m3>;
  static constexpr bool use_w4afp8 = false, use_wfp4a16 = false, use_wfp4afp8 = false,
                        use_mxfp8 = false, use_fp4 = false, use_sm90_mixed_input_gemm = false;
  int sm_, num_experts_ = 0, multi_processor_count_ = 188;
  template <typename Epilogue> void runGemm(
      GroupedGemmInput<T, WeightType, ScaleBiasType, OutputType> inputs,
      TmaWarpSpecializedGroupedGemmInput tma) const { dispatchToArch<Epilogue>(inputs, tma); }
  template <typename Epilogue> void dispatchToArch(
      GroupedGemmInput<T, WeightType, ScaleBiasType, OutputType> inputs,
      TmaWarpSpecializedGroupedGemmInput) const {
    if (std::is_same_v<T, __nv_bfloat16> && std::is_same_v<WeightType, __nv_fp8_e4m3>) return;
    if (use_fp8 && !inputs.alpha_scales) TLLM_THROW("alpha_scale_ptr_array");
    for (auto const& tile : tiles) {
      if (tile.config != inputs.gemm_config.tile_config_sm80) continue;
      int needed = inputs.gemm_config.stages * tile.k *
                   (tile.m * int(sizeof(T)) + tile.n * int(sizeof(WeightType)));
      *inputs.occupancy = needed > shared_memory ? 0 : 1;
      return;
    }
    TLLM_THROW("no such tile");
  }
  static std::vector<CutlassGemmConfig> getTmaWarpSpecializedConfigs(int sm, bool) {
    CutlassGemmConfig config;
    config.is_tma_warp_specialized = true;
    return sm >= 90 ? std::vector{config} : std::vector<CutlassGemmConfig>{};
  }
  static std::vector<CutlassGemmConfig> getAmpereConfigs(int sm) %(getAmpereConfigs)s
  static std::vector<CutlassGemmConfig> getConfigs(int sm, bool supports_finalize_fusion)
      %(listed)s
  std::vector<CutlassGemmConfig> getConfigs(bool supports_finalize_fusion) const %(offered)s
  int queryOccupancyForConfig(CutlassGemmConfig const& config) %(occupancy)s
};
}
using namespace tensorrt_llm::kernels::cutlass_kernels;
template <typename T, typename W> void show(int sm) {
  MoeGemmRunner<T, W> runner{sm};
  for (auto const& config : runner.getConfigs(false)) {
    int occupancy = runner.queryOccupancyForConfig(config);
    if (config.is_tma_warp_specialized) printf("tma 0 0 %%d\\n", occupancy);
    for (auto const& tile : tiles)
      if (!config.is_tma_warp_specialized && tile.config == config.tile_config_sm80)
        printf("%%s %%d %%d %%d\\n", tile.name, config.stages, config.stages * tile.k *
               (tile.m * int(sizeof(T)) + tile.n * int(sizeof(W))), occupancy);
  }
}
int main(int, char** argv) {
  int sm = atoi(argv[1]);
  shared_memory = atoi(argv[2]);
  if (!strcmp(argv[3], "fp8")) show<__nv_fp8_e4m3, __nv_fp8_e4m3>(sm);
  else if (!strcmp(argv[3], "bf16")) show<__nv_bfloat16, __nv_bfloat16>(sm);
  else if (!strcmp(argv[3], "bf16-int8")) show<__nv_bfloat16, Int8>(sm);
  else show<__nv_bfloat16, __nv_fp8_e4m3>(sm);
}
"""


class Tactic(NamedTuple):
    """A tile, its stages, and what the stages need of shared memory at least, in bytes."""

    tile: str
    stages: int
    needs: int


@cache
def listing(trees: Any) -> str:
    """Return upstream's own listing of the tactics as a program for the host."""
    configs, heuristic, dispatch = (
        trees.text("flashinfer", path) for path in (CONFIGS, HEURISTIC, DISPATCH)
    )
    (tiles,) = re.findall(r"enum class CutlassTileConfig \{.*?\};", configs, re.DOTALL)
    (parameters,) = re.findall(r"enum CandidateConfigTypeParam : int \{(.*?)\}", configs, re.DOTALL)
    table = "".join(
        f'{{CutlassTileConfig::{name}, "{m}x{n}x{k}", {m}, {n}, {k}}},'
        for name, m, n, k in re.findall(r"\b(CtaShape(\d+)x(\d+)x(\d+)_\w+)", tiles)
    )
    bodies = {
        name: functions(heuristic, name)[0].body
        for name in ("get_candidate_tiles", "get_candidate_configs")
    }
    (ampere,) = functions(dispatch, "getAmpereConfigs")
    overloads = [function.body for function in functions(dispatch, "getConfigs")]
    (listed,) = (body for body in overloads if "getAmpereConfigs(" in body)
    (offered,) = (body for body in overloads if body is not listed)
    # Later releases tell the autotuner apart what cannot be launched; at the pin nothing asks.
    asked = "queryOccupancyForConfig" in dispatch
    occupancy = functions(dispatch, "queryOccupancyForConfig")[0].body if asked else "{ return 1; }"
    return AROUND % {
        "tiles": tiles, "parameters": parameters, "table": table, **bodies,
        "getAmpereConfigs": ampere.body, "listed": listed, "offered": offered,
        "occupancy": occupancy.replace("tensorrt_llm::common::TllmException", "std::runtime_error"),
    }  # fmt: skip


class Module:
    """The compiled module as the runner of the autotuner sees it: its tactics by number."""

    def __init__(self, occupancies: list[int]) -> None:
        self.get_tactic_occupancy = occupancies.__getitem__
        self.get_gemm1_tactic_count = lambda: len(occupancies)
        self.get_gemm2_tactic_count = lambda: 0
        self.get_tactic_num = lambda: len(occupancies)


@cache
def tuning(trees: Any) -> Callable[..., list[int]]:
    """Return the function by which upstream's runner chooses what the autotuner gets."""
    (module,) = (
        node
        for node in trees.ast("flashinfer", RUNNER).body
        if isinstance(node, ast.FunctionDef) and node.name == "get_cutlass_fused_moe_module"
    )
    (choice,) = (
        node
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef) and node.name == "get_valid_tactics"
    )
    plain = ast.FunctionDef(choice.name, arguments(choice), choice.body, [], lineno=1, col_offset=0)
    names: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(ast.Module([plain], [])), RUNNER, "exec"), names)
    found: Callable[..., list[int]] = names[choice.name]
    return found


def tuned(trees: Any, occupancies: list[int]) -> list[int]:
    """Return the numbers that upstream's runner offers to the autotuner, by its own code."""
    runner = SimpleNamespace(fused_moe_runner=Module(occupancies), use_w4_group_scaling=False)
    return tuning(trees)(runner, [], None)


def arguments(function: ast.FunctionDef) -> ast.arguments:
    """Return the parameters of a function without their annotations."""
    names = [ast.arg(argument.arg) for argument in function.args.args]
    return ast.arguments([], names, None, [], [], None, [])


@pytest.fixture(scope="session")
def tactics(host_program: Any) -> Callable[..., list[Tactic]]:
    """What upstream offers to the autotuner for a pair of types on a device, in order."""

    @cache
    def offered(trees: Any, sm: int, types: str) -> list[Tactic]:
        done = host_program(listing(trees)).run(sm, SHARED_MEMORY[sm], types)
        assert done.returncode == 0, done.stderr
        lines = [line.split() for line in done.stdout.splitlines()]
        numbers = tuned(trees, [int(line[3]) for line in lines])
        # -1 stands for no tactic at all.
        chosen = [lines[number] for number in numbers if number >= 0]
        return [Tactic(tile, int(stages), int(needs)) for tile, stages, needs, _ in chosen]

    return offered


@pytest.mark.tier("static")
@pytest.mark.parametrize("types", ["fp8", "bf16"])
@pytest.mark.parametrize("sm", [120, 121])
def test_what_does_not_fit_is_not_offered(
    tactics: Any, tree: Any, baseline: Any, sm: int, types: str
) -> None:
    after, before = tactics(tree, sm, types), tactics(baseline, sm, types)
    assert after == [tactic for tactic in before if tactic.needs <= SHARED_MEMORY[sm]]
    dropped = {
        "fp8": [("16x256x128", 3), ("16x256x128", 4)],
        "bf16": [("128x128x64", 4)],
    }
    offered = [(tactic.tile, tactic.stages) for tactic in after]
    assert not set(dropped[types]) & set(offered)
    assert ("tma", 0) in offered
    # The first one is what runs where nothing was tuned.
    assert offered[:2] == [("tma", 0), ("32x128x64", 2)]


@pytest.mark.tier("static")
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("sm", SHARED_MEMORY)
def test_what_can_be_launched_is_offered_as_before(
    tactics: Any, tree: Any, baseline: Any, sm: int, types: str
) -> None:
    after, before = tactics(tree, sm, types), tactics(baseline, sm, types)
    silent = types == "bf16-fp8"  # no kernel to ask: nothing is left out
    fits = [t for t in before if silent or t.needs <= SHARED_MEMORY[sm]]
    assert [tactic for tactic in after if tactic in fits] == fits
    if SHARED_MEMORY[sm] > 160 << 10:
        assert after == before
