"""How the upstreams enter a resolution, and the archives that they come as."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.environment.patched import distribution_name

if TYPE_CHECKING:
    from patchwright.config import UpstreamConfig
    from patchwright.project import Project


def upstream_requirements(project: Project, folder: Path) -> list[str]:
    """Return a requirement for each upstream, for uv to read in this run only.

    A git revision is written below ``folder``.
    """
    return [
        _requirement(project, config, folder)
        for _, config in sorted(project.config.upstreams.items())
    ]  # fmt: skip


def _requirement(project: Project, config: UpstreamConfig, folder: Path) -> str:
    from patchwright.materialise import write_tree

    name = distribution_name(config)
    if config.source == "git":
        target = folder / "sources" / config.name
        write_tree(project.store, project.pristine(config.name).tree, target)
        return f"{name} @ {target.as_uri()}"
    if config.path is not None:
        return f"{name} @ {(project.root / config.path).resolve().as_uri()}"
    return f"{name}=={config.version}"


def pristine_archive(project: Project, config: UpstreamConfig) -> Path:
    """Return the locked wheel or sdist of an upstream; fetched where it is not kept."""
    from patchwright.upstreams import fetch

    if config.path is not None:
        return project.root / config.path
    return fetch.download(
        config, project.locked_upstream(config.name), project.cache_dir / "archives",
        project.root, project.progress,
    )  # fmt: skip
