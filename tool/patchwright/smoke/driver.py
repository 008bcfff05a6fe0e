"""Asks the CUDA driver for its devices; runs alone, in a process that ends afterwards.

A process that has initialised CUDA must not fork, and neither the tool nor its prepared
worker ever does so: both fork. Prints one JSON object. Uses nothing but the driver's
libraries: no nvidia-smi, no torch, no context on any device.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
from pathlib import Path
from uuid import UUID

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR (cuda.h)
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_KERNEL_MODULE = Path("/proc/driver/nvidia/version")


class _Uuid(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_ubyte * 16),)


class _Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _Refused(Exception):
    pass


def main() -> None:
    """Print the facts, or ``{"refused": why}``."""
    try:
        facts = _facts()
    except (_Refused, OSError) as error:
        facts = {"refused": str(error)}
    print(json.dumps(facts))


def _facts() -> dict[str, object]:
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *args: object) -> None:
        code = getattr(cuda, name)(*args)
        if code:
            raise _Refused(_explain(cuda, name, code))

    if cuda.cuInit(0) == _NO_DEVICE:
        return {"cuda": "", "driver": _driver_version(), "devices": []}
    call("cuInit", 0)
    version, count = ctypes.c_int(), ctypes.c_int()
    call("cuDriverGetVersion", ctypes.byref(version))
    call("cuDeviceGetCount", ctypes.byref(count))
    # The second tells the instances of a partitioned device apart.
    get_uuid = "cuDeviceGetUuid_v2" if hasattr(cuda, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
    free = _free_memory()
    devices = []
    for index in range(count.value):
        device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        name, total, uuid = ctypes.create_string_buffer(256), ctypes.c_size_t(), _Uuid()
        call("cuDeviceGet", ctypes.byref(device), index)
        call("cuDeviceGetName", name, len(name), device)
        call("cuDeviceGetAttribute", ctypes.byref(major), _MAJOR, device)
        call("cuDeviceGetAttribute", ctypes.byref(minor), _MINOR, device)
        call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
        call(get_uuid, ctypes.byref(uuid), device)
        text = str(UUID(bytes=bytes(uuid.bytes)))
        devices.append({
            "index": index, "uuid": text, "name": name.value.decode("utf-8", "replace"),
            "capability": [major.value, minor.value], "memory_total": total.value,
            "memory_free": free.get(text),
        })  # fmt: skip
    cuda_version = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return {"cuda": cuda_version, "driver": _driver_version(), "devices": devices}


def _explain(cuda: ctypes.CDLL, function: str, code: int) -> str:
    text = ctypes.c_char_p()
    with contextlib.suppress(AttributeError):
        cuda.cuGetErrorString(code, ctypes.byref(text))
    words = text.value.decode("utf-8", "replace") if text.value else "no text"
    return f"{function} answers {code} ({words})"


def _driver_version() -> str:
    """Return the kernel module's version, such as 580.65.06; empty where it does not say."""
    with contextlib.suppress(OSError):
        found = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", _KERNEL_MODULE.read_text("utf-8", "replace"))
        if found:
            return found[0]
    return ""


def _free_memory() -> dict[str, int]:
    """Return free bytes by UUID, as the management library says; empty without it."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError, AttributeError):
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return {}
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for index in range(count.value):
            handle, memory = ctypes.c_void_p(), _Memory()
            uuid = ctypes.create_string_buffer(96)
            if (
                nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0
                and nvml.nvmlDeviceGetUUID(handle, uuid, len(uuid)) == 0
                and nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
            ):
                found[uuid.value.decode("ascii", "replace").removeprefix("GPU-")] = memory.free
        nvml.nvmlShutdown()
    return found


if __name__ == "__main__":
    main()
