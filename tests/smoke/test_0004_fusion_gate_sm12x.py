"""0004: the fusion gate accepts SM12x, and what it leads to is built for SM12x."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import CAPABILITIES, FunctionGate
from patchwright.smoke.outcomes import Blocked

GATE = FunctionGate(
    "sglang", "python/sglang/srt/layers/communicator.py", "apply_flashinfer_allreduce_fusion"
)
FUSION = "python/sglang/srt/layers/flashinfer_comm_fusion.py"
SM12X = ("12.0", "12.1")


@pytest.fixture
def accepts(decision_table: Any) -> Any:
    """What the gate answers by capability, for a server that was started with the flag."""

    def table(
        batch: int = 128, *, flag: bool = True, dp_attention: bool = False, **kwargs: object
    ) -> dict[str, object]:
        found: dict[str, object] = decision_table(
            GATE,
            batch,
            stubs={
                "is_dp_attention_enabled": lambda: dp_attention,
                "is_flashinfer_available": lambda: True,
                "get_global_server_args": lambda: SimpleNamespace(
                    enable_flashinfer_allreduce_fusion=flag
                ),
            },
            **kwargs,
        )
        return found

    return table


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


@pytest.mark.tier("gpu")
def test_the_gate_opens_on_the_device(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    communicator, comm = needs("sglang.srt.layers.communicator"), needs("flashinfer.jit.comm")
    flag = SimpleNamespace(enable_flashinfer_allreduce_fusion=True)
    monkeypatch.setattr(communicator, "get_global_server_args", lambda: flag)
    monkeypatch.setattr(communicator, "is_dp_attention_enabled", lambda: False)
    assert communicator.apply_flashinfer_allreduce_fusion(128) is True
    try:
        comm.gen_trtllm_comm_module()
    except RuntimeError as error:
        pytest.fail(f"the gate is open, but flashinfer refuses: {error}")
