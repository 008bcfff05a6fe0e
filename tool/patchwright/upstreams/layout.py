"""The layout: how repository paths map to paths in the installed distribution.

Both directions are partial and undo each other: ``to_installed(to_repository(p)) == p``
wherever the first gives an answer. A path for which that cannot hold (another, longer
rule claims the result) has no counterpart.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from patchwright.config import Layout, LayoutRule
from patchwright.errors import InputError
from patchwright.quoting import display
from patchwright.store import DIRECTORY, EMPTY_TREE, SUBMODULE, ObjectStore, TreeEntry

# Compiled code and the installer's metadata are never in the upstream repository.
_ALWAYS_OUTSIDE = re.compile(rb"(?:.*/)?[^/]+\.so(?:\.[0-9]+)*|[^/]+\.dist-info/.*", re.DOTALL)


class File(NamedTuple):
    """One file of a distribution: git's mode and its bytes."""

    mode: bytes
    data: bytes


class PathMap:
    """The rules of one layout, ready for many paths.

    Raises InputError for rules that contradict each other.
    """

    def __init__(self, layout: Layout) -> None:
        _check(layout.rules)
        self._by_installed = sorted(layout.rules, key=lambda rule: -len(rule.installed))
        self._by_repository = sorted(layout.rules, key=lambda rule: -len(rule.repository))
        # "*" also matches "/", as fnmatch has it: "flashinfer/_build_*" is one file,
        # "vendor/*" a whole folder.
        globs = [re.compile(fnmatch.translate(glob).encode()) for glob in layout.outside]
        self._outside = [_ALWAYS_OUTSIDE, *globs]

    def is_outside(self, installed: bytes) -> bool:
        """Return whether the file stands outside the pristine tree by name."""
        return any(pattern.fullmatch(installed) for pattern in self._outside)

    def to_repository(self, installed: bytes) -> bytes | None:
        """Return the repository path of an installed file, or None: outside the tree."""
        if self.is_outside(installed):
            return None
        for rule in self._by_installed:
            rest = _below(installed, rule.installed)
            if rest is not None:
                path = rule.repository + rest
                return path if self._claims(rule, path) else None
        return None

    def to_installed(self, repository: bytes) -> bytes | None:
        """Return where a repository file is installed, or None: not in the distribution."""
        path = self.placed(repository)
        return path if path is not None and self.to_repository(path) == repository else None

    def placed(self, repository: bytes) -> bytes | None:
        """Return where the rules alone would put a file, be it outside by name or not."""
        for rule in self._by_repository:
            rest = _below(repository, rule.repository)
            if rest is not None:
                return rule.installed + rest
        return None

    def _claims(self, rule: LayoutRule, repository: bytes) -> bool:
        return next(
            r is rule for r in self._by_repository if _below(repository, r.repository) is not None
        )


@functools.lru_cache(maxsize=32)
def path_map(layout: Layout) -> PathMap:
    """Return the layout's rules, ready for many paths (the same object each time)."""
    return PathMap(layout)


def to_repository(layout: Layout, installed_path: bytes) -> bytes | None:
    """Return the repository path of an installed file, or None: outside the tree."""
    return path_map(layout).to_repository(installed_path)


def to_installed(layout: Layout, repository_path: bytes) -> bytes | None:
    """Return where a repository file is installed, or None: not in the distribution."""
    return path_map(layout).to_installed(repository_path)


def split(
    layout: Layout, files: Mapping[bytes, File]
) -> tuple[dict[bytes, File], dict[bytes, File]]:
    """Divide the files of an installed distribution.

    Returns the pristine files (repository paths) and the files outside (installed
    paths): those that the layout names, and those that no rule covers. Raises
    InputError where two files come to lie in one place.
    """
    paths = path_map(layout)
    inside: dict[bytes, File] = {}
    outside: dict[bytes, File] = {}
    for path, file in files.items():
        mapped = paths.to_repository(path)
        if mapped is None:
            outside[path] = file
        else:
            inside[mapped] = file
    both = file_and_folder(inside)
    if both is not None:
        raise InputError(
            f"the layout makes {display(both)} both a file and a folder",
            where="pyproject.toml", next_step="correct the upstream's layout rules",
        )  # fmt: skip
    return inside, outside


def file_and_folder(paths: Iterable[bytes]) -> bytes | None:
    """Return a path that is also the folder of another one, if there is any."""
    files = set(paths)
    parents: set[bytes] = set()
    for path in files:
        end = path.rfind(b"/")
        while end > 0 and path[:end] not in parents:
            parents.add(path[:end])
            end = path.rfind(b"/", 0, end)
    return min(files & parents, default=None)


def installed_tree(store: ObjectStore, layout: Layout, tree: str, outside: str) -> str:
    """Return the tree in installed layout that a pristine or patched ``tree`` makes.

    Whole subtrees are moved, so the cost follows the number of rules and not of files.
    Files of the repository that are not in the distribution are left out; a file of
    ``outside`` stands over one of the repository at the same place. The new trees wait
    for the store's next ``flush``. Raises InputError where a patch put a file where the
    distribution has a folder.
    """
    path_map(layout)  # refuses rules that contradict each other
    result = EMPTY_TREE
    # The shortest first: a longer rule fills in what was cut out of a shorter one.
    for rule in sorted(layout.rules, key=lambda rule: len(rule.installed)):
        moved = _source(store, tree, rule.repository)
        if moved is None:
            continue
        for other in layout.rules:
            if other is rule:
                continue
            # What a longer rule claims, on either side, is not this rule's to move.
            for prefix, longer in (
                (rule.repository, other.repository),
                (rule.installed, other.installed),
            ):
                rest = _below(longer, prefix)
                if rest and moved.mode == DIRECTORY:
                    moved = moved._replace(oid=_without(store, moved.oid, rest.rstrip(b"/")))
        if moved.oid != EMPTY_TREE:
            target = rule.installed.rstrip(b"/")
            result = _merge(store, result, _nested(store, target, moved), b"")
    return _merge(store, result, outside, b"")


def _check(rules: tuple[LayoutRule, ...]) -> None:
    for side in ("repository", "installed"):
        seen: set[bytes] = set()
        for rule in rules:
            prefix: bytes = getattr(rule, side)
            if prefix in seen:
                raise InputError(
                    f"two layout rules have the {side} path {display(prefix)}, so two files "
                    "would come to lie in one place",
                    where="pyproject.toml", next_step="keep one of the two rules",
                )  # fmt: skip
            seen.add(prefix)
    for rule in rules:
        if _is_folder(rule.repository) != _is_folder(rule.installed):
            raise InputError(
                f"the layout rule {display(rule.repository)} = {display(rule.installed)} maps a "
                "folder to a file",
                where="pyproject.toml", next_step='let both sides end in "/", or neither',
            )  # fmt: skip


def _is_folder(prefix: bytes) -> bool:
    return not prefix or prefix.endswith(b"/")


def _below(path: bytes, prefix: bytes) -> bytes | None:
    """Return what follows ``prefix`` in ``path``; None where the rule does not match."""
    if _is_folder(prefix):
        return path[len(prefix) :] if path.startswith(prefix) else None
    return b"" if path == prefix else None


def _source(store: ObjectStore, tree: str, prefix: bytes) -> TreeEntry | None:
    if not prefix:
        return TreeEntry(DIRECTORY, b"", tree)
    entry = store.entry(tree, prefix.rstrip(b"/"))
    # A submodule that the source did not bring (a git revision) has no files to move.
    if entry is None or entry.mode == SUBMODULE:
        return None
    return entry if (entry.mode == DIRECTORY) == _is_folder(prefix) else None


def _without(store: ObjectStore, tree: str, path: bytes) -> str:
    """Return ``tree`` without what stands at ``path``, be it a file or a folder."""
    name, _, rest = path.partition(b"/")
    entries = {entry.name: entry for entry in store.tree(tree)}
    entry = entries.get(name)
    if entry is None or (rest and entry.mode != DIRECTORY):
        return tree
    left = _without(store, entry.oid, rest) if rest else EMPTY_TREE
    if left == entry.oid:
        return tree
    if left == EMPTY_TREE:
        del entries[name]
    else:
        entries[name] = entry._replace(oid=left)
    return store.add_tree(entries.values())


def _nested(store: ObjectStore, path: bytes, entry: TreeEntry) -> str:
    """Return the tree that holds ``entry`` at ``path`` and nothing else."""
    if not path:
        return entry.oid
    for name in reversed(path.split(b"/")):
        entry = TreeEntry(DIRECTORY, b"", store.add_tree([entry._replace(name=name)]))
    return entry.oid


def _merge(store: ObjectStore, under: str, over: str, at: bytes) -> str:
    """Return the union of two trees; of two files in one place ``over`` has its own."""
    if under in (over, EMPTY_TREE):
        return over
    if over == EMPTY_TREE:
        return under
    entries = {entry.name: entry for entry in store.tree(under)}
    for entry in store.tree(over):
        old = entries.get(entry.name)
        path = at + entry.name
        if old is not None and (old.mode == DIRECTORY) != (entry.mode == DIRECTORY):
            raise InputError(
                f"{display(path)} is both a file and a folder in the installed layout",
                next_step="the patch that adds it needs another name for the new file",
            )
        if old is not None and entry.mode == DIRECTORY:
            merged = _merge(store, old.oid, entry.oid, path + b"/")
            entries[entry.name] = entry._replace(oid=merged)
        else:
            entries[entry.name] = entry
    return store.add_tree(entries.values())
