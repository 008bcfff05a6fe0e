"""STUB: stands for torch in tests of the protocol between processes. It computes nothing."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from . import version as version

__version__ = "0+stub"
compile = None  # as torch has it: to be replaced by the simulation


class Generator:
    def manual_seed(self, seed: int) -> Generator:
        return self


class _Event:
    def record(self) -> None:
        pass

    def query(self) -> bool:
        return "STUB_KERNEL_HANGS" not in os.environ


def device(kind: str, index: int) -> str:
    return f"{kind}:{index}"


def _set_device(name: str) -> None:
    if reason := os.environ.get("STUB_DRIVER_SAYS"):
        raise RuntimeError(reason)


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


cuda = SimpleNamespace(
    set_device=_set_device, Event=_Event, is_available=lambda: False,
    get_device_capability=lambda device=None: (0, 0),
)  # fmt: skip
distributed = SimpleNamespace(init_process_group=_nothing, barrier=_nothing)
library = SimpleNamespace(register_fake=_nothing)
