"""Tiers and contexts: what a smoke test needs, and beside which patches it runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

TIERS = ("static", "compile", "import", "gpu", "multi-gpu", "startup")
# A whole server start costs minutes on the cards; it is run when asked for.
DEFAULT_TIERS = TIERS[:-1]
CONTEXTS = ("step", "alone", "without")


class Needs:
    """What this machine lacks, tier by tier; each question is asked once."""

    def __init__(self, arch: Sequence[str]) -> None:
        self.arch = tuple(arch)

    def missing(self, tier: str) -> str:
        """Return what this machine lacks for ``tier``, or an empty text."""
        if tier == "compile":
            return self._compiler[1]
        if tier in ("gpu", "multi-gpu"):
            return self._device(2 if tier == "multi-gpu" else 1)
        return ""

    @property
    def compiler_identity(self) -> str:
        """The compiler that the compile tier uses, without its path; empty where none is."""
        return self._compiler[0]

    @cached_property
    def _compiler(self) -> tuple[str, str]:
        from patchwright.smoke.compiler import find_compiler
        from patchwright.smoke.outcomes import Blocked

        try:
            return find_compiler().identity, ""
        except Blocked as blocked:
            return "", str(blocked)

    def _device(self, wanted: int) -> str:
        # The device nodes, not nvidia-smi: a repeat that runs nothing must not start it.
        found = len([p for p in Path("/dev").glob("nvidia[0-9]*") if p.name[6:].isdigit()])
        if found >= wanted:
            return ""
        archs = " or ".join(self.arch) or "CUDA"
        return (
            f"needs {'one' if wanted == 1 else wanted} {archs} device{'s' * (wanted > 1)}; "
            f"found {found or 'none'}"
        )
