"""Two small made upstreams as ``Trees``, for tests of what reads upstream's source.

    trees = make_trees(tmp_path, {"kern": {"kern/a.py": "..."}, "serve": {"python/serve/b.py": ""}})

``kern`` has the layout of a kernel library (``csrc/`` lies in its package), ``serve``
that of a server (its package lies in ``python/``).
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path

from patchwright.config import Layout, LayoutRule
from patchwright.smoke.trees import Source, Trees
from patchwright.store import FILE, object_id
from patchwright.upstreams.layout import to_installed

_LAYOUTS = {
    "kern": Layout(
        (LayoutRule(b"kern/", b"kern/"), LayoutRule(b"csrc/", b"kern/data/csrc/")), outside=()
    ),
    "serve": Layout((LayoutRule(b"python/serve/", b"serve/"),), outside=()),
}


def make_trees(folder: Path, upstreams: Mapping[str, Mapping[str, str]]) -> Trees:
    """Write the files (repository path to text) in installed layout; return their Trees."""
    site = folder / "site"
    listing = {}
    for upstream, files in upstreams.items():
        for path, text in files.items():
            installed = to_installed(_LAYOUTS[upstream], os.fsencode(path))
            assert installed is not None
            data = textwrap.dedent(text).encode()
            target = site / os.fsdecode(installed)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            listing[installed] = (FILE, object_id("blob", data))
    sources = [Source(name, (name,), _LAYOUTS[name]) for name in upstreams]
    state = [(name, "0" * 40) for name in upstreams]
    return Trees(site, state, sources, listing)
