"""Where a pristine tree comes from: a wheel, an sdist or a git revision.

Each is imported once into the object store. A record file, written after the objects,
says that an import is complete; a killed import leaves none and is done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.config import UpstreamConfig
from patchwright.errors import InputError, PatchwrightError
from patchwright.files import sweep, temporary_folder, write_atomically
from patchwright.lock import LockedUpstream, layout_digest
from patchwright.store import EMPTY_TREE, ObjectStore

# What reads and fetches archives is loaded only when something has to be imported.
if TYPE_CHECKING:
    from patchwright.upstreams.layout import File

Progress = Callable[[str], None]

# Part of every record's name: raise it when the same archive gives another tree.
_FORMAT = 1


@dataclass(frozen=True)
class Pristine:
    """An upstream's files at the pin.

    ``tree`` is in repository layout. ``outside`` is in installed layout: generated and
    built files, the distribution's metadata, and what no layout rule covers.
    """

    upstream: str
    tree: str
    outside: str


def resolve(
    config: UpstreamConfig, root: Path, cache_dir: Path, *, progress: Progress = lambda _: None
) -> LockedUpstream:
    """Return what the pin stands for now: a file and its sha256, or a commit.

    ``tree`` and ``outside`` are empty; ``import_upstream`` finds them. ``root`` is the
    project's folder. Asks the index or the repository, or reads the local file. Raises
    InputError or PatchwrightError.
    """
    from patchwright.upstreams import fetch, revision
    from patchwright.upstreams.archive import sha256_of

    progress(f"resolving {config.name} {config.version}")
    common = LockedUpstream(
        name=config.name, source=config.source, version=config.version,
        distribution=config.distribution, layout=layout_digest(config.layout),
    )  # fmt: skip
    if config.source == "git":
        with _cache_errors(cache_dir):
            fetched = revision.fetch_revision(config, cache_dir, root)
        return _replaced(
            common, commit=fetched.commit, submodules=fetched.submodules, revision=config.revision
        )
    if config.path is not None:
        path = _local(config, root)
        return _replaced(common, file=path.name, sha256=sha256_of(path))
    found = fetch.find_distribution(config, root)
    return _replaced(common, file=found.file, sha256=found.sha256)


def import_upstream(
    config: UpstreamConfig,
    locked: LockedUpstream,
    store: ObjectStore,
    cache_dir: Path,
    *,
    root: Path = Path(),
    progress: Progress = lambda _: None,
) -> Pristine:
    """Return the pristine tree of a locked upstream, imported on first use.

    Safe while other processes do the same: one of them works, the others wait. Raises
    BadArchive for a hostile archive, PatchwrightError for a wrong hash or a missing network,
    InputError for a local file that is not right. The trees that the lock names are not
    compared: callers show both.
    """
    record = cache_dir / "pristine" / f"{_key(config, locked)}.json"
    pristine = _recorded(record, config.name, store)
    if pristine is None:
        with _cache_errors(cache_dir), _locked(record, config, progress):
            # Another process may have done it while this one waited.
            pristine = _recorded(record, config.name, store)
            if pristine is None:
                progress(f"importing {config.name} {config.version}")
                pristine = _import(
                    config, locked, store, cache_dir.absolute(), root=root, progress=progress
                )
                store.flush()
                sweep(record.parent, record.name)
                content = {"tree": pristine.tree, "outside": pristine.outside}
                write_atomically(record, json.dumps(content).encode() + b"\n")
    return pristine


def _import(
    config: UpstreamConfig,
    locked: LockedUpstream,
    store: ObjectStore,
    cache_dir: Path,
    *,
    root: Path,
    progress: Progress,
) -> Pristine:
    from patchwright.upstreams import fetch, revision
    from patchwright.upstreams.archive import BadArchive, sha256_of
    from patchwright.upstreams.layout import split

    if config.source == "git":
        fetched = revision.fetch_revision(config, cache_dir, root, locked)
        return Pristine(config.name, revision.store_revision(fetched, config, store), EMPTY_TREE)
    if config.path is not None:
        path = _local(config, root)
        actual = sha256_of(path)
        if actual != locked.sha256:
            raise InputError(
                f"wrong sha256: {locked.sha256} is locked, the file has {actual}", where=str(path),
                next_step="restore the file, or run `patchwright lock` to accept it",
            )  # fmt: skip
        try:
            inside, outside = _read(config, path)
        except BadArchive as error:
            # A file that the project names is the project's input.
            raise InputError(error.what, where=error.where, next_step=error.next_step) from error
    elif config.source == "wheel":
        # Where a bundle brought the archive, there need be no network.
        kept = fetch.kept_archive(locked, cache_dir / "archives")
        if kept is not None:
            inside, outside = _read(config, kept)
        else:
            files = _unpacked(config, locked, cache_dir / "tmp", root, progress)
            inside, outside = split(config.layout, files)
    else:
        archives = cache_dir / "archives"
        inside, outside = _read(config, fetch.download(config, locked, archives, root, progress))
    if not inside:
        raise InputError(
            f"no layout rule of upstream {config.name} fits a file of {locked.file}",
            where="pyproject.toml", next_step="correct the upstream's layout",
        )  # fmt: skip
    return Pristine(config.name, _tree(store, inside), _tree(store, outside))


def _read(config: UpstreamConfig, path: Path) -> tuple[dict[bytes, File], dict[bytes, File]]:
    from patchwright.upstreams.layout import split
    from patchwright.upstreams.sdist import read_sdist
    from patchwright.upstreams.wheel import read_wheel

    if config.source == "sdist":
        return read_sdist(path, config)
    return split(config.layout, read_wheel(path, config))


def _unpacked(
    config: UpstreamConfig, locked: LockedUpstream, parent: Path, root: Path, progress: Progress
) -> dict[bytes, File]:
    """Return the files of the locked wheel as uv installs them."""
    from patchwright.upstreams import fetch
    from patchwright.upstreams.archive import BadArchive
    from patchwright.upstreams.wheel import read_installed

    with temporary_folder(parent) as (folder, lock):
        target = folder / "site"
        fetch.install_wheel(config, locked, target, root, holds=lock)
        try:
            return read_installed(target, config)
        except BadArchive as error:
            progress(f"uv's cache holds a changed file ({error.where}); downloading again")
        shutil.rmtree(target)
        fetch.install_wheel(config, locked, target, root, fresh=True, holds=lock)
        return read_installed(target, config)


def _tree(store: ObjectStore, files: Mapping[bytes, File]) -> str:
    return store.build_tree({p: (f.mode, store.add("blob", f.data)) for p, f in files.items()})


def _local(config: UpstreamConfig, root: Path) -> Path:
    path = root / str(config.path)
    suffixes = (".whl",) if config.source == "wheel" else (".tar.gz", ".tgz", ".zip")
    if not path.name.endswith(suffixes):
        raise InputError(
            f"a {config.source} is expected ({' or '.join(suffixes)})", where=str(path),
            next_step=f"correct `path` or `source` of upstream {config.name}",
        )  # fmt: skip
    step = f"correct `path` of upstream {config.name} in pyproject.toml"
    try:
        # Opening a pipe waits for a writer; a device has no end.
        if path.exists() and not path.is_file():
            raise InputError("this is not a regular file", where=str(path), next_step=step)
        path.open("rb").close()
    except OSError as error:
        raise InputError(
            f"the file cannot be read: {error.strerror}", where=str(path), next_step=step
        ) from error
    return path


def _key(config: UpstreamConfig, locked: LockedUpstream) -> str:
    identity = locked.commit if config.source == "git" else locked.sha256
    if not identity:
        raise InputError(
            f"the lock has no hash for upstream {config.name}", where="upstream.lock",
            next_step="run `patchwright lock`",
        )  # fmt: skip
    parts = [_FORMAT, config.source, identity, config.distribution, config.version]
    text = json.dumps([*parts, layout_digest(config.layout)])
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _recorded(record: Path, upstream: str, store: ObjectStore) -> Pristine | None:
    try:
        content = json.loads(record.read_bytes())
        pristine = Pristine(upstream, content["tree"], content["outside"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # The store may have been deleted under the record.
    return pristine if store.has(pristine.tree) and store.has(pristine.outside) else None


@contextlib.contextmanager
def _locked(record: Path, config: UpstreamConfig, progress: Progress) -> Iterator[None]:
    from filelock import FileLock, Timeout

    record.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(record.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress(f"waiting for another process that imports {config.name} {config.version}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _cache_errors(cache_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PatchwrightError(
            f"the cache cannot be written: {error.strerror}",
            where=str(error.filename or cache_dir),
            next_step="make room, make the folder writable, or set "
            "PATCHWRIGHT_CACHE to another one",
        ) from error


def _replaced(locked: LockedUpstream, **values: object) -> LockedUpstream:
    import dataclasses

    return dataclasses.replace(locked, **values)  # type: ignore[arg-type]
