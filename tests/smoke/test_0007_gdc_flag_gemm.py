"""0007: every CUTLASS GEMM module that launches with PDL is compiled with its device barriers."""

from __future__ import annotations

import ast
import importlib
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.cexpressions import functions
from patchwright.smoke.decisions import FunctionGate
from patchwright.smoke.outcomes import Blocked, UpstreamRefused

CORE = "flashinfer/jit/gemm/core.py"
HEADERS = "include/flashinfer/gemm/"
FLAG = "-DCUTLASS_ENABLE_GDC_FOR_SM100=1"
WRONG = "CUTLASS_ENABLE_GDC_FOR_SM90"
# The modules that gain the barriers, and an arch that each is built for.
MODULES = [
    ("gen_gemm_sm120_module_cutlass_fp4", "12.0a"),
    ("gen_gemm_sm120_module_cutlass_fp4", "12.1a"),
    ("gen_gemm_sm120_module", "12.0a"),
    ("gen_gemm_sm120_module", "12.1a"),
    ("gen_gemm_sm100_module_cutlass_fp4", "10.0a"),
    ("gen_gemm_sm103_module_cutlass_fp4", "10.3a"),
    ("gen_gemm_sm100_module_cutlass_fp8", "10.0a"),
    ("gen_gemm_sm100_module", "10.0a"),
]
# This one has no barriers to miss: the host does not launch it with PDL.
BF16 = "gen_gemm_sm100_module_cutlass_bf16"
UNTOUCHED = [
    ("gen_gemm_module", "8.0"),
    ("gen_gemm_module", "9.0a"),
    ("gen_gemm_sm90_module", "9.0a"),
    (BF16, "10.0a"),
    (BF16, "12.0a"),
    ("gen_tgv_gemm_sm10x_module", "10.0a"),
]
SM120_FP4 = f"{CORE}::gen_gemm_sm120_module_cutlass_fp4"
SOURCE = "fp4_gemm_cutlass_half_128_128_128.cu"
# What every CUTLASS kernel calls, compiled with the flags of its module.
BARRIERS = """\
#include "cutlass/arch/grid_dependency_control.h"
__global__ void barriers() {
  cutlass::arch::wait_on_dependent_grids();
  cutlass::arch::launch_dependent_grids();
}
"""
# What nvcc was seen to need for one FP4 GEMM, with some room.
MEMORY = 6 << 30


def needs(module: str) -> Any:
    """Import a module of the environment under test; Blocked where it cannot be."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Blocked(f"needs {error.name or module} in the environment") from error


def launches_with_pdl(spec: Any, trees: Any) -> bool:
    """Whether a GEMM of the module asks for programmatic dependent launch.

    Its sources are followed into the headers of ``include/flashinfer/gemm``; the last
    argument of ``run()`` is ``launch_with_pdl``, false where it is left out.
    """
    texts = [source.read_text() for source in spec.sources]
    seen: set[str] = set()
    launches = []
    while texts:
        text = texts.pop()
        launches += re.findall(r"\bgemm\.run\(([^;]*)\);", text)
        for name in re.findall(r'#include [<"](?:flashinfer/gemm/)?([\w.]+)[>"]', text):
            if name not in seen and trees.exists("flashinfer", HEADERS + name):
                seen.add(name)
                texts.append(trees.text("flashinfer", HEADERS + name))
    assert launches, f"{spec.name} launches no CUTLASS GEMM"
    return any(re.split(r"[,/]", launch)[-1].strip(" )") == "true" for launch in launches)


@pytest.mark.tier("static")
@pytest.mark.parametrize(("generator", "arch"), MODULES)
def test_the_flag_reaches_the_compiler_where_the_host_relies_on_it(
    jit_spec: Any, tree: Any, baseline: Any, generator: str, arch: str
) -> None:
    spec = jit_spec(f"{CORE}::{generator}", arch=arch)
    assert launches_with_pdl(spec, tree)
    assert FLAG in spec.nvcc_flags
    assert FLAG in spec.ninja
    lines = {name: line for name, line in spec.compile_lines.items() if name.endswith(".cu")}
    assert lines
    assert [name for name, line in lines.items() if FLAG not in line] == []
    assert WRONG not in spec.ninja
    # Nothing else changes: same sources, same code, same other flags.
    before = jit_spec(f"{CORE}::{generator}", arch=arch, trees=baseline)
    assert [f for f in spec.nvcc_flags if f != FLAG] == [f for f in before.nvcc_flags if f != FLAG]
    assert [s.name for s in spec.sources] == [s.name for s in before.sources]


@pytest.mark.tier("static")
@pytest.mark.parametrize(("generator", "arch"), UNTOUCHED)
def test_the_other_modules_are_built_as_before(
    jit_spec: Any, tree: Any, baseline: Any, generator: str, arch: str
) -> None:
    try:
        spec = jit_spec(f"{CORE}::{generator}", arch=arch)
    except UpstreamRefused as refused:
        # Later releases build BF16 for SM100 alone: refused before, and with the same words.
        assert generator == BF16
        with pytest.raises(UpstreamRefused, match=re.escape(str(refused))):
            jit_spec(f"{CORE}::{generator}", arch=arch, trees=baseline)
        return
    assert spec == jit_spec(f"{CORE}::{generator}", arch=arch, trees=baseline)
    assert spec.targets == (arch.replace(".", ""),)
    assert arch == "9.0a" or WRONG not in spec.ninja
    if generator == BF16 and FLAG not in spec.nvcc_flags:
        assert not launches_with_pdl(spec, tree)


@pytest.mark.tier("static")
def test_a_warm_workspace_hides_the_flag_and_a_run_starts_cold(
    jit_spec: Any, decision_table: Any, tree: Any, baseline: Any, tmp_path: Path
) -> None:
    """A build.ninja that is there may be kept, flags and all: each run has a workspace of its own.

    Later releases write it again at each build: then the flag is in the warm one too.
    """
    after, before = (jit_spec(SM120_FP4, **which) for which in ({}, {"trees": baseline}))
    core = tree.ast("flashinfer", "flashinfer/jit/core.py")
    classes = {node.name for node in core.body if isinstance(node, ast.ClassDef)}
    build = f"{'JitSpecNvcc' if 'JitSpecNvcc' in classes else 'JitSpec'}.build"

    def built(ninja: str, workspace: Path) -> str:
        """What ninja is started on when a module with this build file is built."""
        started: list[str] = []
        module = SimpleNamespace(
            name="fp4_gemm_cutlass_sm120", sources=[], extra_cflags=[], extra_cuda_cflags=[],
            extra_ldflags=[], extra_include_dirs=[], needs_device_linking=False,
        )  # fmt: skip
        decision_table(
            FunctionGate("flashinfer", "flashinfer/jit/core.py", build),
            module,
            kwargs={"verbose": False, "need_lock": False},
            capabilities=("12.0",),
            stubs={
                "jit_env": SimpleNamespace(FLASHINFER_JIT_DIR=workspace),
                "generate_ninja_build_for_op": lambda **_: ninja,
                "write_if_different": lambda path, text: path.write_text(text),
                "run_ninja": lambda _dir, path, _verbose: started.append(Path(path).read_text()),
                "logger": SimpleNamespace(info_once=print),
            },
        )
        (text,) = started
        return text

    warm, cold = tmp_path / "warm", tmp_path / "cold"
    stale = before.ninja.replace(FLAG, "")
    assert FLAG not in built(stale, warm)
    kept = FLAG not in built(after.ninja, warm)
    assert kept is (build == "JitSpec.build")
    assert FLAG in built(after.ninja, cold)
    assert not list(Path(os.environ["FLASHINFER_WORKSPACE_BASE"]).rglob("build.ninja"))


@pytest.mark.tier("compile")
@pytest.mark.parametrize(("generator", "arch"), [MODULES[1], MODULES[3], MODULES[5], MODULES[6]])
def test_the_barrier_of_cutlass_is_compiled_in(
    jit_spec: Any, preprocess: Any, baseline: Any, generator: str, arch: str
) -> None:
    def barriers(**which: Any) -> list[str]:
        """What the two barriers consist of."""
        spec = jit_spec(f"{CORE}::{generator}", arch=arch, **which)
        text = preprocess(spec, spec.sources[0], text=BARRIERS).text
        names = ("wait_on_dependent_grids", "launch_dependent_grids")
        return [functions(text, name)[0].body.strip("{} \n") for name in names]

    assert barriers(trees=baseline) == ["", ""]
    assert barriers() == [
        'asm volatile("griddepcontrol.wait;");',
        'asm volatile("griddepcontrol.launch_dependents;");',
    ]


@pytest.mark.tier("compile")
def test_the_fp4_gemm_waits_on_sm120(
    jit_spec: Any, ptx: Any, mnemonic_counts: Any, baseline: Any
) -> None:
    after, before = (
        mnemonic_counts(ptx(jit_spec(SM120_FP4, **which), SOURCE, memory=MEMORY))
        for which in ({}, {"trees": baseline})
    )
    assert (before["griddepcontrol.wait"], after["griddepcontrol.wait"]) == (0, 2)
    # The kernel hints its dependents only under the SM90 macro, which it must not have.
    assert after["griddepcontrol.launch_dependents"] == 0
    # It is the FP4 kernel, and all of it.
    multiply = [name for name in after if name.startswith("mma.") and "mxf4nvf4" in name]
    assert sum(after[name] for name in multiply) == 64
    assert all(before[name] == after[name] for name in multiply)


@pytest.mark.tier("gpu")
def test_back_to_back_gemms_read_what_was_written(device: Any) -> None:
    """Each GEMM follows the kernel that quantizes its input without a pause, on a busy device."""
    torch, flashinfer = needs("torch"), needs("flashinfer")
    if torch.cuda.get_device_capability()[0] not in (10, 12):
        raise Blocked("needs one sm_100 or sm_120 device for an FP4 GEMM")
    rows, columns, depth = 128, 4096, 4096

    def random(*shape: int) -> Any:
        return torch.randn(shape, dtype=torch.bfloat16, device=device)

    def quantized(matrix: Any) -> tuple[Any, Any, Any]:
        scale = (448 * 6) / matrix.float().abs().max()
        layout = flashinfer.SfLayout.layout_128x4
        return *flashinfer.nvfp4_quantize(matrix, scale, sfLayout=layout, do_shuffle=False), scale

    weight, weight_factors, weight_scale = quantized(random(columns, depth))

    def product(matrix: Any, *, paused: bool) -> Any:
        packed, factors, scale = quantized(matrix)
        alpha = 1.0 / (scale * weight_scale)
        if paused:
            torch.cuda.synchronize()
        return flashinfer.mm_fp4(
            packed, weight.T, factors, weight_factors.T, alpha, torch.bfloat16,
            block_size=16, use_8x4_sf_layout=False, backend="cutlass",
        )  # fmt: skip

    inputs = [random(rows, depth) for _ in range(4)]
    wanted = [product(matrix, paused=True) for matrix in inputs]
    wrong = torch.zeros((), dtype=torch.int64, device=device)
    load, busy = random(2048, 2048), torch.cuda.Stream()
    torch.cuda.synchronize()
    for turn in range(10_000):
        with torch.cuda.stream(busy):
            torch.mm(load, load)
        # NaN differs from itself: it counts as well.
        wrong += (product(inputs[turn % 4], paused=False) != wanted[turn % 4]).any()
    torch.cuda.synchronize()
    assert int(wrong) == 0
