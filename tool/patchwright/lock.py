"""What was resolved: ``upstream.lock``, TOML in a fixed order, written by the tool.

For each upstream the exact distribution or commit and its pristine tree, for each
patch its bytes and the tree after it. No address and no index: a lock works behind any
mirror.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from patchwright.config import LOCK_NAME
from patchwright.errors import InputError

if TYPE_CHECKING:
    from patchwright.config import Config, Layout, UpstreamConfig
    from patchwright.series import Series

FILE_NAME = LOCK_NAME
FORMAT = 1
ABSENT = "(absent)"
_HEADER = b"# Written by `patchwright lock`; edit pyproject.toml or the patches instead.\n"
_REWRITE = "restore it (git checkout -- upstream.lock), or remove it and run `patchwright lock`"
_OBJECT_ID, _SHA256 = re.compile("[0-9a-f]{40}"), re.compile("[0-9a-f]{64}")
_TEXT = re.compile(r"\S(?:.*\S)?")
# Key to the form of its value, in the order in which they are written.
_UPSTREAM = {
    "name": _TEXT, "source": re.compile("wheel|sdist|git"), "distribution": _TEXT,
    "version": _TEXT, "file": re.compile(r"[^/\s]+"), "sha256": _SHA256, "revision": _TEXT,
    "commit": _OBJECT_ID, "layout": _SHA256, "tree": _OBJECT_ID, "outside": _OBJECT_ID,
}  # fmt: skip
_UPSTREAM_NEEDS = ("name", "source", "version", "layout", "tree", "outside")
_PATCH = {"file": _TEXT, "upstream": _TEXT, "sha256": _SHA256, "tree": _OBJECT_ID}


@dataclass(frozen=True)
class LockedUpstream:
    """One resolved upstream.

    ``file`` and ``sha256`` name a wheel or sdist, ``commit`` and ``submodules`` (path to
    commit) a git revision. ``revision`` and ``layout`` (a digest) repeat what was asked
    for, so that a change of either is seen. ``tree`` and ``outside`` are empty until the
    upstream has been imported.
    """

    name: str
    source: str
    version: str
    distribution: str | None = None
    file: str | None = None
    sha256: str | None = None
    commit: str | None = None
    submodules: dict[str, str] = field(default_factory=dict)
    tree: str = ""
    outside: str = ""
    revision: str | None = None
    layout: str = ""


@dataclass(frozen=True)
class LockedPatch:
    """One patch: ``file`` from the project's root, ``tree`` its upstream's id after it."""

    file: str
    upstream: str
    sha256: str
    tree: str


@dataclass(frozen=True)
class Lock:
    """The whole file. ``environment`` is read by environment/locked.py where it is needed."""

    upstreams: tuple[LockedUpstream, ...]
    patches: tuple[LockedPatch, ...]
    environment: Mapping[str, object] = field(default_factory=dict)

    def upstream(self, name: str) -> LockedUpstream | None:
        """Return the entry of an upstream, or None."""
        return next((u for u in self.upstreams if u.name == name), None)


@dataclass(frozen=True)
class Disagreement:
    """``what`` differs: the value in the lock beside the one in the project."""

    what: str
    locked: str
    actual: str

    def __str__(self) -> str:
        return f"{self.what}: the lock has {self.locked}, the project has {self.actual}"


def layout_digest(layout: Layout) -> str:
    """Return the sha256 of a layout; the order of its rules and globs means nothing."""
    lines = sorted(b"%s\0%s" % (r.repository, r.installed) for r in layout.rules)
    lines += [b"outside\0" + glob.encode() for glob in sorted(layout.outside)]
    return hashlib.sha256(b"\n".join(lines)).hexdigest()


def read_lock(path: Path) -> Lock:
    """Read a lock; InputError names the line and key of what cannot be used."""
    from patchwright.config import read_toml

    try:
        # A pipe or a device in its place would be read for ever.
        if path.exists() and not path.is_file():
            raise InputError("this is not a regular file", where=str(path), next_step=_REWRITE)
        text = path.read_bytes()
    except OSError:
        text = b""  # said below
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.startswith((b"<<<<<<< ", b">>>>>>> ", b"||||||| ")):
            raise InputError(
                "the file holds conflict markers of a merge", where=f"{path}:{number}",
                next_step="take one side (git checkout --ours or --theirs upstream.lock), then "
                "run `patchwright lock`",
            )  # fmt: skip
    try:
        content = read_toml(path)
    except InputError as error:
        raise InputError(error.what, where=error.where, next_step=_REWRITE) from error
    return _Reader(path, text, content).lock()


class _Reader:
    """Checks a parsed lock; knows where in the text a key stands."""

    def __init__(self, path: Path, text: bytes, content: dict[str, Any]) -> None:
        self.path = path
        self.lines = text.decode("utf-8", "replace").split("\n")
        self.content = content

    def lock(self) -> Lock:
        version = self.content.get("version")
        if isinstance(version, int) and version > FORMAT:
            self.refuse(
                "version", f"format {version} was written by a newer patchwright",
                next_step=f"update patchwright (this one reads format {FORMAT})",
            )  # fmt: skip
        if version != FORMAT or isinstance(version, bool):
            self.refuse("version", f"{version!r} is not a format number")
        for key in self.content:
            if key not in ("version", "upstream", "patch", "environment"):
                self.refuse(key, "this key is not known")
        environment = self.content.get("environment", {})
        if not isinstance(environment, dict):
            self.refuse("environment", "a table is expected")
        upstreams = []
        for at, entry in enumerate(self.entries("upstream")):
            submodules = entry.pop("submodules", {})
            # Without a hash (or a commit) an entry would let any content in.
            exact = ("commit",) if entry.get("source") == "git" else ("file", "sha256")
            self.check("upstream", at, entry, _UPSTREAM, _UPSTREAM_NEEDS + exact)
            if not isinstance(submodules, dict):
                self.refuse("submodules", "a table is expected", "upstream", at)
            for value in submodules.values():
                if not isinstance(value, str) or not _OBJECT_ID.fullmatch(value):
                    self.refuse("submodules", f"{value!r} is not a commit", "upstream", at)
            upstreams.append(LockedUpstream(**entry, submodules=submodules))
        patches = []
        for at, entry in enumerate(self.entries("patch")):
            self.check("patch", at, entry, _PATCH, tuple(_PATCH))
            patches.append(LockedPatch(**entry))
        self.unique("upstream", "name", [u.name for u in upstreams])
        self.unique("patch", "file", [p.file for p in patches])
        return Lock(tuple(upstreams), tuple(patches), environment)

    def entries(self, table: str) -> list[dict[str, Any]]:
        entries = self.content.get(table, [])
        if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
            self.refuse(table, f"[[{table}]] tables are expected")
        return [dict(entry) for entry in entries]

    def check(
        self,
        table: str,
        at: int,
        entry: Mapping[str, Any],
        forms: Mapping[str, re.Pattern[str]],
        needs: Iterable[str],
    ) -> None:
        for key, value in entry.items():
            if key not in forms:
                self.refuse(key, "this key is not known", table, at)
            if not isinstance(value, str) or not forms[key].fullmatch(value):
                self.refuse(key, f"{value!r} cannot stand here", table, at)
        for key in needs:
            if key not in entry:
                self.refuse(key, "this key is missing", table, at)

    def unique(self, table: str, key: str, values: list[str]) -> None:
        seen: set[str] = set()
        for at, value in enumerate(values):
            if value in seen:
                self.refuse(key, f"{value!r} stands here twice", table, at)
            seen.add(value)

    def refuse(
        self, key: str, what: str, table: str = "", at: int = 0, next_step: str = _REWRITE
    ) -> NoReturn:
        line = 0
        if table:
            headers = [n for n, text in enumerate(self.lines) if text.strip() == f"[[{table}]]"]
            line = headers[at] if at < len(headers) else 0
        named = re.compile(rf"\[*(?:{table}\.)?{re.escape(key)}\b")
        for number, text in enumerate(self.lines[line:], line):
            if table and number > line and text.startswith("[["):
                break
            if named.match(text):
                line = number
                break
        place = f"{table}[{at}].{key}" if table else key
        raise InputError(f"{place}: {what}", where=f"{self.path}:{line + 1}", next_step=next_step)


def format_lock(lock: Lock) -> bytes:
    """Return the file's bytes: the same lock gives the same bytes."""
    import tomli_w

    content: dict[str, object] = {"version": FORMAT}
    upstreams = []
    for upstream in sorted(lock.upstreams, key=lambda u: u.name):
        values = {key: getattr(upstream, key) for key in _UPSTREAM}
        entry: dict[str, object] = {k: v for k, v in values.items() if v}
        if upstream.submodules:
            entry["submodules"] = dict(sorted(upstream.submodules.items()))
        upstreams.append(entry)
    if upstreams:
        content["upstream"] = upstreams
    if lock.patches:
        content["patch"] = [{key: getattr(p, key) for key in _PATCH} for p in lock.patches]
    text = tomli_w.dumps(content)
    if lock.environment:
        text += "\n" + _environment(lock.environment)
    return _HEADER + text.encode()


def _environment(table: Mapping[str, object]) -> str:
    """Return the table as text. What has many lines is one literal string, a line each.

    Readers pass over a literal string at once; tomli-w would write an escaped one.
    """
    import tomli_w

    long = {k: v for k, v in table.items() if isinstance(v, str) and "\n" in v and "'" not in v}
    tables = {key: value for key, value in table.items() if isinstance(value, dict)}
    short = {k: v for k, v in table.items() if k not in long and k not in tables}
    text = tomli_w.dumps({"environment": short})
    text += "".join(f"{key} = '''\n{value}'''\n" for key, value in long.items())
    return text + ("\n" + tomli_w.dumps({"environment": tables}) if tables else "")


def disagreements(lock: Lock, config: Config, series: Series) -> list[Disagreement]:
    """Compare the lock with pyproject.toml and the patch files: no store, no network."""
    found = []
    for name in sorted({u.name for u in lock.upstreams} | set(config.upstreams)):
        entry, wanted = lock.upstream(name), config.upstreams.get(name)
        if entry is None or wanted is None:
            found.append(Disagreement(f"upstream {name}", _brief(entry), _brief(wanted)))
        else:
            found += upstream_disagreements(entry, wanted, config.root)
    locked = {patch.file: patch for patch in lock.patches}
    actual = {patch_file(config.root, patch.path): patch for patch in series.patches}
    for file in sorted(locked.keys() | actual.keys()):
        old, new = locked.get(file), actual.get(file)
        if old is None or new is None:
            values = (p.sha256 if p is not None else ABSENT for p in (old, new))
            found.append(Disagreement(f"patch {file}", *values))
            continue
        upstream = new.upstream or only_upstream(config)
        pinned = lock.upstream(upstream)
        pin = pinned.version if pinned is not None else ABSENT
        for key, was, now in (
            ("upstream", old.upstream, upstream),
            ("sha256", old.sha256, new.sha256),
            ("made for", pin, (new.made_for or pin).removeprefix("v")),
        ):
            if was != now:
                found.append(Disagreement(f"patch {file}: {key}", was, now))
    return found


def upstream_disagreements(
    entry: LockedUpstream, wanted: UpstreamConfig, root: Path
) -> list[Disagreement]:
    """Compare one upstream's entry with what is wanted."""
    pairs: list[tuple[str, str | None, str | None]] = [
        ("source", entry.source, wanted.source),
        ("version", entry.version, wanted.version),
        ("layout", entry.layout, layout_digest(wanted.layout)),
    ]
    if wanted.distribution is not None:
        pairs.append(("distribution", entry.distribution, wanted.distribution))
    if wanted.source == "git":
        pairs.append(("revision", entry.revision, wanted.revision))
    elif wanted.path is not None:
        archive = root / wanted.path
        pairs.append(("file", entry.file, archive.name))
        digest = file_sha256(archive)
        if digest is not None:
            pairs.append(("sha256", entry.sha256, digest))
    return [
        Disagreement(f"upstream {entry.name}: {key}", was or ABSENT, now or ABSENT)
        for key, was, now in pairs
        if (was or None) != (now or None)
    ]


def file_sha256(path: Path) -> str | None:
    """Return a file's sha256, or None where it is missing or cannot be read."""
    if not path.is_file():  # a pipe or a device would be read for ever
        return None
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None


def patch_file(root: Path, path: Path) -> str:
    """Return how the lock names a patch file."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def only_upstream(config: Config) -> str:
    """Return the upstream of a patch that names none: the only one there is."""
    return next(iter(config.upstreams)) if len(config.upstreams) == 1 else ABSENT


def _brief(upstream: LockedUpstream | UpstreamConfig | None) -> str:
    if upstream is None:
        return ABSENT
    return (
        f"{upstream.source} {upstream.distribution or upstream.revision or ''} {upstream.version}"
    )
