"""``[tool.patchwright.environment]``: what the environment shall be. Written by people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

from patchwright.errors import InputError

if TYPE_CHECKING:
    from patchwright.config import Config

_KEYS = ("python", "platforms", "cuda", "requirements", "settings", "workspaces", "interpreter")
# uv's names; the C library that PyTorch's own wheels are built for.
DEFAULT_PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")
_PLATFORM = re.compile(r"(x86_64|aarch64)-manylinux_(\d+)_(\d+)")
_PYTHON = re.compile(r"3\.\d+(\.\d+)?")
_CUDA = re.compile(r"\d+\.\d+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What `run` itself decides.
_TAKEN = ("PATH", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Platform:
    """A target: ``machine`` as in ``uname -m`` and the oldest C library, as (2, 28)."""

    name: str
    machine: str
    glibc: tuple[int, int]


@dataclass(frozen=True)
class Wanted:
    """The section. ``python`` is empty where no environment is asked for.

    ``requirements`` come beside the upstreams, which are always in. ``workspaces`` maps a
    variable to the installed prefixes that the objects in its folder are compiled from.
    """

    python: str = ""
    platforms: tuple[Platform, ...] = ()
    cuda: str = ""
    requirements: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    workspaces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.python)


def read_wanted(config: Config) -> Wanted:
    """Return the section, checked; InputError names the key that is wrong."""
    return _Section(config).wanted()


class _Section:
    def __init__(self, config: Config) -> None:
        self.values = config.environment
        self.where = str(config.root / "pyproject.toml")

    def wanted(self) -> Wanted:
        for name in self.values:
            if name not in _KEYS:
                near = get_close_matches(name, _KEYS, 1, 0.5)
                step = f"did you mean {near[0]}?" if near else f"known: {', '.join(_KEYS)}"
                self.refuse(name, "this key is not known", step)
        python = self.text("python", _PYTHON, '"3.11" or "3.11.7"')
        if not python:
            needed = [n for n in ("requirements", "platforms", "cuda") if self.values.get(n)]
            if needed:
                self.refuse("python", f"{needed[0]} need a Python version", 'add python = "3.11"')
        names = self.texts("platforms") or DEFAULT_PLATFORMS
        return Wanted(
            python=python,
            platforms=tuple(self.platform(name) for name in names) if python else (),
            cuda=self.text("cuda", _CUDA, '"12.8"'),
            requirements=tuple(sorted(map(self.requirement, self.texts("requirements")))),
            settings=self.settings(),
            workspaces=self.workspaces(),
        )

    def refuse(self, name: str, what: str, next_step: str) -> NoReturn:
        key = f"tool.patchwright.environment.{name}"
        raise InputError(f"{key}: {what}", where=self.where, next_step=next_step)

    def text(self, name: str, form: re.Pattern[str], example: str) -> str:
        value = self.values.get(name, "")
        if value == "" and name not in self.values:
            return ""
        if not isinstance(value, str) or not form.fullmatch(value):
            self.refuse(name, f"{value!r} cannot stand here", f"write it as {example}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name, [])
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
            self.refuse(name, "a list of texts is expected", 'write it as ["a", "b"]')
        return tuple(value)

    def platform(self, name: str) -> Platform:
        match = _PLATFORM.fullmatch(name)
        if match is None:
            self.refuse("platforms", f"{name!r} is not a platform",
                        f"write it as {DEFAULT_PLATFORMS[0]}")  # fmt: skip
        return Platform(name, match[1], (int(match[2]), int(match[3])))

    def requirement(self, text: str) -> str:
        from packaging.requirements import InvalidRequirement, Requirement

        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            self.refuse("requirements", f"{text!r}: {error}", "write it as name==1.2")
        if requirement.url:
            self.refuse("requirements", f"{text!r} names an address, and a lock names none",
                        "give a version, or make it an upstream with `path` or `git`")  # fmt: skip
        return str(requirement)

    def settings(self) -> dict[str, str]:
        value = self.values.get("settings", {})
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            self.refuse("settings", "a table of texts is expected", 'write NAME = "value"')
        for name, text in value.items():
            if not _VARIABLE.fullmatch(name) or name in _TAKEN:
                self.refuse(f"settings.{name}", "this variable cannot be set", "leave it out")
            if not text.isprintable():
                self.refuse(f"settings.{name}", f"{text!r} cannot be printed", "correct it")
        return dict(sorted(value.items()))

    def workspaces(self) -> dict[str, tuple[str, ...]]:
        value = self.values.get("workspaces", {})
        if not isinstance(value, dict):
            self.refuse("workspaces", "a table is expected", 'write NAME = ["pkg/data/"]')
        found = {}
        for name, prefixes in sorted(value.items()):
            fits = isinstance(prefixes, list) and all(isinstance(p, str) and p for p in prefixes)
            if not fits or not prefixes or not _VARIABLE.fullmatch(name):
                self.refuse(f"workspaces.{name}", "installed prefixes are expected",
                            'write NAME = ["pkg/data/"]')  # fmt: skip
            found[name] = tuple(prefixes)
        return found
