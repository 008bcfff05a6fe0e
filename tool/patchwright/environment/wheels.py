"""The patched wheels of a state: made, kept in the cache, and held against the lock."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.environment.locked import LockedEnvironment
from patchwright.environment.locking import locked_environment
from patchwright.environment.patched import (
    PatchedDistribution,
    distribution_name,
    patched_distributions,
)
from patchwright.errors import InputError
from patchwright.files import write_atomically
from patchwright.lock import ABSENT, Disagreement, file_sha256

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.config import UpstreamConfig
    from patchwright.project import Project

_FORMAT = 1  # of what the packer makes: raise it when the same input gives other bytes


@dataclass(frozen=True)
class PatchedWheel:
    """One patched wheel on disk."""

    distribution: PatchedDistribution
    path: Path
    sha256: str


def lock_wheels(
    project: Project, environment: LockedEnvironment, state: State
) -> LockedEnvironment:
    """Return the environment with the sha256 of each patched wheel of ``state``.

    Raises InputError where it holds compiled objects that would win over patched sources.
    """
    refuse_prebuilt(project, environment, state)
    wheels = {wheel.path.name: wheel.sha256 for wheel in patched_wheels(project, state)}
    return replace(environment, wheels=wheels)


def wheel_disagreements(project: Project, state: State) -> list[Disagreement]:
    """Make the patched wheels again and compare them with the lock."""
    environment = locked_environment(project)
    if environment is None:
        return []
    made = {wheel.path.name: wheel.sha256 for wheel in patched_wheels(project, state)}
    names = sorted(environment.wheels.keys() | made.keys())
    return [
        Disagreement(f"environment: wheel {name}", *pair)
        for name in names
        if len(set(pair := (environment.wheels.get(name, ABSENT), made.get(name, ABSENT)))) > 1
    ]


def patched_wheels(
    project: Project, state: State, changed: Iterable[PatchedDistribution] | None = None
) -> list[PatchedWheel]:
    """Return the patched wheels of the upstreams that come as wheels, made where needed.

    ``changed`` is what ``patched_distributions`` says of the state, where that is known.

    An upstream that is built from source has no bytes that could be known before.
    """
    found = []
    for patched in patched_distributions(project, state) if changed is None else changed:
        config = project.upstream(patched.upstream)
        if config.source != "wheel" or patched.distribution != distribution_name(config):
            continue
        found.append(_kept(project, patched, config) or _made(project, patched, config))
    return found


def _made(project: Project, patched: PatchedDistribution, config: UpstreamConfig) -> PatchedWheel:
    from patchwright.environment.packing import pack
    from patchwright.environment.sources import pristine_archive

    project.progress(f"packing {patched.distribution} {patched.new_version}")
    name, data = pack(config, pristine_archive(project, config), patched)
    sha256 = hashlib.sha256(data).hexdigest()
    path = project.cache_dir / "wheels" / sha256 / name
    write_atomically(path, data)
    # Last, so that it never names a file that is not there.
    row = json.dumps({"file": name, "sha256": sha256}).encode()
    write_atomically(_row(project, patched, config), row)
    return PatchedWheel(patched, path, sha256)


def _kept(
    project: Project, patched: PatchedDistribution, config: UpstreamConfig
) -> PatchedWheel | None:
    try:
        row = json.loads(_row(project, patched, config).read_bytes())
        path = project.cache_dir / "wheels" / row["sha256"] / row["file"]
        if file_sha256(path) != row["sha256"]:
            return None
        for used in (path, _row(project, patched, config)):
            os.utime(used)  # `cache prune` goes by it
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return PatchedWheel(patched, path, row["sha256"])


def _row(project: Project, patched: PatchedDistribution, config: UpstreamConfig) -> Path:
    """Return where it stands which wheel these changes make of the locked one."""
    parts = [_FORMAT, project.locked_upstream(config.name).sha256, patched.new_version]
    digest = hashlib.sha256(json.dumps(parts).encode())
    for path, data in sorted(patched.changes.items()):
        digest.update(b"%d %s" % (len(path), path))
        digest.update(b"-" if data is None else b"%d " % len(data) + data)
    return project.cache_dir / "wheels" / f"{digest.hexdigest()[:40]}.json"


def refuse_prebuilt(project: Project, environment: LockedEnvironment, state: State) -> None:
    """Raise InputError where a locked package would win over what is patched."""
    won: Mapping[str, str] = {
        prebuilt: upstream
        for upstream, tree in state.trees
        if tree != project.pristine(upstream).tree
        for prebuilt in project.upstream(upstream).prebuilt
    }
    for package in environment.packages:
        upstream = won.get(package.name)
        if upstream is not None:
            raise InputError(
                f"{package.name} {package.version} holds compiled objects of {upstream}, which "
                "would be loaded in place of the patched sources",
                where="[tool.patchwright.environment]",
                next_step=f"leave {package.name} out of the requirements",
            )
