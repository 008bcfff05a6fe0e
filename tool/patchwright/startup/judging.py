"""What a start came to: its class, its signature, the inner error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from patchwright.startup.classes import UNTESTABLE, classify
from patchwright.startup.settings import Settings
from patchwright.startup.signature import signature
from patchwright.startup.tracebacks import Frame, Raised

_MENTIONED = re.compile(r"[\w./+-]+\.(?:py|cuh?|h|hpp|cpp|cc|inc|jinja)\b")
_MODULE = re.compile(r"No module named '([\w.]+)'|from '([\w.]+)'")
_CANNOT_TEST = 125  # git-bisect's
_NOT_RUN = (126, 127)  # a shell's: not executable, not found


@dataclass(frozen=True)
class Started:
    """The outcome of one start.

    ``kind`` is the class of failure, ``ok`` where it started. ``signature`` tells one
    failure from another. ``detail`` quotes the innermost error. ``frames`` are (installed
    path, line, function), the innermost first; ``files`` what else the error names.
    ``imported`` are the packages that some process executed from the patched tree.
    """

    outcome: Literal["started", "failed", "untestable"]
    kind: str
    signature: str = ""
    detail: str = ""
    frames: tuple[tuple[str, int, str], ...] = ()
    files: tuple[str, ...] = ()
    seconds: float = 0.0
    stage: str = ""
    answer: str = ""
    imported: tuple[str, ...] = ()
    log: str = field(default="", repr=False)


def judge(settings: Settings, report: Mapping[str, Any], site: str) -> Started:
    """Return what a supervisor's report means."""
    raised = _raised(report["raised"])
    kind, detail = _kind(settings, report, raised)
    standing = _standing(report["stacks"], site) if kind == "hang" else ()
    if standing:
        path, line, function = standing[0]
        detail += f"; it stood in {path}:{line}, {function}"
    detail = detail.replace(site.rstrip("/") + "/", "")
    outcome: Literal["started", "failed", "untestable"] = (
        "started" if kind == "ok" else "untestable" if kind in UNTESTABLE else "failed"
    )
    shown = kind in ("ok", "garbage-output", "not-the-tree", "untestable", "disk")
    frames, files = ((), ()) if shown or raised is None else _places(raised, report["lines"], site)
    frames = standing or frames
    return Started(
        outcome, kind,
        "" if kind == "ok" else _signature(kind, raised, report, site),
        detail, frames, files, report["seconds"], report["stage"], report["answer"],
        tuple(report["imported"]), report["log"],
    )  # fmt: skip


def _kind(settings: Settings, report: Mapping[str, Any], raised: Raised | None) -> tuple[str, str]:
    status = report["status"]
    if report["violations"]:
        return "not-the-tree", "; ".join(report["violations"][:3])
    if report["ended_by"]:
        return _ended_by_us(settings, report, raised)
    if settings.serves or status not in (0, _CANNOT_TEST, *_NOT_RUN):
        kind = classify(raised, report["lines"], status)
    elif status == 0:
        return _proven(settings, report)
    elif status == _CANNOT_TEST:
        kind = "untestable"
    else:
        kind = "missing-command" if settings.by_shell else "exit"
    return kind, _last(report, raised) or _ended(status)


def _ended_by_us(
    settings: Settings, report: Mapping[str, Any], raised: Raised | None
) -> tuple[str, str]:
    """Return what it is when the process did not end by itself."""
    ended_by = report["ended_by"]
    if ended_by == "disk":
        return "disk", "it filled the disk (disk-limit, or the disk itself), and was killed"
    if ended_by == "answered":
        return ("garbage-output", report["wrong"]) if report["wrong"] else _proven(settings, report)
    after = f" after {report['stage']!r}" if report["stage"] else ""
    what = "said nothing" if ended_by == "stall" else "was not ready"
    inner = f"; {quoted(raised)}" if raised is not None else ""
    return "hang", f"it {what} for too long{after}, and was killed{inner}"


def _proven(settings: Settings, report: Mapping[str, Any]) -> tuple[str, str]:
    if settings.proves and not report["imported"]:
        return "not-the-tree", "no process of it imported anything from the patched tree"
    return "ok", ""


def _signature(kind: str, raised: Raised | None, report: Mapping[str, Any], site: str) -> str:
    if kind in ("hang", "garbage-output", "not-the-tree", "disk"):
        # What was raised before is another matter: a hang is known by where it stands.
        said = report["stage"] if kind == "hang" else ""
        return signature(kind, None, said, site)
    status = report["status"]
    said = f"signal {-status}" if status < 0 else f"exit code {status}"
    return signature(kind, raised, said, site)


def _raised(data: Mapping[str, Any] | None) -> Raised | None:
    if data is None:
        return None
    frames = tuple(Frame(**frame) for frame in data["frames"])
    return Raised(data["type"], data["message"], frames, data["fatal"])


def quoted(raised: Raised) -> str:
    """Return an error as Python prints it, with its innermost frame."""
    where = ""
    if raised.frames:
        frame = raised.frames[-1]
        where = f" ({frame.file}:{frame.line}, in {frame.function})"
    message = f": {raised.message}" if raised.message else ""
    return f"{raised.name}{message}{where}"


def _last(report: Mapping[str, Any], raised: Raised | None) -> str:
    if raised is not None:
        return quoted(raised)
    if report["lines"]:
        return str(report["lines"][-1])
    words = report["log"].strip().splitlines()
    return words[-1][:300] if words else ""


def _ended(status: int) -> str:
    return f"killed by signal {-status}" if status < 0 else f"it ended with exit code {status}"


def _standing(stacks: list[list[dict[str, Any]]], site: str) -> tuple[tuple[str, int, str], ...]:
    """Return the frames in the tree at which threads stood, the likeliest first.

    A thread that stood in the tree itself comes before one that waited in a library.
    """
    prefix = site.rstrip("/") + "/"
    found: list[tuple[int, tuple[str, int, str]]] = []
    for stack in stacks:
        for depth, frame in enumerate(stack):
            if frame["file"].startswith(prefix):
                place = (frame["file"].removeprefix(prefix), frame["line"], frame["function"])
                found.append((depth, place))
    return tuple(dict.fromkeys(place for _, place in sorted(found, key=lambda item: item[0])))


def _places(
    raised: Raised, lines: list[str], site: str
) -> tuple[tuple[tuple[str, int, str], ...], tuple[str, ...]]:
    """Return the frames in the tree, the innermost first, and other files that are named."""
    prefix = site.rstrip("/") + "/"
    frames = tuple(
        (frame.file.removeprefix(prefix), frame.line, frame.function)
        for frame in reversed(raised.frames)
        if frame.file.startswith(prefix)
    )
    text = "\n".join((raised.message, *lines))
    files = [name.removeprefix(prefix) for name in _MENTIONED.findall(text)]
    for module in (a or b for a, b in _MODULE.findall(text)):
        path = module.replace(".", "/")
        files += [f"{path}.py", f"{path}/__init__.py"]
    return frames, tuple(dict.fromkeys(files))
