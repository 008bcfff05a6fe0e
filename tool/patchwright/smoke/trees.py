"""The patched upstreams of one state as files, named by their repository paths.

One site folder holds all upstreams side by side in installed layout. Every read is
checked against the listing of the tree that the folder was made from: a smoke test
never sees a file that is not the tree's.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from patchwright.config import Layout
from patchwright.smoke.generator import Forked, Generators
from patchwright.smoke.outcomes import SmokeError
from patchwright.store import EXECUTABLE, FILE, object_id
from patchwright.upstreams.layout import PathMap

# Installed path to (mode, blob id).
Files = Mapping[bytes, tuple[bytes, str]]


class Listing(dict[bytes, tuple[bytes, str]]):
    """What a site folder must hold: installed path to (mode, blob id)."""

    @cached_property
    def folders(self) -> frozenset[bytes]:
        """The folders below which Python files lie, without a slash at their end."""
        found: set[bytes] = set()
        for path in self:
            end = path.rfind(b"/") if path.endswith(b".py") else -1
            while end > 0 and path[:end] not in found:
                found.add(path[:end])
                end = path.rfind(b"/", 0, end)
        return frozenset(found)

    @cached_property
    def paths(self) -> str:
        """A digest of which files there are, with their modes; not of what they hold."""
        names = b"".join(b"%s %s\0" % (mode, path) for path, (mode, _) in sorted(self.items()))
        return hashlib.sha256(names).hexdigest()


def format_listing(listing: Files) -> bytes:
    """Return a listing's file format: ``MODE ID<TAB>PATH<NUL>`` per file, sorted."""
    return b"".join(
        b"%s %s\t%s\0" % (mode, oid.encode(), path) for path, (mode, oid) in sorted(listing.items())
    )


def parse_listing(data: bytes) -> Listing:
    """Return the listing that ``format_listing`` wrote."""
    lines = data.split(b"\0")[:-1]
    # Modes of files have six digits, ids forty.
    return Listing({line[48:]: (line[:6], line[7:47].decode()) for line in lines})


@dataclass(frozen=True)
class Source:
    """One upstream within a site folder: its import names and its layout."""

    name: str
    packages: tuple[str, ...]
    layout: Layout


@dataclass
class SyntaxCache:
    """Syntax trees by blob id; the prepared worker keeps one across its runs."""

    known: dict[str, ast.Module] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def parse(self, oid: str, source: bytes, name: str) -> ast.Module:
        """Return the syntax tree of a blob; SyntaxError where it has none."""
        self.asked.add(oid)
        if oid not in self.known:
            self.known[oid] = ast.parse(source, name)
        return self.known[oid]


class Trees:
    """The upstreams of one state as files in ``site``.

    ``state`` is the (upstream, repository tree id) pairs that the files come from.
    Paths given and returned are repository paths (``csrc/x.cu``,
    ``python/sglang/srt/y.py``); only ``path`` leads to the installed layout.
    """

    def __init__(
        self,
        site: Path,
        state: Sequence[tuple[str, str]],
        sources: Sequence[Source],
        listing: Files,
        syntax: SyntaxCache | None = None,
        generators: Generators | None = None,
    ) -> None:
        self.site = site
        self.state = tuple(state)
        self._sources = {source.name: source for source in sources}
        self._maps = {source.name: PathMap(source.layout) for source in sources}
        self._files: dict[str, tuple[str, ...]] = {}
        self._listing = listing if isinstance(listing, Listing) else Listing(listing)
        self.stubs: set[str] = set()
        self.syntax = syntax if syntax is not None else SyntaxCache()
        self.generators: Generators = generators if generators is not None else Forked()
        # What others derive from these trees' syntax and want to find again.
        self.shared: dict[tuple[str, ...], object] = {}

    def announce(self, stub: str) -> None:
        """Have the run's record name what stands in for the real thing: ``torch (stub)``."""
        self.stubs.add(stub)

    def __repr__(self) -> str:
        return "Trees(" + ", ".join(f"{name} {tree[:12]}" for name, tree in self.state) + ")"

    @property
    def upstreams(self) -> tuple[str, ...]:
        """The names of the upstreams."""
        return tuple(self._sources)

    def packages(self, upstream: str) -> tuple[str, ...]:
        """Return an upstream's import names (``("flashinfer",)``)."""
        return self._source(upstream).packages

    def path(self, upstream: str, path: str) -> Path:
        """Return where the file stands (or would stand) below ``site``.

        Raises SmokeError for a path that the distribution does not contain.
        """
        return self.site / os.fsdecode(self._installed(upstream, path))

    def exists(self, upstream: str, path: str) -> bool:
        """Return whether the tree has this file."""
        self._source(upstream)
        return self._maps[upstream].placed(os.fsencode(path)) in self._listing

    def read(self, upstream: str, path: str) -> bytes:
        """Return a file's bytes.

        Raises SmokeError when the tree has no such file or when the bytes on disk are
        not the tree's.
        """
        return self._read(upstream, path)[1]

    def text(self, upstream: str, path: str) -> str:
        """Return a file's text (UTF-8; bytes that are not come as surrogates)."""
        return self.read(upstream, path).decode("utf-8", "surrogateescape")

    def ast(self, upstream: str, path: str) -> ast.Module:
        """Return a Python file's syntax tree, shared between callers: do not change it.

        Raises SmokeError as ``read`` does and for source that does not parse.
        """
        oid, data = self._read(upstream, path)
        try:
            return self.syntax.parse(oid, data, str(self.path(upstream, path)))
        except (SyntaxError, ValueError) as error:
            raise SmokeError(f"{upstream}: {path} is not valid Python: {error}") from error

    def files(self, upstream: str) -> tuple[str, ...]:
        """Return the repository paths of an upstream's files, sorted."""
        self._source(upstream)
        if upstream not in self._files:
            to_repository = self._maps[upstream].to_repository
            found = {path for p in self._listing if (path := to_repository(p)) is not None}
            self._files[upstream] = tuple(map(os.fsdecode, sorted(found)))
        return self._files[upstream]

    def module(self, dotted: str) -> tuple[str, str] | None:
        """Return (upstream, repository path) of a module, or None.

        ``flashinfer.jit.comm`` is ``("flashinfer", "flashinfer/jit/comm.py")``; a
        package is its ``__init__.py``.
        """
        parts = dotted.split(".")
        for source in self._sources.values():
            if parts[0] not in source.packages:
                continue
            stem = os.fsencode("/".join(parts))
            for installed in (stem + b"/__init__.py", stem + b".py"):
                repository = self._maps[source.name].to_repository(installed)
                if installed in self._listing and repository is not None:
                    return source.name, os.fsdecode(repository)
        return None

    def is_folder(self, dotted: str) -> bool:
        """Return whether Python files lie below a dotted name."""
        return os.fsencode(dotted.replace(".", "/")) in self._listing.folders

    def _source(self, upstream: str) -> Source:
        if upstream not in self._sources:
            raise SmokeError(f"no upstream is named {upstream!r}: {', '.join(self._sources)}")
        return self._sources[upstream]

    def _installed(self, upstream: str, path: str) -> bytes:
        self._source(upstream)
        installed = self._maps[upstream].placed(os.fsencode(path))
        if installed is None:
            raise SmokeError(f"{upstream}: the distribution does not contain {path}")
        return installed

    def _read(self, upstream: str, path: str) -> tuple[str, bytes]:
        installed = self._installed(upstream, path)
        if installed not in self._listing:
            raise SmokeError(f"{upstream}: the tree has no file {path}")
        mode, oid = self._listing[installed]
        if mode not in (FILE, EXECUTABLE):
            raise SmokeError(f"{upstream}: {path} is a link, not a file")
        place = self.site / os.fsdecode(installed)
        try:
            data = place.read_bytes()
        except OSError as error:
            raise SmokeError(
                f"{upstream}: {path} cannot be read from the tree: {error.strerror}"
            ) from error
        if object_id("blob", data) != oid:
            raise SmokeError(f"{place} is not the tree's {path}: it was changed on disk")
        return oid, data
