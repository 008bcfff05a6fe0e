"""Tiers and contexts: what a smoke test needs, and beside which patches it runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from patchwright.config import Config
    from patchwright.smoke.devices import Machine
    from patchwright.smoke.environments import Environment

TIERS = ("static", "compile", "import", "gpu", "multi-gpu", "startup")
# A whole server start costs minutes on the cards; it is run when asked for.
DEFAULT_TIERS = TIERS[:-1]
GPU_TIERS = ("gpu", "multi-gpu")
CONTEXTS = ("step", "alone", "without")


def is_target(architecture: str, arch: Sequence[str]) -> bool:
    """Return whether ``arch`` names a device's architecture (``sm_120a`` names ``sm_120``)."""
    return architecture in {name.rstrip("af") for name in arch}


class Needs:
    """What this machine lacks, tier by tier; each question is asked once."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def missing(self, tier: str) -> str:
        """Return what this machine lacks for ``tier``, or an empty text."""
        if tier == "compile":
            return self._compiler[1]
        if tier == "import":
            return self._environment[1]
        if tier in GPU_TIERS:
            return (
                self._device(2 if tier == "multi-gpu" else 1)
                or self._torch
                or self._compiler[1]  # kernels are built on the machine that runs them
            )
        return ""

    def key(self, tier: str) -> dict[str, str]:
        """Return what of this machine decides an outcome at ``tier``: see evidence.Inputs."""
        key = {}
        if tier in ("compile", *GPU_TIERS):
            key["compiler"] = self._compiler[0]
        if tier in ("import", *GPU_TIERS) and (environment := self._environment[0]) is not None:
            key["environment"] = environment.identity
        if tier in GPU_TIERS and (machine := self.machine) is not None:
            first = machine.devices[0]
            key |= {"device": first.architecture, "device-name": first.name,
                    "driver": machine.driver, "cuda": machine.cuda}  # fmt: skip
            if tier == "multi-gpu":
                key["devices"] = str(len(machine.devices))
        return key

    @property
    def machine(self) -> Machine | None:
        """The devices that runs are made on, of one kind; None where there is none."""
        return self._machine[0]

    @property
    def architecture(self) -> str:
        """The devices' architecture (``sm_120``); empty where there is none."""
        return self.machine.devices[0].architecture if self.machine is not None else ""

    @cached_property
    def _compiler(self) -> tuple[str, str]:
        from patchwright.smoke.compiler import find_compiler
        from patchwright.smoke.outcomes import Blocked

        try:
            return find_compiler().identity, ""
        except Blocked as blocked:
            return "", str(blocked)

    @cached_property
    def _environment(self) -> tuple[Environment | None, str]:
        from patchwright.smoke.environments import describe, interpreter
        from patchwright.smoke.outcomes import Blocked

        try:
            return describe(interpreter(self.config, os.environ)), ""
        except Blocked as blocked:
            return None, str(blocked)

    @property
    def _torch(self) -> str:
        """What the environment lacks for this machine's devices."""
        from patchwright.smoke.environments import require_torch
        from patchwright.smoke.outcomes import Blocked

        environment, need = self._environment
        if environment is None or self.machine is None:
            return need
        try:
            require_torch(environment, self.machine.cuda)
        except Blocked as blocked:
            return str(blocked)
        return ""

    @cached_property
    def _machine(self) -> tuple[Machine | None, str]:
        from patchwright.smoke.devices import chosen, count_nodes, probe
        from patchwright.smoke.outcomes import Blocked

        # The device nodes come first: without any, nothing is started to ask.
        if not count_nodes():
            return None, ""
        try:
            machine = chosen(probe(os.environ), self.config.arch)
        except Blocked as blocked:
            return None, str(blocked)
        return (machine if machine.devices else None), ""

    def _device(self, wanted: int) -> str:
        machine, need = self._machine
        found = len(machine.devices) if machine is not None else 0
        if need or found >= wanted:
            return need
        archs = " or ".join(self.config.arch) or "CUDA"
        name = f" ({machine.devices[0].name})" if machine is not None else ""
        return (
            f"needs {'one' if wanted == 1 else wanted} {archs} device{'s' * (wanted > 1)}; "
            f"found {found or 'none'}{name}"
        )
