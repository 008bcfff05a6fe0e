"""One change of the project's files: all of it or nothing, on record, never half.

    with begin(project, "drop 7") as change:       # locks; finishes what a kill interrupted
        change.remove("patches/0007-….patch")
        change.write("patches/0008-….patch", data)
        change.rename("tests/smoke/test_0008_a.py", "tests/smoke/test_0007_a.py")
        change.relock()                            # upstream.lock's patches, in the same change
        change.commit()                            # returns the operation, None for no change

Paths are relative to the project's root, with slashes. Nothing is written before
``commit``, and leaving without it changes nothing. ``commit`` writes the record of the
whole operation, old and new bytes, to ``pending.zip`` (temporary file, fsync, rename):
that is the moment at which it has happened. Then the files themselves, then the record
gets its number. A process killed before that moment has done nothing; one killed after
it has left ``pending.zip``, and the next command, whichever it is, finishes the work
(``Project.open`` asks).
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from patchwright.editing import pending
from patchwright.editing.operations import (
    PENDING,
    Change,
    Content,
    Kind,
    Operation,
    encode,
    numbers,
    read,
    record_path,
)
from patchwright.errors import AnswerNo, InputError, PatchwrightError
from patchwright.files import (
    leftovers,
    lock_folder,
    new_file_mode,
    sweep,
    sync_folder,
    write_atomically,
)

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.series import Series

FOLDER = pending.FOLDER


@contextmanager
def begin(
    project: Project, command: str, *, wait: bool = False, resuming: bool = False
) -> Iterator[Transaction]:
    """Lock the project's files for one change; ``command`` is what ``log`` shows.

    What an earlier process left half done is finished first, and the project's series
    and lock are read anew when they are next asked for. Where another process is
    changing the project it raises PatchwrightError: the numbers that the user named may
    mean other patches when that one has ended. ``wait`` is for what names none.
    Raises AnswerNo while a conflict waits to be resolved, unless this is ``resuming``.
    """
    folder = project.state_dir / FOLDER
    with _locked(folder, wait=wait):
        _finish_pending(project.root, folder)
        project.forget()
        if not (wait or resuming) and (project.state_dir / "edit" / "session.json").exists():
            from patchwright.editing.session import refuse_while_waiting

            refuse_while_waiting(project)
        yield Transaction(project, folder, command)
        project.forget()


def recover(root: Path) -> None:
    """Finish what a killed process left half done in the project at ``root``.

    Waits for a living one that is at it. Raises PatchwrightError where it cannot be
    finished.
    """
    folder = root / ".patchwright" / FOLDER
    if not pending.half_done(root):
        return
    with _locked(folder, wait=True):
        _finish_pending(root, folder)


class Transaction:
    """The changes to be made. Made by ``begin``."""

    def __init__(self, project: Project, folder: Path, command: str) -> None:
        self.project = project
        self.command = command
        self._root = project.root
        self._folder = folder
        self._seen: dict[str, Content | None] = {}
        self._changes: dict[str, Content | None] = {}

    def read(self, path: str) -> bytes | None:
        """Return a file as it would be after this change; None where there is none.

        What was read must still stand there when the change is committed.
        """
        content = self.content(path)
        return None if content is None else content.data

    def content(self, path: str) -> Content | None:
        """Return a file with its permissions, as it would be after this change."""
        return self._changes[path] if path in self._changes else self._now(path)

    def put(self, path: str, content: Content | None) -> None:
        """Let a file be ``content``; None removes it. The old one stays in the record."""
        self._now(path)
        self._changes[path] = content

    def write(self, path: str, data: bytes) -> None:
        """Make or replace a file; it keeps its permissions."""
        old = self.content(path)
        self.put(path, Content(data, old.mode if old is not None else new_file_mode()))

    def remove(self, path: str) -> None:
        """Remove a file; it stays in the record."""
        self.put(path, None)

    def rename(self, old: str, new: str, data: bytes | None = None) -> None:
        """Give a file another name and, if given, other bytes. Raises InputError if missing.

        Files that change places are renamed one after the other only if a name is free
        when it is taken: read them all first, and ``write`` them.
        """
        content = self.content(old)
        if content is None:
            raise InputError("there is no such file", where=str(self._root / old))
        self.remove(old)
        self.put(new, Content(content.data if data is None else data, content.mode))

    def series(self) -> Series:
        """Return the series as it would be; InputError where it could not be loaded."""
        from patchwright.project import PATCHES
        from patchwright.series import Series, patch_files

        files = {path.name: raw for path, raw in patch_files(self._root / PATCHES)}
        for path, content in self._changes.items():
            place = PurePosixPath(path)
            if place.parent == PurePosixPath(PATCHES) and place.suffix == ".patch":
                files.pop(place.name, None)
                if content is not None:
                    files[place.name] = content.data
        return Series.of(
            [(self._root / PATCHES / name, files[name]) for name in sorted(files)],
            tuple(self.project.config.upstreams),
        )

    def relock(self) -> bool:
        """Let upstream.lock name the patches as they would be; False where it must stay.

        It stays where there is none, where it disagrees with pyproject.toml, and where a
        patch would not apply: ``lock`` then says why.
        """
        from patchwright.lock import FILE_NAME, format_lock
        from patchwright.locking import relocked

        lock = relocked(self.project, self.series())
        if lock is not None:
            self.write(FILE_NAME, format_lock(lock))
        return lock is not None

    def commit(self, kind: Kind = "do", of: int | None = None) -> Operation | None:
        """Carry out the changes, all or none, and return what is on record; None: no change.

        Raises InputError where a file was changed by somebody else since it was read,
        PatchwrightError where one cannot be written; nothing has then changed.
        """
        for path, seen in self._seen.items():
            if _content(self._root, path) != seen:
                raise self._changed(path)
        changes = tuple(
            Change(path, self._seen[path], after)
            for path, after in sorted(self._changes.items())
            if self._seen[path] != after
        )
        if not changes and kind == "do":
            return None
        known = numbers(self._folder)
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        number = known[-1] + 1 if known else 1
        operation = Operation(number, self.command, when, changes, kind, of)
        pending = self._folder / PENDING
        try:
            write_atomically(pending, encode(operation))
        except OSError as error:
            raise _unwritable(error, pending) from error
        try:
            _carry_out(self._root, changes)
        except OSError as error:
            # If this fails as well, the next command goes on from pending.zip.
            with contextlib.suppress(OSError):
                _carry_out(self._root, [change.reversed() for change in changes])
                pending.unlink()
            raise _unwritable(error, self._root) from error
        _number(self._folder, number)
        self._changes.clear()
        self._seen.clear()
        self.project.forget()
        return operation

    def _now(self, path: str) -> Content | None:
        if path not in self._seen:
            content = _content(self._root, path)
            # What is computed is computed from the series as it was loaded.
            loaded = self._loaded().get(path)
            if loaded is not None and (content is None or content.data != loaded):
                raise self._changed(path)
            self._seen[path] = content
        return self._seen[path]

    def _loaded(self) -> dict[str, bytes]:
        from patchwright.lock import patch_file

        if "series" not in self.project.__dict__:
            return {}  # an undo must not need a series that can be read
        return {patch_file(self._root, p.path): p.raw for p in self.project.series.patches}

    def _changed(self, path: str) -> InputError:
        return InputError(
            "this file was changed while the command ran, so nothing was written",
            where=str(self._root / path), next_step="look at it, and run the command again",
        )  # fmt: skip


@contextmanager
def _locked(folder: Path, *, wait: bool = False) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = lock_folder(folder, wait=wait)
    except BlockingIOError:
        raise PatchwrightError(
            "another patchwright is changing this project now", where=str(folder),
            next_step="run the command again when that one has ended",
        ) from None  # fmt: skip
    except OSError as error:
        raise _unwritable(error, folder) from error
    try:
        yield
    finally:
        os.close(handle)


def _finish_pending(root: Path, folder: Path) -> None:
    """Carry out what ``pending.zip`` says. The lock is held: its writer is dead."""
    sweep(folder)
    pending = folder / PENDING
    if not pending.exists():
        return
    operation = read(pending)
    for change in operation.changes:
        now = _content(root, change.path)
        if now is not None and now not in (change.before, change.after):
            raise AnswerNo(
                f"`{operation.command}` was interrupted, and this file was changed before it could "
                "be finished",
                where=str(root / change.path),
                next_step="move that file out of the way and run any command: it writes what "
                f"`{operation.command}` would have; then put your change in again",
            )
    try:
        _carry_out(root, operation.changes)
    except OSError as error:
        raise _unwritable(error, root) from error
    _number(folder, operation.number)


def _carry_out(root: Path, changes: Sequence[Change]) -> None:
    """Let every file be what ``after`` says; may be repeated. Raises OSError."""
    places = {root / change.path: change.after for change in changes}
    for folder in {path.parent for path in places}:
        for left in leftovers(folder):
            # ".NAME.random.new": of a write of NAME that was killed.
            if folder / left.name[1:].rsplit(".", 2)[0] in places:
                left.unlink()
    for path, content in places.items():
        if content is not None and _content(root, str(path.relative_to(root))) != content:
            write_atomically(path, content.data, mode=content.mode)
    removed = set()
    for path, content in places.items():
        if content is None and os.path.lexists(path):
            path.unlink()
            removed.add(path.parent)
    for folder in removed:
        sync_folder(folder)


def _number(folder: Path, number: int) -> None:
    try:
        (folder / PENDING).rename(record_path(folder, number))
        sync_folder(folder)
    except OSError as error:
        raise _unwritable(error, folder) from error


def _content(root: Path, path: str) -> Content | None:
    """Return what stands at ``path``; InputError for anything but a file within the project."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or {"..", ".git"} & set(parts) or "\0" in path:
        raise InputError(f"{path!r} is not a file of the project", where=str(root))
    place = root
    for part in parts:
        place = place / part
        if place.is_symlink():
            raise InputError(
                "this is a symbolic link, so nothing is written through it", where=str(place),
                next_step="put the real file or folder in its place",
            )  # fmt: skip
    try:
        handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(
            f"the file cannot be read: {error.strerror}", where=str(place),
            next_step="make it a regular file that you can read",
        ) from error  # fmt: skip
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise InputError(
                "this is not a regular file", where=str(place),
                next_step="move it out of the way",
            )  # fmt: skip
        with open(handle, "rb", closefd=False) as stream:
            return Content(stream.read(), stat.S_IMODE(status.st_mode))
    finally:
        os.close(handle)


def _unwritable(error: OSError, where: Path) -> PatchwrightError:
    room = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return PatchwrightError(
        f"the project cannot be written: {error.strerror}", where=str(error.filename or where),
        next_step=f"{'make room there' if room else 'make that writable'}; nothing was changed, "
        "or the next command finishes it",
    )  # fmt: skip
