"""What the audit says of the patches, where this selection was audited before.

An audit takes longer than some starts, so none is made here, and what goes wrong with
one is no reason to stop: an audit only decides what is tried first, and what is told.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.series import Selection

# Verdicts of a patch that opens a gate onto code which is not there, or not whole.
_SUSPECT = ("missing", "poisoned", "hollow", "lost")


def audited(project: Project, selection: Selection) -> dict[int, tuple[str, str]]:
    """Return verdict and reason by patch number; empty where nothing is on record."""
    with suppress(Exception):
        from patchwright.audit.verdicts import recall

        return recall(project, selection)
    return {}


def suspected(verdicts: dict[int, tuple[str, str]]) -> tuple[int, ...]:
    """Return the patches that the audit makes suspect, the worst verdict first."""
    found = [(_SUSPECT.index(v), n) for n, (v, _) in verdicts.items() if v in _SUSPECT]
    return tuple(n for _, n in sorted(found))
