"""The series: all patches in number order, what they need, and which take part."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.errors import InputError

if TYPE_CHECKING:
    from patchwright.fields import Need
    from patchwright.patch import Patch

_CHUNK = 1 << 14  # bytes; most patches are smaller


@dataclass(frozen=True)
class Series:
    """All patches, sorted by number. Numbers may have gaps.

    ``off`` are those that take part on this machine only when they are asked for.
    """

    patches: tuple[Patch, ...]
    off: frozenset[int] = frozenset()

    @classmethod
    def load(cls, patches_dir: Path, upstream_names: Collection[str]) -> Series:
        """Read every ``NNNN-….patch`` in ``patches_dir``; a missing folder is no patches.

        Raises InputError for a file that cannot be read or has no number, two files
        with one number, an upstream that is missing or not one of ``upstream_names``,
        and a need that is missing, later or the patch itself.
        """
        return cls.of(patch_files(patches_dir), upstream_names)

    @classmethod
    def of(cls, files: Iterable[tuple[Path, bytes]], upstream_names: Collection[str]) -> Series:
        """Return the series of these files, wherever they are; raises as ``load`` does."""
        from patchwright.patch import Patch

        found: dict[int, Patch] = {}
        for path, raw in files:
            patch = Patch.parse(raw, path)
            if patch.number in found:
                raise InputError(
                    f"two patches have the number {patch.number:04d}",
                    where=f"{found[patch.number].path} and {path.name}",
                    next_step="rename one of them; a gap between numbers is fine",
                )
            found[patch.number] = _with_upstream(patch, upstream_names)
        series = cls(tuple(found[number] for number in sorted(found)))
        for patch in series.patches:
            for need in patch.depends:
                series._check_need(patch, need)
        return series

    @cached_property
    def _by_number(self) -> dict[int, Patch]:
        return {patch.number: patch for patch in self.patches}

    @cached_property
    def _closures(self) -> dict[int, frozenset[int]]:
        # Needs are earlier patches only, so one pass in order is enough.
        found: dict[int, frozenset[int]] = {}
        for patch in self.patches:
            needs = (need.number for need in patch.depends)
            found[patch.number] = frozenset((patch.number,)).union(*(found[n] for n in needs))
        return found

    def _check_need(self, patch: Patch, need: Need) -> None:
        if need.number == patch.number:
            what, step = f"{patch.number:04d} names itself as a need", "remove that entry"
        elif need.number not in self._by_number:
            what = f"{patch.number:04d} needs {need.number:04d}, which is not in the series"
            step = f"add that patch, or correct Depends; the series has {self.numbers()}"
        elif need.number > patch.number:
            what = f"{patch.number:04d} needs a later patch, {need.number:04d}"
            step = "renumber: a patch may need only patches with smaller numbers"
        else:
            return
        raise InputError(what, where=f"{patch.path}:{need.line}", next_step=step)

    def numbers(self) -> str:
        """Return all numbers for a message: ``1-5, 7``."""
        runs: list[list[int]] = []
        for patch in self.patches:
            if runs and patch.number == runs[-1][-1] + 1:
                runs[-1][1:] = [patch.number]
            else:
                runs.append([patch.number])
        return ", ".join("-".join(str(n) for n in run) for run in runs) or "no patches"

    def get(self, number: int) -> Patch:
        """Return patch ``number``; InputError naming the numbers that there are."""
        self.check_numbers((number,))
        return self._by_number[number]

    def check_numbers(self, numbers: Collection[int]) -> None:
        """Raise InputError for a number that no patch has."""
        unknown = sorted(set(numbers) - self._by_number.keys())
        if unknown:
            raise InputError(
                f"there is no patch {', '.join(str(n) for n in unknown)}",
                next_step=f"the series has {self.numbers()}",
            )

    def closure(self, number: int) -> tuple[int, ...]:
        """Return ``number`` and all that it needs, transitively, sorted."""
        self.check_numbers((number,))
        return tuple(sorted(self._closures[number]))

    def dependants(self, number: int) -> tuple[int, ...]:
        """Return the patches that need ``number``, transitively, sorted."""
        self.check_numbers((number,))
        return tuple(n for n, needs in self._closures.items() if number in needs and n != number)

    def check_pins(self, versions: Mapping[str, str]) -> list[InputError]:
        """Return an error for each patch that was made for another version than the pin.

        ``versions`` has the pinned version of each upstream by name.
        """
        problems = []
        for patch in self.patches:
            pin = versions.get(patch.upstream or "")
            made_for = patch.made_for
            if pin is None or made_for is None or made_for.lstrip("v") == pin.lstrip("v"):
                continue
            line = next(item.line for item in patch.fields if item.name == "Upstream")
            problems.append(
                InputError(
                    f"{patch.number:04d} was made for {patch.upstream} {made_for}, "
                    f"the pin is {pin}",
                    where=f"{patch.path}:{line}",
                    next_step=f"check that it still holds on {pin} and write "
                    f"'Upstream: {patch.upstream} {pin}', or pin {made_for}",
                )
            )
        return problems

    def missing_smoke(self, root: Path) -> list[InputError]:
        """Return an error for each smoke test file that a patch names and that is not there."""
        return [
            InputError(
                f"the smoke test {name} of {patch.number:04d} is missing",
                where=str(patch.path),
                next_step="write it, or correct the Smoke field",
            )
            for patch in self.patches
            for name in patch.smoke
            if not (root / name.partition("::")[0]).is_file()
        ]


def patch_files(patches_dir: Path) -> list[tuple[Path, bytes]]:
    """Return every ``*.patch`` with its bytes, by name; InputError for one that is none."""
    return [(patches_dir / name, raw) for name, raw in read_patches(patches_dir)]


def read_patches(patches_dir: Path) -> list[tuple[str, bytes]]:
    """Return every ``*.patch`` as ``patch_files`` does, by its name alone."""
    try:
        folder = os.open(patches_dir, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _cannot_be_listed(patches_dir, error) from error
    try:
        found = _listed(patches_dir, folder)
        return [(name, _read(patches_dir, folder, name, regular)) for name, regular in found]
    finally:
        os.close(folder)


def _listed(patches_dir: Path, folder: int) -> list[tuple[str, bool]]:
    """Return the names of all patches, sorted, and whether each is a regular file."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                (entry.name, entry.is_file(follow_symlinks=False))
                for entry in entries
                if entry.name.endswith(".patch")
            )
    except OSError as error:
        raise _cannot_be_listed(patches_dir, error) from error


def _cannot_be_listed(patches_dir: Path, error: OSError) -> InputError:
    return InputError(
        f"the patches cannot be listed: {error.strerror}",
        where=str(patches_dir), next_step="make it a folder that you can read",
    )  # fmt: skip


def _read(patches_dir: Path, folder: int, name: str, regular: bool) -> bytes:
    what, step = "", "make it a regular file, or move it out of patches/"
    try:
        if not regular and (path := patches_dir / name).is_symlink():
            # Path.resolve raises RuntimeError for a link to itself, realpath an OSError.
            target = Path(os.path.realpath(path, strict=True))
            regular = target.is_file() and target.is_relative_to(path.parent.resolve())
            what = "this link does not lead to a file in the folder of patches"
        if regular:
            return _content(folder, name)
    except OSError as error:
        what, step = f"the patch cannot be read: {error.strerror}", "make the file readable"
    raise InputError(
        what or "this is not a regular file", where=str(patches_dir / name), next_step=step
    )


def _content(folder: int, name: str) -> bytes:
    """Return a file's bytes: half the time of ``open``, which counts for a thousand files."""
    handle = os.open(name, os.O_RDONLY, dir_fd=folder)
    try:
        data = more = os.read(handle, _CHUNK)
        while more:
            more = os.read(handle, _CHUNK)
            data += more
        return data
    finally:
        os.close(handle)


def _with_upstream(patch: Patch, names: Collection[str]) -> Patch:
    known = ", ".join(sorted(names))
    if patch.upstream is None:
        if len(names) == 1:
            return dataclasses.replace(patch, upstream=next(iter(names)))
        what = "the patch does not say which upstream it changes"
        step = f"add 'Upstream: NAME VERSION' below its '---' line; NAME is one of {known}"
        if not patch.parts.separated and patch.parts.damage is not None:
            # An empty file or none of git's: what is wrong is not the missing field.
            what, step = f"{what}: {patch.parts.damage.reason}", patch.parts.damage.next_step
        raise InputError(what, where=str(patch.path), next_step=step)
    if patch.upstream not in names:
        line = next(item.line for item in patch.fields if item.name == "Upstream")
        raise InputError(
            f"{patch.upstream} is not an upstream of this project",
            where=f"{patch.path}:{line}",
            next_step=(f"use one of {known}, or " if known else "")
            + f"add [tool.patchwright.upstreams.{patch.upstream}] to pyproject.toml",
        )
    return patch


@dataclass(frozen=True)
class Selection:
    """Which patches take part: up to ``to``, exactly ``only``, all but ``without``.

    A patch that is off on this machine takes part where ``only`` names it.
    """

    to: int | None = None
    only: frozenset[int] | None = None
    without: frozenset[int] = field(default_factory=frozenset)

    def pick(self, series: Series) -> tuple[Patch, ...]:
        """Return the patches in order; InputError for a number that no patch has."""
        series.check_numbers({*self.without, *(self.only or ()), *([self.to] if self.to else ())})
        return tuple(
            patch
            for patch in series.patches
            if (self.to is None or patch.number <= self.to)
            and (self.only is None or patch.number in self.only)
            and patch.number not in self.without
            and (patch.number not in series.off or patch.number in (self.only or ()))
        )

    def unmet(self, series: Series) -> tuple[tuple[Patch, Need], ...]:
        """Return each patch that takes part with a need that does not."""
        picked = self.pick(series)
        numbers = {patch.number for patch in picked}
        return tuple(
            (patch, need)
            for patch in picked
            for need in patch.depends
            if need.number not in numbers
        )
