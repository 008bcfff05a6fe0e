"""What is asked for: one run of one smoke file. Making it is the business of runs.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from patchwright.applying.chain import State


@dataclass(frozen=True)
class Run:
    """One smoke file at one tier on one state.

    ``state`` is what the fixture ``tree`` shows and what imports find; ``baseline`` the
    same without the patch (in a control both are the same).
    """

    test: Path
    tier: str
    state: State
    baseline: State
