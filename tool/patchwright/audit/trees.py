"""The upstreams of one state, read from the object store: nothing is written to disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.smoke.outcomes import SmokeError
from patchwright.smoke.trees import Files, Source, SyntaxCache, Trees, format_listing
from patchwright.store import EXECUTABLE, FILE

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.project import Project
    from patchwright.store import ObjectStore


class StoredTrees(Trees):
    """Trees whose files stay in the store; ``site`` names no folder."""

    def __init__(
        self,
        store: ObjectStore,
        state: Sequence[tuple[str, str]],
        sources: Sequence[Source],
        listing: Files,
        syntax: SyntaxCache | None = None,
        blobs: dict[str, bytes] | None = None,
    ) -> None:
        super().__init__(Path("/site"), state, sources, listing, syntax)
        self._store = store
        # Shared by the trees of several states: most of their files are the same.
        self._blobs = blobs if blobs is not None else {}

    @classmethod
    def of(
        cls, project: Project, state: State, syntax: SyntaxCache | None = None,
        blobs: dict[str, bytes] | None = None,
    ) -> StoredTrees:  # fmt: skip
        """Return the trees of a state of a project."""
        from patchwright.smoke.protocol import sources_of
        from patchwright.smoke.sites import site_tree

        tree = site_tree(project, state)
        listing = {path: (entry.mode, entry.oid) for path, entry in project.store.files(tree)}
        return cls(project.store, state.trees, sources_of(project.config), listing, syntax, blobs)

    def oid(self, upstream: str, path: str) -> str:
        """Return the id of a file's content."""
        installed = self._installed(upstream, path)
        if installed not in self._listing:
            raise SmokeError(f"{upstream}: the tree has no file {path}")
        return self._listing[installed][1]

    @property
    def digest(self) -> str:
        """What identifies the content of all files, and where they stand."""
        text = repr(sorted(self._sources.items())).encode()
        return hashlib.sha256(text + b"\0" + format_listing(self._listing)).hexdigest()

    def peek(self, upstream: str, path: str) -> bytes:
        """Return a file's bytes, which are not kept."""
        return self._store.blob(self.oid(upstream, path))

    def _read(self, upstream: str, path: str) -> tuple[str, bytes]:
        installed = self._installed(upstream, path)
        if installed not in self._listing:
            raise SmokeError(f"{upstream}: the tree has no file {path}")
        mode, oid = self._listing[installed]
        if mode not in (FILE, EXECUTABLE):
            raise SmokeError(f"{upstream}: {os.fsdecode(path)} is a link, not a file")
        if oid not in self._blobs:
            self._blobs[oid] = self._store.blob(oid)
        return oid, self._blobs[oid]
