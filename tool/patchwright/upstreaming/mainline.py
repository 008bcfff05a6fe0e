"""Upstream's current main: fetched shallow into the cache, its tree in the object store."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.errors import InputError
from patchwright.git import Git
from patchwright.store import ObjectStore
from patchwright.upstreaming.profiles import Profile

if TYPE_CHECKING:
    from patchwright.config import UpstreamConfig
    from patchwright.project import Project


@dataclass(frozen=True)
class Mainline:
    """The branch of an upstream that takes changes, as it is now.

    ``remote`` is the address as git takes it (it may hold a login), ``address`` the same
    for people. ``submodules`` maps paths to commits; their files are not here.
    """

    remote: str = field(repr=False)
    address: str
    branch: str
    commit: str
    tree: str
    git_dir: Path = field(repr=False)
    submodules: dict[str, str] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The branch and the start of its commit, for people."""
        return f"{self.branch} {self.commit[:12]}"


def fetch_mainline(
    project: Project, upstream: UpstreamConfig, profile: Profile, source: str | None
) -> Mainline:
    """Fetch what changes are made against; ``source`` is an address or a local clone.

    Only the newest commit is asked for. Without ``source`` it is the upstream's ``git``
    address, or its local clone. Raises InputError where neither is known or the branch is
    not there, PatchwrightError where it cannot be reached, and where the pinned tag is
    another commit now than the lock has.
    """
    from patchwright.upstreams.revision import (
        check_tag,
        fetch_revision,
        store_revision,
        without_login,
    )

    locked = project.lock.upstream(upstream.name) if project.lock is not None else None
    if upstream.source == "git" and locked is not None:
        check_tag(upstream, project.cache_dir, project.root, locked)
    clone = _clone(project, upstream, source)
    address = str(clone) if clone is not None else source or upstream.git
    if not address:
        raise InputError(
            f"upstream {upstream.name} has no git address", where="pyproject.toml",
            next_step="give it `git`, or name an address or a clone with --upstream",
        )  # fmt: skip
    shown = without_login(address)
    project.progress(f"fetching {profile.branch} of {shown}")
    wanted = replace(
        upstream, source="git", git=address, path=None, revision=f"refs/heads/{profile.branch}"
    )
    try:
        fetched = fetch_revision(wanted, project.cache_dir, project.root)
    except InputError as error:
        if "has no tag, branch or commit" not in error.what:
            raise
        raise InputError(
            f"the repository has no branch {profile.branch}", where=shown,
            next_step="name the branch that takes changes: `branch` in "
            f"[tool.patchwright.upstreams.{upstream.name}.contribute]",
        ) from error  # fmt: skip
    # A tree comes as one pack with all that it holds: here, it is here whole.
    if not project.store.has(fetched.tree):
        store_revision(fetched, wanted, project.store)
    assert fetched.git.git_dir is not None
    return Mainline(
        address, shown, profile.branch, fetched.commit, fetched.tree, fetched.git.git_dir,
        fetched.submodules, _about(clone, profile.branch) if clone is not None else (),
    )  # fmt: skip


def _clone(project: Project, upstream: UpstreamConfig, source: str | None) -> Path | None:
    if source is None:
        if upstream.source != "git" or upstream.path is None:
            return None
        return (project.root / upstream.path).resolve()
    path = Path(source).expanduser()
    if path.is_dir():
        return path.resolve()
    if re.match(r"[\w+.-]+://|[\w.-]+@[\w.-]+:", source):
        return None
    raise InputError(
        "there is no such clone", where=source,
        next_step="give --upstream a git address or the folder of a clone",
    )  # fmt: skip


def _about(clone: Path, branch: str) -> tuple[str, ...]:
    """Return what a user should know about a local clone in an upstream's place."""
    notes = []
    status = _asked(clone, "status", "--porcelain", "--untracked-files=no")
    if status:
        notes.append(f"{clone} has uncommitted changes; they take no part")
    if _asked(clone, "rev-parse", "--is-shallow-repository") == "true":
        notes.append(f"{clone} is shallow: a fork that lacks its {branch} cannot be pushed to")
    here = _asked(clone, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")
    there = _asked(clone, "rev-parse", "--verify", "--quiet", f"refs/remotes/origin/{branch}")
    if there and there != here:
        notes.append(
            f"{branch} of {clone} is {here[:12]}, its origin/{branch} {there[:12]}: the first "
            "was taken; bring them together if that is not upstream's newest"
        )
    return tuple(notes)


def _asked(clone: Path, *args: str) -> str:
    done = Git().run("-C", str(clone), *args, ok=range(256))
    return "" if done.returncode else done.stdout.decode("utf-8", "replace").strip()


def testable(
    store: ObjectStore, tree: str, pristine: str, submodules: dict[str, str]
) -> tuple[str, tuple[str, ...]]:
    """Return ``tree`` with the pin's files where it has submodules, and their paths.

    A distribution carries the files of submodules, a repository only their commits. For
    running tests only: what is sent leaves them alone.
    """
    edits: dict[bytes, tuple[bytes, str] | None] = {}
    for path in submodules:
        name = path.encode()
        there = store.entry(pristine, name)
        edits[name] = (there.mode, there.oid) if there is not None else None
    lent = tuple(p for p in submodules if edits[p.encode()] is not None)
    return (store.edit_tree(tree, edits) if edits else tree), lent
