"""A quilt folder, a mailbox, or a folder of patch files: what goes into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from patchwright.exporting.chosen import Chosen
from patchwright.exporting.written import ENVELOPE, as_file, as_mail, for_quilt
from patchwright.importing.items import free_name
from patchwright.importing.originals import OriginalSet

if TYPE_CHECKING:
    from patchwright.store import ObjectStore


class File(NamedTuple):
    """One exported file; ``number`` is its patch (None: a list of patches)."""

    name: str
    data: bytes
    number: int | None
    original: bool


def quilt(store: ObjectStore, chosen: Sequence[Chosen]) -> list[File]:
    """Return the patches and the series file of a quilt folder."""
    files: list[File] = []
    lines: list[str] = []
    taken: set[str] = {"series"}
    for one in chosen:
        original = one.original
        if original is not None and original.entry.kind == "quilt":
            file = File(free_name(original.entry.name, taken), original.raw, one.patch.number, True)
            _, _, options = original.entry.line.strip().partition(original.entry.name)
            lines.append(file.name + options)
        else:
            data = for_quilt(store, one)
            file = File(free_name(one.patch.path.name, taken), data, one.patch.number, False)
            lines.append(file.name)
        files.append(file)
    listed = _whole(chosen, "quilt", "series")
    series = listed if listed is not None else "".join(f"{ln}\n" for ln in lines).encode()
    return [*files, File("series", series, None, listed is not None)]


def patch_files(store: ObjectStore, chosen: Sequence[Chosen]) -> list[File]:
    """Return one file for each patch, under the name it came with, or its name here."""
    files: list[File] = []
    taken: set[str] = {"patches.yml", "patches.yaml"}
    for one in chosen:
        original = one.original
        if original is not None and original.entry.kind in ("file", "mail"):
            name = free_name(original.entry.name, taken)
            files.append(File(name, original.raw, one.patch.number, True))
        else:
            name = free_name(one.patch.path.name, taken)
            files.append(File(name, as_file(store, one), one.patch.number, False))
    for name in ("patches.yml", "patches.yaml"):
        listed = _whole(chosen, "west", name)
        if listed is not None:
            files.append(File(name, listed, None, True))
    return files


def mails(store: ObjectStore, chosen: Sequence[Chosen]) -> list[File]:
    """Return the mails of a mailbox, in order."""
    files = []
    for one in chosen:
        original = one.original
        if original is not None and original.entry.kind == "mail":
            files.append(File(original.entry.name, original.raw, one.patch.number, True))
        else:
            name = one.patch.path.name
            files.append(File(name, as_mail(store, one), one.patch.number, False))
    return files


def joined(parts: Sequence[File]) -> bytes:
    """Return a mailbox of these mails; each starts with its own ``From `` line.

    A mail that came without such a line stays without it where it is the only one.
    """
    out = b""
    for part in parts:
        data = part.data
        if len(parts) > 1 and not data.startswith(b"From "):
            data = ENVELOPE + data
        if out and not out.endswith(b"\n"):
            out += b"\n"
        out += data
    return out


def _whole(chosen: Sequence[Chosen], kind: str, name: str) -> bytes | None:
    """Return the list of a set where exactly its patches are exported, unchanged, in order."""
    sets: dict[str, OriginalSet] = {
        str(one.original.whole.folder): one.original.whole for one in chosen if one.original
    }
    whole = next(iter(sets.values())) if len(sets) == 1 else None
    if whole is None or whole.kind != kind or name not in whole.container:
        return None
    names = [one.original.entry.name if one.original else None for one in chosen]
    if names != [entry.name for entry in whole.entries]:
        return None
    return whole.listing(name)
