"""Which patches are off on this machine: ``.patchwright/off``, one number a line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.errors import InputError

if TYPE_CHECKING:
    from patchwright.editing.transaction import Transaction
    from patchwright.project import Project

FILE = ".patchwright/off"


def read_off(root: Path) -> frozenset[int]:
    """Return the numbers that are off; InputError for a line that is none."""
    path = root / FILE
    try:
        lines = path.read_bytes().decode("ascii", "replace").split()
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise InputError(
            f"what is off on this machine cannot be read: {error.strerror}", where=str(path),
            next_step="make it a file that you can read, or remove it: then nothing is off",
        ) from error  # fmt: skip
    for at, line in enumerate(lines, 1):
        if not (line.isascii() and line.isdigit()):
            raise InputError(
                f"{line!r} is not the number of a patch", where=f"{path}:{at}",
                next_step="remove that line, or the file: then nothing is off",
            )  # fmt: skip
    return frozenset(int(line) for line in lines)


def write_off(change: Transaction, numbers: Iterable[int]) -> None:
    """Let exactly these be off, as part of a change."""
    text = "".join(f"{number:04d}\n" for number in sorted(set(numbers)))
    if text:
        change.write(FILE, text.encode())
    elif change.read(FILE) is not None:
        change.remove(FILE)


def switch(project: Project, numbers: Iterable[int], *, off: bool) -> frozenset[int]:
    """Turn patches off or on, on this machine; return those that are off then."""
    from patchwright.editing.transaction import begin

    chosen = frozenset(numbers)
    said = " ".join(str(n) for n in sorted(chosen))
    with begin(project, f"{'off' if off else 'on'} {said}") as change:
        project.series.check_numbers(chosen)
        now = project.series.off | chosen if off else project.series.off - chosen
        write_off(change, now)
        change.commit()
    return now
