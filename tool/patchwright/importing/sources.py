"""What a path that is to be imported holds: a series, mails, a repository, single diffs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from patchwright.errors import InputError
from patchwright.importing import mails
from patchwright.importing.commits import find_repository, read_range
from patchwright.importing.items import Bundle, Item, free_name
from patchwright.importing.quilt import find_series, name_trouble, read_file, read_series, unpacked

_SUFFIXES = (".patch", ".diff", ".eml", ".mbox", ".mail", ".mbx", ".dpatch")
_PACKED = (".gz", ".bz2", ".xz", ".lzma")
_WEST = ("patches.yml", "patches.yaml")


@dataclass(frozen=True)
class Wishes:
    """What the user says beside the paths; None where it is to be found out."""

    range: str | None = None
    strip: int | None = None
    upstream: str | None = None
    trailers: bool = True
    partial: bool = False


def read_paths(paths: Sequence[Path], wishes: Wishes) -> list[Bundle]:
    """Return what the paths hold, in their order; loose files together make one bundle.

    Raises InputError for a path that is nothing of all that.
    """
    bundles: list[Bundle] = []
    loose: list[Path] = []
    for path in paths:
        bundle = _read_path(path, wishes)
        if bundle is None:
            loose.append(path)
        else:
            bundles.append(bundle)
    if loose:
        bundles.append(_files(loose[0].stem, loose, wishes))
    return bundles


def _read_path(path: Path, wishes: Wishes) -> Bundle | None:
    if not path.exists():
        raise InputError("there is nothing here", where=str(path), next_step="correct the path")
    if wishes.range is not None:
        repository = find_repository(path)
        if repository is not None:
            return read_range(repository, path, wishes.range)
    series = find_series(path)
    if series is not None:
        return read_series(series)
    west = next((p for p in _west_files(path) if p.is_file()), None)
    if west is not None:
        from patchwright.importing.west import read_west

        return read_west(west)
    if path.is_file():
        return None
    repository = find_repository(path)
    if repository is not None:
        return read_range(repository, path, wishes.range)
    if not path.is_dir():
        raise InputError("this is neither a file nor a folder", where=str(path))
    folders = [path / "cur", path / "new"] if (path / "cur").is_dir() else [path]
    found = sorted(
        (entry for folder in folders if folder.is_dir() for entry in folder.iterdir()
         if entry.is_file() and (folder is not path or _looks_right(entry.name))),
        key=lambda entry: entry.name,
    )  # fmt: skip
    if not found:
        raise InputError(
            "this folder holds no series, no repository and no patch file", where=str(path),
            next_step=f"patch files end in one of {', '.join(_SUFFIXES)}; or name the files",
        )  # fmt: skip
    return _files(path.resolve().name, found, wishes)


def _west_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.name in _WEST else []
    return [folder / name for folder in (path, path / "zephyr") for name in _WEST]


def _looks_right(name: str) -> bool:
    for suffix in _PACKED:
        name = name.removesuffix(suffix)
    return name.endswith(_SUFFIXES) and not name.startswith(".")


def _files(name: str, paths: Sequence[Path], wishes: Wishes) -> Bundle:
    """Return mails and single diffs as one bundle; mails of several files are one thread."""
    letters: list[mails.Letter] = []
    items: list[Item] = []
    taken: set[str] = set()
    order: dict[str, int] = {}
    for at, path in enumerate(paths):
        raw = read_file(path)
        trouble = name_trouble(path.name)
        if trouble:
            raise InputError(trouble, where=str(path.parent), next_step="rename the file")
        try:
            data = unpacked(path.name, raw)
        except (OSError, EOFError, ValueError) as error:
            raise InputError(f"the file is damaged: {error}", where=str(path)) from error
        file = free_name(path.name, taken)
        order[file] = at
        if not mails.is_mail(data):
            items.append(Item(file, raw, "file", data, strip=wishes.strip))
            continue
        found = mails.split(data)
        if len(found) == 1:
            letters.append(mails.read_letter(data, file))
            continue
        for number, letter in enumerate(found, 1):
            letters.append(mails.read_letter(letter, f"{file}-{number:04d}.eml"))
    if not letters:
        return Bundle(name, "files", tuple(items))
    named = len(paths) > 1 and len(letters) + len(items) == len(paths)
    thread = mails.read_thread(
        letters, trailers=wishes.trailers, partial=wishes.partial, named=named
    )
    found_items = tuple(replace(item, strip=wishes.strip) for item in thread.items)
    if items:
        # Mails and diffs together: the order is that of the names given.
        both = sorted([*found_items, *items], key=lambda item: order.get(item.name, 0))
        return Bundle(name, "files", tuple(both), {}, thread.notes, thread.trouble)
    kind: Literal["files", "mail"] = "files" if named else "mail"
    return Bundle(name, kind, found_items, {}, thread.notes, thread.trouble)
