"""What is wanted: ``[tool.patchwright]`` in pyproject.toml, written by people.

Wrong input is refused with the full key; a key that is not known, with the nearest
one that is. Nothing here touches the network or the object store.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

from patchwright.errors import InputError
from patchwright.upstreaming.contribution import Contribution, read_contribution

FILE_NAME = "pyproject.toml"
LOCK_NAME = "upstream.lock"
SOURCES = ("wheel", "sdist", "git")
_ROOT_KEYS = ("arch", "smoke-deadline", "upstreams", "environment", "startup")
_UPSTREAM_KEYS = (
    "source", "distribution", "version", "path", "git", "revision", "packages", "layout", "outside",
    "version-files", "companions", "prebuilt", "contribute",
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_ARCH = re.compile(r"sm_\d{2,3}[af]?")
_DEADLINE = 900.0  # seconds; the slowest compile of the pins took 180 on two cores


@dataclass(frozen=True)
class LayoutRule:
    """Where a part of the repository lies in the installed distribution.

    Both are prefixes that end in ``/`` (empty: everything), or both name one file.
    """

    repository: bytes
    installed: bytes


@dataclass(frozen=True)
class Layout:
    """How repository paths map to installed paths; the longest prefix decides.

    ``outside`` holds globs of installed paths that stand outside the pristine tree:
    generated and built files.
    """

    rules: tuple[LayoutRule, ...]
    outside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Companion:
    """A distribution that has to have its upstream's exact version, and where it keeps it.

    ``version_files`` are installed paths.
    """

    distribution: str
    version_files: tuple[str, ...]


@dataclass(frozen=True)
class UpstreamConfig:
    """One upstream as it is wanted. ``path`` is relative to the project's root.

    ``version_files`` are the installed paths from which the upstream reads its own
    version; ``prebuilt`` are distributions of compiled objects that would win over
    patched sources.
    """

    name: str
    source: Literal["wheel", "sdist", "git"]
    distribution: str | None
    version: str
    path: str | None
    git: str | None
    revision: str | None
    packages: tuple[str, ...]
    layout: Layout
    version_files: tuple[str, ...] = ()
    companions: tuple[Companion, ...] = ()
    prebuilt: tuple[str, ...] = ()
    contribute: Contribution = field(default_factory=Contribution)


@dataclass(frozen=True)
class Config:
    """The whole section. ``smoke_deadline`` is in seconds, for one run."""

    root: Path
    upstreams: dict[str, UpstreamConfig]
    arch: tuple[str, ...] = ()
    smoke_deadline: float = _DEADLINE
    environment: Mapping[str, object] = field(default_factory=dict)
    startup: Mapping[str, object] = field(default_factory=dict)


def find_root(start: Path) -> Path:
    """Return the nearest folder upward whose pyproject.toml has ``[tool.patchwright]``.

    Raises InputError where there is none, or where a pyproject.toml on the way cannot
    be read.
    """
    try:
        start = start.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"the folder cannot be entered: {getattr(error, 'strerror', error)}",
            where=str(start), next_step="go to the project, or name it with -C DIR",
        ) from error  # fmt: skip
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file() and _section(folder) is not None:
            return folder
    raise InputError(
        "no pyproject.toml with [tool.patchwright] here or above",
        where=str(start),
        next_step="go to the project, or name it with -C DIR",
    )


def load_config(root: Path) -> Config:
    """Read the section of ``root``; InputError names the key that is wrong."""
    section = _section(root)
    if section is None:
        raise InputError(
            "there is no [tool.patchwright] section",
            where=str(root / FILE_NAME),
            next_step="add [tool.patchwright.upstreams.<name>]",
        )
    table = _Table(section, root / FILE_NAME, "tool.patchwright")
    table.check_keys(_ROOT_KEYS)
    arch = table.texts("arch")
    for name in arch:
        if not _ARCH.fullmatch(name):
            table.refuse("arch", f"{name!r} is not an architecture", "write it as sm_120")
    upstreams = table.table("upstreams")
    configs = {name: _upstream(name, upstreams.table(name)) for name in upstreams.values}
    _check_names(upstreams, configs)
    return Config(
        root=root,
        upstreams=configs,
        arch=arch,
        smoke_deadline=table.seconds("smoke-deadline", _DEADLINE),
        environment=table.table("environment").values,
        startup=table.table("startup").values,
    )


def read_toml(path: Path) -> dict[str, Any]:
    """Return a TOML file's content; InputError names file and line."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise InputError(
            f"the file cannot be read: {error.strerror}", where=str(path),
            next_step="make it readable",
        ) from error  # fmt: skip
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start} is not UTF-8", where=str(path), next_step="save it as UTF-8"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"this is not TOML: {error}", where=str(path), next_step="correct that line"
        ) from error


def _section(root: Path) -> dict[str, Any] | None:
    tool = read_toml(root / FILE_NAME).get("tool", {})
    section = tool.get("patchwright") if isinstance(tool, dict) else None
    if section is not None and not isinstance(section, dict):
        raise InputError(
            "tool.patchwright is not a table", where=str(root / FILE_NAME),
            next_step="write it as [tool.patchwright]",
        )  # fmt: skip
    return section


class _Table:
    """A table with the key that it stands at, so that every refusal names its place."""

    def __init__(self, values: dict[str, Any], path: Path, key: str) -> None:
        self.values = values
        self.path = path
        self.key = key

    def refuse(self, name: str, what: str, next_step: str) -> NoReturn:
        key = f"{self.key}.{name}" if name else self.key
        raise InputError(f"{key}: {what}", where=str(self.path), next_step=next_step)

    def check_keys(self, known: Collection[str]) -> None:
        for name in self.values:
            if name not in known:
                from difflib import get_close_matches

                near = get_close_matches(name, known, 1, 0.5)
                step = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
                self.refuse(name, "this key is not known", step)

    def table(self, name: str) -> _Table:
        value = self.values.get(name, {})
        if not isinstance(value, dict):
            self.refuse(name, f"a table is expected, not {_kind(value)}", "write it as a table")
        return _Table(value, self.path, f"{self.key}.{name}")

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self.refuse(name, f"text is expected, not {_kind(value)}", "put it in quotes")
        if value is not None and not value.isprintable():
            self.refuse(name, f"{value!r} holds a character that cannot be printed", "remove it")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name, [])
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
            self.refuse(name, "a list of texts is expected", 'write it as ["a", "b"]')
        return tuple(value)

    def flag(self, name: str) -> bool | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            self.refuse(name, f"true or false is expected, not {_kind(value)}", "write it bare")
        return value

    def seconds(self, name: str, default: float) -> float:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            self.refuse(name, f"{value!r} is not a number of seconds", "give one above 0")
        return float(value)


def _kind(value: object) -> str:
    names = {str: "text", bool: "true or false", int: "a number", float: "a number",
             list: "a list", dict: "a table"}  # fmt: skip
    return "empty text" if value == "" else names.get(type(value), type(value).__name__)


def _upstream(name: str, table: _Table) -> UpstreamConfig:
    table.check_keys(_UPSTREAM_KEYS)
    if not _NAME.fullmatch(name):
        table.refuse("", "an upstream's name is letters, digits, '.', '_' and '-'", "rename it")
    source = table.text("source")
    if source not in SOURCES:
        table.refuse("source", f"{source!r} is not a source", f"one of {', '.join(SOURCES)}")
    distribution, path = table.text("distribution"), table.text("path")
    if distribution is not None:
        distribution = _distribution(table, "distribution", distribution)
    if source != "git" and distribution is None and path is None:
        table.refuse(
            "distribution", f"a {source} is found by its distribution", "add distribution (or path)"
        )
    git, revision = _git(table)
    if source == "git" and git is None and path is None:
        table.refuse("git", "a git upstream needs an address", "add git (or path)")
    if source == "git" and revision is None:
        table.refuse("revision", "a git upstream needs a revision", "add a tag or a commit")
    packages = table.texts("packages") or (name.replace("-", "_"),)
    for package in packages:
        if not all(part.isidentifier() for part in package.split(".")):
            table.refuse("packages", f"{package!r} is not an import name", "correct it")
    return UpstreamConfig(
        name=name,
        source=cast(Literal["wheel", "sdist", "git"], source),
        distribution=distribution,
        version=_version(table),
        path=path,
        git=git,
        revision=revision,
        packages=packages,
        layout=_layout(table, packages),
        version_files=_paths(table, "version-files"),
        companions=_companions(table.table("companions")),
        prebuilt=tuple(_distribution(table, "prebuilt", name) for name in table.texts("prebuilt")),
        contribute=read_contribution(table.table("contribute")),
    )


def _companions(table: _Table) -> tuple[Companion, ...]:
    return tuple(
        Companion(_distribution(table, name, name), _paths(table, name))
        for name in sorted(table.values)
    )


def _distribution(table: _Table, key: str, name: str) -> str:
    from packaging.utils import canonicalize_name

    if not _NAME.fullmatch(name):
        table.refuse(key, f"{name!r} is not a distribution's name", "correct it")
    return canonicalize_name(name)


def _paths(table: _Table, key: str) -> tuple[str, ...]:
    """Return installed paths of single files."""
    paths = table.texts(key)
    for path in paths:
        if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
            table.refuse(key, f"{path!r} is not an installed path", "write it as pkg/version.py")
    return paths


def _version(table: _Table) -> str:
    from packaging.version import InvalidVersion, Version

    version = table.text("version")
    if version is None:
        table.refuse("version", "the pinned version is missing", 'add version = "1.2.3"')
    try:
        return str(Version(version))
    except InvalidVersion:
        table.refuse("version", f"{version!r} is not a version (PEP 440)", "write it as 1.2.3")


def _git(table: _Table) -> tuple[str | None, str | None]:
    from patchwright.git import validated_revision

    git, revision = table.text("git"), table.text("revision")
    # A leading dash is an option to git; name::address runs any helper program.
    if git is not None and (re.search(r"[\s\0]", git) or git.startswith("-") or "::" in git):
        table.refuse("git", f"{git!r} is not an address", "give an https or ssh address")
    if revision is not None:
        try:
            validated_revision(revision)
        except InputError as error:
            table.refuse("revision", error.what, error.next_step)
    return git, revision


def _layout(table: _Table, packages: tuple[str, ...]) -> Layout:
    """Return the rules; without any, each package lies where it is imported from."""
    rules = table.table("layout")
    if "layout" not in table.values:
        prefixes = [(f"{p.replace('.', '/')}/",) * 2 for p in packages]
    else:
        prefixes = list(rules.values.items())
        if not prefixes:
            rules.refuse("", "a layout needs a rule", 'add one: "src/pkg/" = "pkg/"')
    seen: dict[str, str] = {}
    for repository, installed in prefixes:
        key = f'"{repository}"'
        if not isinstance(installed, str):
            rules.refuse(key, f"text is expected, not {_kind(installed)}", "give a prefix")
        for prefix in (repository, installed):
            parts = prefix.removesuffix("/").split("/") if prefix else []
            if "\0" in prefix or any(part in ("", ".", "..") for part in parts):
                rules.refuse(
                    key, f"{prefix!r} is not a prefix", "write it as csrc/ or as one file, setup.py"
                )
        # An empty prefix is the whole repository, or the whole distribution.
        if (repository or "/").endswith("/") != (installed or "/").endswith("/"):
            rules.refuse(key, "one is a folder, the other a file", "end both in / or neither")
        if installed in seen:
            rules.refuse(
                key, f'"{seen[installed]}" maps to {installed!r} as well',
                "keep one: a file has one place in the repository",
            )  # fmt: skip
        seen[installed] = repository
    outside = table.texts("outside")
    for glob in outside:
        if glob.startswith("/") or ".." in glob.split("/"):
            table.refuse("outside", f"{glob!r} leaves the distribution", "give installed paths")
    encoded = (LayoutRule(r.encode(), i.encode()) for r, i in prefixes)
    return Layout(tuple(encoded), outside)


def _check_names(table: _Table, configs: Mapping[str, UpstreamConfig]) -> None:
    """Refuse two upstreams that one word in a patch file, or one import, could mean."""
    from packaging.utils import canonicalize_name

    names: dict[str, str] = {}
    for name, config in configs.items():
        for word, what in [
            (canonicalize_name(name), "name"),
            *((package, "package") for package in config.packages),
        ]:
            first = names.setdefault(f"{what} {word}", name)
            if first != name:
                table.refuse(name, f"{first} has the same {what}, {word}", "rename one")
