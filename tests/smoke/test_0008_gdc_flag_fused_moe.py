"""0008: the CUTLASS fused MoE modules are compiled with the device barriers of their family."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.cexpressions import functions
from patchwright.smoke.decisions import CAPABILITIES, Device, FunctionGate

FUSED_MOE = "flashinfer/jit/fused_moe.py"
GDC = "-DCUTLASS_ENABLE_GDC_FOR_SM"
SM90, SM100 = f"{GDC}90=1", f"{GDC}100=1"
MODULES = [
    ("gen_cutlass_fused_moe_sm120_module", "12.0a", SM100),
    ("gen_cutlass_fused_moe_sm120_module", "12.1a", SM100),
    ("gen_cutlass_fused_moe_sm103_module", "10.3a", SM100),
    ("gen_cutlass_fused_moe_sm100_module", "10.0a", SM100),
    ("gen_cutlass_fused_moe_sm90_module", "9.0a", SM90),
]
SM120 = f"{FUSED_MOE}::gen_cutlass_fused_moe_sm120_module"
# What every CUTLASS kernel of the module calls, compiled with the module's flags.
SOURCE = "moe_gemm_kernels_fp4_fp4.cu"
BARRIERS = """\
#include "cutlass/arch/grid_dependency_control.h"
__global__ void barriers() {
  cutlass::arch::wait_on_dependent_grids();
  cutlass::arch::launch_dependent_grids();
}
"""


@pytest.mark.tier("static")
@pytest.mark.parametrize(("generator", "arch", "flag"), MODULES)
def test_the_flag_of_its_family_reaches_the_compiler(
    jit_spec: Any, baseline: Any, generator: str, arch: str, flag: str
) -> None:
    spec = jit_spec(f"{FUSED_MOE}::{generator}", arch=arch)
    before = jit_spec(f"{FUSED_MOE}::{generator}", arch=arch, trees=baseline)
    assert [f for f in spec.nvcc_flags if f.startswith(GDC)] == [flag]
    assert flag in spec.ninja
    lines = {name: line for name, line in spec.compile_lines.items() if name.endswith(".cu")}
    assert any("generated" in name for name in lines)
    for name, line in lines.items():
        assert [f for f in line if f.startswith(GDC)] == [flag], name
    # Nothing else changes: same sources, same code, same other flags.
    assert [f for f in spec.nvcc_flags if f != flag] == [f for f in before.nvcc_flags if f != flag]
    assert [s.name for s in spec.sources] == [s.name for s in before.sources]


@pytest.mark.tier("static")
def test_ada_has_no_barriers_to_enable(jit_spec: Any, baseline: Any) -> None:
    generator = f"{FUSED_MOE}::gen_cutlass_fused_moe_sm89_module"
    spec = jit_spec(generator, arch="8.9")
    assert spec == jit_spec(generator, arch="8.9", trees=baseline)
    assert GDC not in spec.ninja


@pytest.mark.tier("static")
def test_the_host_relies_on_barriers_where_the_flag_is(decision_table: Any) -> None:
    """Upstream launches with PDL from SM90 on: what decides it is asked."""
    pdl = decision_table(FunctionGate("flashinfer", "flashinfer/utils.py", "device_support_pdl"),
                         Device("cuda"))  # fmt: skip
    assert pdl == {capability: float(capability) >= 9 for capability in CAPABILITIES}


@pytest.mark.tier("static")
def test_a_warm_workspace_hides_the_flag_and_a_run_starts_cold(
    jit_spec: Any, decision_table: Any, tree: Any, baseline: Any, tmp_path: Path
) -> None:
    """A build.ninja that is there may be kept, flags and all: each run has a workspace of its own.

    Later releases write it again at each build: then the flag is in the warm one too.
    """
    after, before = (jit_spec(SM120, **which) for which in ({}, {"trees": baseline}))
    core = tree.ast("flashinfer", "flashinfer/jit/core.py")
    classes = {node.name for node in core.body if isinstance(node, ast.ClassDef)}
    build = f"{'JitSpecNvcc' if 'JitSpecNvcc' in classes else 'JitSpec'}.build"

    def built(ninja: str, workspace: Path) -> str:
        """What ninja is started on when a module with this build file is built."""
        started: list[str] = []
        module = SimpleNamespace(
            name="fused_moe_120", sources=[], extra_cflags=[], extra_cuda_cflags=[],
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
    stale = before.ninja.replace(SM100, "")
    assert SM100 not in built(stale, warm)
    kept = SM100 not in built(after.ninja, warm)
    assert kept is (build == "JitSpec.build")
    assert SM100 in built(after.ninja, cold)
    assert not list(Path(os.environ["FLASHINFER_WORKSPACE_BASE"]).rglob("build.ninja"))


@pytest.mark.tier("compile")
@pytest.mark.parametrize(("generator", "arch", "flag"), MODULES)
def test_the_barrier_of_cutlass_is_compiled_in(
    jit_spec: Any, preprocess: Any, baseline: Any, generator: str, arch: str, flag: str
) -> None:
    def barriers(**which: Any) -> list[str]:
        """What the two barriers consist of."""
        spec = jit_spec(f"{FUSED_MOE}::{generator}", arch=arch, **which)
        text = preprocess(spec, SOURCE, text=BARRIERS).text
        names = ("wait_on_dependent_grids", "launch_dependent_grids")
        return [functions(text, name)[0].body.strip("{} \n") for name in names]

    assert barriers(trees=baseline) == ["", ""]
    assert barriers() == [
        'asm volatile("griddepcontrol.wait;");',
        'asm volatile("griddepcontrol.launch_dependents;");',
    ]
