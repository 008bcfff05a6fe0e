"""A patch's words as one text for an editor: title, message, ``---``, fields; and back."""

from __future__ import annotations

from patchwright.errors import InputError
from patchwright.fields import canonical
from patchwright.patch import Patch


def text_of(patch: Patch) -> str:
    """Return title, message and fields as the editor shows them."""
    fields = "".join(f"{item.name}: {item.value}\n" for item in patch.fields)
    return f"{patch.title}\n\n{patch.message_text}\n---\n{fields}"


def with_text(patch: Patch, text: str) -> Patch:
    """Return the patch with what was written in the editor; what did not change keeps its bytes.

    Raises InputError where title or ``---`` are missing, or a field is none.
    """
    top, separator, below = text.replace("\r\n", "\n").rpartition("\n---\n")
    if not separator:
        if not text.endswith("\n---"):
            raise InputError("the '---' line between message and fields is missing")
        top, below = text.removesuffix("\n---"), ""
    title, _, message = top.strip("\n").partition("\n")
    values: dict[str, list[str]] = {}
    last = ""
    for line in below.split("\n"):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if line[0] in " \t" and last:
            values[last][-1] = f"{values[last][-1]} {line.strip()}"
        elif colon and name.replace("-", "").isalnum() and name.isascii():
            last = canonical(name)
            values.setdefault(last, []).append(value.strip())
        else:
            raise InputError(f"{line!r} is not a field", next_step="write it as 'Name: value'")
    return reworded(patch, title=title.strip(), message=message.strip("\n"), fields=values)


def reworded(
    patch: Patch, *, title: str | None = None, message: str | None = None,
    fields: dict[str, list[str]] | None = None, only_these: bool = True,
) -> Patch:  # fmt: skip
    """Return the patch with other words; None leaves them.

    ``fields`` are all of them (``only_these``), or those to be set.
    """
    if title is not None and not title:
        raise InputError("the title is missing", next_step="write it in the first line")
    if (title is not None and title != patch.title) or (
        message is not None and message != patch.message_text
    ):
        kept = patch.message if message is None else f"{message}\n".encode() if message else b""
        patch = patch.with_message(kept, title)
    if fields is not None:
        old: dict[str, list[str]] = {}
        for item in patch.fields:
            old.setdefault(item.name, []).append(item.value)
        changed = {name: values for name, values in fields.items() if old.get(name, []) != values}
        if only_these:
            changed |= {name: [] for name in old if name not in fields}
        patch = patch.with_fields(changed)
    return patch
