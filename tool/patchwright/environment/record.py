"""Where a project's environment stands, and what an environment says about itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.errors import InputError

if TYPE_CHECKING:
    from patchwright.project import Project

FILE = "patchwright.json"
_FORMAT = 1


@dataclass(frozen=True)
class EnvironmentRecord:
    """What ``rebuild`` wrote into the environment, last of all.

    ``project`` is the folder of the project, ``trees`` its upstreams' trees, ``patches``
    the numbers that are in, ``versions`` the version of every package by name, ``digest``
    that of the whole content (docs/rebuild.md).
    """

    project: str
    python: str
    machine: str
    digest: str
    trees: Mapping[str, str] = field(default_factory=dict)
    patches: tuple[int, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write it into the environment at ``folder``."""
        text = json.dumps({"format": _FORMAT, **asdict(self)}, indent=1)
        (folder / FILE).write_text(text + "\n", "utf-8")


def environment_folder(project: Project, named: Path | None) -> Path:
    """Return ``named``, or where the project's environment stands by default."""
    return named.absolute() if named is not None else project.state_dir / "env"


def read_record(folder: Path) -> EnvironmentRecord | None:
    """Return an environment's record, or None where it has none that can be read."""
    try:
        value = json.loads((folder / FILE).read_bytes())
        if value.pop("format") != _FORMAT:
            return None
        value["patches"] = tuple(value["patches"])
        return EnvironmentRecord(**value)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def check_ownership(folder: Path, project: Project) -> None:
    """Raise InputError for a folder that ``rebuild`` must not replace.

    That is anything but a missing or empty folder and an environment that it made for
    this project (or for one that is no longer there).
    """
    if not folder.exists() and not folder.is_symlink():
        return
    step = "name another folder with --env, or remove this one yourself"
    if folder.is_symlink() or not folder.is_dir():
        raise InputError("this is not a folder", where=str(folder), next_step=step)
    try:
        empty = not any(folder.iterdir())
    except OSError as error:
        raise InputError(
            f"the folder cannot be read: {error.strerror}", where=str(folder), next_step=step
        ) from error
    if empty:
        return
    record = read_record(folder)
    if record is None:
        what = "patchwright did not make this environment, so it is not replaced"
        if not (folder / "pyvenv.cfg").is_file():
            what = "the folder holds something else than an environment"
        raise InputError(what, where=str(folder), next_step=step)
    other = Path(record.project)
    if other != project.root and (other / "upstream.lock").is_file():
        raise InputError(
            f"this environment belongs to another project, {other}", where=str(folder),
            next_step=step,
        )  # fmt: skip
