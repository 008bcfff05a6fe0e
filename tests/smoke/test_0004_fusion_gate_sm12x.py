"""0004: the fusion gate accepts SM12x, and what it leads to is built for SM12x."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import CAPABILITIES, FunctionGate
from patchwright.smoke.outcomes import UpstreamRefused

GATE = FunctionGate(
    "sglang", "python/sglang/srt/layers/communicator.py", "apply_flashinfer_allreduce_fusion"
)
# Where later releases ask, in other words.
LATER = FunctionGate(
    "sglang",
    "python/sglang/srt/layers/layer_boundary/residual/add_norm.py",
    "flashinfer_ar_fusion_applies",
)
FUSION = "python/sglang/srt/layers/flashinfer_comm_fusion.py"
SM12X = ("12.0", "12.1")
SM12X_OPEN = [(capability, True) for capability in SM12X]
# What sglang imports and a light environment may lack; none of it decides the gate.
ABSENT = ("triton", "sgl_kernel", "torchvision", "compressed_tensors", "gguf")


@pytest.fixture
def accepts(decision_table: Any, tree: Any) -> Any:
    """What the gate answers by capability, for a server that was started with the flag."""

    def table(
        batch: int = 128, *, flag: bool = True, dp_attention: bool = False, **kwargs: object
    ) -> dict[str, object]:
        comm = SimpleNamespace(flashinfer_allreduce_fusion_backend="auto" if flag else None)
        found: dict[str, object] = decision_table(
            LATER if tree.exists("sglang", LATER.path) else GATE,
            batch,
            stubs={
                "is_dp_attention_enabled": lambda: dp_attention,
                "is_flashinfer_available": lambda: True,
                "is_flashinfer_allreduce_unavailable": lambda: False,  # later releases ask
                "get_exec": lambda: SimpleNamespace(comm=comm),
                "get_global_server_args": lambda: SimpleNamespace(
                    enable_flashinfer_allreduce_fusion=flag, attn_cp_size=1
                ),
            },
            **kwargs,
        )
        return found

    return table


def sm12x(table: dict[str, object]) -> dict[str, object]:
    return {c: table[c] for c in SM12X}


def others(table: dict[str, object]) -> dict[str, object]:
    return {c: table[c] for c in CAPABILITIES if c not in SM12X}


@pytest.mark.tier("static")
def test_sm12x_is_accepted_and_nothing_else_moves(accepts: Any, baseline: Any) -> None:
    after, before = accepts(), accepts(trees=baseline)
    assert sm12x(after) == dict.fromkeys(SM12X, True)
    assert others(after) == others(before)
    # The evaluation sees both answers of the gate at the pin.
    assert (before["8.9"], before["9.0"], before["10.0"]) == (False, True, True)


@pytest.mark.tier("static")
def test_a_cuda_without_sm12x_is_refused(accepts: Any, baseline: Any) -> None:
    after = accepts(cuda="12.4")
    assert sm12x(after) == dict.fromkeys(SM12X, False)
    assert others(after) == others(accepts(cuda="12.4", trees=baseline))


@pytest.mark.tier("static")
@pytest.mark.parametrize(
    "server",
    [{"flag": False}, {"dp_attention": True}, {"batch": 0}, {"batch": 2049}],
    ids=lambda server: "-".join(f"{name}={value}" for name, value in server.items()),
)
def test_the_other_conditions_still_refuse(accepts: Any, server: dict[str, Any]) -> None:
    assert not any(accepts(**server).values())


@pytest.mark.tier("static")
def test_what_the_gate_accepts_is_built(accepts: Any, route: Any, jit_spec: Any) -> None:
    """Every generator that the fused call can reach builds for every capability let through."""
    routes = route("sglang", FUSION, "flashinfer_allreduce_residual_rmsnorm")
    assert routes, "the fused call leads to no generator"
    for capability, accepted in accepts().items():
        for found in routes if accepted else ():
            spec = jit_spec(found.entry, arch=f"{capability}a")
            assert spec.dropped == (), f"{found.describe()}\nleaves out {spec.dropped}"


def open_the_gate() -> dict[str, Any]:
    """What the real gate answers in a server with the flag, and what stands behind it."""
    from types import SimpleNamespace

    from flashinfer.jit.comm import gen_trtllm_comm_module
    from sglang.srt.layers import communicator

    flag = SimpleNamespace(enable_flashinfer_allreduce_fusion=True)
    communicator.get_global_server_args = lambda: flag
    communicator.is_dp_attention_enabled = lambda: False
    found: dict[str, Any] = {"accepts": communicator.apply_flashinfer_allreduce_fusion(128)}
    if found["accepts"]:
        try:
            flags = gen_trtllm_comm_module().extra_cuda_cflags
            found["gencode"] = [flag for flag in flags if "gencode" in flag]
        except RuntimeError as error:
            found["refused"] = str(error)
    return found


@pytest.mark.tier("import")
@pytest.mark.parametrize(("capability", "accepted"), [("8.9", False), ("9.0", True), *SM12X_OPEN])
def test_the_real_gate_decides_by_capability(
    imported: Any, capability: str, accepted: bool
) -> None:
    found = imported(
        open_the_gate, capability=capability, stubs=ABSENT,
        env={"FLASHINFER_CUDA_ARCH_LIST": f"{capability}a"},
    )  # fmt: skip
    assert bool(found["accepts"]) is accepted
    if accepted:
        if "refused" in found:
            raise UpstreamRefused(found["refused"])
        number = capability.replace(".", "")
        assert found["gencode"] == [f"-gencode=arch=compute_{number}a,code=sm_{number}a"]


def ask_the_gate(side: Any) -> bool:
    """What the real gate answers on this device, and whether what it leads to is built."""
    from types import SimpleNamespace

    from flashinfer.jit.comm import gen_trtllm_comm_module
    from sglang.srt.layers import communicator

    flag = SimpleNamespace(enable_flashinfer_allreduce_fusion=True)
    communicator.get_global_server_args = lambda: flag
    communicator.is_dp_attention_enabled = lambda: False
    accepts = bool(communicator.apply_flashinfer_allreduce_fusion(128))
    if accepts:
        with side.upstream_may_refuse():
            gen_trtllm_comm_module()
    return accepts


@pytest.mark.tier("gpu")
def test_the_gate_answers_for_the_device(device: Any, on_device: Any) -> None:
    assert on_device(ask_the_gate) is (device.capability[0] in (9, 10, 12))
