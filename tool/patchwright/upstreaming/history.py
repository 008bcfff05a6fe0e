"""The history of an upstream's repository: its commits, and the tree of each.

Kept in the cache's bare repository for that address, whole once it was fetched. For an
upstream that comes from a wheel or an sdist the tree of a commit is the pinned one with
the layout's parts replaced by the commit's: what is built, or lies in a submodule, stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.errors import AnswerNo, InputError, PatchwrightError
from patchwright.git import Git
from patchwright.store import DIRECTORY, SUBMODULE, TreeEntry
from patchwright.upstreams.revision import TRANSPORTS, address_of, check_tag, mirror, refuse

if TYPE_CHECKING:
    from patchwright.config import UpstreamConfig
    from patchwright.project import Project


@dataclass(frozen=True)
class Commit:
    """One upstream commit: its id and its title."""

    oid: str
    title: str

    def __str__(self) -> str:
        return f"{self.oid[:12]} {self.title}"


class History:
    """The commits of one upstream. Made by ``open_history``."""

    def __init__(self, project: Project, config: UpstreamConfig, git: Git, address: str) -> None:
        self.project = project
        self.config = config
        self.git = git
        self.address = address
        self._imported: list[str] = []

    def fetch(self) -> None:
        """Bring all branches and tags here, whole. Raises PatchwrightError."""
        assert self.git.git_dir is not None
        whole = ("--unshallow",) if (self.git.git_dir / "shallow").exists() else ()
        self.project.progress(f"fetching the history of {self.config.name}")
        done = self.git.run(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--prune", *whole, "--",
            self.address, "+refs/heads/*:refs/all/heads/*", "+refs/tags/*:refs/all/tags/*",
            env=TRANSPORTS, ok=range(256),
        )  # fmt: skip
        if done.returncode:
            refuse(self.address, done.stderr)

    def commit(self, revision: str) -> str | None:
        """Return the commit that a tag, branch or id names; None where it is not here."""
        names = (f"refs/all/tags/{revision}", f"refs/all/heads/{revision}", revision)
        for name in names:
            done = self.git.run("rev-parse", "--verify", "--quiet", "--end-of-options",
                                f"{name}^{{commit}}", ok=(0, 1, 128))  # fmt: skip
            if done.returncode == 0:
                return done.stdout.decode().strip()
        return None

    def needed(self, revision: str) -> str:
        """Return the commit of a revision. Raises PatchwrightError, with why it is not here."""
        found = self.commit(revision)
        if found is None:
            shallow = self._source_is_shallow()
            raise PatchwrightError(
                f"the history has no {revision}" + (": it is a shallow clone" if shallow else ""),
                where=self.address,
                next_step=f"run `git fetch --unshallow --tags` in it, or give upstream "
                f"{self.config.name} another `git` address" if shallow
                else "correct `revision` in pyproject.toml, or fetch with --fetch",
            )  # fmt: skip
        return found

    def between(self, old: str, new: str, paths: Iterable[str] = ()) -> tuple[Commit, ...]:
        """Return the commits of the main line after ``old`` up to ``new``, oldest first.

        With ``paths`` only those that touch them. Raises AnswerNo where ``old`` is not
        an ancestor, PatchwrightError for a history that is cut short.
        """
        if self.git.run("merge-base", "--is-ancestor", old, new, ok=(0, 1)).returncode:
            if self._source_is_shallow() or self._is_shallow():
                raise PatchwrightError(
                    "it is a shallow clone: not every commit in between is in it",
                    where=self.address,
                    next_step="run `git fetch --unshallow` in it, or use the upstream's address",
                )
            raise AnswerNo(
                f"{old[:12]} is no ancestor of {new[:12]}: there is no line of commits from one "
                "to the other",
                where=self.address, next_step="choose two revisions of one branch",
            )  # fmt: skip
        done = self.git.run("log", "--first-parent", "--reverse", "--format=%H%x09%s",
                            f"{old}..{new}", "--", *paths)  # fmt: skip
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        return tuple(Commit(*line.split("\t", 1)) for line in lines)

    def tree(self, commit: str) -> str:
        """Return the tree of a commit as this upstream's pristine tree; its files are stored."""
        store = self.project.store
        own = self._copied(commit)
        if self.config.source == "git":
            return own
        base = self.project.pristine(self.config.name).tree
        tree = base
        for rule in self.config.layout.rules:
            path = rule.repository.rstrip(b"/")
            found = store.entry(own, path) if path else TreeEntry(DIRECTORY, b"", own)
            if found is None or found.mode == SUBMODULE:
                continue
            if _in_submodule(store.tree(own), path):
                continue
            tree = own if not path else _grafted(self.project, tree, path, found)
        store.flush()
        return tree

    def _copied(self, commit: str) -> str:
        """Copy the files of a commit into the store, beside what was copied before."""
        done = self.git.run("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")
        tree = done.stdout.decode().strip()
        if tree not in self._imported:
            known = "".join(f"^{oid}\n" for oid in self._imported[-1:])
            pack = self.git.run("pack-objects", "--quiet", "--revs", "--stdout",
                                data=f"{tree}\n{known}".encode())  # fmt: skip
            self.project.store.write("index-pack", "--stdin", data=pack.stdout)
            self._imported.append(tree)
        return tree

    def _is_shallow(self) -> bool:
        assert self.git.git_dir is not None
        return (self.git.git_dir / "shallow").exists()

    def _source_is_shallow(self) -> bool:
        folder = Path(self.address.removeprefix("file://"))
        return (folder / ".git" / "shallow").is_file() or (folder / "shallow").is_file()


def _in_submodule(entries: Iterable[TreeEntry], path: bytes) -> bool:
    first = path.partition(b"/")[0]
    return any(e.name == first and e.mode == SUBMODULE for e in entries)


def _grafted(project: Project, tree: str, path: bytes, entry: TreeEntry) -> str:
    """Return ``tree`` with a file or a whole folder at ``path`` replaced."""
    store = project.store
    first, _, rest = path.partition(b"/")
    entries = {e.name: e for e in store.tree(tree)}
    if rest:
        old = entries.get(first)
        below = old.oid if old is not None and old.mode == DIRECTORY else \
            store.build_tree({})  # fmt: skip
        entries[first] = TreeEntry(DIRECTORY, first, _grafted(project, below, rest, entry))
    else:
        entries[first] = TreeEntry(entry.mode, first, entry.oid)
    return store.add_tree(entries.values())


@contextmanager
def open_history(project: Project, name: str, *, fetch: bool) -> Iterator[History]:
    """Yield the history of an upstream, for one process alone.

    ``fetch`` brings it up to date first. Raises AnswerNo where it was never fetched, and
    PatchwrightError where a tag that is pinned was moved.
    """
    config = project.upstream(name)
    if config.source != "git" and config.git is None:
        raise InputError(
            f"upstream {name} names no repository", where="pyproject.toml",
            next_step="add `git`: its address, or a local clone",
        )  # fmt: skip
    # A wheel's `path` is the wheel.
    place = config if config.source == "git" else _repository(config)
    address = address_of(place, project.root)
    entry = project.lock.upstream(name) if project.lock is not None else None
    if entry is not None and fetch:
        check_tag(place, project.cache_dir, project.root, entry)
    for each in project.config.upstreams:
        # An import takes the mirror for itself.
        project.pristine(each)
    with mirror(project.cache_dir, address) as git:
        history = History(project, config, git, address)
        if fetch:
            history.fetch()
        elif not (git.git_dir or Path()).joinpath("packed-refs").exists() and not any(
            ((git.git_dir or Path()) / "refs" / "all").glob("*/*")
        ):
            raise AnswerNo(
                f"the history of {name} was never fetched", where=address,
                next_step="run it again with --fetch",
            )  # fmt: skip
        yield history


def _repository(config: UpstreamConfig) -> UpstreamConfig:
    from dataclasses import replace

    return replace(config, source="git", path=None)
