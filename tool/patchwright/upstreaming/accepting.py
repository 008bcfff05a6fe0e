"""Writing a move of pins: pyproject.toml, patches and upstream.lock as one change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.config import FILE_NAME
from patchwright.editing.switches import FILE as OFF
from patchwright.editing.switches import write_off
from patchwright.editing.transaction import Transaction
from patchwright.errors import AnswerNo
from patchwright.lock import FILE_NAME as LOCK_NAME
from patchwright.lock import format_lock, patch_file
from patchwright.upstreaming.moves import Move
from patchwright.upstreaming.pins import edited

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.upstreaming.bump import Bump


@dataclass(frozen=True)
class Accepted:
    """What was written: the patches with a new text, those that left the series, and the tests
    that went with them."""

    rewritten: tuple[str, ...]
    removed: tuple[str, ...]
    tests: tuple[str, ...]


def refuse(bump: Bump) -> None:
    """Raise AnswerNo where a patch stands in the way of the move, naming all of them."""
    if not bump.open and not bump.held:
        return
    if bump.open:
        names = ", ".join(f"{move.number:04d}" for move in bump.open)
        what = f"{names} cannot be carried to {_pins(bump)}, so nothing was written"
    else:
        pairs = ", ".join(f"{n:04d} (needs {need:04d})" for n, need in bump.held.items())
        what = f"a patch would lose one that it needs, so nothing was written: {pairs}"
    out = sorted({*bump.without, *(move.number for move in bump.open), *bump.held})
    raise AnswerNo(
        what, next_step="resolve them with --accept and without --without, or leave them out "
        f"with `--accept --without {','.join(map(str, out))}`",
    )  # fmt: skip


def standing_files(project: Project) -> dict[str, str]:
    """Return the digests of the files that a move is worked out from, by path."""
    root = project.root
    paths = [root / FILE_NAME, root / LOCK_NAME, root / OFF]
    for patch in project.series.patches:
        paths += [patch.path, *(root / name for name in patch.smoke)]
    return {str(path): _digest(path) for path in paths}


def check_unchanged(project: Project, before: Mapping[str, str]) -> None:
    """Raise AnswerNo where a file that a move was worked out from is another one by now."""
    now = standing_files(project)
    changed = sorted(path for path in before.keys() | now.keys()
                     if before.get(path) != now.get(path))  # fmt: skip
    if changed:
        raise AnswerNo(
            "the project was changed while the move was worked out, so nothing was written",
            where=", ".join(changed), next_step="run it again",
        )  # fmt: skip


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def accept(bump: Bump, change: Transaction) -> Accepted:
    """Write a move into a transaction and commit it.

    Patches that upstream has, or that were left out, leave the series with their smoke
    tests; all of it is on record. Raises AnswerNo where a patch stands in the way.
    """
    refuse(bump)
    assert bump.lock is not None
    root = bump.project.root
    text = change.read(FILE_NAME)
    assert text is not None
    pyproject = text.decode("utf-8")
    for pin in bump.pins:
        pyproject = edited(pyproject, pin.old, pin.new)
    change.write(FILE_NAME, pyproject.encode())
    new = {patch_file(root, patch.path): patch for patch in bump.candidate.series.patches}
    rewritten, removed = [], []
    for patch in bump.project.series.patches:
        name = patch_file(root, patch.path)
        if name not in new:
            change.remove(name)
            removed.append(name)
        elif new[name].raw != patch.raw:
            change.write(name, new[name].raw)
            rewritten.append(name)
    tests = _unused_tests(bump, change)
    for name in tests:
        change.remove(name)
    write_off(change, sorted(bump.candidate.series.off & {p.number for p in new.values()}))
    change.write(LOCK_NAME, format_lock(bump.lock))
    change.commit()
    return Accepted(tuple(rewritten), tuple(removed), tests)


def leaving(bump: Bump) -> tuple[Move, ...]:
    """Return the patches that leave the series when the move is accepted."""
    return tuple(move for move in bump.moves if move.verdict in ("upstream", "left-out"))


def _unused_tests(bump: Bump, change: Transaction) -> tuple[str, ...]:
    used = {name for patch in bump.candidate.series.patches for name in patch.smoke}
    own = {name for move in leaving(bump) for name in move.patch.smoke}
    return tuple(
        sorted(
            name for name in own - used
            if name.startswith("tests/smoke/") and change.content(name) is not None
        )
    )  # fmt: skip


def _pins(bump: Bump) -> str:
    return " and ".join(f"{pin.new.name} {pin.new.version}" for pin in bump.pins)
