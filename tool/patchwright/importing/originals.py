"""What was imported, byte for byte, beside the patches: ``patches/originals/``.

An imported patch names its original in a field ``Imported: SET/NAME``. The folder of a
set holds the files as they were and ``import.json``, which says of each how it was to
be applied and what the patch was when it came in. While the patch still says the same
to others (our fields may change), its original is what ``export`` gives.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from patchwright.errors import InputError
from patchwright.importing.items import Item, Kind
from patchwright.importing.normal import bare
from patchwright.importing.quilt import name_trouble, unpacked
from patchwright.patch import Patch

if TYPE_CHECKING:
    from patchwright.importing.mails import Letter

FIELD = "Imported"
FOLDER = "originals"
MANIFEST = "import.json"
_FORMAT = 1


@dataclass(frozen=True)
class Entry:
    """One imported patch: ``content`` is the sha256 of what it said when it came in."""

    name: str
    kind: Kind
    sha256: str
    content: str
    strip: int | None = None
    reverse: bool = False
    line: str = ""


@dataclass(frozen=True)
class OriginalSet:
    """One import; ``container`` are the names of the files that listed its patches."""

    folder: Path
    kind: str
    container: tuple[str, ...]
    entries: tuple[Entry, ...]

    def listing(self, name: str) -> bytes | None:
        """Return a file of the container, or None where it is gone."""
        return _read(self.folder / "lists" / name)


@dataclass(frozen=True)
class Original:
    """The bytes of one patch as they were imported."""

    entry: Entry
    whole: OriginalSet
    raw: bytes

    @cached_property
    def _letter(self) -> Letter | None:
        if self.entry.kind != "mail":
            return None
        from patchwright.importing.mails import read_letter

        return read_letter(unpacked(self.entry.name, self.raw), self.entry.name)

    @property
    def faithful(self) -> bool:
        """Whether ``git am --keep-cr`` reads of a mail what it said: not with CRLF."""
        return self._letter is None or self._letter.faithful

    @cached_property
    def item(self) -> Item:
        """The original as it was found; its ``text`` without a mail's transfer encoding."""
        entry = self.entry
        letter = self._letter
        text = unpacked(entry.name, self.raw) if letter is None else letter.text
        return Item(
            entry.name, self.raw, entry.kind, text, entry.strip, entry.reverse, line=entry.line
        )


def digest(patch: Patch) -> str:
    """Return the sha256 of what a patch says to others: all but our fields."""
    return hashlib.sha256(bare(patch)).hexdigest()


def set_name(patches: Path, wanted: str) -> str:
    """Return a name for a new set: that of its source, with a number where it is taken."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", wanted).strip(".-") or "import"
    name, number = stem, 1
    while (patches / FOLDER / name).exists():
        number += 1
        name = f"{stem}-{number}"
    return name


def files_of(
    kind: str, container: Mapping[str, bytes], patches: list[tuple[Item, Patch]]
) -> dict[str, bytes]:
    """Return the files of a new set, by their paths in its folder."""
    entries = [
        Entry(
            item.name, item.kind, hashlib.sha256(item.raw).hexdigest(), digest(patch),
            item.strip, item.reverse, item.line,
        )
        for item, patch in patches
    ]  # fmt: skip
    manifest = {
        "version": _FORMAT, "kind": kind, "container": sorted(container),
        "patches": [asdict(entry) for entry in entries],
    }  # fmt: skip
    files = {MANIFEST: json.dumps(manifest, indent=1).encode() + b"\n"}
    files |= {f"lists/{name}": data for name, data in container.items()}
    return files | {f"files/{item.name}": item.raw for item, _ in patches}


class Originals:
    """The originals of a project; what is missing or damaged there is as if never imported."""

    def __init__(self, patches: Path) -> None:
        self._folder = patches / FOLDER
        self._sets: dict[str, OriginalSet | None] = {}

    def of(self, patch: Patch) -> Original | None:
        """Return the original of a patch that still says what it said then, or None."""
        value = next((f.value for f in patch.fields if f.name == FIELD), "")
        name, _, file = value.partition("/")
        whole = self._set(name)
        if whole is None or not patch.parts.separated:
            return None
        entry = next((e for e in whole.entries if e.name == file), None)
        if entry is None or digest(patch) != entry.content:
            return None
        raw = _read(whole.folder / "files" / file)
        if raw is None or hashlib.sha256(raw).hexdigest() != entry.sha256:
            return None
        return Original(entry, whole, raw)

    def _set(self, name: str) -> OriginalSet | None:
        if name not in self._sets:
            self._sets[name] = None if name_trouble(name) else self._loaded(self._folder / name)
        return self._sets[name]

    def _loaded(self, folder: Path) -> OriginalSet | None:
        raw = _read(folder / MANIFEST)
        if raw is None:
            return None
        try:
            content = cast("dict[str, Any]", json.loads(raw))
            entries = tuple(Entry(**entry) for entry in content["patches"])
            names = (*content["container"], *(entry.name for entry in entries))
            good = content["version"] == _FORMAT and not any(name_trouble(n) for n in names)
            whole = OriginalSet(folder, content["kind"], tuple(content["container"]), entries)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"the file cannot be read: {error}", where=str(folder / MANIFEST),
                next_step="restore it, or remove its folder: its patches are then exported as "
                "they are now",
            ) from error  # fmt: skip
        return whole if good else None


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() and not path.is_symlink() else None
    except OSError:
        return None
