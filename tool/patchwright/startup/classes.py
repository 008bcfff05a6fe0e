"""Which kind of failure a start ended in: by what the log says first, the exit code second.

A server whose child fails kills itself with SIGKILL, and in a container the code may be
0: the code alone tells little. The advice that upstream prints after a failed graph
capture ("Possible solutions: …") matches words of other kinds, so it is never read: the
inner error decides.
"""

from __future__ import annotations

import re

from patchwright.startup.tracebacks import Raised

# Kinds that say nothing about the patches: git-bisect's 125.
UNTESTABLE = ("port", "no-device", "disk", "not-the-tree", "untestable", "missing-command")

_BY_TEXT = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in (
    ("port", r"address already in use|errno 98\b|port \d+ is (already )?(in use|not available)"),
    ("disk", r"no space left on device|disk quota exceeded"),
    ("no-device", r"no cuda gpus are available|found no nvidia driver|no cuda-capable device|"
                  r"libcuda\.so\.1: cannot open|nvml.*not found|cuda driver .*insufficient"),
    ("jit-no-arch", r"no supported cuda architectures found"),
    ("ptxas-fail", r"\bptxas\b.*(error|fatal)"),
    ("nvcc-fail", r"nvcc (error|fatal)|ninja build failed|ninja: build stopped"),
    ("no-kernel-image", r"no kernel image is available"),
    ("smem", r"out of resource: shared memory|outofresources|shared memory.{0,40}(limit|exceed)|"
             r"too many resources requested"),
    ("illegal-instruction", r"illegal instruction"),
    ("oom", r"out of memory|outofmemoryerror|not enough memory"),
    ("unsupported-architecture", r"unsupported (gpu )?arch|not supported (on|for) (this|sm)|"
                                 r"unsupported (compute|sm)|only supported on sm|"
                                 r"requires (an? )?(hopper|blackwell|sm_?\d)"),
    ("hang", r"watchdog timeout"),
))  # fmt: skip
_BROKEN_SOURCE = ("ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError")
_REFUSED = re.compile(r"error: (argument|unrecognized arguments|the following arguments)|^usage: ")


def by_text(text: str) -> str | None:
    """Return the kind that an error's text names, or None."""
    return next((name for name, pattern in _BY_TEXT if pattern.search(text)), None)


def classify(raised: Raised | None, lines: list[str], status: int) -> str:
    """Return the kind of failure of a process that ended by itself.

    ``raised`` is the innermost error, ``lines`` what else in the log looks like one,
    ``status`` the exit status, or minus the number of the signal.
    """
    kind = _by_exception(raised) if raised is not None else None
    kind = kind or next(filter(None, map(by_text, lines)), None)
    if kind is None and raised is not None:
        kind = "error"
    if kind is None and status == 2 and any(_REFUSED.search(line) for line in lines):
        kind = "arg-refused"
    return kind or ("crash" if status < 0 else "exit")


def _by_exception(raised: Raised) -> str | None:
    # An import that dies for want of the driver is the machine's, not the patch's.
    kind = by_text(f"{raised.type}: {raised.message}")
    if kind is None and raised.name in _BROKEN_SOURCE:
        kind = "import-error"
    if kind is None and raised.frames and raised.frames[-1].file.endswith("server_args.py"):
        kind = "arg-refused"
    return kind
