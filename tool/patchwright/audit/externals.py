"""What the audit's evaluation knows of the world outside the upstreams: one CUDA device.

The machine has the CUDA that knows every architecture; whatever else a process could
find there, such as libraries, environment variables and peers, is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

CUDA = "13.0"

# Functions by name that read the capability, where their source is not at hand.
READS: dict[str, Callable[[tuple[int, int]], Any]] = {
    "get_device_capability": lambda cc: cc,
    "get_compute_capability": lambda cc: cc,
    "get_device_sm": lambda cc: cc[0] * 10 + cc[1],
    "get_sm_version": lambda cc: cc[0] * 10 + cc[1],
    "getSMVersion": lambda cc: cc[0] * 10 + cc[1],
}

# What a CUDA build of torch lacks.
ABSENT = frozenset({"torch.npu", "torch.xpu", "torch.hpu", "torch.musa", "torch.mlu"})

# Methods of plain values that only compute.
PURE_METHODS = {
    str: {"split", "startswith", "endswith", "lower", "upper", "strip", "replace", "format",
          "join", "removeprefix", "removesuffix", "partition", "isdigit", "rstrip", "lstrip"},
    dict: {"get", "keys", "values", "items"},
    list: {"index", "count", "copy"},
    tuple: {"index", "count"},
    set: {"union", "intersection", "issubset", "issuperset"},
}  # fmt: skip

_NUMBERS = frozenset({70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121})
_MAJORS = frozenset({7, 8, 9, 10, 11, 12})


class Machine:
    """The facts of one simulated device."""

    def __init__(self, capability: tuple[int, int]) -> None:
        self.capability = capability
        major, minor = capability
        self.number = major * 10 + minor
        self.constants: dict[str, Any] = {
            "torch.version.cuda": CUDA,
            "torch.version.hip": None,
            "torch.version.musa": None,
            "sys.platform": "linux",
            "os.name": "posix",
            "typing.TYPE_CHECKING": False,
        }

    def builds_for(self, number: int, suffix: str) -> bool:
        """Return whether the device is the one that ``has_sm100`` asks about.

        ``f`` names a family: every device of that major version.
        """
        if suffix == "f":
            return self.number // 10 == number // 10
        return self.number == number

    def as_in(self, constants: Sequence[object], *, named: bool, name: str) -> Any:  # noqa: PLR0911
        """Return the capability in the form of ``constants``; None where they are no such form.

        ``"120"`` and ``"sm_120"`` are architectures whatever they are compared with;
        numbers and pairs only under an architecture's name (``named``).
        """
        if not constants:
            return None
        texts = [c for c in constants if isinstance(c, str)]
        if len(texts) == len(constants):
            return self._as_text(texts)
        if not named:
            return None
        if all(isinstance(c, tuple) and len(c) == 2 for c in constants):
            return self.capability
        numbers = [c for c in constants if type(c) is int]
        if len(numbers) != len(constants):
            return None
        if "minor" in name:
            return self.capability[1]
        if all(n in _NUMBERS for n in numbers):
            return self.number
        return self.capability[0] if all(n in _MAJORS for n in numbers) else None

    def _as_text(self, texts: Sequence[str]) -> str | None:
        for prefix in ("sm_", "sm", ""):
            bodies = [t.removeprefix(prefix) for t in texts if t.startswith(prefix)]
            if len(bodies) != len(texts):
                continue
            suffix = "a" if all(b.endswith("a") for b in bodies) else ""
            if all(b.removesuffix(suffix).isdigit() for b in bodies) and all(
                int(b.removesuffix(suffix)) in _NUMBERS for b in bodies
            ):
                return f"{prefix}{self.number}{suffix}"
        return None
