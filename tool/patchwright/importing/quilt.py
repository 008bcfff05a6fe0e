"""A quilt series: the file that lists the patches, with its options and oddities."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, cast

from patchwright.errors import InputError
from patchwright.importing.items import Bundle, Item

_COMMENT = re.compile(r"(?:^|[ \t]+)#.*")
_BOM = b"\xef\xbb\xbf"
_PLACES = ("series", "patches/series", "debian/patches/series")
_PACKED: dict[str, Callable[[IO[bytes]], IO[bytes]]] = {
    ".gz": lambda stream: cast("IO[bytes]", gzip.GzipFile(fileobj=stream)),
    ".bz2": lambda stream: cast("IO[bytes]", bz2.BZ2File(stream)),
    ".xz": lambda stream: cast("IO[bytes]", lzma.LZMAFile(stream)),  # noqa: SIM115 (closed by unpacked)
    ".lzma": lambda stream: cast("IO[bytes]", lzma.LZMAFile(stream)),  # noqa: SIM115 (closed by unpacked)
}
MAX_PATCH = 256 << 20  # bytes; a packed patch must not unpack to more


def find_series(path: Path) -> Path | None:
    """Return the series file that ``path`` is or holds, or None."""
    if path.is_file():
        return path if path.name == "series" else None
    return next((path / place for place in _PLACES if (path / place).is_file()), None)


def read_series(series: Path) -> Bundle:
    """Read a series and its patches. Never raises for what the series says: see trouble."""
    raw = read_file(series)
    try:
        text = raw.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start} of the series is not UTF-8", where=str(series),
            next_step="name the patch files in ASCII, or in UTF-8",
        ) from error  # fmt: skip
    items: list[Item] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        words = _COMMENT.sub("", line).split()
        if not words:
            continue
        item = _options(Item(words[0], b"", "quilt", b"", strip=1, line=line), words[1:])
        if item.name in seen:
            item = replace(item, trouble=f"the series lists it at line {seen[item.name]} already")
        seen.setdefault(item.name, number)
        if not item.trouble:
            item = _filled(item, series.parent)
        if item.trouble:
            item = replace(item, trouble=f"{series.name}:{number}: {item.trouble}")
        items.append(item)
    trouble = () if items else ("the series lists no patch",)
    folder = series.parent.resolve()
    # debian/patches/series of curl-7.88 is called curl-7.88, not patches.
    name = folder.name
    if name == "patches":
        name = folder.parent.parent.name if folder.parent.name == "debian" else folder.parent.name
    return Bundle(name, "quilt", tuple(items), {"series": raw}, (), trouble)


def _options(item: Item, words: list[str]) -> Item:
    waiting = False
    for word in words:
        if waiting or re.fullmatch(r"-p(\d+|ab)", word):
            level = word.removeprefix("-p")
            if not re.fullmatch(r"\d{1,3}|ab", level):
                return replace(item, trouble=f"-p {level} is not a number of folders")
            item = replace(item, strip=1 if level == "ab" else int(level))
            waiting = False
        elif word == "-p":
            waiting = True
        elif word in ("-R", "--reverse"):
            item = replace(item, reverse=True)
        else:
            return replace(item, trouble=f"{word} is an option of patch that is not taken here")
    return replace(item, trouble="-p lacks its number") if waiting else item


def _filled(item: Item, folder: Path) -> Item:
    """Return the item with its file's bytes, or with the reason why there are none."""
    trouble = name_trouble(item.name)
    if trouble:
        return replace(item, trouble=trouble)
    path = folder / item.name
    try:
        if not path.resolve(strict=True).is_relative_to(folder.resolve()):
            return replace(item, trouble="this link leads out of the folder of patches")
        raw = read_file(path)
        text = unpacked(path.name, raw)
    except (OSError, RuntimeError) as error:
        missing = isinstance(error, FileNotFoundError)
        what = "the file is missing" if missing else f"the file cannot be read: {error}"
        return replace(item, trouble=what)
    except (InputError, EOFError, lzma.LZMAError) as error:
        return replace(item, trouble=getattr(error, "what", f"the file is damaged: {error}"))
    return replace(item, raw=raw, text=text)


def name_trouble(name: str) -> str:
    """Return why a patch file's own name is refused, or nothing."""
    parts = name.split("/")
    if name.startswith("/"):
        return f"{name!r} is absolute"
    if ".." in parts:
        return f"{name!r} leads out of the folder of patches"
    if any(part in ("", ".") or part.lower() == ".git" for part in parts):
        return f"{name!r} is not the name of a patch file"
    if not name.isprintable():
        return f"{name!r} holds a character that cannot be printed"
    return ""


def read_file(path: Path) -> bytes:
    """Return a regular file's bytes; InputError for anything else."""
    try:
        if not path.is_file():  # a pipe or a device would be read for ever
            raise InputError("this is not a regular file", where=str(path), next_step="correct it")
        if path.stat().st_size > MAX_PATCH:
            raise InputError("the file is larger than 256 MiB", where=str(path))
        return path.read_bytes()
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise InputError(
            f"the file cannot be read: {error.strerror}", where=str(path),
            next_step="make it readable",
        ) from error  # fmt: skip


def unpacked(name: str, raw: bytes) -> bytes:
    """Return the bytes of a file that may be compressed, as its name says (quilt does it)."""
    opener = next((how for suffix, how in _PACKED.items() if name.endswith(suffix)), None)
    if opener is None:
        return raw
    with opener(io.BytesIO(raw)) as stream:
        data = stream.read(MAX_PATCH + 1)
    if len(data) > MAX_PATCH:
        raise InputError("it unpacks to more than 256 MiB", where=name)
    return data
