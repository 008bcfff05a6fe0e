"""Fetches a git revision and hands its tree to the object store, as git has it.

git keeps its own modes, symbolic links and submodule commits. The user's git
configuration, hooks and credential helpers take no part (git.py).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

from filelock import FileLock

from patchwright.config import UpstreamConfig
from patchwright.errors import InputError, PatchwrightError
from patchwright.files import lock_folder
from patchwright.git import MAKE_ROOM, Git, disk_is_full, make_bare, validated_revision
from patchwright.lock import LockedUpstream
from patchwright.quoting import display
from patchwright.store import SUBMODULE, SYMLINK, ObjectStore
from patchwright.upstreams.archive import BadArchive, link_faults, path_fault
from patchwright.upstreams.layout import path_map

# No helper programs (ext::), no transport without integrity (git://, http://).
TRANSPORTS = {"GIT_ALLOW_PROTOCOL": "https:ssh:file"}
_ADDRESS = re.compile(r"(?:https|ssh|file)://\S+|[\w.-]+@[\w.-]+:\S+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHORT_COMMIT = re.compile(r"[0-9a-f]{4,39}")
# A lock that a killed git left makes every later one fail.
_LEFTOVERS = (
    "*.lock", "refs/**/*.lock", "objects/pack/tmp_*", "objects/pack/.tmp-*", "objects/??/tmp_obj_*",
)  # fmt: skip


class Fetched(NamedTuple):
    """One commit in a bare repository in the cache."""

    git: Git
    commit: str
    tree: str
    submodules: dict[str, str]


def fetch_revision(
    config: UpstreamConfig, cache_dir: Path, root: Path, locked: LockedUpstream | None = None
) -> Fetched:
    """Fetch the revision, or the locked commit of it.

    A branch may have moved on since; a tag may not: PatchwrightError names both commits.
    Raises InputError for an address or revision that cannot be used.
    """
    address = address_of(config, root)
    revision = validated_revision(config.revision or "HEAD")
    with mirror(cache_dir, address) as git:
        return _fetched(git, config, address, revision, locked)


def check_tag(config: UpstreamConfig, cache_dir: Path, root: Path, locked: LockedUpstream) -> None:
    """Raise PatchwrightError where the pinned tag is another commit now than the locked one."""
    if config.revision is None or locked.commit is None or locked.revision != config.revision:
        return
    address = address_of(config, root)
    with mirror(cache_dir, address) as git:
        commit, is_tag = look_up(git, address, validated_revision(config.revision))
    if is_tag and commit != locked.commit:
        raise _rewritten(config, config.revision, commit, locked.commit)


def _rewritten(
    config: UpstreamConfig, revision: str, now: str | None, locked: str
) -> PatchwrightError:
    return PatchwrightError(
        f"tag {revision} is commit {now} now, the lock has {locked}",
        where=f"upstream {config.name}",
        next_step="ask upstream why the tag moved; `patchwright lock --upgrade` accepts the new "
        "commit, `revision` with the commit id keeps the old one",
    )


def remote_tags(config: UpstreamConfig, cache_dir: Path, root: Path) -> tuple[str, ...]:
    """Return the names of all tags of the repository. Raises PatchwrightError."""
    address = address_of(config, root)
    with mirror(cache_dir, address) as git:
        done = git.run("ls-remote", "--quiet", "--tags", "--refs", "--", address,
                       env=TRANSPORTS, ok=range(256))  # fmt: skip
    if done.returncode:
        refuse(address, done.stderr)
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return tuple(line.partition("\trefs/tags/")[2] for line in lines)


@contextmanager
def mirror(cache_dir: Path, address: str) -> Iterator[Git]:
    """Yield the cache's bare repository for an address, for one process alone."""
    name = hashlib.sha256(address.encode()).hexdigest()[:32]
    folder = cache_dir / "git"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{name}.lock"), _mirror(folder / f"{name}.git") as git:
        yield git


@contextmanager
def _mirror(path: Path) -> Iterator[Git]:
    """Yield a bare repository for one process alone, rid of what killed ones left there."""
    if not (path / "HEAD").is_file():
        make_bare(path)
    # A git whose caller was killed holds the folder until it has ended.
    lock = lock_folder(path)
    try:
        for name in _LEFTOVERS:
            for left in path.glob(name):
                left.unlink(missing_ok=True)
        yield Git(path, holds=(lock,))
    finally:
        os.close(lock)


def _fetched(
    git: Git, config: UpstreamConfig, address: str, revision: str, locked: LockedUpstream | None
) -> Fetched:
    known = locked.commit if locked is not None else None
    if known is None or not _has(git, known):
        commit, is_tag = look_up(git, address, revision)
        if known is not None and is_tag and commit != known:
            raise _rewritten(config, revision, commit, known)
        known = _fetch(git, address, known or commit or revision)
    tree = git.run("rev-parse", "--verify", "--end-of-options", f"{known}^{{tree}}")
    tree_id = tree.stdout.decode().strip()
    return Fetched(Git(git.git_dir), known, tree_id, _submodules(git, tree_id))


def at_remote(git: Git, address: str, *args: str, env: Mapping[str, str] | None = None) -> bytes:
    """Run a git command that talks to ``address`` and return what it prints.

    Raises InputError for an address that git is not let near, PatchwrightError where the
    other side cannot be reached or refuses; no login in an address is told.
    """
    _check_address(address, "the command line")
    done = git.run(*args, env={**TRANSPORTS, **(env or {})}, ok=range(256))
    if done.returncode:
        refuse(address, done.stderr, "push to" if args[0] == "push" else "fetch from")
    return done.stdout


def store_revision(fetched: Fetched, config: UpstreamConfig, store: ObjectStore) -> str:
    """Copy the tree of a commit into the store and return its id. Raises BadArchive."""
    pack = fetched.git.run("pack-objects", "--quiet", "--revs", "--stdout",
                           data=f"{fetched.tree}\n".encode())  # fmt: skip
    store.write("index-pack", "--stdin", "--strict", data=pack.stdout)
    paths = path_map(config.layout)
    for path, entry in store.files(fetched.tree):
        fault = path_fault(path)
        if not fault and entry.mode == SYMLINK:
            fault = link_faults(paths, path, store.blob(entry.oid))
        if fault:
            raise BadArchive(
                fault, where=f"upstream {config.name}: {display(path)}",
                next_step="choose another revision; a tree with this file is not used",
            )  # fmt: skip
    return fetched.tree


def address_of(config: UpstreamConfig, root: Path) -> str:
    """Return where a git repository is fetched from. Raises InputError."""
    if config.path is not None:
        folder = (root / config.path).resolve()
        if not folder.is_dir():
            raise InputError(
                f"upstream {config.name}: there is no such repository", where=str(folder),
                next_step="correct `path` in pyproject.toml",
            )  # fmt: skip
        return str(folder)
    address = config.git or ""
    _check_address(address, f"pyproject.toml: upstream {config.name}")
    return address


def _check_address(address: str, where: str) -> None:
    if not _ADDRESS.fullmatch(address) and not (address.startswith("/") and Path(address).is_dir()):
        raise InputError(
            f"{without_login(address)!r} is not an address that git uses from here", where=where,
            next_step="give an https, ssh or file address, or the folder of a clone",
        )  # fmt: skip


def without_login(text: str) -> str:
    """Return text with addresses like https://user:token@host/… rid of what stands before @."""
    return re.sub(r"(?<=://)[^/@\s]*@", "", text)


def look_up(git: Git, address: str, revision: str) -> tuple[str | None, bool]:
    """Return the commit of a tag or branch, and whether it is a tag."""
    if _COMMIT.fullmatch(revision):
        return revision, False
    tag = f"refs/tags/{revision}"
    names = (f"{tag}^{{}}", tag, f"refs/heads/{revision}", revision)
    done = git.run("ls-remote", "--quiet", "--", address, *names, env=TRANSPORTS, ok=range(256))
    if done.returncode:
        refuse(address, done.stderr)
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    refs = {name: oid for oid, _, name in (line.partition("\t") for line in lines)}
    found = next((name for name in names if name in refs), None)
    if found is not None:
        return refs[found], found.startswith(tag)
    if _SHORT_COMMIT.fullmatch(revision):
        return None, False
    raise InputError(
        f"the repository has no tag, branch or commit {revision}", where=address,
        next_step="correct `revision` in pyproject.toml",
    )  # fmt: skip


def _fetch(git: Git, address: str, revision: str) -> str:
    """Bring a commit with its files here, and return its full id."""
    options = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head")
    if _COMMIT.fullmatch(revision) and (
        _has(git, revision)
        or not git.run(*options, "--depth=1", "--", address, revision,
                       env=TRANSPORTS, ok=range(256)).returncode
    ):  # fmt: skip
        return revision
    # Some servers give no single commits, and no server finds a short id.
    assert git.git_dir is not None
    whole = ("--unshallow",) if (git.git_dir / "shallow").exists() else ()
    done = git.run(*options, *whole, "--", address, "+refs/heads/*:refs/all/heads/*",
                   "+refs/tags/*:refs/all/tags/*", env=TRANSPORTS, ok=range(256))  # fmt: skip
    if done.returncode:
        refuse(address, done.stderr)
    found = git.run("rev-parse", "--verify", "--quiet", "--end-of-options",
                    f"{revision}^{{commit}}", ok=(0, 1, 128))  # fmt: skip
    if found.returncode:
        raise PatchwrightError(
            f"the repository has no commit {revision}, or more than one", where=address,
            next_step="correct `revision` in pyproject.toml, then run `patchwright lock`",
        )  # fmt: skip
    return found.stdout.decode().strip()


def _has(git: Git, commit: str) -> bool:
    return not git.run("cat-file", "-e", f"{commit}^{{tree}}", ok=(0, 1, 128)).returncode


def _submodules(git: Git, tree: str) -> dict[str, str]:
    listing = git.run("ls-tree", "-r", "-z", "--end-of-options", tree).stdout
    found = {}
    for line in listing.split(b"\0"):
        meta, _, path = line.partition(b"\t")
        if meta.startswith(SUBMODULE):
            found[display(path)] = meta.split()[2].decode()
    return found


def refuse(address: str, stderr: bytes, doing: str = "fetch from") -> NoReturn:
    """Raise PatchwrightError for a git that could not reach a remote, by what it said."""
    reason = "; ".join(stderr.decode("utf-8", "replace").strip().splitlines())[:600]
    where = without_login(address)
    reason = without_login(reason)
    if re.search(r"Username|Password|[Aa]uthentication|Permission denied|\b40[13]\b", reason):
        step = "use an ssh address with your agent, or a local clone with `path`"
    elif disk_is_full(stderr):
        step = MAKE_ROOM
    else:
        step = "check the address, network and proxy, or give a local clone with `path`"
    raise PatchwrightError(f"git cannot {doing} it ({reason})", where=where, next_step=step)
