"""Proof that what ran or was compiled is the tree under test, byte for byte."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.smoke.outcomes import SmokeError

if TYPE_CHECKING:
    from patchwright.smoke.trees import Trees


def require_tree_modules(trees: Trees, modules: Mapping[str, str]) -> None:
    """Check that imported ``modules`` (name to file) are the tree's, by place and content.

    Raises SmokeError for a module of another copy of the package, and for one whose
    file is not what the tree says.
    """
    for name, file in modules.items():
        found = trees.module(name)
        if found is None:
            # A generated file stands outside the repository; its place is all there is.
            if not _within(file, trees.site):
                raise SmokeError(f"{name} was imported from {file}, not from the tree under test")
            continue
        own = str(trees.path(*found))
        if file != own and os.path.realpath(file) != os.path.realpath(own):
            raise SmokeError(f"{name} was imported from {file}, not from the tree under test")
        trees.read(*found)


def require_tree_files(trees: Trees, files: Iterable[str]) -> None:
    """Check that those of ``files`` that lie in the site folder are the tree's.

    Raises SmokeError for a file that the tree does not have and for changed bytes.
    """
    site = str(trees.site.absolute())
    # Hundreds of headers: plain text comparison, not a look at every folder for links.
    below = {f for f in map(os.path.normpath, files) if f.startswith(f"{site}/")}
    packages = {f[len(site) + 1 :].partition("/")[0] for f in below}
    known = {
        str(trees.path(upstream, path).absolute()): (upstream, path)
        for upstream in trees.upstreams
        if packages.intersection(trees.packages(upstream))
        for path in trees.files(upstream)
    }
    for file in sorted(below):
        if file not in known:
            raise SmokeError(f"{file} is not a file of the tree under test")
        trees.read(*known[file])


def _within(file: str, folder: Path) -> bool:
    return os.path.realpath(file).startswith(os.path.realpath(folder) + os.sep)
