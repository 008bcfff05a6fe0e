"""0005: on SM12x the fusion is switched on by default only on request and with peer access."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import CAPABILITIES, ConditionGate, FunctionGate

DEFAULT = ConditionGate(
    "sglang",
    "python/sglang/srt/server_args.py",
    "ServerArgs._handle_model_specific_adjustments",
    "self.enable_flashinfer_allreduce_fusion = True",
)
GATE = FunctionGate(
    "sglang", "python/sglang/srt/layers/communicator.py", "apply_flashinfer_allreduce_fusion"
)
FUSION = "python/sglang/srt/layers/flashinfer_comm_fusion.py"
REQUEST = "SGLANG_ENABLE_FLASHINFER_ALLREDUCE_FUSION_SM120"
MODEL = "Qwen3MoeForCausalLM"
SM12X = ("12.0", "12.1")
OTHERS = tuple(capability for capability in CAPABILITIES if capability not in SM12X)
ON = dict.fromkeys(SM12X, True)
OFF = dict.fromkeys(SM12X, False)


@pytest.fixture
def enabled(decision_table: Any) -> Callable[..., dict[str, object]]:
    """Whether the fusion is switched on for one server, by capability."""

    def table(
        *,
        trees: Any = None,
        request: str | None = "1",
        devices: int = 2,
        peers: Callable[[int, int], bool] = lambda src, tgt: True,
        model: str = MODEL,
        cuda: str = "12.8",
        capabilities: tuple[str, ...] = SM12X,
        **arguments: object,
    ) -> dict[str, object]:
        given = {
            "enable_flashinfer_allreduce_fusion": False,
            "tp_size": 2,
            "pp_size": 1,
            "enable_dp_attention": False,
            "nnodes": 1,
            "moe_a2a_backend": "none",
        }
        found: dict[str, object] = decision_table(
            DEFAULT,
            trees=trees,
            cuda=cuda,
            capabilities=capabilities,
            names={"self": SimpleNamespace(**(given | arguments)), "model_arch": model},
            env={} if request is None else {REQUEST: request},
            torch={"cuda.device_count": lambda: devices, "cuda.can_device_access_peer": peers},
        )
        return found

    return table


@pytest.mark.tier("static")
def test_sm12x_needs_the_request_and_peer_access(enabled: Any) -> None:
    found = {
        (request, peers): enabled(request=request, peers=lambda src, tgt, p=peers: p)
        for request, peers in itertools.product((None, "0", "1", "true"), (False, True))
    }
    assert found == {
        (request, peers): ON if request in ("1", "true") and peers else OFF
        for request, peers in found
    }


@pytest.mark.tier("static")
@pytest.mark.parametrize("pair", [(0, 1), (1, 0), (2, 3), (3, 0)])
def test_one_pair_without_peer_access_is_enough_to_refuse(
    enabled: Any, pair: tuple[int, int]
) -> None:
    assert enabled(devices=4) == ON
    assert enabled(devices=4, peers=lambda src, tgt: (src, tgt) != pair) == OFF


@pytest.mark.tier("static")
def test_one_device_has_no_peer(enabled: Any) -> None:
    assert enabled() == ON
    assert enabled(devices=1) == OFF


@pytest.mark.tier("static")
@pytest.mark.parametrize(
    "arguments",
    [
        {"enable_dp_attention": True},
        {"nnodes": 2},
        {"moe_a2a_backend": "deepep"},
        {"model": "LlamaForCausalLM"},
        {"cuda": "12.4"},
    ],
    ids="-".join,
)
def test_the_other_conditions_still_refuse(enabled: Any, arguments: dict[str, object]) -> None:
    assert enabled() == ON
    assert enabled(**arguments) == OFF


@pytest.mark.tier("static")
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"tp_size": 1, "devices": 1},
        {"tp_size": 8, "devices": 8},
        {"enable_dp_attention": True},
        {"nnodes": 2},
        {"enable_flashinfer_allreduce_fusion": True},
    ],
    ids=lambda arguments: "-".join(arguments) or "plain",
)
def test_the_other_archs_decide_as_before(
    enabled: Any, baseline: Any, arguments: dict[str, object]
) -> None:
    for request, peers in ((None, False), ("1", False), ("1", True)):
        server = {"request": request, "peers": lambda src, tgt, p=peers: p, **arguments}
        after = enabled(capabilities=OTHERS, **server)
        assert after == enabled(capabilities=OTHERS, trees=baseline, **server)
    allowed = not {"enable_dp_attention", "nnodes", "enable_flashinfer_allreduce_fusion"} & set(
        arguments
    )
    assert (after["8.9"], after["9.0"], after["10.0"]) == (False, allowed, allowed)


@pytest.mark.tier("static")
def test_what_is_switched_on_has_an_effect(
    enabled: Any, decision_table: Any, route: Any, jit_spec: Any
) -> None:
    """The flag is worth nothing where the gate ignores it or its route ends in a refusal."""
    gate = decision_table(
        GATE,
        128,
        capabilities=SM12X,
        stubs={
            "is_dp_attention_enabled": lambda: False,
            "get_global_server_args": lambda: SimpleNamespace(
                enable_flashinfer_allreduce_fusion=True
            ),
            "is_flashinfer_available": lambda: True,
        },
    )
    assert enabled() == ON
    assert gate == ON, "apply_flashinfer_allreduce_fusion ignores the flag"
    for found in route("sglang", FUSION, "flashinfer_allreduce_residual_rmsnorm"):
        for capability in SM12X:
            assert jit_spec(found.entry, arch=f"{capability}a").dropped == ()
