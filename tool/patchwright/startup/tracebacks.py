"""Reading the log of a start as it comes: tracebacks, stages, lines that tell of errors.

A log may be far longer than what is kept of it, so everything is picked out on the way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_LINE = 8192  # bytes of one line that are looked at
_KEPT = 30  # error lines, and tracebacks at each end
_STACKS = 200  # threads of all processes
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_START = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)(?:, in (.+?))?\s*$')
# What faulthandler writes when a process is aborted: the innermost frame first.
_STACK = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+ .*\(most recent call first\):")
_STACK_FRAME = re.compile(r'^  File "([^"]+)", line (\d+) in (.+?)\s*$')
_ERROR = re.compile(r"^((?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*))(?::\s?(.*))?$")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_TELLS = re.compile(
    r"error|fatal|fail|exception|assert|abort|timeout|in use|usage:|no space left", re.IGNORECASE
)
_ADVICE = re.compile(r"Possible solutions|set --mem-fraction-static|set --cuda-graph-max-bs")
# What a server's processes raise because another one has died.
_NOISE = ("KeyboardInterrupt", "CancelledError", "SystemExit", "EOFError", "BrokenPipeError",
          "ConnectionResetError", "GeneratorExit")  # fmt: skip
_FATAL = re.compile(r"hit an exception|Initialization failed")
_FOREIGN = 40  # lines of other processes inside one traceback


def _ends(line: bytes) -> bytes:
    """Return a line without its middle where it is long.

    Its end counts as well: what one process writes may go on in another one's line.
    """
    return line if len(line) <= _LINE else line[: _LINE // 2] + b" " + line[-_LINE // 2 :]


@dataclass(frozen=True)
class Frame:
    """One frame; ``file`` as the log has it."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Raised:
    """An exception with its frames, the innermost last."""

    type: str
    message: str
    frames: tuple[Frame, ...]
    fatal: bool = False  # the log says that a server process died of it

    @property
    def name(self) -> str:
        """The exception's name without its module."""
        return self.type.rpartition(".")[2]


@dataclass
class _Open:
    frames: list[Frame] = field(default_factory=list)
    fatal: bool = False
    foreign: int = 0


class LogReader:
    """Takes the log in pieces; ``innermost`` is the error that it is about."""

    def __init__(self, ready: str = "", stages: Sequence[str] = ()) -> None:
        self.ready = False
        self.stage = ""
        self.lines: list[str] = []
        self.stacks: list[list[Frame]] = []  # of an aborted process; the innermost first
        self._in_stack = False
        self._ready = ready
        self._stages = stages
        self._rest = b""
        self._open: _Open | None = None
        self._first: list[Raised] = []
        self._last: list[Raised] = []
        self._chained = False
        self._announced = False
        self._advice = 0

    def feed(self, data: bytes) -> None:
        """Take more of the log."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = _ends(self._rest)
        for line in lines:
            self._line(_ANSI.sub("", _ends(line).decode("utf-8", "replace")).rstrip("\r"))

    def close(self) -> None:
        """Take a last line that has no end."""
        self.feed(b"\n")

    def innermost(self) -> Raised | None:
        """Return the cause: of what the server says it died of, or else of the last error."""
        real = [r for r in (*self._first, *self._last) if r.name not in _NOISE]
        fatal = next((r for r in real if r.fatal), None)
        return fatal or (real[-1] if real else None)

    def _line(self, line: str) -> None:
        if self._ready and self._ready in line:
            self.ready = True
        for stage in self._stages:
            if stage in line:
                self.stage = stage
        if self._in_stacks(line):
            return
        if _START in line:
            self._open = _Open(fatal=self._announced or bool(_FATAL.search(line)))
            self._announced = False
            return
        if self._open is not None and self._in_traceback(line, self._open):
            return
        if any(text in line for text in _CHAINED):
            self._chained = True
        elif _FATAL.search(line):
            self._announced = True
        self._keep(line)

    def _in_stacks(self, line: str) -> bool:
        if _STACK.match(line):
            self._in_stack = len(self.stacks) < _STACKS
            if self._in_stack:
                self.stacks.append([])
            return True
        frame = _STACK_FRAME.match(line) if self._in_stack else None
        if frame is None:
            self._in_stack = False
            return False
        self.stacks[-1].append(Frame(frame[1], int(frame[2]), frame[3]))
        return True

    def _in_traceback(self, line: str, block: _Open) -> bool:
        frame = _FRAME.match(line)
        if frame:
            block.frames.append(Frame(frame[1], int(frame[2]), frame[3] or "<module>"))
            return True
        if line[:1].isspace() or not line:
            return True
        error = _ERROR.match(line)
        if error and block.frames and (error[2][:1].isupper() or "." in error[1]):
            self._raised(Raised(error[1], error[3] or "", tuple(block.frames), block.fatal))
            self._open = None
            return True
        block.foreign += 1
        if block.foreign > _FOREIGN:
            self._open = None
        return False

    def _raised(self, raised: Raised) -> None:
        # In a chain the first one is the cause: what follows was raised while handling it.
        if self._chained:
            self._chained = False
            return
        if len(self._first) < _KEPT:
            self._first.append(raised)
        else:
            self._last = [*self._last[-_KEPT + 1 :], raised]

    def _keep(self, line: str) -> None:
        if _ADVICE.search(line):
            # The whole block of advice names errors that did not happen.
            self._advice = 8
        if self._advice:
            self._advice -= 1
            return
        if line.strip() and _TELLS.search(line):
            self.lines = [*self.lines[-_KEPT + 1 :], line.strip()[:500]]
