"""0020: an architecture list that is set stays; without one the device's is set as before."""

from __future__ import annotations

from typing import Any

import pytest

from patchwright.smoke.decisions import CAPABILITIES, FunctionGate

GATE = FunctionGate("sglang", "python/sglang/srt/utils/common.py", "set_cuda_arch")
LIST = "FLASHINFER_CUDA_ARCH_LIST"
MODULE = "flashinfer/jit/gemm/core.py::gen_gemm_sm120_module"
DEVICE = {
    "8.0": "8.0",
    "8.9": "8.9",
    "9.0": "9.0a",
    "10.0": "10.0a",
    "10.3": "10.3a",
    "11.0": "11.0a",
    "12.0": "12.0a",
    "12.1": "12.1a",
}


class Environment:
    """``os.environ`` as upstream's code uses it; no Mapping, so that it is not copied."""

    def __init__(self, **variables: str) -> None:
        self.variables = variables

    def __getitem__(self, name: str) -> str:
        return self.variables[name]

    def __setitem__(self, name: str, value: str) -> None:
        self.variables[name] = value

    def __contains__(self, name: object) -> bool:
        return name in self.variables

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.variables.get(name, default)

    def setdefault(self, name: str, value: str) -> str:
        return self.variables.setdefault(name, value)


@pytest.fixture
def arch_list(decision_table: Any) -> Any:
    """The list after set_cuda_arch, by capability."""

    def table(given: str | None, *, available: bool = True, **kwargs: object) -> dict[str, object]:
        found: dict[str, object] = {}
        for capability in kwargs.pop("capabilities", CAPABILITIES):  # type: ignore[attr-defined]
            environment = Environment(**({} if given is None else {LIST: given}))
            decision_table(
                GATE,
                capabilities=(capability,),
                stubs={"os.environ": environment, "is_flashinfer_available": lambda: available},
                **kwargs,
            )
            found[capability] = environment.get(LIST)
        return found

    return table


@pytest.mark.tier("static")
@pytest.mark.parametrize("given", ["12.0f", "12.0a 12.1a", "9.0a 10.0a 12.0f"])
def test_a_list_that_is_set_stays(arch_list: Any, given: str) -> None:
    few = ("9.0", "10.0", "12.0", "12.1")
    assert arch_list(given, capabilities=few) == dict.fromkeys(few, given)


@pytest.mark.tier("static")
@pytest.mark.parametrize("given", [None, ""])
def test_without_a_list_every_gpu_gets_its_own_as_before(
    arch_list: Any, baseline: Any, given: str | None
) -> None:
    assert arch_list(given) == arch_list(given, trees=baseline) == DEVICE


@pytest.mark.tier("static")
def test_without_flashinfer_nothing_is_set(arch_list: Any, baseline: Any) -> None:
    few = ("9.0", "12.0")
    after = arch_list(None, available=False, capabilities=few)
    assert after == arch_list(None, available=False, capabilities=few, trees=baseline)
    assert after == dict.fromkeys(few, None)


@pytest.mark.tier("static")
def test_flashinfer_builds_for_the_list(arch_list: Any, jit_spec: Any) -> None:
    """What stays is what FlashInfer compiles for: one binary for SM120 and SM121."""
    kept = arch_list("12.0f", capabilities=("12.1",))["12.1"]
    assert jit_spec(MODULE, arch=kept).gencode == ("arch=compute_120f,code=sm_120f",)
