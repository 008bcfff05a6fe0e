"""The machine that an environment is for: this one, unless another one is named."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from patchwright.errors import AnswerNo

if TYPE_CHECKING:
    from patchwright.environment.locked import LockedEnvironment


def checked_machine(environment: LockedEnvironment, name: str | None = None) -> str:
    """Return ``name``, or what this machine is; AnswerNo where nothing is locked for it."""
    machine = name or platform.machine()
    if machine not in environment.machines:
        why = environment.unresolved.get(machine)
        raise AnswerNo(
            f"nothing is locked for {machine}" + (f": {why}" if why else ""),
            where="upstream.lock",
            next_step=f"locked are: {', '.join(environment.machines)}; add the platform in "
            "[tool.patchwright.environment] and run `patchwright lock`",
        )
    return machine
