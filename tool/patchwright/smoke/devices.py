"""The machine's CUDA devices: what they are, and one run at a time on each.

    machine = probe(os.environ)             # asks the driver, in a process of its own
    group = chosen(machine, ("sm_120",))    # the devices that runs are made on
    lease = take(group, 1, cache_dir / "devices")   # None: wait, another run has it

A device is locked by its UUID in the user's cache, so that two commands with other
orders of devices agree. The lock goes with the process that holds it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from patchwright.errors import PatchwrightError
from patchwright.smoke import driver
from patchwright.smoke.outcomes import Blocked
from patchwright.tiers import is_target

LEASED = "PATCHWRIGHT_DEVICES"  # in a run's environment: what it was given, as JSON
_NODES = Path("/dev")
_ANSWER = 120.0  # seconds; a driver that has to wake eight devices takes its time
# What decides which devices exist for a process, and where its driver lies.
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH", "PATH")


@dataclass(frozen=True)
class Device:
    """One device.

    ``visible`` is what CUDA_VISIBLE_DEVICES calls it. Memory is in bytes, that which is
    free as of the probe, None where nobody says.
    """

    visible: str
    uuid: str
    name: str
    capability: tuple[int, int]
    memory_total: int
    memory_free: int | None

    @property
    def architecture(self) -> str:
        """As nvcc names it: ``sm_120``."""
        return "sm_{}{}".format(*self.capability)


@dataclass(frozen=True)
class Machine:
    """The devices with the driver's version (``580.65.06``) and the CUDA that it serves."""

    driver: str
    cuda: str
    devices: tuple[Device, ...]

    def to_json(self) -> str:
        """Return the text that ``from_json`` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Machine:
        """Return the machine that ``to_json`` wrote."""
        data = json.loads(text)
        devices = [Device(**{**d, "capability": tuple(d["capability"])}) for d in data["devices"]]
        return cls(data["driver"], data["cuda"], tuple(devices))


def count_nodes(folder: Path = _NODES) -> int:
    """Return how many device nodes there are: costs nothing and starts nothing."""
    return sum(path.name[6:].isdigit() for path in folder.glob("nvidia[0-9]*"))


def probe(outer: Mapping[str, str]) -> Machine:
    """Return what the driver says. Raises Blocked where it refuses or there is none."""
    environment = {name: outer[name] for name in _VARIABLES if name in outer}
    try:
        done = subprocess.run(
            [sys.executable, "-I", driver.__file__], capture_output=True, timeout=_ANSWER,
            check=True, env=environment | {"LC_ALL": "C.UTF-8"}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        facts = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise Blocked(f"needs a CUDA driver that answers: {error}") from error
    if "refused" in facts:
        raise Blocked(f"needs a CUDA driver that answers: {facts['refused']}")
    return Machine(facts["driver"], facts["cuda"], tuple(_devices(facts["devices"], outer)))


def _devices(facts: Sequence[Mapping[str, Any]], outer: Mapping[str, str]) -> list[Device]:
    # The driver counts those that are visible already: the user's names for them stay.
    named = [n.strip() for n in outer.get("CUDA_VISIBLE_DEVICES", "").split(",") if n.strip()]
    return [
        Device(
            visible=named[fact["index"]] if fact["index"] < len(named) else str(fact["index"]),
            uuid=fact["uuid"], name=fact["name"], capability=tuple(fact["capability"]),
            memory_total=fact["memory_total"], memory_free=fact["memory_free"],
        )
        for fact in facts
    ]  # fmt: skip


def chosen(machine: Machine, arch: Sequence[str]) -> Machine:
    """Return the machine with only those devices that runs are made on.

    They are of one kind, so that what holds on one holds on all: the kind with the most
    devices among those of an architecture in ``arch``, or among all where there is none.
    """
    kinds: dict[tuple[str, str], list[Device]] = {}
    for device in machine.devices:
        kinds.setdefault((device.architecture, device.name), []).append(device)
    wanted = {kind: d for kind, d in kinds.items() if is_target(kind[0], arch)} or kinds
    # The name decides between equal numbers: the same answer each time.
    most = max(wanted.items(), key=lambda item: (len(item[1]), item[0]), default=((), []))[1]
    return replace(machine, devices=tuple(most))


@dataclass(frozen=True)
class Lease:
    """Devices that are ours until ``close``; none for a run that needs none."""

    machine: Machine = field(default_factory=lambda: Machine("", "", ()))
    locks: ExitStack = field(default_factory=ExitStack)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a run sees these devices and no others."""
        if not self.machine.devices:
            return {}
        visible = ",".join(device.visible for device in self.machine.devices)
        return {"CUDA_VISIBLE_DEVICES": visible, LEASED: self.machine.to_json()}

    @property
    def facts(self) -> dict[str, str]:
        """What a record tells of the machine, for people."""
        if not self.machine.devices:
            return {}
        first = self.machine.devices[0]
        number = len(self.machine.devices)
        several = f"{number} x " if number > 1 else ""
        return {
            "device": f"{several}{first.name}, {first.architecture}",
            "driver": self.machine.driver,
            "cuda": self.machine.cuda,
        }

    def close(self) -> None:
        """Let others have the devices."""
        self.locks.close()


def take(group: Machine, count: int, folder: Path) -> Lease | None:
    """Lock ``count`` free devices of a group; None where fewer are free at the moment.

    All or nothing: a run that waits holds none. Raises PatchwrightError where the lock
    files cannot be written.
    """
    from filelock import FileLock, Timeout

    with ExitStack() as stack:
        found: list[Device] = []
        for device in group.devices:
            if len(found) == count:
                break
            try:
                folder.mkdir(parents=True, exist_ok=True)
                lock = FileLock(folder / f"{device.uuid}.lock")
                lock.acquire(blocking=False)
            except Timeout:
                continue
            except OSError as error:
                raise PatchwrightError(
                    f"the cache cannot be written: {error.strerror}", where=str(folder),
                    next_step="make room, make the folder writable, or set "
                    "PATCHWRIGHT_CACHE to another one",
                ) from error  # fmt: skip
            stack.callback(lock.release)
            found.append(device)
        if len(found) == count:
            return Lease(replace(group, devices=tuple(found)), stack.pop_all())
    return None


def leased(environment: Mapping[str, str] = os.environ) -> Machine:
    """Return what this run was given. Raises Blocked in a run that has no device."""
    text = environment.get(LEASED)
    if text is None:
        raise Blocked("needs a device; this run was given none: mark the test with a gpu tier")
    return Machine.from_json(text)


def vanished(given: Machine, outer: Mapping[str, str]) -> str:
    """Return in words which of the given devices the driver no longer has; else empty."""
    try:
        there = {device.uuid for device in probe(outer).devices}
    except Blocked as blocked:
        return str(blocked)
    gone = [device for device in given.devices if device.uuid not in there]
    return ", ".join(f"{device.name} {device.uuid} is gone" for device in gone)
