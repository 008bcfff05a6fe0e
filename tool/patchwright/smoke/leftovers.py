"""What killed commands leave in a seat; told without loading what makes runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from patchwright.smoke.memory import left_in_memory
from patchwright.smoke.removing import ASIDE


def left_in(seat: Path) -> Iterator[Path]:
    """Yield what a killed command left in the folder of a seat that nobody holds."""
    for name in ("run", ASIDE, "*.listing", "*.new", "*/record.new"):
        yield from seat.glob(name)
    yield from left_in_memory(seat)


def anything_left(seats: Path) -> bool:
    """Return whether there is anything for ``sweep_seats`` to look at."""
    return any(True for seat in seats.glob("*") for _ in left_in(seat))
