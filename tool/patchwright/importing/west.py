"""The metadata that ``west patch`` keeps beside its patches (Zephyr): patches.yml."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from patchwright.errors import InputError
from patchwright.importing.items import Bundle, Item
from patchwright.importing.quilt import name_trouble, read_file

_COMMANDS = ("git apply", "git am", "patch")


def read_west(path: Path) -> Bundle:
    """Read a patches.yml and the files that it names; raise InputError where it is none."""
    import yaml

    raw = read_file(path)
    try:
        content = yaml.safe_load(raw)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise InputError(
            "this is not YAML", where=f"{path}{line}", next_step="correct that line"
        ) from error
    entries = content.get("patches") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise InputError("there is no list of patches", where=str(path), next_step="correct it")
    folder = path.parent / "patches"
    folder = folder if folder.is_dir() else path.parent
    items = tuple(_item(entry, folder, number) for number, entry in enumerate(entries, 1))
    name = path.parent.resolve().name
    return Bundle(name, "west", items, {path.name: raw})


def _item(entry: Any, folder: Path, number: int) -> Item:
    if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
        return Item(f"patch {number}", b"", "file", b"", trouble="it names no path")
    name = entry["path"]
    trouble = name_trouble(name)
    if trouble:
        return Item(name, b"", "file", b"", trouble=trouble)
    path = folder / name
    try:
        if not path.resolve(strict=True).is_relative_to(folder.resolve()):
            return Item(name, b"", "file", b"", trouble="this link leads out of the folder")
        raw = read_file(path)
    except (OSError, RuntimeError, InputError) as error:
        missing = isinstance(error, FileNotFoundError)
        what = "the file is missing" if missing else f"the file cannot be read: {error}"
        return Item(name, b"", "file", b"", trouble=what)
    wanted, actual = entry.get("sha256sum"), hashlib.sha256(raw).hexdigest()
    if wanted is not None and str(wanted) != actual:
        trouble = f"patches.yml has the sha256 {wanted}, the file {actual}"
    command = entry.get("apply-command", "git apply")
    if not str(command).startswith(_COMMANDS):
        trouble = f"it is applied by {command!r}, which is not taken here"
    module = entry.get("module")
    return Item(
        name, raw, "file", raw, strip=1, fields=_fields(entry), trouble=trouble,
        upstream=module if isinstance(module, str) else None,
    )  # fmt: skip


def _fields(entry: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    fields: dict[str, tuple[str, ...]] = {}
    request = " ".join(str(entry.get("merge-pr") or "").split())
    if entry.get("merge-status"):
        commit = entry.get("merge-commit") or request
        fields["Upstream-Status"] = (f"Backport [{commit}]",)
    elif request:
        fields["Upstream-Status"] = (f"Submitted [{request}]",)
    elif entry.get("upstreamable") is False:
        fields["Upstream-Status"] = ("Inappropriate [patches.yml: not upstreamable]",)
    issue = " ".join(str(entry.get("issue") or "").split())
    if issue and "," not in issue:
        fields["Bug"] = (issue,)
    return fields
