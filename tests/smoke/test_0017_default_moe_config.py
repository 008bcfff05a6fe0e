"""0017: the default FP8 MoE config of the Triton kernel fits the shared memory of the GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import CAPABILITIES, FunctionGate, PerCapability

FILE = "fused_moe_triton_config.py"
# Bytes of shared memory that a block can opt in to, as torch gives them. CUDA programming
# guide, technical specifications per compute capability: 163, 99 or 227 KiB.
SHARED = {"8.0": 166_912, "8.9": 101_376, "12.0": 101_376, "12.1": 101_376}
LARGE = 232_448
SM12X = ("12.0", "12.1")
ENOUGH = tuple(c for c in CAPABILITIES if SHARED.get(c, LARGE) > 150_000)
EXPERTS = 128
# Name to (tokens, block shape): more tokens than experts, fewer, and block-wise scales.
CASES = {"many": (4096, None), "few": (16, None), "blocks": (4096, [128, 128])}


def device(capability: tuple[int, int]) -> object:
    text = f"{capability[0]}.{capability[1]}"
    return lambda index=None: SimpleNamespace(shared_memory_per_block_optin=SHARED.get(text, LARGE))


@pytest.fixture
def config(decision_table: Any, tree: Any) -> Any:
    """The default config of one batch, by capability."""
    (path,) = (path for path in tree.files("sglang") if path.endswith(f"/{FILE}"))
    gate = FunctionGate("sglang", path, "get_default_config")

    def table(
        tokens: int,
        block_shape: list[int] | None,
        dtype: str | None = "fp8_w8a8",
        *,
        properties: object = PerCapability(device),
        deterministic: bool = False,
        **kwargs: object,
    ) -> dict[str, Any]:
        found: dict[str, Any] = decision_table(
            gate,
            tokens,
            EXPERTS,
            1536,
            4096,
            8,
            dtype,
            False,
            block_shape,
            torch={"cuda.get_device_properties": properties},
            stubs={
                "get_global_server_args": lambda: SimpleNamespace(
                    enable_deterministic_inference=deterministic
                ),
                "get_exec": lambda: SimpleNamespace(
                    deterministic=SimpleNamespace(enable_deterministic_inference=deterministic)
                ),
            },
            **kwargs,
        )
        return found

    return table


def needed(config: dict[str, int]) -> int:
    """Bytes that Triton 3.5.1 allocates for an FP8 config.

    All steps of the pipeline but one hold a tile of A and of B. Compiling the kernel for
    SM120 with each of the default configs gives exactly this.
    """
    rows = config["BLOCK_SIZE_M"] + config["BLOCK_SIZE_N"]
    return (config["num_stages"] - 1) * rows * config["BLOCK_SIZE_K"]


@pytest.mark.tier("static")
@pytest.mark.parametrize("case", CASES)
def test_the_config_fits_on_every_gpu(config: Any, case: str) -> None:
    for capability, found in config(*CASES[case]).items():
        available = SHARED.get(capability, LARGE)
        assert needed(found) <= available, f"{capability}: {needed(found)} of {available} bytes"


@pytest.mark.tier("static")
def test_only_what_did_not_fit_changes(config: Any, baseline: Any) -> None:
    after, before = config(*CASES["many"]), config(*CASES["many"], trees=baseline)
    assert {c: after[c] for c in ENOUGH} == {c: before[c] for c in ENOUGH}
    assert needed(after["9.0"]) == 147_456
    assert after["9.0"] == {
        "BLOCK_SIZE_M": 128,
        "BLOCK_SIZE_N": 256,
        "BLOCK_SIZE_K": 128,
        "GROUP_SIZE_M": 32,
        "num_warps": 8,
        "num_stages": 4,
    }
    for capability in SM12X:
        assert needed(after[capability]) <= SHARED[capability]
        # Where upstream has tiles of its own for these devices, those stay.
        fewer = after["9.0"] | {"num_stages": 3}
        assert after[capability] in (fewer, before[capability])


@pytest.mark.tier("static")
@pytest.mark.parametrize("case", ["few", "blocks"])
def test_what_fits_is_as_before(config: Any, baseline: Any, case: str) -> None:
    assert config(*CASES[case]) == config(*CASES[case], trees=baseline)


@pytest.mark.tier("static")
@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": None},
        {"dtype": "int8_w8a16"},
        {"deterministic": True},
        {"properties": lambda index=None: SimpleNamespace(name="an old torch")},
        {"cuda": None},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_other_configs_and_platforms_are_as_before(
    config: Any, baseline: Any, changes: dict[str, object]
) -> None:
    few = ("9.0", "12.0")
    after = config(*CASES["many"], capabilities=few, **changes)
    assert after == config(*CASES["many"], capabilities=few, trees=baseline, **changes)
