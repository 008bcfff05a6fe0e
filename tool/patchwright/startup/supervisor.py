"""Runs one start to its end in a process of its own, and leaves nothing of it behind.

    python -I -c "…; from patchwright.startup.supervisor import main; main()"

The request comes as one line of JSON on standard input and the outcome goes as one line
to standard output. When standard input ends, nobody waits for the outcome any more: the
start is killed. This process is a child subreaper, so every process of the start, in
whatever group it hides and whatever it ignores, is found below it and killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchwright.smoke.processes import BoundedLog, become_subreaper, kill_children
from patchwright.startup.tracebacks import LogReader

if TYPE_CHECKING:
    from patchwright.startup.asking import Server

_TICK = 0.1  # seconds between two looks at the clock
_LOOK = 2.0  # seconds between two looks at the disk
_WORDS = 4.0  # seconds that an aborted start gets to say where it stood
_ROOM = 256 << 20  # bytes that must stay free on the disk


@dataclass(frozen=True)
class Order:
    """One start. ``port`` is the one that its command was given; times in seconds."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str
    cwd: str
    deadline: float
    stall: float
    disk_limit: int
    port: int = 0
    ready_log: str = ""
    ready_path: str = ""
    answer: Mapping[str, Any] | None = None
    stages: tuple[str, ...] = ()

    def to_line(self) -> bytes:
        """Return the order as one line."""
        return json.dumps(asdict(self)).encode() + b"\n"


def main() -> None:
    """Take one order and report its outcome."""
    order = Order(**json.loads(sys.stdin.buffer.readline()))
    become_subreaper()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    report = _Start(order).run()
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


class _Start:
    def __init__(self, order: Order) -> None:
        self.order = order
        self.log = BoundedLog()
        self.reader = LogReader(order.ready_log, order.stages)
        self.begin = time.monotonic()
        self.heard = self.begin  # the last time that something came
        self.looked = self.begin
        self.ended_by = ""
        self.server: Server | None = None

    def run(self) -> dict[str, Any]:
        order = self.order
        try:
            process = subprocess.Popen(
                list(order.command), env=dict(order.environment), cwd=order.cwd,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return {"not_run": f"{error.strerror}: {order.command[0]}"}
        assert process.stdout is not None
        output = process.stdout.fileno()
        os.set_blocking(output, False)
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            selector.register(sys.stdin, selectors.EVENT_READ)
            while process.poll() is None and not self.ended_by:
                for key, _ in selector.select(_TICK):
                    if key.fileobj is sys.stdin:
                        # Nothing more is sent: readable means that the asker is gone.
                        self._kill(process)
                        os._exit(1)
                    elif not self._drain(output):
                        selector.unregister(output)
                self.ended_by = self._judge()
        status = process.poll()
        if self.ended_by in ("stall", "deadline"):
            self._ask_where(process, output)
        self._kill(process)
        self._drain(output)
        self.reader.close()
        return self._report(status)

    def _judge(self) -> str:
        """Return why the start is over although its process lives, or nothing."""
        order, now = self.order, time.monotonic()
        if now - self.begin > order.deadline:
            return "deadline"
        if now - self.looked > _LOOK:
            self.looked = time.monotonic()
            if self._disk():
                return "disk"
        if self.server is None:
            if now - self.heard > order.stall:
                return "stall"
            if (order.ready_log or order.ready_path) and (self.reader.ready or not order.ready_log):
                self._ask()
            return ""
        if self.server.done:
            return "answered"
        # Its requests make the server write log lines: these are no sign of life.
        return "stall" if order.ready_log and now - self.server.begin > order.stall else ""

    def _ask(self) -> None:
        from patchwright.startup.asking import Server

        order = self.order
        self.server = Server(order.port, order.ready_path, order.answer)
        # The log must be read on meanwhile, or a full pipe stops the server.
        threading.Thread(target=self.server.ask, daemon=True).start()

    def _disk(self) -> bool:
        used = 0
        for folder, _, names in os.walk(self.order.folder):
            for name in names:
                with contextlib.suppress(OSError):
                    used += os.lstat(f"{folder}/{name}").st_blocks * 512
        free = os.statvfs(self.order.folder)
        return used > self.order.disk_limit or free.f_bavail * free.f_frsize < _ROOM

    def _drain(self, output: int) -> bool:
        """Read what is there; return False at the end of the output."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):  # a flood must not keep us from the clock
                data = os.read(output, 1 << 16)
                if not data:
                    return False
                self.heard = time.monotonic()
                self.log.write(data)
                self.reader.feed(data)
        return True

    def _ask_where(self, process: subprocess.Popen[bytes], output: int) -> None:
        """Abort what hangs: Python's faulthandler then says where each thread stood."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGABRT)
        end = self.heard = time.monotonic()
        while time.monotonic() < end + _WORDS and time.monotonic() < self.heard + _WORDS / 4:
            self._drain(output)
            time.sleep(_TICK / 2)

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        kill_children()

    def _report(self, status: int | None) -> dict[str, Any]:
        raised = self.reader.innermost()
        server = self.server
        return {
            "status": status,
            "ended_by": self.ended_by,
            "seconds": time.monotonic() - self.begin,
            "raised": asdict(raised) if raised is not None else None,
            "lines": self.reader.lines,
            "stacks": [[asdict(f) for f in stack] for stack in self.reader.stacks],
            "stage": self.reader.stage,
            "ready": self.reader.ready,
            "answer": server.answer if server is not None else "",
            "wrong": server.wrong if server is not None and server.done else "",
            "log": self.log.text(),
            "left": [e.name for e in Path("/proc/self/task").iterdir() for e in _children(e)],
        }


def _children(task: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [Path(pid) for pid in (task / "children").read_text("ascii").split()]
    return []
