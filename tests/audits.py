"""Two small made upstreams as StoredTrees, for tests of the audit.

    trees = stored(tmp_path, {"kern": {"kern/a.py": "..."}, "serve": {"python/serve/b.py": "..."}})

Layouts as in sources.py.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path

from patchwright.audit.trees import StoredTrees
from patchwright.smoke.trees import Source
from patchwright.store import FILE, ObjectStore
from patchwright.upstreams.layout import to_installed
from sources import _LAYOUTS


def stored(folder: Path, upstreams: Mapping[str, Mapping[str, str]]) -> StoredTrees:
    """Write the files (repository path to text) to a store; return their trees."""
    store = ObjectStore(folder / "objects.git")
    listing = {}
    for upstream, files in upstreams.items():
        for path, text in files.items():
            installed = to_installed(_LAYOUTS[upstream], os.fsencode(path))
            assert installed is not None
            listing[installed] = (FILE, store.add("blob", textwrap.dedent(text).encode()))
    store.flush()
    sources = [Source(name, (name,), _LAYOUTS[name]) for name in upstreams]
    return StoredTrees(store, [(name, "0" * 40) for name in upstreams], sources, listing)
