"""``[tool.patchwright.startup]``: the command and the readiness rule of a start.

A profile gives defaults for one server; every key wins over it. Keys that are not known
are refused with the nearest one that is.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from patchwright.config import Config
from patchwright.errors import InputError
from patchwright.smoke.isolation import run_environment
from patchwright.startup import sglang

_PROFILES: dict[str, Mapping[str, object]] = {"sglang": sglang.PROFILE}
_KEYS = (
    "profile", "command", "arguments", "environment", "pass-environment", "upstreams", "ready",
    "answer", "deadline", "cold-deadline", "stall", "disk-limit", "devices",
)  # fmt: skip
_READY_KEYS = ("log", "path")
_ANSWER_KEYS = ("path", "body", "match", "distinct")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Expected:
    """What counts as an answer: POST ``body`` (JSON text) to ``path``.

    The reply must hold ``match`` (a pattern; empty: anything) and, where it lists output
    tokens or text, at least ``distinct`` different ones.
    """

    path: str
    body: str
    match: str = ""
    distinct: int = 1


@dataclass(frozen=True)
class Settings:
    """How a start is made and judged. Times are in seconds, ``disk_limit`` in bytes.

    ``deadline`` holds where compiled objects are there already, ``cold_deadline`` where
    they are not. ``stall`` is the longest silence. Without ``ready_log`` and
    ``ready_path`` the command is judged by its exit code. ``stages`` are texts in the
    log, in the order in which they come. ``proves``: some process must have imported
    the patched tree. ``workspaces`` maps a variable to what its folder is compiled from.
    ``devices``: how many CUDA devices a start takes; None: all of one kind.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    passed: tuple[str, ...] = ()
    upstreams: tuple[str, ...] = ()
    ready_log: str = ""
    ready_path: str = ""
    answer: Expected | None = None
    deadline: float = 600.0
    cold_deadline: float = 3600.0
    stall: float = 300.0
    disk_limit: int = 20 << 30
    stages: tuple[str, ...] = ()
    proves: bool = False
    workspaces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_shell: bool = False
    devices: int | None = None

    def digest(self) -> str:
        """Return what tells one probe from another: 64 hex digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @property
    def serves(self) -> bool:
        """Whether the command is a server; otherwise its exit code is the outcome."""
        return bool(self.ready_log or self.ready_path)


def from_command(config: Config, command: str) -> Settings:
    """Return a probe that is one shell command: 0 starts, 125 cannot be tested.

    Environment, upstreams and limits are those of the project's section.
    """
    values = _checked(config)
    return Settings(
        (command,), **_common(config, values), by_shell=True,
        upstreams=values.names("upstreams", config.upstreams) or tuple(config.upstreams),
    )  # fmt: skip


def from_config(config: Config) -> Settings:
    """Return the project's startup probe; InputError where it has none, or a wrong one."""
    if not config.startup:
        raise InputError(
            "the project declares no startup probe",
            where=str(config.root / "pyproject.toml"),
            next_step="add [tool.patchwright.startup] (docs/startup.md), or give --probe CMD",
        )
    values = _checked(config)
    command = values.texts("command")
    if not command:
        values.refuse("command", "the command is missing", 'add command = ["…"], or a profile')
    ready = values.table("ready", _READY_KEYS)
    log, path = ready.text("log"), ready.path("path")
    if path and not any("{port}" in word for word in command + values.texts("arguments")):
        values.refuse("command", "nothing tells the server its port", "write {port} in it")
    answer = values.table("answer", _ANSWER_KEYS) if values.given.get("answer") else None
    if answer is not None and not (log or path):
        answer.refuse("", "an answer is asked of a server", "say when it is ready: ready.path")
    return Settings(
        command + values.texts("arguments"),
        **_common(config, values),
        upstreams=values.names("upstreams", config.upstreams) or tuple(config.upstreams),
        ready_log=log, ready_path=path,
        answer=_answer(answer) if answer is not None else None,
        stages=values.texts("stages"), proves=bool(values.given.get("proves")),
        workspaces=values.given.get("workspaces", {}),
    )  # fmt: skip


def _common(config: Config, values: _Values) -> dict[str, Any]:
    return {
        "environment": values.variables("environment"),
        "passed": values.names("pass-environment"),
        "deadline": values.number("deadline", 600.0),
        "cold_deadline": values.number("cold-deadline", 3600.0),
        "stall": values.number("stall", 300.0),
        "disk_limit": int(values.number("disk-limit", 20.0) * (1 << 30)),
        "devices": values.count("devices"),
    }


def _checked(config: Config) -> _Values:
    where = str(config.root / "pyproject.toml")
    own = _Values(dict(config.startup), where, "tool.patchwright.startup")
    own.check(_KEYS)
    name = own.text("profile")
    if name and name not in _PROFILES:
        own.refuse("profile", f"{name!r} is no profile", f"known: {', '.join(_PROFILES)}")
    merged = {**_PROFILES.get(name, {}), **config.startup}
    for table in ("ready", "answer"):
        inner = [_PROFILES.get(name, {}).get(table), config.startup.get(table)]
        if all(isinstance(part, dict) for part in inner):
            merged[table] = {**inner[0], **inner[1]}  # type: ignore[dict-item]
    return _Values(merged, where, "tool.patchwright.startup")


def _answer(table: _Values) -> Expected:
    path = table.path("path")
    if not path:
        table.refuse("path", "the path is missing", 'write it as "/generate"')
    body = table.given.get("body", {})
    return Expected(
        path, json.dumps(body), table.pattern("match"), int(table.number("distinct", 1.0))
    )


class _Values:
    """A table with its key, so that every refusal names its place."""

    def __init__(self, given: dict[str, Any], where: str, key: str) -> None:
        self.given = given
        self.where = where
        self.key = key

    def refuse(self, name: str, what: str, next_step: str) -> NoReturn:
        key = f"{self.key}.{name}" if name else self.key
        raise InputError(f"{key}: {what}", where=self.where, next_step=next_step)

    def check(self, known: tuple[str, ...]) -> None:
        for name in self.given:
            if name not in known:
                near = get_close_matches(name, known, 1, 0.5)
                step = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
                self.refuse(name, "this key is not known", step)

    def table(self, name: str, known: tuple[str, ...]) -> _Values:
        value = self.given.get(name, {})
        if not isinstance(value, dict):
            self.refuse(name, "a table is expected", "write it as a table")
        table = _Values(value, self.where, f"{self.key}.{name}")
        table.check(known)
        return table

    def text(self, name: str) -> str:
        value = self.given.get(name, "")
        if not isinstance(value, str):
            self.refuse(name, "text is expected", "put it in quotes")
        return value

    def pattern(self, name: str) -> str:
        value = self.text(name)
        try:
            re.compile(value)
        except re.error as error:
            self.refuse(name, f"this is no pattern: {error}", "escape what is meant literally")
        return value

    def path(self, name: str) -> str:
        value = self.text(name)
        if value and not value.startswith("/"):
            self.refuse(name, f"{value!r} is no path", "write it as /health")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.given.get(name, ())
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            self.refuse(name, "a list of texts is expected", 'write it as ["a", "b"]')
        return tuple(value)

    def names(self, name: str, known: Mapping[str, object] | None = None) -> tuple[str, ...]:
        found = self.texts(name)
        for value in found:
            if known is not None and value not in known:
                self.refuse(name, f"there is no upstream {value!r}", f"known: {', '.join(known)}")
            if known is None and not _NAME.fullmatch(value):
                self.refuse(name, f"{value!r} is not a variable's name", "correct it")
        return found

    def variables(self, name: str) -> dict[str, str]:
        value = self.given.get(name, {})
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            self.refuse(name, "a table of texts is expected", 'write it as { NAME = "value" }')
        for variable in value:
            if not _NAME.fullmatch(variable):
                self.refuse(name, f"{variable!r} is not a variable's name", "correct it")
            if variable in _isolated():
                self.refuse(name, f"{variable} is set by the start, anew for each",
                            "leave it out")  # fmt: skip
        return dict(value)

    def number(self, name: str, default: float) -> float:
        value = self.given.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            self.refuse(name, f"{value!r} is not a number above 0", "give one")
        return float(value)

    def count(self, name: str) -> int | None:
        value = self.given.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)
                                  or not 0 <= value <= 1024):  # fmt: skip
            self.refuse(name, f"{value!r} is not a whole number", "give one; 0 for none")
        return value


def _isolated() -> frozenset[str]:
    """Return the variables that isolation sets; PYTHONPATH goes behind its own."""
    own = run_environment("", Path(), Path(), None, {})
    return frozenset(own) - {"LC_ALL", "TZ", "PYTHONPATH"}


# What fills the braces in a command: {port} and the like.
Filler = Callable[[str], str]


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return a command's word with {name} replaced for the names that are known."""
    return re.sub(r"\{(\w+)\}", lambda m: values.get(m[1], m[0]), text)
