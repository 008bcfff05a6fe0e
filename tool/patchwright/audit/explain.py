"""From a server's log or a traceback to the gate that led there and the patch that opened it.

The innermost error counts: sglang wraps what happens while CUDA graphs are captured into
advice about memory. Markers are those of sglang 0.5.9.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_FRAME = re.compile(
    r'^(?P<indent>[\s|]*)File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)'
)
_ERROR = re.compile(
    r"^(?P<indent>[\s|]*)(?P<type>(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Timeout))"
    r"(?:: (?P<text>.*))?$"
)
_STAMP = re.compile(r"^\[?\d{4}-\d\d-\d\d[ T][^\]]*\]?\s*")
_CAPTURE = re.compile(r"Capture (?:cuda|CUDA) graph failed: (?P<text>.*)")

# What a message means, by what stands in it; the class is that of a failed probe.
_MEANINGS: tuple[tuple[str, str, str], ...] = (
    (r"No supported CUDA architectures found for major versions", "jit-no-arch",
     "the JIT module's list of major versions does not hold this GPU's"),
    (r"no kernel image is available", "no-kernel-image",
     "the object that is loaded has no code for this GPU"),
    (r"not supported on \.target|ptxas (?:fatal|error)", "ptxas-fail",
     "an instruction of the kernel does not exist on this GPU"),
    (r"nvcc.*(?:error|fatal)|ninja: build stopped|Ninja build failed", "nvcc-fail",
     "the CUDA sources do not compile"),
    (r"Attempting to use .* without CUTE_ARCH|CUTE_INVALID_CONTROL_PATH", "poisoned",
     "the kernel was compiled without the instructions that it needs: it traps"),
    (r"illegal instruction", "illegal-instruction", "the kernel trapped on the device"),
    (r"out of resource: shared memory|shared memory.*(?:exceed|too large|limit)", "smem",
     "the kernel asks for more shared memory than the GPU has"),
    (r"Unsupported architecture|unsupported arch", "unsupported-architecture",
     "a vendor library has no kernel for this GPU"),
    (r"is not supported on this|only supported on|does not support compute capability|"
     r"BackendSupportedError|not supported with compute capability", "refused",
     "an operator refuses this GPU"),
    (r"out of memory|OutOfMemoryError", "oom", "the device's memory is full"),
    (r"No module named|cannot import name", "import-error", "a module is missing"),
    (r"watchdog timeout", "hang", "nothing moved until the watchdog ended it"),
)  # fmt: skip
_FAILED = re.compile(
    r"Scheduler hit an exception|Received sigquit from a child|scheduler is dead|"
    r"Initialization failed|watchdog timeout|Capture cuda graph failed|Traceback \(most recent"
)


@dataclass(frozen=True)
class Frame:
    """One line of a traceback; ``path`` as it stands in the log."""

    path: str
    line: int
    function: str


@dataclass(frozen=True)
class Failure:
    """The innermost error of a log: its frames outermost first, its class and its meaning."""

    type: str
    message: str
    frames: tuple[Frame, ...] = ()
    kind: str = "unknown"
    meaning: str = ""
    wrapped: bool = False
    majors: tuple[int, ...] = field(default=())


def read_failure(text: str) -> Failure | None:
    """Return the innermost error of a log or traceback, None for a text that has none."""
    lines = [_STAMP.sub("", line) for line in text.splitlines()]
    blocks = _tracebacks(lines)
    if not blocks:
        captured = _CAPTURE.search(text)
        if captured is not None:
            return _judged("RuntimeError", captured["text"], (), wrapped=True)
        marker = next((line for line in lines if _FAILED.search(line)), None)
        found = next((line for line in lines if _meaning(line)[0] != "unknown"), None)
        if marker is None and found is None:
            return None
        return _judged("", (found or marker or "").strip(), ())
    # "During handling of" prints the inner error first; of several tracebacks (one for
    # each rank) the first is the cause, the others its consequence.
    known = [b for b in blocks if _meaning(b[1])[0] != "unknown"]
    type_, message, frames = (known or blocks)[0]
    wrapped = any("Capture cuda graph failed" in b[1] for b in blocks)
    return _judged(type_, message, tuple(frames), wrapped=wrapped)


def _judged(
    type_: str, message: str, frames: tuple[Frame, ...], *, wrapped: bool = False
) -> Failure:
    if inner := _CAPTURE.search(message):
        message, wrapped = inner["text"], True
    kind, meaning = _meaning(f"{type_}: {message}")
    majors = re.search(r"for major versions \[([\d, ]+)\]", message)
    numbers = tuple(int(n) for n in majors[1].split(",")) if majors else ()
    return Failure(type_, message, frames, kind, meaning, wrapped, numbers)


def _meaning(text: str) -> tuple[str, str]:
    for pattern, kind, meaning in _MEANINGS:
        if re.search(pattern, text, re.IGNORECASE):
            return kind, meaning
    return "unknown", ""


def _tracebacks(lines: Sequence[str]) -> list[tuple[str, str, list[Frame]]]:
    """Return (error's type, message, frames) of each traceback, in order."""
    found: list[tuple[str, str, list[Frame]]] = []
    frames: list[Frame] = []
    inside = False
    for line in lines:
        if "Traceback (most recent call last)" in line:
            frames, inside = [], True
        elif inside and (frame := _FRAME.match(line)):
            frames.append(Frame(frame["path"], int(frame["line"]), frame["function"]))
        elif inside and (error := _ERROR.match(line)) and frames:
            found.append((error["type"], (error["text"] or "").strip(), frames))
            inside = False
    return found


def installed_path(path: str, packages: Sequence[str]) -> str | None:
    """Return the part of a file's path from its package on: ``sglang/srt/x.py``."""
    parts = path.replace("\\", "/").split("/")
    for at in range(len(parts) - 1, -1, -1):
        if parts[at] in packages:
            # The last folder of that name may be a package's own: take the outermost
            # one behind site-packages.
            start = next(
                (
                    i + 1
                    for i in range(at, -1, -1)
                    if parts[i] in ("site-packages", "dist-packages")
                ),
                None,
            )
            return "/".join(parts[start if start is not None else at :])
    return None
