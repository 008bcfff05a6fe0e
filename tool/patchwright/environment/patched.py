"""The files by which a patched distribution differs from the pristine one.

One answer for both writers: the packer of wheels and the one that changes an installed
environment in place. Paths are those of the installed layout, relative to
``site-packages``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchwright.environment.metadata import (
    local_version,
    patched_info_name,
    patched_metadata,
    refreshed_record,
    with_version,
)
from patchwright.errors import InputError
from patchwright.quoting import display
from patchwright.store import DIRECTORY, EMPTY_TREE, SUBMODULE, SYMLINK, ObjectStore, TreeEntry

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.config import UpstreamConfig
    from patchwright.project import Project

# Path to new content, or None for a file that goes away. A file may give way to a folder of
# its name: writers remove before they create.
Changes = dict[bytes, bytes | None]


@dataclass(frozen=True)
class PatchedDistribution:
    """One distribution that a state of the series changes.

    ``upstream`` is the one whose patches are the reason: its own distribution, or a
    companion of it. ``version`` is the pristine one and ``new_version`` has the local part.
    ``changes`` are all files that the patches change, without ``.dist-info``; the upstream's
    own version files are among them. ``version_files`` are those of a companion: only the
    installation (or the wheel) has their pristine bytes.
    """

    upstream: str
    distribution: str
    version: str
    new_version: str
    changes: Mapping[bytes, bytes | None]
    version_files: tuple[bytes, ...] = ()

    def complete(
        self, info: bytes, info_files: Mapping[bytes, bytes], read: Callable[[bytes], bytes]
    ) -> Changes:
        """Return every change that turns the pristine distribution into the patched one.

        ``info`` is the name of its ``.dist-info`` folder, ``info_files`` (path to content)
        all that stands in it, RECORD included; ``read`` gives the pristine bytes of an
        installed path. The folder's files move to its new name, METADATA gets the new
        version, and RECORD (last) tells of all of it. Raises InputError.
        """
        changes: Changes = dict(self.changes)
        for path in self.version_files:
            changes[path] = with_version(path, read(path), self.version, self.new_version)
        new_info = patched_info_name(info, self.version, self.new_version)
        record = info_files[info + b"/RECORD"]
        metadata = info_files[info + b"/METADATA"]
        changed = patched_metadata(metadata, self.version, self.new_version)
        refreshed = refreshed_record(
            record, {**changes, new_info + b"/METADATA": changed}, info, new_info
        )
        for path, content in info_files.items():
            changes[path] = None
            changes[new_info + path[len(info) :]] = content
        changes[new_info + b"/METADATA"] = changed
        changes.pop(new_info + b"/RECORD")
        changes[new_info + b"/RECORD"] = refreshed
        return changes


def patched_distributions(project: Project, state: State) -> tuple[PatchedDistribution, ...]:
    """Return what ``state`` changes, sorted by distribution; an unpatched upstream is not in it.

    Raises InputError where two upstreams change one file, or where a patch leaves a
    link, which no wheel can hold.
    """
    found: list[PatchedDistribution] = []
    owners: dict[bytes, str] = {}
    for name, tree in state.trees:
        config, pristine = project.upstream(name), project.pristine(name)
        if tree == pristine.tree:
            continue
        changes = _changes(project, config, tree)
        new = local_version(config.version, tree)
        for path in changes:
            first = owners.setdefault(path, name)
            if first != name:
                raise InputError(
                    f"both {first} and {name} change it", where=display(path),
                    next_step="correct the layout of one of them in pyproject.toml",
                )  # fmt: skip
        own = distribution_name(config)
        found.append(PatchedDistribution(name, own, config.version, new, changes))
        found += [
            PatchedDistribution(
                name, companion.distribution, config.version, new, {},
                tuple(path.encode() for path in companion.version_files),
            )
            for companion in config.companions
        ]  # fmt: skip
    return tuple(sorted(found, key=lambda d: d.distribution))


def distribution_name(config: UpstreamConfig) -> str:
    """Return the canonical name of an upstream's distribution."""
    from packaging.utils import canonicalize_name

    if config.distribution is None and config.path is not None and config.source != "git":
        file = config.path.rpartition("/")[2]
        stem = file.partition("-")[0] if config.source == "wheel" else file.rpartition("-")[0]
        return canonicalize_name(stem)
    return canonicalize_name(config.distribution or config.name)


def _changes(project: Project, config: UpstreamConfig, tree: str) -> Changes:
    from patchwright.upstreams.layout import installed_tree

    store, pristine = project.store, project.pristine(config.name)
    before, after = (
        installed_tree(store, config.layout, oid, pristine.outside) for oid in (pristine.tree, tree)
    )
    changes: Changes = {}
    for path, entry in differences(store, before, after):
        if entry is not None and entry.mode in (SYMLINK, SUBMODULE):
            raise InputError(
                "a patch leaves a link here, and a wheel holds only files", where=display(path),
                next_step="let the patch add the file itself",
            )  # fmt: skip
        changes[path] = store.blob(entry.oid) if entry is not None else None
    new = local_version(config.version, tree)
    for name in config.version_files:
        path = name.encode()
        entry = store.entry(after, path)
        if entry is None and config.source != "wheel":
            continue  # the build will make it
        if entry is None or entry.mode == DIRECTORY:
            raise InputError(
                f"upstream {config.name} has no such version file", where=name,
                next_step="correct version-files in pyproject.toml",
            )  # fmt: skip
        changes[path] = with_version(path, store.blob(entry.oid), config.version, new)
    return changes


def differences(
    store: ObjectStore, old: str, new: str, prefix: bytes = b""
) -> Iterator[tuple[bytes, TreeEntry | None]]:
    """Yield each file by which two trees differ, with its new entry (None: it is gone)."""
    before = {entry.name: entry for entry in store.tree(old)}
    after = {entry.name: entry for entry in store.tree(new)}
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        folders = [
            entry.oid if entry is not None and entry.mode == DIRECTORY else EMPTY_TREE
            for entry in (was, now)
        ]
        if folders != [EMPTY_TREE, EMPTY_TREE]:
            yield from differences(store, folders[0], folders[1], prefix + name + b"/")
        if now is not None and now.mode != DIRECTORY:
            yield prefix + name, now
        elif was is not None and was.mode != DIRECTORY:
            yield prefix + name, None
