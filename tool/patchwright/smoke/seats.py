"""Where runs happen: a prepared worker with two site folders, locked for one command."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import patchwright
from patchwright.errors import PatchwrightError
from patchwright.files import lock_folder
from patchwright.smoke.leftovers import left_in
from patchwright.smoke.memory import take_memory
from patchwright.smoke.protocol import Place, Request
from patchwright.smoke.trees import format_listing

if TYPE_CHECKING:
    from filelock import FileLock

    from patchwright.store import ObjectStore
    from patchwright.worktree import Slot

_GRACE = 30.0  # seconds that a worker gets beyond a run's deadline, and to leave
_LEAVING = 10.0  # seconds that the worker of a killed command gets to leave
_TWINS = {"tree": "baseline", "baseline": "tree"}  # site folders that share their files
_SIDES = ("", "-ahead")  # after a site folder's name
_PINS = "pins"  # the file that says for which pins a seat was taken last
_SEATS = 8  # from so many on (or two for each core), a seat of other pins is moved

# -I: neither PYTHONPATH nor the user's own packages, nor the current folder.
_START = """\
import signal, sys
# Ctrl-C is for the one who asked; it then closes the worker's input.
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path.insert(0, sys.argv[1])
from patchwright.smoke import generator_server
server = generator_server.start()
from patchwright.smoke import worker
worker.main(server)
"""


class WorkerDied(Exception):
    """The worker is gone, and the run with it."""


class Seat:
    """One worker process and its site folders, ``tree`` and ``baseline``.

    The folders stay in the cache between commands and are moved by tree difference. A seat
    that looks ``ahead`` has each of them twice: those of the next run are laid out, and those
    of the last one looked at, while a run is under way.
    """

    def __init__(self, folder: Path, lock: FileLock, worker_lock: int) -> None:
        """Take a seat: ``lock`` keeps other commands away, ``worker_lock`` is the worker's too."""
        self.folder = folder
        self.run_folder = folder / "run"  # of what compiles, and of servers
        self.ahead = False
        self._lock = lock
        self._worker_lock = worker_lock
        self._slots: dict[str, Slot] = {}
        self._sure: set[str] = set()  # the folders that were looked at in this command
        self._laid: set[str] = set()  # those of the next run
        self._used: list[set[str]] = []  # those of the runs that were sent, oldest first
        self._side = 0
        self._light: Path | None = None  # of what compiles nothing
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = bytearray()
        self._ready = False
        self._end = 0.0

    def note(self, pins: str) -> None:
        """Have the seat be found again by its pins; a disk that is full costs time, no more."""
        with contextlib.suppress(OSError):
            if pins:
                (self.folder / _PINS).write_text(pins, "ascii")

    def folder_of(self, tier: str) -> Path:
        """Return the folder for runs of a tier, or for collecting (no tier)."""
        if tier not in ("", "static"):
            return self.run_folder
        if self._light is None:
            self._light = (take_memory(self.folder) or self.folder) / "run"
        return self._light

    def place(
        self, store: ObjectStore, name: str, tree: str, state: tuple[tuple[str, str], ...]
    ) -> Place:
        """Bring the site folder ``name`` to ``tree`` (installed layout) and return it.

        It is the next run's. Raises PatchwrightError where the cache cannot be written.
        """
        try:
            return self._placed(store, name, _SIDES[self._side], tree, state)
        except OSError as error:
            raise _unwritable(error, self.folder) from error

    def _placed(
        self, store: ObjectStore, name: str, side: str, tree: str,
        state: tuple[tuple[str, str], ...],
    ) -> Place:  # fmt: skip
        from patchwright.worktree import Slot

        # Never with the other side: a run may be under way there.
        twin = self._slots.get(f"{_TWINS[name]}{side}")
        name += side
        if name not in self._slots:
            self._slots[name] = Slot(self.folder / name, store)
        slot = self._slots[name]
        slot.move(tree, twin)
        if name not in self._sure:
            slot.repair()  # what a stranger did to it
        self._laid.add(name)
        listing = self.folder / f"{tree}.listing"
        if not listing.exists():
            temporary = listing.with_suffix(".new")
            temporary.write_bytes(format_listing(slot.listing()))
            temporary.replace(listing)
        return Place(slot.folder.resolve(), state, listing)

    def undo(self) -> list[str]:
        """Undo what the run that ended did to its site folders, and return what that was."""
        found: set[bytes] = set()
        used = self._used.pop(0)
        for name in used:
            found.update(path for path, _ in self._slots[name].repair())
        # What a run does to a folder that it was not given is found after the next run there:
        # an error of that one, never a pass. A file that it shares with the folder that the
        # run was given is looked at before.
        self._sure = (set() if found else self._sure) | used
        return sorted(map(os.fsdecode, found))

    def begin(self) -> None:
        """Have the folders that were laid out be those of a run that begins."""
        self._used.append(self._laid)
        self._laid = set()
        if self.ahead:
            self._side = 1 - self._side

    @property
    def can_lay_out(self) -> bool:
        """Whether the next run's folders are no longer, or not yet, those of another run."""
        return len(self._used) < 1 + self.ahead

    def send(self, request: Request) -> None:
        """Start a run; its answer is read when ``fileno`` is readable."""
        process = self._started()
        self._end = time.monotonic() + request.deadline + _GRACE
        # A worker that died between two runs tells so by the end of its answers.
        with contextlib.suppress(BrokenPipeError):
            assert process.stdin is not None
            process.stdin.write(request.to_line())
            process.stdin.flush()

    @property
    def overdue(self) -> bool:
        """Whether the worker itself hangs."""
        return time.monotonic() > self._end

    def fileno(self) -> int:
        """Return the descriptor on which the answer comes."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def receive(self) -> dict[str, Any] | None:
        """Read what is there; return the answer once it is whole, else None.

        Raises WorkerDied, and PatchwrightError for a worker that could not even start.
        """
        data = os.read(self.fileno(), 1 << 20)
        if not data and not self._ready:
            raise PatchwrightError(
                f"the process that runs smoke tests did not start: {self.last_words()}",
                where=sys.executable,
                next_step="install patchwright with all of its dependencies in this environment",
            )
        if not data:
            raise WorkerDied
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            answer: dict[str, Any] = json.loads(self._buffer[:end])
            del self._buffer[: end + 1]
            self._ready = True
            if answer:  # the first line only says that it is ready
                return answer
        return None

    def dismiss(self) -> None:
        """Tell the worker to end, and with it the run that is under way."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def end_worker(self, grace: float = _GRACE) -> None:
        """End the worker and wait until it is gone, killing it after ``grace`` seconds."""
        self.dismiss()
        process, self._process = self._process, None
        self._buffer.clear()
        self._ready = False
        if process is None:
            return
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def close(self) -> None:
        """End the worker and let another command have the folders."""
        try:
            self.end_worker()
            _sweep(self.folder)
        finally:
            for slot in self._slots.values():
                slot.close()
            os.close(self._worker_lock)
            self._lock.release()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            source = str(Path(patchwright.__file__).parent.parent)
            environment = {
                "PATH": os.environ.get("PATH", os.defpath),
                "LC_ALL": "C.UTF-8",
                "HOME": str(self.run_folder),
            }
            with (self.folder / "worker.log").open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-B", "-c", _START, source],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                    cwd=self.folder, env=environment, start_new_session=True,
                    pass_fds=(self._worker_lock,),
                )  # fmt: skip
        return self._process

    def last_words(self) -> str:
        """Return the end of what the worker itself said, to be quoted in an error."""
        with contextlib.suppress(OSError):
            text = (self.folder / "worker.log").read_text("utf-8", "replace")
            return "".join(text.strip().splitlines()[-1:])[:300]
        return ""


def take_seat(parent: Path, pins: str = "") -> Seat:
    """Return a seat below ``parent`` that no other process holds, made if need be.

    ``pins`` names the pins that its work will be on: a seat that was last used for them is
    taken first, so that two pins in turn do not have their files written again each time.
    Raises PatchwrightError where the cache cannot be written.
    """
    folder = parent
    try:
        for folder in _seats(parent, pins):
            folder.mkdir(parents=True, exist_ok=True)
            seat = _locked(folder.resolve())
            if seat is not None:
                _sweep(seat.folder)
                seat.note(pins)
                return seat
    except OSError as error:
        raise _unwritable(error, folder) from error
    raise AssertionError  # there is always a new one


def _seats(parent: Path, pins: str) -> Iterator[Path]:
    """Yield the folders of seats in the order in which they are to be tried."""
    numbers = sorted(int(path.name) for path in parent.glob("[0-9]*") if path.name.isdigit())
    known = [(parent / str(number), *_used_for(parent / str(number))) for number in numbers]
    own = [folder for folder, _, last in known if not pins or last == pins]
    yield from own
    yield from (folder for folder, _, last in known if folder not in own and not last)
    others = sorted((used, folder) for folder, used, last in known if folder not in own and last)
    new = (parent / str(number) for number in itertools.count() if number not in numbers)
    if len(known) < max(_SEATS, 2 * (os.cpu_count() or 1)):
        yield next(new)
    yield from (folder for _, folder in others)
    yield from new


def _used_for(folder: Path) -> tuple[float, str]:
    """Return when a seat was last taken, and for which pins."""
    try:
        return (folder / _PINS).stat().st_mtime, (folder / _PINS).read_text("ascii")
    except (OSError, ValueError):
        return 0.0, ""


def _unwritable(error: OSError, folder: Path) -> PatchwrightError:
    return PatchwrightError(
        f"the cache cannot be written: {error.strerror}", where=str(error.filename or folder),
        next_step="make room, make the folder writable, or set PATCHWRIGHT_CACHE to another one",
    )  # fmt: skip


def sweep_seats(parent: Path) -> None:
    """Remove what killed commands left in seats that nobody holds; never raises OSError."""
    for folder in parent.glob("*"):
        with contextlib.suppress(OSError):
            if any(left_in(folder)) and (seat := _locked(folder)) is not None:
                seat.close()


def _locked(folder: Path) -> Seat | None:
    """Return the seat in ``folder``, None where another process has it. Raises OSError."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / "lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    # The worker of a command that was killed clears its run away before it leaves.
    end = time.monotonic() + _LEAVING
    while True:
        try:
            return Seat(folder, lock, lock_folder(folder, wait=False))
        except BlockingIOError:
            if time.monotonic() > end:
                lock.release()
                return None
            time.sleep(0.01)
        except BaseException:
            lock.release()
            raise


def _sweep(folder: Path) -> None:
    for path in left_in(folder):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
