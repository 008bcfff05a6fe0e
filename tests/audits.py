"""Two small made upstreams as StoredTrees, for tests of the audit.

    trees = stored(tmp_path, {"kern": {"kern/a.py": "..."}, "serve": {"python/serve/b.py": "..."}})

Layouts as in sources.py.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from patchwright.audit.series import Auditor
from patchwright.audit.trees import StoredTrees
from patchwright.errors import PatchwrightError
from patchwright.project import Project
from patchwright.smoke.trees import Source
from patchwright.store import FILE, ObjectStore
from patchwright.upstreams.layout import to_installed
from sources import _LAYOUTS

ROOT = Path(__file__).resolve().parent.parent


def pins_auditor() -> Auditor:
    """Return the audit of this repository's series; skips where the pins cannot be had."""
    project = Project.open(ROOT)
    try:
        for name in project.config.upstreams:
            project.pristine(name)
    except PatchwrightError as error:
        pytest.skip(f"needs the pins: {error}")
    return Auditor(project)


# Predicates of one upstream, in the shapes that are common.
UTILS = """
    import torch
    from functools import lru_cache, partial

    @lru_cache(maxsize=1)
    def is_cuda():
        return torch.cuda.is_available() and torch.version.cuda

    def is_hip():
        return torch.version.hip is not None

    def _check(majors, cuda):
        if not is_cuda():
            return False
        return (
            torch.cuda.get_device_capability()[0] in majors
            and tuple(map(int, torch.version.cuda.split(".")[:2])) >= cuda
        )

    is_blackwell = is_blackwell_supported = lru_cache(1)(
        partial(_check, majors=[10, 11, 12], cuda=(12, 8))
    )
    is_sm90_supported = lru_cache(1)(partial(_check, majors=[9], cuda=(12, 3)))

    def get_device_sm():
        if torch.cuda.is_available():
            major, minor = torch.cuda.get_device_capability()
            return major * 10 + minor
        return 0

    def is_sm120a_supported(device):
        major, minor = torch.cuda.get_device_capability(device)
        return major == 12 and minor == 0
"""


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
