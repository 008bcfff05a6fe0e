"""Changes to installed files, all or nothing: the writer of `apply --env` and `unapply`.

In ``site-packages/.patchwright`` stand: ``applied.json`` (what the environment carries),
``kept/`` (the pristine files that gave way, moved there by hard link: taking them back
restores the very inodes that the installer's cache shares), and while a command works
``staged/`` and ``journal.json``. Before the journal is there nothing has changed, and what
stands here is rubbish; from then on the change is certain: whoever finds the journal of a
killed command carries it out.

A file is never written in place: it may be a hard link into a cache. It is made beside
its place and renamed. Its time is derived from its content, in 2001 to 2004: bytecode and
ninja go by times, so other content must have another time, and the same content the same.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from patchwright.environment.content import content_time
from patchwright.environment.metadata import recorded_hash
from patchwright.errors import AnswerNo, InputError, PatchwrightError
from patchwright.files import lock_folder, sweep, sync_folder, write_atomically
from patchwright.quoting import display
from patchwright.upstreams.archive import path_fault

FOLDER = ".patchwright"
_FORMAT = 1
_BYTECODE = re.compile(rb"((?:.*/)?)__pycache__/([^/.]+)\.[^/]+\.pyc", re.DOTALL)


@dataclass(frozen=True)
class Carried:
    """What an environment carries; ``applied.json``.

    ``project`` is the folder of the project that the patches are from, ``patches`` their
    files (from the project's root) with sha256, ``trees`` the upstreams' trees after them.
    ``distributions`` are by name: pristine and new version, name of the pristine
    ``.dist-info``. ``files`` maps each installed path that is not pristine to the sha256 of
    its pristine and of its present content (None: no such file).
    """

    project: str
    patches: Mapping[str, str] = field(default_factory=dict)
    trees: Mapping[str, str] = field(default_factory=dict)
    distributions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    files: Mapping[bytes, tuple[str | None, str | None]] = field(default_factory=dict)


class Move(NamedTuple):
    """One file: from the sha256 it has now to the one it shall have (None: no file).

    ``source`` says where its new bytes are: ``staged`` or ``kept`` (empty: nowhere).
    """

    path: bytes
    now: str | None
    then: str | None
    source: str


def sha256(data: bytes) -> str:
    """Return the digest by which contents are compared here."""
    return hashlib.sha256(data).hexdigest()


def source_of(bytecode: bytes) -> bytes | None:
    """Return the path of the source beside which bytecode stands, None for any other file."""
    match = _BYTECODE.fullmatch(bytecode)
    return match[1] + match[2] + b".py" if match else None


class SiteFiles:
    """The files of one ``site-packages``, locked for this process."""

    def __init__(self, packages: Path) -> None:
        self.packages = packages
        self.folder = packages / FOLDER
        self.kept, self.staged = self.folder / "kept", self.folder / "staged"
        self._record, self._journal = self.folder / "applied.json", self.folder / "journal.json"

    # What is there

    def carried(self) -> Carried | None:
        """Return what the environment carries, None where it is nothing."""
        return _read(self._record)

    @property
    def is_half_way(self) -> bool:
        """Whether a killed command left its work unfinished."""
        return self._journal.exists()

    def content(self, path: bytes) -> bytes | None:
        """Return the bytes of an installed file, None where there is none."""
        place = self._place(path)
        return place.read_bytes() if place.is_file() else None

    def pristine(self, path: bytes, carried: Carried | None) -> bytes | None:
        """Return the bytes that the installer wrote; PatchwrightError where they are lost."""
        if carried is None or path not in carried.files:
            return self.content(path)
        digest = carried.files[path][0]
        if digest is None:
            return None
        try:
            data = (self.kept / _key(path)).read_bytes()
        except OSError:
            data = b""
        if sha256(data) != digest:
            raise PatchwrightError(
                "the pristine copy that was kept is damaged",
                where=str(self.kept / _key(path)),
                next_step=f"install what {display(path)} belongs to again; remove {self.folder}",
            )  # fmt: skip
        return data

    # Changing it

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other patchwrights out and finish what a killed one left; tidy up at the end.

        Raises PatchwrightError where another one works here or nothing can be written.
        """
        with self._errors():
            handle = self._lock()
            try:
                self.recover()
                yield
            finally:
                if not self._journal.exists():
                    self._tidy()
                os.close(handle)

    def recover(self) -> bool:
        """Carry out the journal of a killed command; False where there is none."""
        try:
            journal = json.loads(self._journal.read_bytes())
            after = journal["carried"]
            moves = [Move(p.encode("latin-1"), *rest) for p, *rest in journal["moves"]]
            if any(path_fault(m.path) or m.source not in ("", "kept", "staged") for m in moves):
                raise ValueError("it names a file outside")
        except FileNotFoundError:
            return False
        except (ValueError, KeyError, TypeError) as error:
            raise PatchwrightError(
                f"the journal of a killed command cannot be read: {error}",
                where=str(self._journal), next_step="make the environment anew",
            ) from error  # fmt: skip
        self._carry_out(moves, after)
        return True

    def change(
        self, after: Carried | None, contents: Mapping[bytes, bytes], now: Carried | None
    ) -> list[Move]:
        """Move the files from what ``now`` says to what ``after`` says (None: pristine).

        ``contents`` has the bytes of every file that is not pristine after it. Returns what
        was done. Raises OSError before anything has changed.
        """
        before, then = (dict(c.files) if c is not None else {} for c in (now, after))
        moves: list[Move] = []
        shutil.rmtree(self.staged, ignore_errors=True)
        self.kept.mkdir(exist_ok=True)
        self.staged.mkdir()
        inside = self.packages.resolve()
        for path in sorted(before.keys() | then.keys()):
            if not self._place(path).parent.resolve().is_relative_to(inside):
                raise InputError(
                    "the folder is a link that leads out of the environment",
                    where=str(self._place(path).parent),
                    next_step="install the package itself in its place",
                )  # fmt: skip
            pristine, new = then.get(path, (None, None))
            if path in before:
                pristine, old = before[path][0], self._digest(path)
            else:
                old = pristine
                if pristine is not None:
                    _keep(self._place(path), self.kept / _key(path))
            if path not in then:
                moves.append(Move(path, old, pristine, "kept" if pristine else ""))
            elif old != new:
                if new is not None:
                    self._stage(path, contents[path])
                moves.append(Move(path, old, new, "staged" if new else ""))
        for folder in (self.kept, self.staged):
            sync_folder(folder)
        # Bytecode last: a source that is still the old one would be compiled over it.
        moves.sort(key=lambda move: (move.path.endswith(b".pyc"), move.path))
        journal = {
            "carried": _to_json(after) if after is not None else None,
            "moves": [(m.path.decode("latin-1"), *m[1:]) for m in moves],
        }
        write_atomically(self._journal, json.dumps(journal).encode())
        self._carry_out(moves, journal["carried"])
        return moves

    def _carry_out(self, moves: list[Move], after: object) -> None:
        for move in moves:
            place = self._place(move.path)
            digest = self._digest(move.path)
            if digest == move.then:
                continue
            if digest not in (None, move.now) and source_of(move.path) is None:
                raise AnswerNo(
                    "the file was edited after a command was killed here", where=str(place),
                    next_step="move it away and run the command again",
                )  # fmt: skip
            if move.then is None:
                place.unlink(missing_ok=True)
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            source = getattr(self, move.source) / _key(move.path)
            if move.source == "kept":
                source = _keep(source, self.staged / _key(move.path))
            source.replace(place)
        changed = {move.path for move in moves}
        for move in moves:
            for compiled in self._bytecode(move.path):
                if os.fsencode(compiled.relative_to(self.packages)) not in changed:
                    compiled.unlink(missing_ok=True)
        for folder in sorted({self._place(p).parent for p in changed}, reverse=True):
            self._settle(folder)
        if after is None:
            self._record.unlink(missing_ok=True)
        else:
            write_atomically(self._record, json.dumps(after).encode())
        self._journal.unlink()
        sync_folder(self.folder)

    def bytecode(self, path: bytes) -> list[bytes]:
        """Return the compiled files that stand beside a source file."""
        return [os.fsencode(p.relative_to(self.packages)) for p in self._bytecode(path)]

    def _bytecode(self, path: bytes) -> list[Path]:
        if not path.endswith(b".py"):
            return []
        source = self._place(path)
        return sorted((source.parent / "__pycache__").glob(f"{glob.escape(source.stem)}.*.pyc"))

    def _digest(self, path: bytes) -> str | None:
        data = self.content(path)
        return sha256(data) if data is not None else None

    def _settle(self, folder: Path) -> None:
        """Make the renames in a folder survive a power cut; remove what became empty."""
        with contextlib.suppress(OSError):
            while folder != self.packages:
                with contextlib.suppress(OSError):
                    (folder / "__pycache__").rmdir()
                folder.rmdir()
                folder = folder.parent
        if folder.is_dir():
            sync_folder(folder)

    def _stage(self, path: bytes, data: bytes) -> None:
        target = self.staged / _key(path)
        with target.open("wb") as stream:
            stream.write(data)
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(stream.fileno(), self._place(path).stat().st_mode & 0o777)
            stream.flush()
            seconds = content_time(recorded_hash(data))
            os.utime(stream.fileno(), (seconds, seconds))
            os.fsync(stream.fileno())

    def _place(self, path: bytes) -> Path:
        return self.packages / os.fsdecode(path)

    # The folder

    def _lock(self) -> int:
        while True:
            self.folder.mkdir(exist_ok=True)
            # A tidy one that has just left may have removed it.
            with contextlib.suppress(FileNotFoundError):
                handle = lock_folder(self.folder, wait=False)
                with contextlib.suppress(OSError):
                    if os.path.samestat(os.fstat(handle), self.folder.stat()):
                        return handle
                os.close(handle)

    def _tidy(self) -> None:
        """Remove what no record needs: staged and kept files, and an empty folder."""
        with contextlib.suppress(OSError, InputError):
            sweep(self.folder)
            shutil.rmtree(self.staged, ignore_errors=True)
            carried = self.carried()
            needed = {_key(p) for p, (was, _) in carried.files.items() if was} if carried else set()
            for path in self.kept.glob("*"):
                if path.name not in needed:
                    path.unlink()
            if carried is None:
                self.kept.rmdir()
                self.folder.rmdir()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except BlockingIOError as error:
            raise PatchwrightError(
                "another patchwright is changing this environment", where=str(self.packages),
                next_step="run it again when that one has ended",
            ) from error  # fmt: skip
        except OSError as error:
            state = "run it again to finish" if self.is_half_way else "nothing was changed"
            raise PatchwrightError(
                f"the environment cannot be written: {error.strerror} ({state})",
                where=str(error.filename or self.packages),
                next_step="make room, or make the folder writable, and run it again",
            ) from error  # fmt: skip


def _key(path: bytes) -> str:
    return sha256(path)[:40]


def _keep(source: Path, target: Path) -> Path:
    """Give a file a second name (a copy where the file system has no hard links)."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
    return target


def _to_json(carried: Carried) -> dict[str, object]:
    content = asdict(carried)
    content["files"] = [(p.decode("latin-1"), *hashes) for p, hashes in carried.files.items()]
    return {"format": _FORMAT} | content


def _read(path: Path) -> Carried | None:
    try:
        content = json.loads(path.read_bytes())
        version = content.pop("format")
        if isinstance(version, int) and version > _FORMAT:
            raise InputError(
                f"format {version} was written by a newer patchwright", where=str(path),
                next_step=f"update patchwright (this one reads format {_FORMAT})",
            )  # fmt: skip
        files = {p.encode("latin-1"): (was, now) for p, was, now in content.pop("files")}
        for name in files:
            if fault := path_fault(name):
                raise ValueError(f"{display(name)}: {fault}")
        return Carried(**content, files=files)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"the record of what was applied cannot be read: {error}", where=str(path),
            next_step="make the environment anew",
        ) from error  # fmt: skip
