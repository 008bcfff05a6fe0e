"""A project on disk: what is wanted, what is locked, the series, the object store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.config import LOCK_NAME, Config, UpstreamConfig, find_root, load_config
from patchwright.editing.pending import half_done
from patchwright.errors import InputError, PatchwrightError

if TYPE_CHECKING:
    from patchwright.applying.cache import AppliedCache
    from patchwright.applying.chain import State
    from patchwright.lock import Disagreement, Lock, LockedUpstream
    from patchwright.patch import Patch
    from patchwright.series import Series
    from patchwright.store import ObjectStore
    from patchwright.upstreams import Pristine

PATCHES = "patches"


class Project:
    """One project; everything is loaded when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # Told, one line each, what takes its time: downloads and imports.
        self.progress: Callable[[str], None] = lambda _: None
        self._resolved: dict[str, LockedUpstream] = {}
        self._pristine: dict[str, Pristine] = {}

    @classmethod
    def open(cls, directory: Path) -> Project:
        """Return the project that ``directory`` lies in; InputError where it lies in none.

        What a killed command left half written is finished first.
        """
        root = find_root(directory)
        if half_done(root):
            from patchwright.editing.transaction import recover

            recover(root)
        return cls(root)

    def forget(self) -> None:
        """Read pyproject.toml, the lock and the series anew when they are next asked for."""
        for name in ("config", "lock", "series", "site_trees"):
            self.__dict__.pop(name, None)

    @cached_property
    def config(self) -> Config:
        """What pyproject.toml asks for."""
        return load_config(self.root)

    @property
    def lock_path(self) -> Path:
        """Where the lock stands, or would stand."""
        return self.root / LOCK_NAME

    @cached_property
    def lock(self) -> Lock | None:
        """The lock, or None where there is none yet."""
        from patchwright.lock import read_lock

        there = self.lock_path.exists() or self.lock_path.is_symlink()
        return read_lock(self.lock_path) if there else None

    @cached_property
    def series(self) -> Series:
        """All patches, in number order, and which are off on this machine."""
        from patchwright.editing.switches import read_off
        from patchwright.series import Series

        series = Series.load(self.root / PATCHES, tuple(self.config.upstreams))
        off = read_off(self.root)
        return replace(series, off=off.intersection(p.number for p in series.patches))

    @cached_property
    def cache_dir(self) -> Path:
        """PATCHWRIGHT_CACHE, or the folder for caches that this system gives a user."""
        named = os.environ.get("PATCHWRIGHT_CACHE")
        if named:
            return Path(named).absolute()
        from platformdirs import user_cache_path

        return user_cache_path("patchwright", appauthor=False)

    @cached_property
    def applied(self) -> AppliedCache:
        """What is known of applied patches, in the user's cache."""
        from patchwright.applying.cache import AppliedCache

        return AppliedCache(self.cache_dir / "applied.sqlite")

    @cached_property
    def site_trees(self) -> dict[State, str]:
        """The trees of states laid side by side, as far as anybody asked (smoke/sites.py)."""
        return {}

    @cached_property
    def store(self) -> ObjectStore:
        """The object store in the user's cache, shared by all projects."""
        from patchwright.store import ObjectStore

        return ObjectStore(self.cache_dir / "objects.git")

    @cached_property
    def state_dir(self) -> Path:
        """The folder for what this project's runs leave behind; git ignores it."""
        folder = self.root / ".patchwright"
        try:
            folder.mkdir(exist_ok=True)
            ignore = folder / ".gitignore"
            if not ignore.exists():
                from patchwright.files import sweep, write_atomically

                sweep(folder, ignore.name)
                write_atomically(ignore, b"*\n")
        except OSError as error:
            raise PatchwrightError(
                f"the project's state cannot be written: {error.strerror}", where=str(folder),
                next_step="make the project's folder writable",
            ) from error  # fmt: skip
        return folder

    def upstream(self, name: str) -> UpstreamConfig:
        """Return the configuration of an upstream; InputError for an unknown one."""
        try:
            return self.config.upstreams[name]
        except KeyError:
            known = ", ".join(self.config.upstreams) or "none"
            raise InputError(
                f"there is no upstream {name!r}", where=str(self.root / "pyproject.toml"),
                next_step=f"known: {known}",
            ) from None  # fmt: skip

    def stale(self) -> list[Disagreement]:
        """Return where the lock disagrees with pyproject.toml and the patch files.

        Empty where there is no lock: then nothing is promised. Reads no store.
        """
        if self.lock is None:
            return []
        from patchwright.environment.locking import environment_disagreements
        from patchwright.lock import disagreements

        found = disagreements(self.lock, self.config, self.series)
        return found + environment_disagreements(self.lock, self.config)

    def check_pins(self, patches: Iterable[Patch]) -> None:
        """Raise InputError for a patch that was made for another version than its pin."""
        from patchwright.series import Series

        versions = {name: config.version for name, config in self.config.upstreams.items()}
        for problem in Series(tuple(patches)).check_pins(versions):
            raise problem

    def locked_upstream(self, name: str) -> LockedUpstream:
        """Return what an upstream resolves to.

        That is the lock's entry where it agrees with pyproject.toml; otherwise it is
        resolved now, for this process only.
        """
        if name not in self._resolved:
            from patchwright.lock import upstream_disagreements

            wanted = self.upstream(name)
            entry = self.lock.upstream(name) if self.lock else None
            if entry is None or upstream_disagreements(entry, wanted, self.root):
                return self.resolve(name)
            self._resolved[name] = entry
        return self._resolved[name]

    @property
    def pins_key(self) -> str:
        """A digest of what the pins are by pyproject.toml; resolves nothing."""
        import hashlib

        configs = sorted(self.config.upstreams.items())
        pins = [(name, config.version, config.revision) for name, config in configs]
        return hashlib.sha256(repr(pins).encode()).hexdigest()

    def resolve(self, name: str) -> LockedUpstream:
        """Resolve an upstream anew, whatever the lock says; may use the network."""
        from patchwright.upstreams import resolve

        entry = resolve(
            self.upstream(name), root=self.root, cache_dir=self.cache_dir, progress=self.progress
        )
        self.use(entry)
        return self._resolved[name]

    def use(self, entry: LockedUpstream, pristine: Pristine | None = None) -> None:
        """Let ``entry`` be what its upstream resolves to, for this process only.

        ``pristine`` are its files, where they do not come from what a pin can name.
        """
        self._pristine.pop(entry.name, None)
        self._resolved[entry.name] = entry
        if pristine is not None:
            self._pristine[entry.name] = pristine

    def pristine(self, upstream: str) -> Pristine:
        """Return an upstream's pristine tree, imported on first use."""
        from patchwright.upstreams import import_upstream

        if upstream not in self._pristine:
            self._pristine[upstream] = import_upstream(
                self.upstream(upstream), self.locked_upstream(upstream),
                self.store, self.cache_dir, root=self.root, progress=self.progress,
            )  # fmt: skip
        return self._pristine[upstream]
