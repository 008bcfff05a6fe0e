"""0005: on SM12x the fusion is switched on by default only on request and with peer access."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import CAPABILITIES, ConditionGate, FunctionGate
from patchwright.smoke.outcomes import Blocked

DEFAULT = ConditionGate(
    "sglang",
    "python/sglang/srt/server_args.py",
    "ServerArgs._handle_model_specific_adjustments",
    "self.enable_flashinfer_allreduce_fusion = True",
)
# Where later releases decide; they return what is to be changed.
LATER = FunctionGate(
    "sglang",
    "python/sglang/srt/arg_groups/overrides.py",
    "_flashinfer_allreduce_fusion_auto_enable",
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
# What sglang imports and a light environment may lack; none of it decides the default.
ABSENT = ("triton", "sgl_kernel", "torchvision", "compressed_tensors", "gguf")
MEMORY = {"sglang.srt.utils.common.get_nvgpu_memory_capacity": 97887.0}  # MiB


@pytest.fixture
def enabled(decision_table: Any, tree: Any) -> Callable[..., dict[str, object]]:
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
        simulated: dict[str, Any] = {
            "trees": trees,
            "cuda": cuda,
            "capabilities": capabilities,
            "env": {} if request is None else {REQUEST: request},
            "torch": {"cuda.device_count": lambda: devices, "cuda.can_device_access_peer": peers},
        }
        if tree.exists("sglang", LATER.path):
            server = SimpleNamespace(**(given | arguments))
            asked = server.enable_flashinfer_allreduce_fusion
            server.flashinfer_allreduce_fusion_backend = "auto" if asked else None
            config = SimpleNamespace(hf_config=SimpleNamespace(architectures=[model]))
            answers = decision_table(
                LATER,
                server,
                stubs={
                    "register_post_process": lambda function: function,
                    "model_config_of": lambda view: config,
                    "attn_dp_enabled_of": lambda view: view.enable_dp_attention,
                    "logger": SimpleNamespace(info=print),
                },
                **simulated,
            )
            return {capability: bool(answer) for capability, answer in answers.items()}
        found: dict[str, object] = decision_table(
            DEFAULT,
            names={"self": SimpleNamespace(**(given | arguments)), "model_arch": model},
            **simulated,
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
                enable_flashinfer_allreduce_fusion=True, attn_cp_size=1
            ),
            "is_flashinfer_allreduce_unavailable": lambda: False,  # later releases ask
            "is_flashinfer_available": lambda: True,
        },
    )
    assert enabled() == ON
    assert gate == ON, "apply_flashinfer_allreduce_fusion ignores the flag"
    for found in route("sglang", FUSION, "flashinfer_allreduce_residual_rmsnorm"):
        for capability in SM12X:
            assert jit_spec(found.entry, arch=f"{capability}a").dropped == ()


def prepare(arguments: list[str]) -> bool:
    """Parse a command line as sglang does, and return whether the fusion is switched on."""
    from sglang.srt.server_args import prepare_server_args

    return bool(prepare_server_args(arguments).enable_flashinfer_allreduce_fusion)


@pytest.fixture
def server(tmp_path: Path) -> list[str]:
    """The command line of a server for a tiny model."""
    config = {
        "architectures": [MODEL], "model_type": "qwen3_moe", "vocab_size": 256,
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16,
        "num_key_value_heads": 2, "intermediate_size": 128, "moe_intermediate_size": 32,
        "num_experts": 4, "num_experts_per_tok": 2, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    text = f"--tp 2 --device cuda --load-format dummy --skip-tokenizer-init --model-path {tmp_path}"
    return text.split()


@pytest.fixture
def prepared(imported: Any, server: list[str]) -> Callable[..., bool]:
    """Whether the real ``prepare_server_args`` switches the fusion on, by what is simulated."""

    def ask(capability: str, *, request: str | None = None, peers: bool = True) -> bool:
        found: bool = imported(
            prepare, arguments=server, capability=capability, peers=peers, stubs=ABSENT,
            answers=MEMORY, env={} if request is None else {REQUEST: request},
        )  # fmt: skip
        return found

    return ask


@pytest.mark.tier("import")
@pytest.mark.parametrize("capability", SM12X)
def test_the_real_server_switches_it_on_on_request(prepared: Any, capability: str) -> None:
    assert prepared(capability, request="1")


@pytest.mark.tier("import")
def test_the_real_server_needs_the_request_and_peer_access(prepared: Any) -> None:
    assert not prepared("12.0")
    assert not prepared("12.0", request="1", peers=False)


@pytest.mark.tier("import")
@pytest.mark.parametrize(("capability", "default"), [("8.9", False), ("9.0", True), ("10.0", True)])
def test_the_real_server_decides_as_before_elsewhere(
    prepared: Any, capability: str, default: bool
) -> None:
    assert prepared(capability, request="1", peers=False) is default


def prepare_here(side: Any, arguments: list[str], request: str) -> list[bool]:
    """Return whether the fusion is switched on here, and whether the devices are peers."""
    import itertools
    import os

    os.environ[request] = "1"
    from sglang.srt.server_args import prepare_server_args

    enabled = prepare_server_args(arguments).enable_flashinfer_allreduce_fusion
    pairs = itertools.permutations(range(side.torch.cuda.device_count()), 2)
    return [bool(enabled), all(side.torch.cuda.can_device_access_peer(*pair) for pair in pairs)]


@pytest.mark.tier("multi-gpu")
def test_the_machines_own_peer_access_decides(
    device: Any, on_device: Any, server: list[str]
) -> None:
    enabled, peers = on_device(prepare_here, arguments=server, request=REQUEST)
    major = device.capability[0]
    if major == 12 and not peers:
        # Off with the patch and off without it: nothing to tell the two apart.
        assert not enabled
        raise Blocked("needs peer access between the devices")
    assert enabled is (major in (9, 10, 12))
