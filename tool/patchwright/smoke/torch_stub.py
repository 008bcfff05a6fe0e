"""A stand-in for torch, for running flashinfer's JIT generators without it.

It is not torch and computes nothing. It holds the few names that the generators read:
types for annotations, data types as values, and the device facts that a generator may
decide by, which are simulated values. Whatever else is asked of it is a gap, and a gap
ends the run loudly: a decision of upstream must never rest on a made-up answer.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import NoReturn

_DTYPES = {
    "bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4,
    "uint64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1,
}  # fmt: skip
_ALIASES = {"half": "float16", "float": "float32", "double": "float64", "int": "int32"}


class StubGap(BaseException):
    """Upstream asked for something that is not simulated.

    Not an Exception: upstream's ``except Exception`` and ``hasattr`` must not take the
    gap for an answer.
    """


class StubDtype:
    """A data type: compared by identity, printed as torch prints it."""

    def __init__(self, name: str, itemsize: int) -> None:
        self.name = name
        self.itemsize = itemsize

    def __repr__(self) -> str:
        return f"torch.{self.name}"


# Of floating-point types: the largest number, the distance from 1 to the next one, the
# smallest normal one.
_LIMITS = {
    "float16": (65504.0, 2.0**-10, 2.0**-14),
    "bfloat16": (2.0**127 * 1.9921875, 2.0**-7, 2.0**-126),
    "float32": (2.0**127 * (2 - 2.0**-23), 2.0**-23, 2.0**-126),
    "float64": (sys.float_info.max, sys.float_info.epsilon, sys.float_info.min),
    "float8_e4m3fn": (448.0, 2.0**-3, 2.0**-6), "float8_e5m2": (57344.0, 2.0**-2, 2.0**-14),
}  # fmt: skip


def finfo(dtype: StubDtype) -> SimpleNamespace:
    """Return the limits of a type, as ``torch.finfo`` does."""
    if dtype.name not in _LIMITS:
        raise StubGap(f"torch.finfo({dtype!r}) is not simulated")
    largest, eps, tiny = _LIMITS[dtype.name]
    return SimpleNamespace(bits=8 * dtype.itemsize, max=largest, min=-largest, eps=eps, tiny=tiny,
                           smallest_normal=tiny, dtype=dtype.name)  # fmt: skip


class StubGraph:
    """A name for annotations; nothing is captured here."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise StubGap("the torch stub has no graphs")


class StubSession:
    """A name for annotations; there is no network here."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        _refuse()


class StubTensor:
    """A name for annotations; there are no tensors here."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise StubGap("the torch stub has no tensors")


class StubDevice:
    """A name for annotations; there are no devices here."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise StubGap("the torch stub has no devices")


class StubModule(ModuleType):
    """A module that answers what it was given and stops the run at anything else."""

    def __init__(self, name: str, values: Mapping[str, object]) -> None:
        super().__init__(name)
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name.endswith("__"):
            # The import system probes for these.
            raise AttributeError(name)
        raise StubGap(f"{self.__name__}.{name} is not simulated")


# Multiprocessors of the largest common device of a capability: H100 and B200, RTX PRO 6000
# and GB10 among them.
_MULTIPROCESSORS = {
    (8, 0): 108, (8, 9): 142, (9, 0): 132, (10, 0): 148, (10, 3): 160, (11, 0): 20,
    (12, 0): 188, (12, 1): 48,
}  # fmt: skip


class _Device:
    """The simulated device facts: one device, whose capability is the target's."""

    def __init__(self, capability: tuple[int, int] | None) -> None:
        self._capability = capability

    def device_count(self) -> int:
        self.get_device_capability()
        return 1

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        if self._capability is None:
            raise StubGap("the generator reads the device, and several architectures are asked for")
        return self._capability

    def get_device_properties(self, device: object = None) -> SimpleNamespace:
        major, minor = self.get_device_capability()
        facts: dict[str, object] = {"major": major, "minor": minor}
        if (major, minor) in _MULTIPROCESSORS:
            facts["multi_processor_count"] = _MULTIPROCESSORS[major, minor]
        return SimpleNamespace(**facts)

    def current_device(self) -> int:
        self.get_device_capability()
        return 0


def install(*, cuda: str, capability: tuple[int, int] | None) -> None:
    """Put the stub into ``sys.modules`` in torch's place, for good.

    ``cuda`` is ``torch.version.cuda``; ``capability`` is that of the one simulated
    device, None where reading it would have no single answer. To be called in a
    process that ends afterwards.
    """
    for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
        del sys.modules[name]
    dtypes = {name: StubDtype(name, size) for name, size in _DTYPES.items()}
    device = _Device(capability)
    modules = {
        "torch.version": StubModule("torch.version", {"cuda": cuda, "hip": None}),
        "torch.cuda": StubModule(
            "torch.cuda",
            {
                "CUDAGraph": StubGraph,
                "current_device": device.current_device,
                "device_count": device.device_count,
                "get_device_capability": device.get_device_capability,
                "get_device_properties": device.get_device_properties,
            },
        ),
        "torch._C": StubModule("torch._C", {"_GLIBCXX_USE_CXX11_ABI": True}),
    }
    torch = StubModule(
        "torch",
        {
            "__path__": [],
            "dtype": StubDtype,
            "Tensor": StubTensor,
            "device": StubDevice,
            "finfo": finfo,
            **dtypes,
            **{alias: dtypes[name] for alias, name in _ALIASES.items()},
            **{name.removeprefix("torch."): module for name, module in modules.items()},
        },
    )
    sys.modules["torch"] = torch
    sys.modules.update(modules)


def lookup(name: str) -> object:
    """Return the installed stub's value for a dotted name such as ``torch.bfloat16``."""
    value: object = sys.modules["torch"]
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    return value


def refuse_network(event: str, _arguments: tuple[object, ...]) -> None:
    """Audit hook: a generator that fetches something would answer from the network."""
    if event in {"socket.connect", "socket.getaddrinfo"}:
        _refuse()


def _refuse() -> NoReturn:
    raise StubGap("the generator reaches for the network")
