"""A state's files in a folder, for what needs them there: generators and the compiler."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.smoke.trees import Trees

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.project import Project


@contextmanager
def site_of(project: Project, state: State) -> Iterator[Trees]:
    """Yield a state's trees as files; the folder is removed afterwards."""
    from patchwright.materialise import write_tree
    from patchwright.smoke.protocol import sources_of
    from patchwright.smoke.sites import site_tree

    tree = site_tree(project, state)
    folder = project.cache_dir / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="audit-", dir=folder) as name:
        site = Path(name) / "site"
        write_tree(project.store, tree, site)
        listing = {path: (entry.mode, entry.oid) for path, entry in project.store.files(tree)}
        yield Trees(site, state.trees, sources_of(project.config), listing)
