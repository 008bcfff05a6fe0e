"""0001: trtllm_comm is built for SM12x, on first use and ahead of time; nothing else moves."""

from __future__ import annotations

from typing import Any

import pytest

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


def gencode(arch: str) -> str:
    """``12.0a`` is ``arch=compute_120a,code=sm_120a``."""
    number = arch.replace(".", "")
    return f"arch=compute_{number},code=sm_{number}"


@pytest.mark.tier("static")
@pytest.mark.parametrize("arch", ["12.0a", "12.1a"])
def test_the_module_is_generated_for_sm12x(jit_spec: Any, arch: str) -> None:
    assert jit_spec(GENERATOR, arch=arch).gencode == (gencode(arch),)


@pytest.mark.tier("static")
@pytest.mark.parametrize("archs", ["10.0a 12.0a", "9.0a 10.0a 12.0a 12.1a"])
def test_a_mixed_list_loses_no_arch(jit_spec: Any, archs: str) -> None:
    emitted = jit_spec(GENERATOR, arch=archs).gencode
    assert sorted(emitted) == sorted(gencode(arch) for arch in archs.split())


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
    target = kernels(jit_spec(GENERATOR, arch="12.0a"), FUSION, text=KERNEL)
    assert set(target) == set(reference)
    for name, kernel in target.items():
        before = reference[name].code_size
        assert kernel.code_size > 0.7 * before, (
            f"{kernel.demangled}: {kernel.code_size} bytes on sm_120a, {before} on sm_100a"
        )
