"""One patch file: parsed for what it says, kept byte for byte."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from patchwright import mail
from patchwright.diff import CorruptPatch, FileChange, Hunk, parse_diff
from patchwright.errors import InputError
from patchwright.fields import Field, Need, canonical, read_fields, understand

__all__ = ["CorruptPatch", "Field", "FileChange", "Hunk", "Need", "Patch"]

_NUMBER = re.compile(r"(\d{4,9})-.*\.patch$")
_SUBJECT = re.compile(rb"^Subject:[ \t]*(.*(?:\n[ \t].*)*)$", re.MULTILINE | re.IGNORECASE)
_PREFIX = re.compile(rb"\[[^\]]*PATCH[^\]]*\] *")


@dataclass(frozen=True)
class Patch:
    """One numbered patch. Only ``path`` and ``raw`` decide equality.

    What the fields say is read at once. The diff is read when ``changes`` is asked for,
    so that a series of a thousand loads in milliseconds and one corrupt patch does not
    hide the others.
    """

    path: Path
    raw: bytes = field(repr=False)
    number: int = field(compare=False)
    parts: mail.Parts = field(compare=False, repr=False)
    fields: tuple[Field, ...] = field(compare=False, repr=False)
    upstream: str | None = field(compare=False)
    made_for: str | None = field(compare=False)
    depends: tuple[Need, ...] = field(compare=False, repr=False)
    arch: tuple[str, ...] = field(compare=False, repr=False)
    gates: tuple[str, ...] = field(compare=False, repr=False)
    smoke: tuple[str, ...] = field(compare=False, repr=False)
    upstream_status: str | None = field(compare=False, repr=False)
    bugs: tuple[str, ...] = field(compare=False, repr=False)

    @classmethod
    def parse(cls, raw: bytes, path: Path) -> Patch:
        """Read a patch file.

        Raises InputError for a file name without a number and for fields that cannot
        be read. Damage in message and diff is raised by ``changes``.
        """
        number = patch_number(path)
        parts = mail.split(raw)
        fields = read_fields(raw, parts.below, parts.diff, path) if parts.separated else ()
        meaning = understand(fields, path)
        return cls(
            path, raw, number, parts, fields, meaning.upstream, meaning.made_for,
            meaning.depends, meaning.arch, meaning.gates, meaning.smoke,
            meaning.upstream_status, meaning.bugs,
        )  # fmt: skip

    def format(self) -> bytes:
        """Return the file's bytes."""
        return self.raw

    @cached_property
    def sha256(self) -> str:
        """The file's sha256, in hex."""
        return hashlib.sha256(self.raw).hexdigest()

    # The mail

    @cached_property
    def headers(self) -> dict[str, bytes]:
        """The mail's headers, unfolded, by names in small letters."""
        return mail.headers(self.raw[: self.parts.message])

    @cached_property
    def _in_body(self) -> tuple[dict[str, bytes], int]:
        return mail.in_body(self.raw[self.parts.message : self.parts.message_end])

    def _header(self, name: str) -> str:
        return mail.decoded(self._in_body[0].get(name) or self.headers.get(name, b""))

    @cached_property
    def title(self) -> str:
        """The subject without ``[PATCH …]``; brackets that are upstream's own stay."""
        return mail.title(self._header("subject"))

    @cached_property
    def author(self) -> str:
        """The author as ``Name <address>``; a From line in the message wins."""
        return self._header("from")

    @cached_property
    def date(self) -> str:
        """The author's date, as it is written."""
        return self._header("date")

    @cached_property
    def message(self) -> bytes:
        """The text for upstream, up to the ``---`` line, without subject and header lines."""
        return self.raw[self.parts.message + self._in_body[1] : self.parts.message_end]

    @cached_property
    def message_text(self) -> str:
        """``message`` decoded for people, with plain line ends."""
        charset = re.search(rb'charset="?([^\s";]+)', self.headers.get("content-type", b""))
        text = mail.plain(self.message, charset[1].decode("latin-1") if charset else "")
        return text.replace("\r\n", "\n").strip("\n")

    # The diff

    @property
    def crlf(self) -> bool:
        """Whether the file itself has CRLF line ends: a mail client made them.

        One CR then goes from every line of the diff, as ``git am`` does it. A file
        whose headers end in LF is taken as it is, CR in its content included
        (``git am --keep-cr``).
        """
        return self.raw[: self.raw.find(b"\n") + 1].endswith(b"\r\n")

    @cached_property
    def changes(self) -> tuple[FileChange, ...]:
        """What the patch does, file by file; raises CorruptPatch with the line."""
        line = self.raw.count(b"\n", 0, self.parts.diff) + 1
        damage = mail.transport_damage(self.raw, self.parts.message) or self.parts.damage
        if damage is not None:
            raise damage.at(self.path)
        diff = self.raw[self.parts.diff :]
        try:
            return parse_diff(diff.replace(b"\r\n", b"\n") if self.crlf else diff, line)
        except CorruptPatch as error:
            raise error.at(self.path) from None

    # Edits

    def with_fields(self, values: Mapping[str, Sequence[str]]) -> Patch:
        """Return the patch with these fields set, each to one line per value.

        A field that stands already is changed in its place, a new one goes below the
        last; no values remove it. Every other byte stays. Raises InputError for a value
        that cannot be a field, and CorruptPatch where no ``---`` line stands.
        """
        if not self.parts.separated:
            assert self.parts.damage is not None
            raise self.parts.damage.at(self.path)
        patch = self
        for name, lines in values.items():
            patch = patch._with_field(canonical(name), lines)
        return patch

    def _with_field(self, name: str, values: Sequence[str]) -> Patch:
        if any("\n" in value or "\r" in value for value in values):
            raise InputError(f"the value of {name} holds a line break", where=str(self.path))
        newline = b"\r\n" if self.crlf else b"\n"
        text = b"".join(
            f"{name}: {value}".rstrip(" ").encode("utf-8", "surrogateescape") + newline
            for value in values
        )
        old = [item for item in self.fields if item.name == name]
        raw = self.raw
        for item in reversed(old[1:]):
            raw = raw[: item.start] + raw[item.end :]
        if old:
            raw = raw[: old[0].start] + text + raw[old[0].end :]
        elif self.fields:
            raw = raw[: self.fields[-1].end] + text + raw[self.fields[-1].end :]
        elif text:
            # A blank line keeps the fields apart from what stood below the '---'.
            raw = raw[: self.parts.below] + text + newline + raw[self.parts.below :]
        return Patch.parse(raw, self.path)

    def with_message(self, message: bytes, title: str | None = None) -> Patch:
        """Return the patch with another text for upstream, and another title if given.

        Raises CorruptPatch where the new text would end the message or start a diff.
        """
        if not self.parts.separated:
            assert self.parts.damage is not None
            raise self.parts.damage.at(self.path)
        message = message.replace(b"\r\n", b"\n")
        if message and not message.endswith(b"\n"):
            message += b"\n"
        if self.crlf:
            message = message.replace(b"\n", b"\r\n")
        start = self.parts.message + self._in_body[1]
        head = self.raw[:start]
        if title is not None and title != self.title:
            head = self._retitled(head, title)
        patch = Patch.parse(head + message + self.raw[self.parts.message_end :], self.path)
        if patch.parts.damage is not None and self.parts.damage is None:
            raise patch.parts.damage.at(self.path)
        return patch

    def _retitled(self, head: bytes, title: str) -> bytes:
        if "subject" in self._in_body[0]:
            raise InputError(
                "the title stands in the message of this patch, not in its header",
                where=str(self.path), next_step="remove that Subject line first",
            )  # fmt: skip
        old = _SUBJECT.search(head)
        assert old is not None
        prefix = _PREFIX.match(old[1])
        if title.isascii():
            value = title.encode("ascii")
        else:
            from email.header import Header

            value = Header(title, "utf-8", header_name="Subject: [PATCH]").encode().encode("ascii")
        carriage = b"\r" if old[1].endswith(b"\r") else b""
        new = b"Subject: " + (prefix[0] if prefix else b"") + value.replace(b"\n", carriage + b"\n")
        return head[: old.start()] + new + carriage + head[old.end() :]


def patch_number(path: Path) -> int:
    """Return the number in front of a patch file's name; InputError where there is none."""
    match = _NUMBER.match(path.name)
    if match is None or not int(match[1]):
        raise InputError(
            "0000 is the number of a cover letter, not of a patch"
            if match
            else "the file name does not start with a number of four digits and a dash",
            where=str(path),
            next_step="name it like 0007-flashinfer-short-title.patch, or move it out of patches/",
        )
    return int(match[1])
