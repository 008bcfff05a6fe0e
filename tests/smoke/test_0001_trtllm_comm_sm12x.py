"""0001: trtllm_comm is built for SM12x, on first use and ahead of time; nothing else moves."""

from __future__ import annotations

import ast
import importlib
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from patchwright.smoke.decisions import CAPABILITIES, Expression, FunctionGate
from patchwright.smoke.outcomes import Blocked, UpstreamRefused

GENERATOR = "flashinfer/jit/comm.py::gen_trtllm_comm_module"
FUSION = "trtllm_allreduce_fusion.cu"
# The kernel that sglang's fusion launches at small batches: bf16, two ranks.
KERNEL = """\
#include "flashinfer/comm/trtllm_allreduce_fusion.cuh"
namespace flashinfer::trtllm_allreduce_fusion {
template __global__ void allreduce_fusion_kernel_oneshot_lamport<
    AllReduceFusionPattern::kARResidualRMSNorm, __nv_bfloat16, 2, false, true>(
    AllReduceFusionParams<__nv_bfloat16>);
}
"""


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


def gencode(arch: str) -> str:
    """``12.0a`` is ``arch=compute_120a,code=sm_120a``."""
    number = arch.replace(".", "")
    return f"arch=compute_{number},code=sm_{number}"


@pytest.mark.tier("static")
@pytest.mark.parametrize("arch", ["12.0a", "12.1a"])
def test_the_module_is_generated_for_sm12x(jit_spec: Any, arch: str) -> None:
    assert jit_spec(GENERATOR, arch=arch).gencode == (gencode(arch),)


def ahead_of_time(decision_table: Any, trees: Any) -> dict[str, list[str]]:
    """Return the modules that a default AOT build makes on a device of each capability.

    Upstream's own list is evaluated, with its own detection of the targets; the generators
    that it imports are replaced by ones that only say that they were called.
    """
    path = "flashinfer/aot.py"
    nodes = list(ast.walk(trees.ast("flashinfer", path)))
    imports = (alias.name for n in nodes if isinstance(n, ast.ImportFrom) for alias in n.names)
    (gate,) = (n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == "gen_all_modules")

    def recorder(name: str) -> Any:
        def generate(*args: object, **kwargs: object) -> SimpleNamespace:
            return SimpleNamespace(name=f"{name}{args}{kwargs}" if args or kwargs else name)

        return generate

    def default(parameter: str) -> Expression:
        if parameter == "sm_capabilities":
            return Expression("detect_sm_capabilities()")
        return Expression(f"get_default_config()[{parameter.rstrip('_')!r}]")

    table = decision_table(
        FunctionGate("flashinfer", path, gate.name),
        trees=trees,
        kwargs={argument.arg: default(argument.arg) for argument in gate.args.args},
        stubs={
            "get_cuda_version": lambda: Version("13.0"),
            **{name: recorder(name) for name in imports if name.startswith("gen_")},
        },
    )
    return {capability: [spec.name for spec in specs] for capability, specs in table.items()}


@pytest.mark.tier("static")
def test_the_aot_list_gains_trtllm_comm_on_sm12x_alone(
    decision_table: Any, tree: Any, baseline: Any
) -> None:
    after, before = ahead_of_time(decision_table, tree), ahead_of_time(decision_table, baseline)
    gained = {c: [name for name in after[c] if name not in before[c]] for c in CAPABILITIES}
    lost = {c: [name for name in before[c] if name not in after[c]] for c in CAPABILITIES}
    new = {c: ["gen_trtllm_comm_module"] if c.startswith("12.") else [] for c in CAPABILITIES}
    assert gained == new
    assert not any(lost.values())
    # The evaluation sees what upstream's list says of the other targets.
    assert "gen_trtllm_comm_module" in before["10.0"]
    assert "gen_vllm_comm_module" in before["8.0"]


@pytest.mark.tier("static")
@pytest.mark.parametrize("archs", ["10.0a 12.0a", "9.0a 10.0a 12.0a 12.1a"])
def test_a_mixed_list_loses_no_arch(jit_spec: Any, archs: str) -> None:
    spec = jit_spec(GENERATOR, arch=archs)
    assert not spec.dropped, f"asked for {archs!r}, no code for {' '.join(spec.dropped)}"
    assert sorted(spec.gencode) == sorted(gencode(arch) for arch in archs.split())


@pytest.mark.tier("static")
@pytest.mark.parametrize("arch", ["9.0a", "10.0a", "10.3a"])
def test_the_other_archs_compile_as_before(jit_spec: Any, baseline: Any, arch: str) -> None:
    after, before = jit_spec(GENERATOR, arch=arch), jit_spec(GENERATOR, arch=arch, trees=baseline)
    assert after.gencode == (gencode(arch),)
    assert after.nvcc_flags == before.nvcc_flags
    assert [path.name for path in after.sources] == [path.name for path in before.sources]


@pytest.mark.tier("static")
@pytest.mark.parametrize("arch", ["8.0", "8.9"])
def test_what_was_refused_stays_refused(jit_spec: Any, arch: str) -> None:
    with pytest.raises(UpstreamRefused, match="No supported CUDA architectures found"):
        jit_spec(GENERATOR, arch=arch)


@pytest.mark.tier("compile")
def test_the_fusion_kernel_keeps_its_body_on_sm12x(
    jit_spec: Any, preprocess: Any, kernels: Any
) -> None:
    reference = kernels(jit_spec(GENERATOR, arch="10.0a"), FUSION, text=KERNEL)
    spec = jit_spec(GENERATOR, arch="12.0a")
    # sm_121a compiles the same text of the whole source: what is shown of sm_120a holds there.
    assert preprocess(jit_spec(GENERATOR, arch="12.1a"), FUSION) == preprocess(spec, FUSION)
    target = kernels(spec, FUSION, text=KERNEL)
    assert set(target) == set(reference)
    for name, kernel in target.items():
        before = reference[name].code_size
        assert kernel.code_size > 0.7 * before, (
            f"{kernel.demangled}: {kernel.code_size} bytes on sm_120a, {before} on sm_100a"
        )


@pytest.mark.tier("gpu")
def test_the_module_runs_on_the_device(device: Any) -> None:
    torch, comm = needs("torch"), needs("flashinfer.jit.comm")
    try:
        module = comm.gen_trtllm_comm_module().build_and_load()
    except RuntimeError as error:
        pytest.fail(str(error))
    buffer = torch.zeros(4096, dtype=torch.float16, device=device)
    module.trtllm_lamport_initialize(buffer.data_ptr(), buffer.numel(), torch.float16)
    torch.cuda.synchronize()
    # Negative zero, bit for bit: the mark of a slot that nobody has written yet.
    assert bool((buffer.view(torch.int16) == -0x8000).all())
