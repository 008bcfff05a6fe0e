"""Reads a source distribution, which may be in repository layout or in package layout."""

from __future__ import annotations

import re
from pathlib import Path

from patchwright.config import UpstreamConfig
from patchwright.quoting import display
from patchwright.store import SYMLINK
from patchwright.upstreams.archive import BadArchive, link_faults, read_archive
from patchwright.upstreams.layout import File, path_map
from patchwright.upstreams.wheel import check_identity

# Written by the build backend; not in the repository.
_GENERATED = re.compile(rb"PKG-INFO|(?:.*/)?[^/]+\.egg-info/.*", re.DOTALL)


def read_sdist(path: Path, config: UpstreamConfig) -> tuple[dict[bytes, File], dict[bytes, File]]:
    """Return the pristine files (repository paths) and the files outside (installed paths).

    Backends pack either the repository (flashinfer) or the folder of one package
    (sglang: ``python/`` is the root). The side of the layout that covers more members
    decides; on a tie it is the repository. In repository layout every file is pristine,
    tests included, as it is for a git revision. In package layout, files that no rule
    covers are dropped: an sdist does not say what gets installed. Raises BadArchive.
    """
    members = _stripped(path.name, read_archive(path))
    info = members.get(b"PKG-INFO")
    if info is None:
        raise BadArchive(
            "the sdist has no PKG-INFO", where=f"{path.name}: PKG-INFO",
            next_step="name a source distribution, not another archive",
        )  # fmt: skip
    check_identity(path.name, info.data, config)
    paths = path_map(config.layout)
    names = [name for name in members if not _GENERATED.fullmatch(name)]
    as_repository = sum(paths.to_installed(name) is not None for name in names)
    as_installed = sum(paths.to_repository(name) is not None for name in names)
    if not as_repository and not as_installed:
        raise BadArchive(
            f"no layout rule of upstream {config.name} fits a file of the sdist",
            where=path.name, next_step="correct the layout in pyproject.toml",
        )  # fmt: skip
    inside: dict[bytes, File] = {}
    outside: dict[bytes, File] = {}
    for name in names:
        in_repository = as_repository >= as_installed
        installed = paths.placed(name) if in_repository else name
        mapped = name if in_repository else paths.to_repository(name)
        if installed is not None and paths.is_outside(installed):
            outside[installed] = members[name]
        elif mapped is not None:
            inside[mapped] = members[name]
    for name, file in inside.items():
        fault = link_faults(paths, name, file.data) if file.mode == SYMLINK else None
        if fault:
            raise BadArchive(
                fault, where=f"{path.name}: {display(name)}",
                next_step="get the sdist again from a source that you trust",
            )  # fmt: skip
    return inside, outside


def _stripped(where: str, members: dict[bytes, File]) -> dict[bytes, File]:
    """Return the members without the one folder that they all lie in."""
    tops = {name.partition(b"/")[0] for name in members}
    if len(tops) != 1 or any(b"/" not in name for name in members):
        raise BadArchive(
            "the members of an sdist lie in one folder, NAME-VERSION; these do not",
            where=where, next_step="name a source distribution, not another archive",
        )  # fmt: skip
    return {name.partition(b"/")[2]: file for name, file in members.items()}
