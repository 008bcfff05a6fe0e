"""The simulated torch that upstream's decisions are evaluated on: one device, one capability.

It computes nothing. Every value is a fact of the simulated machine or was given by the
test; the slicer refuses whatever else a decision touches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace

from patchwright.smoke.outcomes import SmokeError

_ALIASES = {
    "half": "float16", "float": "float32", "double": "float64",
    "short": "int16", "int": "int32", "long": "int64",
}  # fmt: skip
_DTYPE = re.compile(r"bool|b?float\d+(_\w+)?|u?int\d+|complex\d+")
_BITS = re.compile(r"\d+")
# Names as `torch.cuda.get_device_name` gives them on one common device each.
_DEVICES = {
    (8, 0): "NVIDIA A100-SXM4-80GB",
    (8, 9): "NVIDIA L40S",
    (9, 0): "NVIDIA H100 80GB HBM3",
    (10, 0): "NVIDIA B200",
    (10, 3): "NVIDIA B300 SXM6 AC",
    (11, 0): "NVIDIA Thor",
    (12, 0): "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    (12, 1): "NVIDIA GB10",
}


class Absent:
    """The value of a name that exists nowhere: reading it raises what Python would raise."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Absent()


@dataclass(frozen=True)
class Dtype:
    """A torch data type; equal when the name is."""

    name: str

    @property
    def itemsize(self) -> int:
        """Bytes of one element (a packed ``float4_e2m1fn_x2`` is one byte)."""
        bits = _BITS.search(self.name)
        return max(int(bits.group()) // 8, 1) if bits else 1

    @property
    def is_floating_point(self) -> bool:
        """Whether this is a floating-point type."""
        return "float" in self.name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


def dtype(name: str) -> Dtype | None:
    """Return the data type that torch has under ``name`` (``half``, ``float8_e4m3fn``), or None."""
    name = _ALIASES.get(name, name)
    return Dtype(name) if _DTYPE.fullmatch(name) else None


class Device:
    """``torch.device``: a type and an index."""

    def __init__(
        self, device: object = None, index: int | None = None, *, type: str | None = None
    ) -> None:
        text: str
        if isinstance(device, Device):
            text, index = device.type, device.index
        elif isinstance(device, int):
            text, index = "cuda", device
        else:
            text, _, number = str(device or type or "cuda").partition(":")
            index = int(number) if number else index
        self.type: str = text
        self.index: int | None = index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __repr__(self) -> str:
        return f"device({self.type!r}, {self.index!r})"


class Tensor:
    """``torch.Tensor`` without data: shape, data type and device are all that it knows."""

    def __init__(
        self, shape: tuple[int, ...] = (), dtype: Dtype | str = "float32", device: object = "cuda"
    ) -> None:
        self.shape = shape
        self.dtype = Dtype(dtype) if isinstance(dtype, str) else dtype
        self.device = Device(device)
        self.ndim = len(shape)
        self.is_cuda = self.device.type == "cuda"

    def size(self, dimension: int | None = None) -> object:
        """Return the shape, or one extent of it."""
        return self.shape if dimension is None else self.shape[dimension]

    def dim(self) -> int:
        """Return the number of dimensions."""
        return self.ndim

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise SmokeError(f"the decision reads Tensor.{name}, which a tensor without data lacks")


def _plain(function: object = None, *args: object, **kwargs: object) -> object:
    """A decorator that changes no decision: with or without arguments, the function itself."""
    return function if callable(function) else (lambda decorated: decorated)


def simulated_torch(
    capability: tuple[int, int], *, cuda: str | None, extra: Mapping[str, object]
) -> dict[str, object]:
    """Return the known attributes by dotted name (``torch.cuda.is_available``).

    ``cuda`` is ``torch.version.cuda``. ``extra`` adds or replaces attributes, with or
    without the leading ``torch.``; MISSING makes one raise AttributeError.
    """
    major, minor = capability
    name = _DEVICES.get(capability, f"NVIDIA simulated sm_{major}{minor}")
    properties = SimpleNamespace(major=major, minor=minor, name=name)
    known: dict[str, object] = {
        "__version__": "2.9.1",
        "version.cuda": cuda,
        "version.hip": None,
        "version.musa": MISSING,
        "cuda.is_available": lambda: cuda is not None,
        # Otherwise upstream asks the driver's library for what torch would say.
        "cuda.is_initialized": lambda: cuda is not None,
        "cuda.device_count": lambda: 1,
        "cuda.current_device": lambda: 0,
        "cuda.get_device_capability": lambda device=None: capability,
        "cuda.get_device_name": lambda device=None: name,
        "cuda.get_device_properties": lambda device=None: properties,
        "cpu.is_available": lambda: True,
        "xpu.is_available": lambda: False,
        "backends.mps.is_available": lambda: False,
        "mps.is_available": lambda: False,
        # Back ends that a CUDA build does not have.
        "npu": MISSING,
        "hpu": MISSING,
        "musa": MISSING,
        "mlu": MISSING,
        "dtype": Dtype,
        "device": Device,
        "Tensor": Tensor,
        "Size": tuple,
        "compile": _plain,
        "no_grad": _plain,
        "inference_mode": _plain,
        "library.custom_op": _plain,
        "library.register_fake": _plain,
        "jit.script": _plain,
        "torch_version.__version__": "2.9.1",
        "torch_version.TorchVersion": _version,
    }
    known.update({key.removeprefix("torch."): value for key, value in extra.items()})
    return {f"torch.{key}": value for key, value in known.items()}


def _version(text: str) -> object:
    from packaging.version import Version

    return Version(text)
