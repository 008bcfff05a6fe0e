"""Code of a test in another interpreter: one process, or several ranks that work together.

    code = Code.of(body, helpers, {"tokens": 8})
    values = run(python, "device_side", [job, job], environment, deadline=600)

The other side (child_side.py) answers with a file; what it prints goes to the run's log.
The first process that does not return decides what is raised, and ends the others: what
they say afterwards is only an echo of it.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import os
import shutil
import signal
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import patchwright
from patchwright.smoke.outcomes import Blocked, SmokeError, UpstreamRefused

_ROOT = str(Path(patchwright.__file__).parent.parent)
_GRACE = 5.0  # seconds that the others get after the first one has failed
_TICK = 0.02  # seconds between two looks
# The tool's folder is on the path for as long as our own module is imported from it: no
# other module of the tool's environment must serve where the user's lacks one.
_START = (
    "import importlib, sys; sys.path.append(sys.argv[1]); "
    "side = importlib.import_module('patchwright.smoke.' + sys.argv[2]); "
    "sys.path.remove(sys.argv[1]); side.main(sys.argv[3])"
)


@dataclass(frozen=True)
class Code:
    """Sources that define ``entry`` and, before it, what ``entry`` uses.

    ``sources`` are pairs of a text and the line of ``file`` that it begins at, for
    tracebacks. ``arguments`` must survive JSON.
    """

    sources: tuple[tuple[str, int], ...]
    entry: str
    arguments: Mapping[str, Any]
    file: str

    @classmethod
    def of(
        cls,
        body: Callable[..., Any] | str,
        helpers: Sequence[Callable[..., Any]],
        arguments: Mapping[str, Any],
    ) -> Code:
        """Return the code of a function and its helpers, or of a source text.

        A source text is run as it is; its last definition is called. The functions see
        their arguments and each other, nothing else of their file. Raises SmokeError for
        what has no source and for arguments that JSON does not know.
        """
        try:
            json.dumps(dict(arguments))
        except (TypeError, ValueError) as error:
            raise SmokeError(f"an argument cannot be handed over as JSON: {error}") from error
        if isinstance(body, str):
            source = textwrap.dedent(body)
            names = [n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
            if not names:
                raise SmokeError("the code defines no function")
            return cls(((source, 1),), names[-1], arguments, "<code of the test>")
        try:
            found = [inspect.getsourcelines(f) for f in (*helpers, body)]
        except (OSError, TypeError) as error:
            raise SmokeError(f"{body!r} has no source to hand over: {error}") from error
        sources = tuple((textwrap.dedent("".join(lines)), line) for lines, line in found)
        return cls(sources, body.__name__, arguments, inspect.getfile(body))

    def job(self) -> dict[str, Any]:
        """Return what the other side needs to run it."""
        return {
            "sources": self.sources, "entry": self.entry, "file": self.file,
            "arguments": dict(self.arguments),
        }  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What one process left behind: ``outcome`` in the other side's words, or ``died``."""

    who: str
    outcome: str
    text: str = ""
    value: Any = None
    imported: Mapping[str, str] | None = None
    stubs: tuple[str, ...] = ()
    ended: float = 0.0


def run(
    python: Path,
    side: str,
    jobs: Sequence[Mapping[str, Any]],
    environment: Mapping[str, str],
    deadline: float,
) -> list[Answer]:
    """Run one process per job and return their answers, all of them ``returned``.

    ``side`` is the module of this package that runs there. ``deadline`` is in seconds.
    Raises AssertionError or UpstreamRefused where the code says so, Blocked for a need
    that only shows there, SmokeError for everything else: a process that died, the
    device's own trouble, no end in time.
    """
    folder = Path(tempfile.mkdtemp(prefix="patchwright-code-"))
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for number, job in enumerate(jobs):
            who = f"rank {number}" if len(jobs) > 1 else "the code"
            file = folder / f"{number}.json"
            answer = folder / f"{number}.answer"
            file.write_text(json.dumps({**job, "answer": str(answer)}), encoding="utf-8")
            processes[who] = subprocess.Popen(
                [str(python), "-c", _START, _ROOT, side, str(file)],
                env=dict(environment), stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        return _collect(processes, folder, deadline)
    finally:
        for process in processes.values():
            _kill(process)
        shutil.rmtree(folder, ignore_errors=True)


def _collect(
    processes: Mapping[str, subprocess.Popen[bytes]], folder: Path, deadline: float
) -> list[Answer]:
    end = time.monotonic() + deadline
    answers: dict[str, Answer] = {}
    while len(answers) < len(processes):
        for number, (who, process) in enumerate(processes.items()):
            if who not in answers and process.poll() is not None:
                answers[who] = _read(who, process.returncode, folder / f"{number}.answer")
                if answers[who].outcome != "returned":
                    end = min(end, time.monotonic() + _GRACE)
        if time.monotonic() > end:
            break
        time.sleep(_TICK)
    bad = [answer for answer in answers.values() if answer.outcome != "returned"]
    if bad:
        _raise(min(bad, key=lambda answer: answer.ended))
    missing = [who for who in processes if who not in answers]
    if missing:
        raise SmokeError(f"{' and '.join(missing)} did not end within {deadline:g} s")
    return [answers[who] for who in processes]


def _read(who: str, status: int, file: Path) -> Answer:
    try:
        data = json.loads(file.read_bytes())
        return Answer(
            who, data["outcome"], data["text"], data["value"], data["imported"],
            tuple(data["stubs"]), data["ended"],
        )  # fmt: skip
    except (OSError, ValueError, KeyError):
        how = f"ended with status {status}"
        if status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        return Answer(who, "died", f"{how} before it answered", ended=time.monotonic())


def _raise(answer: Answer) -> None:
    several = f"{answer.who}: " if answer.who.startswith("rank") else ""
    if answer.outcome == "failed":
        raise AssertionError(several + answer.text)
    if answer.outcome == "refused":
        raise UpstreamRefused(several + answer.text)
    if answer.outcome == "blocked":
        raise Blocked(answer.text)
    if answer.outcome == "died":
        raise SmokeError(f"{answer.who} {answer.text}")
    raise SmokeError(several + answer.text)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with all that it started in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
