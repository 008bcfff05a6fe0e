"""Sharing the machine out: one run per device, and the environment that a tier runs in."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

from patchwright.smoke import devices
from patchwright.smoke.devices import Lease, Machine
from patchwright.smoke.environments import VARIABLE, interpreter
from patchwright.smoke.outcomes import Blocked
from patchwright.tiers import GPU_TIERS

if TYPE_CHECKING:
    from patchwright.config import Config
    from patchwright.project import Project

_IN_ENVIRONMENT = ("import", *GPU_TIERS)


class Shares:
    """Hands out the devices to the runs of one command."""

    def __init__(self, project: Project) -> None:
        self.arch = project.config.arch
        self.folder = project.cache_dir / "devices"
        self._out: list[Lease] = []

    def take(self, tier: str) -> Lease | None:
        """Return what a run at ``tier`` gets; None where it has to wait for a device.

        One device at ``gpu``; at ``multi-gpu`` all that are of one kind, so that how many
        ranks there are depends on the machine alone. The other tiers get none.
        """
        if tier not in GPU_TIERS:
            return Lease()
        return self.take_devices(1 if tier == "gpu" else None)

    def take_devices(self, count: int | None) -> Lease | None:
        """Return ``count`` devices, or all of one kind; None where they have to be waited for.

        No device on a machine that has none, and no more than there are.
        """
        if count == 0 or self._group is None:
            return Lease()
        there = len(self._group.devices)
        lease = devices.take(self._group, min(count or there, there), self.folder)
        if lease is not None:
            self._out.append(lease)
        return lease

    def give_back(self, lease: Lease) -> None:
        """Let other runs have the devices of a lease."""
        lease.close()
        if lease in self._out:
            self._out.remove(lease)

    def close(self) -> None:
        """Give everything back."""
        while self._out:
            self._out.pop().close()

    @cached_property
    def _group(self) -> Machine | None:
        if not devices.count_nodes():
            return None
        try:
            machine = devices.chosen(devices.probe(os.environ), self.arch)
        except Blocked:
            return None  # the run itself says what it needs
        return machine if machine.devices else None


def tier_environment(config: Config, tier: str) -> dict[str, str]:
    """Return the variable that names the interpreter to a run at a tier that needs one."""
    if tier not in _IN_ENVIRONMENT:
        return {}
    try:
        return {VARIABLE: str(interpreter(config, os.environ))}
    except Blocked:
        return {}  # the run itself says what it needs
