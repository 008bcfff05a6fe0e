"""What a command makes of the series: order, numbers, needs and smoke tests; no trees.

A plan is a list of parts, each a patch's text and the patches of the present series that
it stands for. ``numbered`` gives every part its number and follows each number to where
it is written: file names, ``Depends``, smoke tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from patchwright.editing.carrying import Item
from patchwright.editing.rewriting import named, with_needs, with_smoke
from patchwright.errors import AnswerNo, InputError
from patchwright.patch import Patch
from patchwright.series import Series

_SMOKE = "tests/smoke/test_{:04d}"


@dataclass(frozen=True)
class Part:
    """One patch of the series to be.

    ``stands_for`` are the present numbers that lead to it (a need on one of them becomes
    one on it); ``origins`` those whose change it makes (see ``Item``).
    """

    patch: Patch
    stands_for: tuple[int, ...]
    origins: tuple[int, ...]

    @classmethod
    def of(cls, patch: Patch) -> Part:
        return cls(patch, (patch.number,), (patch.number,))


@dataclass(frozen=True)
class Plan:
    """The series to be.

    ``off`` are those that are off on this machine, by their new numbers. ``renames`` are
    of smoke tests (to None: removed), ``writes`` new files.
    """

    command: str
    items: tuple[Item, ...]
    off: tuple[int, ...] = ()
    renames: Mapping[str, str | None] = field(default_factory=dict)
    writes: Mapping[str, bytes] = field(default_factory=dict)


def keep(series: Series) -> list[Part]:
    """Return a part for every patch, as it is."""
    return [Part.of(patch) for patch in series.patches]


def raised(numbers: Sequence[int]) -> list[int]:
    """Return the numbers in rising order: each stays, or is the next one above the last."""
    out: list[int] = []
    for number in numbers:
        out.append(max(number, out[-1] + 1 if out else 1))
    return out


def numbered(
    command: str, series: Series, parts: Sequence[Part], numbers: Sequence[int],
    writes: Mapping[str, bytes] | None = None,
) -> Plan:  # fmt: skip
    """Give the parts their numbers (rising). Raises AnswerNo for a need that is not met."""
    new: dict[int, list[int]] = {patch.number: [] for patch in series.patches}
    for part, number in zip(parts, numbers, strict=True):
        for old in part.stands_for:
            new[old].append(number)
    _check_needs(series, parts, numbers, new)
    moves = {old: now for old, now in new.items() if now != [old]}
    renames = _renames(series, parts, numbers)
    items = []
    for part, number in zip(parts, numbers, strict=True):
        patch = with_needs(part.patch, number, moves)
        patch = with_smoke(patch, {old: now for old, now in renames.items() if now is not None})
        items.append(Item(named(patch, number), part.origins))
    off = sorted({now for old in series.off for now in new.get(old, ())})
    return Plan(command, tuple(items), tuple(off), renames, writes or {})


def _check_needs(
    series: Series, parts: Sequence[Part], numbers: Sequence[int], new: Mapping[int, Sequence[int]]
) -> None:
    for part, number in zip(parts, numbers, strict=True):
        for need in part.patch.depends:
            if need.number not in new:
                continue  # said when the series is loaded
            title = series.get(need.number).title
            if not new[need.number]:
                raise AnswerNo(
                    f"{part.patch.number:04d} ({part.patch.title}) needs {need.number:04d} "
                    f"({title})",
                    next_step=f"drop {part.patch.number} as well, or remove the need with "
                    f"`patchwright message {part.patch.number}`",
                )
            if max(new[need.number]) > number and number not in new[need.number]:
                raise AnswerNo(
                    f"{part.patch.number:04d} ({part.patch.title}) needs {need.number:04d} "
                    f"({title}), which would come after it",
                    next_step=f"move {need.number} first, or remove the need with "
                    f"`patchwright message {part.patch.number}`",
                )


def _renames(
    series: Series, parts: Sequence[Part], numbers: Sequence[int]
) -> dict[str, str | None]:
    """Follow the numbers in the names of smoke tests; remove those that nothing names."""
    renames: dict[str, str | None] = {}
    used = {name for part in parts for name in part.patch.smoke}
    for part, number in zip(parts, numbers, strict=True):
        for name in part.patch.smoke:
            for old in {part.patch.number, *part.stands_for} - {number}:
                own = _SMOKE.format(old)
                if re.match(rf"{own}(?!\d)", name):
                    renames.setdefault(name, _SMOKE.format(number) + name[len(own) :])
    for patch in series.patches:
        for name in patch.smoke:
            if name not in used and name.startswith("tests/smoke/"):
                renames[name] = None
    taken = [now for now in renames.values() if now is not None]
    stays = used - renames.keys()
    for now in taken:
        if taken.count(now) > 1 or now in stays:
            raise InputError(
                f"two smoke tests would be called {now}",
                next_step="give one of them another name first, in its file's name and in Smoke",
            )
    return renames


# The commands


def move(series: Series, number: int, at: int) -> Plan:
    """Put a patch before the ``at``-th of the others (0-based); the set of numbers stays."""
    moved = series.get(number)
    rest = [patch for patch in series.patches if patch.number != number]
    order = [*rest[:at], moved, *rest[at:]]
    parts = [Part.of(patch) for patch in order]
    return numbered(f"move {number}", series, parts, [p.number for p in series.patches])


def drop(series: Series, numbers: Sequence[int]) -> Plan:
    """Leave out patches; the others keep their numbers."""
    series.check_numbers(numbers)
    parts = [Part.of(p) for p in series.patches if p.number not in numbers]
    said = " ".join(str(n) for n in sorted(set(numbers)))
    return numbered(f"drop {said}", series, parts, [part.patch.number for part in parts])


def renumber(series: Series, start: int, step: int) -> Plan:
    """Number the series anew; its order stays."""
    numbers = [start + step * at for at in range(len(series.patches))]
    return numbered("renumber", series, keep(series), numbers)


def renumber_one(series: Series, old: int, new: int) -> Plan:
    """Give one patch another number; InputError where that would change the order."""
    series.get(old)
    numbers = [new if p.number == old else p.number for p in series.patches]
    if sorted(set(numbers)) != numbers:
        raise InputError(
            f"{new:04d} is taken, or stands elsewhere in the order",
            next_step=f"use `patchwright move {old}` to change the order",
        )
    return numbered(f"renumber {old} {new}", series, keep(series), numbers)


def replace(series: Series, number: int, patches: Sequence[Patch], command: str) -> Plan:
    """Put new texts in a patch's place; those behind it move up where there is no room.

    Whatever needs the patch then needs all of them.
    """
    parts: list[Part] = []
    numbers: list[int] = []
    for patch in series.patches:
        if patch.number != number:
            parts.append(Part.of(patch))
            numbers.append(patch.number)
            continue
        parts += [Part(new, (number,), ()) for new in patches]
        numbers += [number + at for at in range(len(patches))]
    return numbered(command, series, parts, raised(numbers))


def insert(
    series: Series, patch: Patch, command: str, writes: Mapping[str, bytes] | None = None
) -> Plan:
    """Put a new patch at its number; those from there on move up where there is no room."""
    before = [p for p in series.patches if p.number < patch.number]
    behind = [p for p in series.patches if p.number >= patch.number]
    parts = [*map(Part.of, before), Part(patch, (), ()), *map(Part.of, behind)]
    return numbered(command, series, parts, raised([part.patch.number for part in parts]), writes)


def fold(series: Series, into: int, others: Sequence[int]) -> Plan:
    """Make one patch of ``into`` and ``others``, at the place of ``into``.

    Its message is theirs, one after the other, its fields are all of theirs.
    """
    series.check_numbers((into, *others))
    if into in others or not others:
        raise InputError(
            "a patch is folded into another one", next_step="name two or more different patches"
        )
    order = [series.get(n) for n in (into, *sorted(set(others)))]
    upstreams = {patch.upstream for patch in order}
    if len(upstreams) > 1:
        raise InputError(
            f"they change different upstreams: {', '.join(sorted(str(u) for u in upstreams))}",
            next_step="a patch is one change to one upstream: fold those of one",
        )
    gone = set(others)
    origins = tuple(patch.number for patch in sorted(order, key=lambda p: p.number))
    folded = Part(_folded(order), origins, origins)
    # From the place of the first one on, all of it is there.
    first = min(origins)
    parts: list[Part] = []
    for patch in series.patches:
        if patch.number == first:
            parts.append(folded)
        elif patch.number not in gone and patch.number != into:
            parts.append(Part.of(patch))
    numbers = [p.patch.number if p is not folded else first for p in parts]
    said = " ".join(str(n) for n in sorted(gone))
    return numbered(f"fold {into} {said}", series, parts, numbers)


def _folded(order: Sequence[Patch]) -> Patch:
    first, *rest = order
    message = first.message
    own = {need.number: need.reason for patch in order for need in patch.depends}
    numbers = {patch.number for patch in order}
    fields: dict[str, list[str]] = {}
    for patch in rest:
        extra = f"{patch.title}\n\n".encode() + patch.message
        message = message.rstrip(b"\r\n") + b"\n\n" + extra
    needs = [
        f"{n:04d} ({reason})" if reason else f"{n:04d}"
        for n, reason in sorted(own.items()) if n not in numbers
    ]  # fmt: skip
    if needs != [f"{n.number:04d} ({n.reason})" if n.reason else f"{n.number:04d}"
                 for n in first.depends]:  # fmt: skip
        fields["Depends"] = [", ".join(needs)] if needs else []
    for name, attribute in (("Gate", "gates"), ("Smoke", "smoke"), ("Bug", "bugs")):
        merged = list(dict.fromkeys(v for p in order for v in getattr(p, attribute)))
        if merged != list(getattr(first, attribute)):
            fields[name] = merged
    arch = list(dict.fromkeys(v for p in order for v in p.arch))
    # A patch without Arch is for every architecture.
    if not all(p.arch for p in order):
        arch = []
    if arch != list(first.arch):
        fields["Arch"] = [", ".join(arch)] if arch else []
    return first.with_message(message).with_fields(fields)
