"""Running one child to its end: deadline, bounded output, and nobody left behind.

The supervising process must be the only one of its kind in its address space (no
threads) and a child subreaper: then every process that the child ever started, in
whatever session or group it hides, is found below it and killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_DYING = 10.0  # seconds; a process in uninterruptible sleep cannot be waited for
HALF_LOG = 64 << 10  # bytes kept of a log's start, and of its end


class Abandoned(Exception):
    """The one that asked for the run is gone."""


@dataclass
class BoundedLog:
    """The first and the last ``HALF_LOG`` bytes of what a run printed."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    cut: int = 0

    def write(self, data: bytes) -> None:
        """Take more output; the middle goes."""
        room = HALF_LOG - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        # Cut in steps, or each line of a long log would move the whole tail.
        if len(self.tail) > 2 * HALF_LOG:
            self._trim()

    def _trim(self) -> None:
        surplus = len(self.tail) - HALF_LOG
        if surplus > 0:
            self.cut += surplus
            del self.tail[:surplus]

    def text(self) -> str:
        """Return the log; a line in it tells how much is missing."""
        self._trim()
        note = f"\n[... {self.cut:,} bytes of output are cut here ...]\n" if self.cut else ""
        head, tail = (bytes(part).decode("utf-8", "replace") for part in (self.head, self.tail))
        return head + note + tail


@dataclass(frozen=True)
class Ended:
    """How a child ended. ``status`` is an exit status, or minus the signal's number."""

    status: int
    timed_out: bool
    seconds: float
    log: str


def become_subreaper() -> None:
    """Make orphans below this process its own children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have this process killed once its parent, process ``parent``, is gone."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def run_forked(
    body: Callable[[], None], deadline: float, watched: int | None = None, kept: int | None = None
) -> Ended:
    """Fork, run ``body`` in the child and wait for at most ``deadline`` seconds.

    The child is in a session of its own, its output goes to the log and its input is
    empty. Whatever it started is killed with it. ``watched`` is a file descriptor whose
    end of file means that nobody waits for the answer: raises Abandoned. ``kept`` is the
    one descriptor beside its output that the child has; no program that it starts has it.
    """
    reader, writer = os.pipe()
    start = time.monotonic()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(body, writer, parent, kept)
    os.close(writer)
    log = BoundedLog()
    try:
        status = _wait(pid, reader, log, start + deadline, watched)
    finally:
        _kill_group(pid)
        kill_children()
        os.set_blocking(reader, False)
        _drain(reader, log)
        os.close(reader)
    seconds = time.monotonic() - start
    if status is None:
        return Ended(-signal.SIGKILL, True, seconds, log.text())
    return Ended(status, False, seconds, log.text())


def _child(body: Callable[[], None], writer: int, parent: int, kept: int | None) -> NoReturn:
    status = 1
    try:
        os.setsid()
        die_with_parent(parent)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        empty = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((empty, 0), (writer, 1), (writer, 2)):
            os.dup2(source, target)
        # The protocol's pipes must not be open in a test, nor in what it starts.
        open_files = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
        first = 3 if kept is None else kept
        os.closerange(3, first)
        os.closerange(first + (kept is not None), max(open_files) + 1)
        body()
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            import sys

            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _wait(pid: int, reader: int, log: BoundedLog, end: float, watched: int | None) -> int | None:
    """Return the child's status, None when it did not end in time."""
    process = os.pidfd_open(pid)
    sources = [process, reader, *([watched] if watched is not None else [])]
    try:
        while True:
            left = end - time.monotonic()
            ready = select.select(sources, [], [], max(left, 0))[0]
            if reader in ready:
                data = os.read(reader, 1 << 16)
                log.write(data)
                if not data:
                    sources.remove(reader)
            if process in ready:
                # Not reaped yet: its id still names the group that is to be killed.
                ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                assert ended is not None
                return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            # Nothing is sent to a busy worker: readable means end of file.
            if watched is not None and watched in ready:
                raise Abandoned
            if left <= 0:
                return None
    finally:
        os.close(process)


def _drain(reader: int, log: BoundedLog) -> None:
    with contextlib.suppress(BlockingIOError):
        while data := os.read(reader, 1 << 16):
            log.write(data)


def kill_children() -> None:
    """Kill and reap every process below this one; gives up on one that does not die."""
    end = time.monotonic() + _DYING
    while time.monotonic() < end:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            continue
        # A killed parent's children become ours: they are found in the next round.
        for below in _below(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(below, signal.SIGKILL)
        time.sleep(0.001)


def kill_strays(spared: Set[int]) -> None:
    """Kill and reap every process below this one but the children ``spared`` and their own."""
    # One that nobody is left to wait for is our own child: mostly there is none.
    with contextlib.suppress(OSError):  # not every kernel tells
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_bytes().split()
        if spared >= set(map(int, children)):
            return
    for below in _below(os.getpid(), spared):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(below, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(below, 0)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _below(root: int, spared: Collection[int] = ()) -> list[int]:
    """Return the ids of all processes below ``root``, leaving out ``spared`` and its own."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in parentheses may hold anything, so the last one counts.
                stat = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                children.setdefault(int(stat[1]), []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        below = [pid for pid in children.get(waiting.pop(), []) if pid not in spared]
        found += below
        waiting += below
    return found


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
