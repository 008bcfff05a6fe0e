"""What is installed, in repository paths: the tree that the files of an environment make."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from patchwright.config import UpstreamConfig
from patchwright.environment.installed import version_in
from patchwright.environment.metadata import with_version
from patchwright.errors import InputError
from patchwright.store import FILE, ObjectStore, object_id
from patchwright.upstreams.layout import installed_tree, path_map

_JUNK = re.compile(rb"(.*/)?(__pycache__/.*|[^/]*\.(pyc|orig|rej|bak)|[^/]*~|\.[^/]*\.sw[a-z])")


@dataclass(frozen=True)
class InstalledTree:
    """One upstream's files in an environment.

    ``tree`` is in repository paths. ``outside`` are installed paths that differ and that
    no patch can carry: no rule of the layout leads to a file of the repository.
    """

    site: Path
    tree: str
    outside: tuple[bytes, ...]


def read_installed(
    store: ObjectStore, site: Path, config: UpstreamConfig, pristine: str, outside: str,
    likely: Collection[str],
) -> InstalledTree:  # fmt: skip
    """Read an upstream's files; blobs that are new go to the store.

    ``pristine`` and ``outside`` are the upstream's trees, ``likely`` the ids of trees
    (repository paths) whose files are expected: what they have and the environment has
    not was removed there.
    """
    paths = path_map(config.layout)
    known: dict[bytes, set[str]] = {}
    for tree in {pristine, *likely}:
        for path, entry in store.files(installed_tree(store, config.layout, tree, outside)):
            known.setdefault(path, set()).add(entry.oid)
    local = version_in(site, config.distribution or config.name) or config.version
    versions = {os.fsencode(name) for name in config.version_files}
    files: dict[bytes, tuple[bytes, str]] = {}
    odd: list[bytes] = []
    modes = {path: e.mode for tree in likely for path, e in store.files(tree)}
    for path in {*known, *_found(site, config)}:
        data = _read(site, path)
        if data is None:
            continue
        if path in versions and local != config.version:
            # A patched distribution has a version of its own, written by us.
            with contextlib.suppress(InputError):
                data = with_version(path, data, local, config.version)
        oid = object_id("blob", data)
        repository = paths.to_repository(path)
        if repository is None:
            if not paths.is_outside(path) and oid not in known.get(path, ()):
                odd.append(path)
            continue
        if path not in known and _JUNK.fullmatch(path):
            continue
        if oid not in known.get(path, ()):
            store.add("blob", data)
        files[repository] = (modes.get(repository, FILE), oid)
    # What the distribution never has (tests, docs of a git revision) was not removed.
    for path, entry in store.files(pristine):
        if paths.to_installed(path) is None:
            files[path] = (entry.mode, entry.oid)
    tree = store.build_tree(files)
    store.flush()
    return InstalledTree(site, tree, tuple(sorted(odd)))


def _found(site: Path, config: UpstreamConfig) -> Iterator[bytes]:
    """Yield what lies in the upstream's packages, as installed paths."""
    root = os.fsencode(site)
    for package in config.packages:
        todo = [os.fsencode(package)]
        while todo:
            folder = todo.pop()
            try:
                entries = list(os.scandir(os.path.join(root, folder)))  # noqa: PTH118 - bytes
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in entries:
                path = folder + b"/" + entry.name
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != b"__pycache__":
                        todo.append(path)
                else:
                    yield path


def _read(site: Path, path: bytes) -> bytes | None:
    """Return a file's bytes; an installer may have linked it from its cache."""
    place = os.path.join(os.fsencode(site), path)  # noqa: PTH118 - bytes
    if not os.path.isfile(place):  # noqa: PTH113
        return None
    try:
        with open(place, "rb") as stream:  # noqa: PTH123
            return stream.read()
    except OSError as error:
        raise InputError(
            f"the file cannot be read: {error.strerror}", where=os.fsdecode(place),
            next_step="make it readable",
        ) from error  # fmt: skip
