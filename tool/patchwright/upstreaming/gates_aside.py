"""The gates of both pins, evaluated in a process of their own while the static tier runs.

What it finds it leaves in the cache, where the report takes it from: whatever becomes of
this process, nothing is lost but its time.
"""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from patchwright.audit.inventory import Inventory
    from patchwright.config import UpstreamConfig
    from patchwright.lock import LockedUpstream
    from patchwright.project import Project


@contextmanager
def evaluated(
    project: Project, configs: Mapping[str, UpstreamConfig], pins: Mapping[str, LockedUpstream],
    *, wanted: bool,
) -> Iterator[None]:  # fmt: skip
    """Evaluate the gates of the upstreams that move, of both pins, during the block.

    ``configs`` and ``pins`` are those of the new pins. On leaving, the process has ended:
    by itself, or, where the block raised, killed.
    """
    if not wanted:
        yield
        return
    process = subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            pickle.dump((project.root, project.cache_dir, dict(configs), dict(pins)), process.stdin)
        yield
        process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise


def inventories(
    project: Project, candidate: Project, names: tuple[str, ...]
) -> tuple[Inventory, Inventory]:
    """Return the gates of the pristine trees of the old and the new pins."""
    from patchwright.applying.chain import Chain
    from patchwright.audit.inventory import inventory
    from patchwright.audit.trees import StoredTrees

    before, after = (
        inventory(StoredTrees.of(each, Chain(each).base()), names, each.cache_dir)
        for each in (project, candidate)
    )
    return before, after


def _main() -> None:
    root: Path
    root, cache, configs, pins = pickle.load(sys.stdin.buffer)  # noqa: S301 - our own parent's
    from patchwright.project import Project
    from patchwright.upstreaming.pins import moved_project

    project = Project.open(root)
    project.__dict__["cache_dir"] = cache
    candidate = moved_project(project, configs, project.series)
    candidate.__dict__["cache_dir"] = cache
    for name in project.config.upstreams:
        candidate.use(pins[name])
    inventories(project, candidate, tuple(configs))


if __name__ == "__main__":
    _main()
