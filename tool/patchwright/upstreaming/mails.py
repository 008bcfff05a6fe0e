"""A patch series as mails for ``git send-email``: cover letter, base commit, version."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.errors import InputError, PatchwrightError
from patchwright.files import temporary_folder, write_atomically
from patchwright.git import Git
from patchwright.upstreaming.branch import identity

if TYPE_CHECKING:
    from patchwright.upstreaming.mainline import Mainline

_SUBJECT, _BLURB = b"*** SUBJECT HERE ***", b"*** BLURB HERE ***"


def format_mails(
    main: Mainline, tip: str, committer: tuple[str, str], cover: tuple[str, str], version: int,
    scratch: Path, old: tuple[str, str] | None = None,
) -> dict[str, bytes]:  # fmt: skip
    """Return file names and mails, the cover letter first; git itself writes them.

    ``cover`` is its subject and text. ``old`` is an earlier version, (base, tip): its
    range-diff stands in the cover letter. The base commit stands in the cover letter too.
    """
    options = [f"--reroll-count={version}"] if version > 1 else []
    if old is not None:
        options += [f"--range-diff={old[0]}..{old[1]}", "--creation-factor=90"]
    with temporary_folder(scratch) as (folder, _):
        Git(main.git_dir).run(
            "format-patch", "--quiet", "--cover-letter", f"--base={main.commit}", "--full-index",
            "--binary", "--no-signature", "--subject-prefix=PATCH", "--no-color", "--no-ext-diff",
            "--src-prefix=a/", "--dst-prefix=b/", "--diff-algorithm=myers", "--unified=3",
            "--no-attach", "--thread=shallow", *options,
            f"--output-directory={folder}", f"{main.commit}..{tip}",
            env=identity(committer, committer),
        )  # fmt: skip
        mails = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    first = next(iter(mails))
    letter = mails[first]
    mails[first] = _covered(letter, *cover)
    return mails


def _covered(letter: bytes, subject: str, text: str) -> bytes:
    from email.header import Header

    head, blank, body = letter.partition(b"\n\n")
    before, mark, after = head.partition(_SUBJECT)
    if not mark or _BLURB not in body:
        raise PatchwrightError("git format-patch wrote a cover letter of a form that is not known")
    if not subject.isascii():
        start = len(before.rpartition(b"\n")[2])
        subject = Header(subject, "utf-8", maxlinelen=76 - min(start, 50)).encode()
    head = before + subject.encode("ascii") + after
    if not text.isascii() and b"\nContent-Type:" not in head:
        head += (
            b"\nMIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8"
            b"\nContent-Transfer-Encoding: 8bit"
        )
    return head + blank + body.replace(_BLURB, text.strip().encode("utf-8", "replace"), 1)


def write_mails(folder: Path, mails: dict[str, bytes]) -> list[Path]:
    """Write the mails; InputError where the folder holds others already."""
    others = [p.name for p in folder.glob("*") if p.name not in mails] if folder.is_dir() else []
    if others:
        raise InputError(
            f"the folder holds other files already ({others[0]})", where=str(folder),
            next_step="name a new folder with --output",
        )  # fmt: skip
    for name, data in mails.items():
        _write(folder / name, data)
    return [folder / name for name in mails]


def write_text(path: Path, text: str) -> None:
    """Write a text for upstream; PatchwrightError where it cannot be written."""
    _write(path, text.encode("utf-8", "replace"))


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomically(path, data)
    except OSError as error:
        raise PatchwrightError(
            f"it cannot be written: {error.strerror}", where=str(error.filename or path),
            next_step="make that folder writable, or name another one with --output",
        ) from error  # fmt: skip


def command(paths: Sequence[Path], to: Sequence[str]) -> str:
    """Return the command that sends the mails."""
    addresses = [f"--to={address}" for address in to] or ["--to=LIST"]
    return shlex.join(["git", "send-email", *addresses, *map(str, paths)])
