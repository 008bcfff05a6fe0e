"""What a distribution says about itself, rewritten for a patched state of it.

Pure functions over the bytes of version files and of ``.dist-info`` (the Python packaging
specification "Recording installed projects"): both the wheel packer and the writer into an
installed environment use them. Paths are relative to ``site-packages``.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from collections.abc import Mapping

from patchwright.errors import InputError
from patchwright.quoting import display

_DIGITS = 8
_VERSION = re.compile(rb"^Version:[ \t]*([^\r\n]*?)[ \t]*(?=\r?$)", re.MULTILINE | re.IGNORECASE)
_BYTECODE = re.compile(rb"(?:(.*)/)?__pycache__/([^/]+?)\.[^/]+\.pyc", re.DOTALL)


def local_version(version: str, tree: str) -> str:
    """Return ``version`` with the local part of a patched state: ``0.6.3+pw.1a2b3c4d``.

    ``tree`` is the upstream's tree id in repository layout.
    """
    joint = "." if "+" in version else "+"
    return f"{version}{joint}pw.{tree[:_DIGITS]}"


def with_version(path: bytes, content: bytes, old: str, new: str) -> bytes:
    """Return a version file that says ``new`` wherever it says ``old`` as a whole literal.

    Python string literals are looked for, and a file that holds nothing but the version.
    Raises InputError where there is neither.
    """
    if content.strip() == old.encode():
        return content.replace(old.encode(), new.encode())
    literal = re.compile(rb"(['\"])%s\1" % re.escape(old.encode()))
    changed, count = literal.subn(lambda match: match[1] + new.encode() + match[1], content)
    if not count:
        raise InputError(
            f"the version file does not hold {old!r}", where=display(path),
            next_step="correct version-files (or companions) of the upstream in pyproject.toml",
        )  # fmt: skip
    return changed


def patched_info_name(info: bytes, old: str, new: str) -> bytes:
    """Return the name of the ``.dist-info`` folder after the version changed.

    An InputError says that the folder is not one of version ``old``.
    """
    from packaging.version import InvalidVersion, Version

    stem, _, version = info.removesuffix(b".dist-info").rpartition(b"-")
    try:
        fits = Version(version.decode("utf-8", "replace")) == Version(old)
    except InvalidVersion:
        fits = False
    if not fits or not stem or not info.endswith(b".dist-info"):
        raise InputError(
            f"this is not the metadata of version {old}", where=display(info),
            next_step=f"install version {old}, or correct the pin and run `patchwright lock`",
        )  # fmt: skip
    return b"%s-%s.dist-info" % (stem, new.replace("-", "_").encode())


def patched_metadata(metadata: bytes, old: str, new: str) -> bytes:
    """Return METADATA with its ``Version`` field changed; the rest is kept byte for byte."""
    head = re.split(rb"\r?\n\r?\n", metadata, maxsplit=1)[0]
    found = _VERSION.search(head)
    if found is None:
        raise InputError(
            f"METADATA has no Version to change from {old}", where="METADATA",
            next_step="get the distribution again; this one is damaged",
        )  # fmt: skip
    return metadata[: found.start(1)] + new.encode() + metadata[found.end(1) :]


def recorded(digest: bytes) -> str:
    """Return a sha256 as RECORD writes it."""
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def recorded_hash(data: bytes) -> str:
    """Return how RECORD writes the hash of a file."""
    return recorded(hashlib.sha256(data).digest())


def read_record(record: bytes) -> list[tuple[bytes, str, str]]:
    """Return the rows of a RECORD: path, hash (``sha256=…`` or empty), size."""
    found: list[tuple[bytes, str, str]] = []
    if b'"' not in record:
        # Nothing is quoted, as in nearly all of them: there is no need for a parser.
        for line in record.splitlines():
            path, _, rest = line.partition(b",")
            digest, _, size = rest.decode().partition(",")
            if line:
                found.append((path, digest, size))
        return found
    text = record.decode("utf-8", "surrogateescape")
    for row in csv.reader(io.StringIO(text, newline="")):
        if row:
            name, digest, size = [*row, "", ""][:3]
            found.append((name.encode("utf-8", "surrogateescape"), digest, size))
    return found


def write_record(rows: Mapping[bytes, tuple[str, str]]) -> bytes:
    """Return a RECORD with the rows sorted by path, so that equal content is equal bytes."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    for path in sorted(rows):
        writer.writerow((path.decode("utf-8", "surrogateescape"), *rows[path]))
    return out.getvalue().encode("utf-8", "surrogateescape")


def refreshed_record(
    record: bytes, changes: Mapping[bytes, bytes | None], old_info: bytes, new_info: bytes
) -> bytes:
    """Return RECORD after ``changes`` (None: deleted) and the renaming of the ``.dist-info``.

    Both folders are names such as ``tiny-1.0.dist-info``. Rows of bytecode whose source
    changed go away: it is stale. What ``changes`` does not name keeps its row.
    """
    rows: dict[bytes, tuple[str, str]] = {}
    for path, digest, size in read_record(record):
        compiled = _BYTECODE.fullmatch(path) if path.endswith(b".pyc") else None
        if compiled is not None:
            folder = compiled[1] + b"/" if compiled[1] else b""
            if folder + compiled[2] + b".py" in changes:
                continue
        moved = path.startswith(old_info + b"/")
        rows[new_info + path[len(old_info) :] if moved else path] = digest, size
    for path, data in changes.items():
        if data is None:
            rows.pop(path, None)
        else:
            rows[path] = recorded_hash(data), str(len(data))
    rows[new_info + b"/RECORD"] = "", ""
    return write_record(rows)
