"""Evidence from other machines: kept apart from our own, shown with where it comes from.

Each imported file has a folder of its own, ``.patchwright/evidence/imported/ORIGIN/``,
with the file as it came and a note of where it came from. The folder appears whole or
not at all, and what is in it is checked again each time it is read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from patchwright.errors import InputError, PatchwrightError
from patchwright.evidence import Record, Subject
from patchwright.evidence_files import Export, read_export
from patchwright.files import lock_folder, sync_folder, write_atomically

_FILE = "evidence.json"
_NOTE = "origin.json"
_SCRATCH = ".import"


@dataclass(frozen=True)
class Origin:
    """Where imported records come from.

    ``folder`` is the name of their folder, ``host`` and ``tool`` the machine and the
    version that exported them, ``exported`` and ``imported`` times in UTC (ISO 8601),
    ``file`` the name of the file as it was given.
    """

    folder: str
    host: str
    tool: str
    exported: str
    imported: str
    file: str

    def __str__(self) -> str:
        return f"imported from {self.host} via {self.file}"


@dataclass(frozen=True)
class Import:
    """What an import did: ``new`` is False where the same file was imported before."""

    origin: Origin
    records: tuple[Record, ...]
    new: bool


class ImportedEvidence:
    """The imported records of one project, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def take(self, path: Path) -> Import:
        """Import an evidence file: all of it, or nothing and an InputError.

        Raises PatchwrightError where the folder cannot be written.
        """
        export, data = read_export(path)
        slug = re.sub(r"[^A-Za-z0-9_-]+", "-", export.host).strip("-")[:60] or "host"
        name = f"{slug}-{export.sha256[:12]}"
        here = next((i for i in self.imports if i.origin.folder == name), None)
        if here is not None:
            return Import(here.origin, here.records, new=False)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        origin = Origin(name, export.host, export.tool, export.exported, now, path.name)
        try:
            self._place(name, {_FILE: data, _NOTE: _note(origin)})
        except OSError as error:
            raise PatchwrightError(
                f"the evidence cannot be written: {error.strerror}", where=str(self.folder),
                next_step="make the project's .patchwright folder writable",
            ) from error  # fmt: skip
        self.__dict__.pop("_read", None)
        return Import(origin, export.records, new=True)

    @property
    def imports(self) -> list[Import]:
        """What was imported, oldest first; damaged folders are left out."""
        return self._read[0]

    @property
    def damaged(self) -> dict[Path, str]:
        """The files that are not as they were imported, and why; they never count."""
        return self._read[1]

    @cached_property
    def by_subject(self) -> dict[Subject, list[tuple[Origin, Record]]]:
        """Every imported record by what its run is about."""
        found: dict[Subject, list[tuple[Origin, Record]]] = {}
        for each in self.imports:
            for record in each.records:
                found.setdefault(record.inputs.subject, []).append((each.origin, record))
        return found

    @cached_property
    def _read(self) -> tuple[list[Import], dict[Path, str]]:
        found, damaged = [], {}
        for folder in self._folders():
            try:
                export, _ = read_export(folder / _FILE)
            except InputError as error:
                damaged[folder / _FILE] = error.what
                continue
            found.append(Import(_origin(folder, export), export.records, new=False))
        return sorted(found, key=lambda i: (i.origin.imported, i.origin.folder)), damaged

    def _folders(self) -> Iterable[Path]:
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder) if entry.is_dir())
        except OSError:
            return []
        return [self.folder / name for name in names if not name.startswith(".")]

    def _place(self, name: str, files: dict[str, bytes]) -> None:
        """Make the folder ``name`` with ``files``, in place of a damaged one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = lock_folder(self.folder)
        scratch = self.folder / _SCRATCH
        try:
            # Whoever left it there was killed: we hold the lock.
            shutil.rmtree(scratch, ignore_errors=True)
            made = scratch / name
            made.mkdir(parents=True)
            for file, data in files.items():
                write_atomically(made / file, data)
            target = self.folder / name
            if target.exists():
                target.rename(scratch / "damaged")
            # Renamed when it is whole: another command sees all of an import or nothing.
            made.rename(target)
            sync_folder(self.folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            os.close(lock)


def _note(origin: Origin) -> bytes:
    return json.dumps(asdict(origin), indent=1, sort_keys=True).encode() + b"\n"


def _origin(folder: Path, export: Export) -> Origin:
    """Return the origin: the file's own words, and from the note when and as what it came."""
    try:
        note = json.loads((folder / _NOTE).read_bytes())
        imported, file = str(note["imported"]), str(note["file"])
    except (OSError, ValueError, KeyError, TypeError):
        imported, file = "", _FILE
    return Origin(folder.name, export.host, export.tool, export.exported, imported, file)
