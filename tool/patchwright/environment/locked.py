"""``[environment]`` in upstream.lock: every package of the environment, exactly.

Packages stand one a line in one literal string, which TOML readers pass over at once:
``status`` and ``verify`` read the lock and want none of it. A line is::

    NAME VERSION TAG:SHA256                     one file, the same on every platform
    NAME VERSION x86_64=TAG:SHA256 …            one for each machine that has the package

TAG is the wheel's (``py3-none-any``), or ``sdist`` for what is built from source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from patchwright.errors import InputError

SDIST = "sdist"
MACHINES = ("x86_64", "aarch64")
_REWRITE = "restore it (git checkout -- upstream.lock), or remove it and run `patchwright lock`"
_KEYS = (
    "python", "cuda", "platforms", "requirements", "upstreams", "settings", "unresolved",
    "wheels", "packages", "build",
)  # fmt: skip
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_FILE = re.compile(r"(?:([a-z0-9_]+)=)?([A-Za-z0-9_.]+(?:-[A-Za-z0-9_.]+)*):([0-9a-f]{64})")
_WHEEL = re.compile(r"([^/\s]+\.whl) ([0-9a-f]{64})")


class LockedFile(NamedTuple):
    """One file that may be used: its wheel tag (or ``sdist``) and its sha256."""

    tag: str
    sha256: str


@dataclass(frozen=True)
class LockedPackage:
    """One package; ``files`` maps a machine (``x86_64``) to its file there."""

    name: str
    version: str
    files: Mapping[str, LockedFile]


@dataclass(frozen=True)
class LockedEnvironment:
    """The table. ``upstreams`` maps each pinned distribution to its version.

    ``unresolved`` maps a machine to the reason why nothing is locked for it. ``wheels``
    maps the file name of each patched wheel (of the whole series) to its sha256.
    ``build`` are the requirements of whatever is built from source, with what they need.
    """

    python: str
    platforms: tuple[str, ...]
    cuda: str = ""
    requirements: tuple[str, ...] = ()
    upstreams: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    unresolved: Mapping[str, str] = field(default_factory=dict)
    wheels: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[LockedPackage, ...] = ()
    build: tuple[LockedPackage, ...] = ()

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines that something is locked for."""
        names = (platform.partition("-")[0] for platform in self.platforms)
        return tuple(name for name in names if name not in self.unresolved)

    def counts(self) -> dict[str, int]:
        """Return how many packages each machine has, the upstreams not counted."""
        return {m: sum(m in package.files for package in self.packages) for m in self.machines}

    def facts(self) -> tuple[str, ...]:
        """Return a sentence for each machine and package that is not as one would hope."""
        missing = [
            f"nothing is locked for {m}: {why}" for m, why in sorted(self.unresolved.items())
        ]
        built = [
            f"{package.name} {package.version} has no wheel for {machine}: there it is built "
            "from its source"
            for package in self.packages
            for machine, file in sorted(package.files.items())
            if file.tag == SDIST
        ]
        return (*missing, *built)

    def to_table(self) -> dict[str, object]:
        """Return the table as the lock holds it; empty values are left out."""
        table: dict[str, object] = {
            "python": self.python, "cuda": self.cuda, "platforms": list(self.platforms),
            "requirements": list(self.requirements),
            "upstreams": dict(sorted(self.upstreams.items())),
            "settings": dict(sorted(self.settings.items())),
            "unresolved": dict(sorted(self.unresolved.items())),
            "wheels": _text(f"{name} {sha256}" for name, sha256 in sorted(self.wheels.items())),
            "packages": _text(_line(package, self.machines) for package in self.packages),
            "build": _text(_line(package, self.machines) for package in self.build),
        }  # fmt: skip
        return {key: value for key, value in table.items() if value}


def read_environment(table: Mapping[str, object], where: str) -> LockedEnvironment | None:
    """Read the table, None where nothing is locked; InputError names key and line."""
    return _Reader(table, where).environment() if table else None


class _Reader:
    def __init__(self, table: Mapping[str, object], where: str) -> None:
        self.table = table
        self.where = where

    def environment(self) -> LockedEnvironment:
        for key in self.table:
            if key not in _KEYS:
                self.refuse(key, "this key is not known")
        python = self.text("python")
        platforms = self.texts("platforms")
        if not python or not platforms:
            self.refuse("python" if not python else "platforms", "this key is missing")
        machines = [platform.partition("-")[0] for platform in platforms]
        unresolved = self.pairs("unresolved")
        present = [m for m in machines if m not in unresolved]
        wheels = {}
        for number, line in self.lines("wheels"):
            match = _WHEEL.fullmatch(line)
            if match is None:
                self.refuse("wheels", f"line {number} cannot be read: {line!r}")
            wheels[match[1]] = match[2]
        return LockedEnvironment(
            python=python, platforms=platforms, cuda=self.text("cuda"),
            requirements=self.texts("requirements"), upstreams=self.pairs("upstreams"),
            settings=self.pairs("settings"), unresolved=unresolved, wheels=wheels,
            packages=self.packages("packages", present), build=self.packages("build", present),
        )  # fmt: skip

    def refuse(self, key: str, what: str) -> NoReturn:
        raise InputError(f"environment.{key}: {what}", where=self.where, next_step=_REWRITE)

    def text(self, key: str) -> str:
        value = self.table.get(key, "")
        if not isinstance(value, str):
            self.refuse(key, "text is expected")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            self.refuse(key, "a list of texts is expected")
        return tuple(value)

    def pairs(self, key: str) -> dict[str, str]:
        value = self.table.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            self.refuse(key, "a table of texts is expected")
        return dict(value)

    def lines(self, key: str) -> list[tuple[int, str]]:
        return [(n, line) for n, line in enumerate(self.text(key).split("\n"), 1) if line]

    def packages(self, key: str, machines: list[str]) -> tuple[LockedPackage, ...]:
        found: list[LockedPackage] = []
        seen: set[tuple[str, str]] = set()
        for number, line in self.lines(key):
            name, version, *words = [*line.split(" "), ""]
            files = _files(words[:-1], machines)
            if not _NAME.fullmatch(name) or not _VERSION.fullmatch(version) or files is None:
                self.refuse(key, f"line {number} cannot be read: {line!r}")
            for machine, file in files.items():
                other = _other_machine(file.tag, machine)
                if other:
                    self.refuse(key, f"line {number}: {name} is locked for {machine} with a "
                                f"wheel for {other}")  # fmt: skip
                if (name, machine) in seen:
                    self.refuse(key, f"line {number}: {name} stands here twice for {machine}")
                seen.add((name, machine))
            found.append(LockedPackage(name, version, files))
        return tuple(found)


def _other_machine(tag: str, machine: str) -> str:
    """Return the machine that a wheel is for, empty where it is right."""
    platform = tag.rpartition("-")[2]
    if tag == SDIST or platform == "any" or platform.endswith(f"_{machine}"):
        return ""
    return next((m for m in MACHINES if platform.endswith(f"_{m}")), platform)


def _files(words: list[str], machines: list[str]) -> dict[str, LockedFile] | None:
    found: dict[str, LockedFile] = {}
    for word in words:
        match = _FILE.fullmatch(word)
        if match is None:
            return None
        for machine in [match[1]] if match[1] else machines:
            if machine not in machines or machine in found:
                return None
            found[machine] = LockedFile(match[2], match[3])
    return found or None


def _line(package: LockedPackage, machines: tuple[str, ...]) -> str:
    files = [package.files.get(machine) for machine in machines]
    if len(set(files)) == 1 and files[0] is not None:
        words = [f"{files[0].tag}:{files[0].sha256}"]
    else:
        words = [
            f"{machine}={file.tag}:{file.sha256}"
            for machine, file in sorted(package.files.items())
        ]  # fmt: skip
    return " ".join((package.name, package.version, *words))


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
