"""0018: torch symmetric memory stays off, and quiet, on GPUs that it has no sizes for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import CAPABILITIES, FunctionGate

GATE = FunctionGate(
    "sglang",
    "python/sglang/srt/distributed/device_communicators/torch_symm_mem.py",
    "TorchSymmMemCommunicator.__init__",
    reads="disabled",
)
SM12X = ("12.0", "12.1")
# Thor has no entry either, so what is right for SM12x is right there.
WITHOUT = ("11.0", *SM12X)
OTHERS = tuple(capability for capability in CAPABILITIES if capability not in WITHOUT)


@pytest.fixture
def disabled(decision_table: Any) -> Any:
    """Whether the communicator is disabled, by capability, and what it warned of."""

    def table(
        world_size: int = 2,
        *,
        multicast: int = 4096,
        warnings: list[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, object]:
        def warning(message: str, *args: object) -> None:
            if warnings is not None:
                warnings.append(message % args)

        memory = SimpleNamespace(
            empty=lambda *args, **kwargs: "buffer",
            rendezvous=lambda buffer, name: SimpleNamespace(multicast_ptr=multicast),
        )
        found: dict[str, object] = decision_table(
            GATE,
            SimpleNamespace(),
            SimpleNamespace(group_name="tp"),
            0,
            torch={"cuda.set_device": lambda device: None},
            stubs={
                "dist": SimpleNamespace(get_world_size=lambda group: world_size),
                "torch_symm_mem": memory,
                "torch_symm_mem_available": True,
                "logger": SimpleNamespace(warning=warning),
                # Later releases ask for more room in some servers.
                "get_exec": lambda: SimpleNamespace(
                    comm=SimpleNamespace(enable_scattered_sconv=False)
                ),
            },
            **kwargs,
        )
        return found

    return table


@pytest.mark.tier("static")
@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_it_is_disabled_without_an_entry_and_nothing_else_moves(
    disabled: Any, baseline: Any, world_size: int
) -> None:
    after, before = disabled(world_size), disabled(world_size, trees=baseline)
    assert {c: after[c] for c in WITHOUT} == dict.fromkeys(WITHOUT, True)
    assert {c: after[c] for c in OTHERS} == {c: before[c] for c in OTHERS}
    assert (after["8.9"], after["9.0"], after["10.0"], after["10.3"]) == (True, False, False, False)


@pytest.mark.tier("static")
@pytest.mark.parametrize("capability", SM12X)
def test_the_warning_names_the_capability(disabled: Any, capability: str) -> None:
    warnings: list[str] = []
    assert disabled(capabilities=(capability,), warnings=warnings) == {capability: True}
    assert len(warnings) == 1
    assert "capability 12 not supported" in warnings[0]


@pytest.mark.tier("static")
@pytest.mark.parametrize(
    "changes", [{"world_size": 3}, {"multicast": 0}], ids=["size", "multicast"]
)
def test_other_reasons_still_disable_it(
    disabled: Any, baseline: Any, changes: dict[str, int]
) -> None:
    capabilities = ("9.0", "10.0")
    after = disabled(capabilities=capabilities, **changes)
    assert after == disabled(capabilities=capabilities, trees=baseline, **changes)
    assert after == dict.fromkeys(capabilities, True)
