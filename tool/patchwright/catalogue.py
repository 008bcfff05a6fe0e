"""All evidence of a project, own and imported, beside what the series asks for now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from patchwright.errors import InputError
from patchwright.evidence import COLLECTION, EvidenceStore, Inputs, Record, difference
from patchwright.series import Selection
from patchwright.smoke.evidenced import Evidenced
from patchwright.tiers import CONTEXTS, TIERS
from patchwright.verify import Planner, Request

if TYPE_CHECKING:
    from patchwright.imported import Import, ImportedEvidence, Origin
    from patchwright.project import Project

State = Literal["current", "old", "unmatched"]
_PREFIX = 4  # hex digits of a key at least


@dataclass(frozen=True)
class Entry:
    """One record and what it is worth now.

    ``numbers`` are the patches whose smoke test it is of; ``origin`` is None for a
    record of our own. ``current``: verify would take it (an imported one: it is for the
    trees and the test of the present series); ``old``: something changed since, named in
    ``why``; ``unmatched``: no patch of the series names its test.
    """

    record: Record
    numbers: tuple[int, ...]
    state: State
    why: str = ""
    origin: Origin | None = None

    @property
    def key(self) -> str:
        """The record's key."""
        return self.record.inputs.key()


class Catalogue:
    """The evidence of one project. Runs no smoke test; imports a pin not yet imported."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.tests = Evidenced(project, EvidenceStore(project.state_dir / "evidence"))

    @property
    def imported(self) -> ImportedEvidence:
        """The evidence that came from other machines."""
        return self.tests.imported

    @cached_property
    def entries(self) -> list[Entry]:
        """Every record of a run: our own first, then import by import, each by time."""
        own = [self._entry(r, None) for r in self.tests.store.all() if _of_run(r)]
        entries = sorted(own, key=lambda e: (e.record.when, e.key))
        for each in self.imported.imports:
            entries += self.of(each)
        return entries

    @property
    def damaged(self) -> dict[Path, str]:
        """The files that do not count because they are not as they were written, and why."""
        return self.tests.store.damaged() | self.imported.damaged

    def of(self, imported: Import) -> list[Entry]:
        """Return the entries of one import."""
        found = [self._entry(r, imported.origin) for r in imported.records if _of_run(r)]
        return sorted(found, key=lambda e: (e.record.when, e.key))

    def about(self, numbers: Collection[int]) -> list[Entry]:
        """Return the entries of these patches; of all where none is named.

        Raises InputError for a number that is not in the series.
        """
        for number in numbers:
            self.project.series.get(number)
        wanted = set(numbers)
        return [e for e in self.entries if not wanted or wanted.intersection(e.numbers)]

    def find(self, prefix: str) -> list[Entry]:
        """Return the entries of the one key that starts with ``prefix``, our own first.

        Raises InputError for a prefix that is too short, that fits none or several.
        """
        wanted = prefix.lower()
        if len(wanted) < _PREFIX:
            raise InputError(
                f"{prefix!r} is too short for a key", next_step=f"give {_PREFIX} digits or more"
            )
        found = [entry for entry in self.entries if entry.key.startswith(wanted)]
        keys = sorted({entry.key for entry in found})
        if len(keys) > 1:
            raise InputError(
                f"{len(keys)} keys start with {prefix}",
                next_step=f"give more digits: {', '.join(key[:16] for key in keys[:4])}",
            )
        if not keys:
            damaged = next((p for p in self.damaged if p.name.startswith(wanted)), None)
            if damaged is not None:
                raise InputError(
                    f"the record does not count: {self.damaged[damaged]}", where=str(damaged),
                    next_step="delete the file and run `patchwright verify` again",
                )  # fmt: skip
            raise InputError(
                f"no record's key starts with {prefix}", next_step="see `patchwright evidence list`"
            )
        return found

    def exported(self, entries: Iterable[Entry]) -> list[Record]:
        """Return the records to send: those entries that are our own.

        With them go the records of which tests their files have, so that the other
        machine knows the tiers without running anything.
        """
        records = [entry.record for entry in entries if entry.origin is None]
        files = {(r.inputs.test, r.inputs.test_sha256) for r in records}
        listed: dict[tuple[str, str], Record] = {}
        for record in self.tests.store.all():
            file = record.inputs.test, record.inputs.test_sha256
            if not _of_run(record) and file in files:
                newest = max(listed.get(file, record), record, key=lambda r: r.when)
                listed[file] = newest
        return [*records, *listed.values()]

    def _entry(self, record: Record, origin: Origin | None) -> Entry:
        inputs = record.inputs
        numbers = self._numbers.get(inputs.test, ())
        if not numbers:
            return Entry(record, (), "unmatched", f"no patch names {inputs.test}", origin)
        own = origin is None
        if inputs.key() in self._keys if own else inputs.subject in self._subjects:
            return Entry(record, numbers, "current", origin=origin)
        return Entry(record, numbers, "old", self._changed(inputs, origin), origin)

    def _changed(self, inputs: Inputs, origin: Origin | None) -> str:
        """Return what is the least that changed since."""
        found = []
        for new in self._asked:
            if (new.test, new.tier, new.control) != (inputs.test, inputs.tier, inputs.control):
                continue
            old = inputs
            if origin is not None:
                old = replace(old, harness=new.harness, python=new.python,
                              environment=new.environment)  # fmt: skip
            found.append(difference(old, new))
        return min(found, key=lambda why: why.count(","), default="it is not asked for any more")

    @cached_property
    def _numbers(self) -> dict[str, tuple[int, ...]]:
        numbers: dict[str, tuple[int, ...]] = {}
        for patch in self.project.series.patches:
            for name in patch.smoke:
                numbers[name] = (*numbers.get(name, ()), patch.number)
        return numbers

    @cached_property
    def _asked(self) -> Sequence[Inputs]:
        """What `verify` would ask of the whole series, at every tier and in every context."""
        planner = Planner(self.project, self.tests)
        questions = planner.plan(Request((), Selection(), TIERS, CONTEXTS))
        runs = [run for q in questions for _, run in (*q.runs, *q.controls)]
        return [self.tests.inputs(run) for run in dict.fromkeys(runs)]

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(inputs.key() for inputs in self._asked)

    @cached_property
    def _subjects(self) -> frozenset[object]:
        return frozenset(inputs.subject for inputs in self._asked)


def _of_run(record: Record) -> bool:
    return record.inputs.tier != COLLECTION
