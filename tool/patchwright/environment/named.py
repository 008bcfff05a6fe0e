"""Which environment a command is about where none is named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.errors import InputError

if TYPE_CHECKING:
    from patchwright.project import Project


def named_environment(project: Project, directory: Path | None) -> Path:
    """Return ``directory``, or what PATCHWRIGHT_ENVIRONMENT, ``rebuild`` or the project names.

    Raises InputError where nobody names one.
    """
    from patchwright.environment.record import environment_folder
    from patchwright.smoke.environments import KEY, VARIABLE

    if directory is not None:
        return directory
    rebuilt = environment_folder(project, None)
    if VARIABLE not in os.environ and rebuilt.is_dir():
        return rebuilt
    named = os.environ.get(VARIABLE) or project.config.environment.get(KEY)
    if named is None:
        raise InputError(
            "no environment is named", where=str(project.root),
            next_step=f"make one with `patchwright rebuild`, or name one with --env DIR or "
            f"{VARIABLE}=DIR",
        )  # fmt: skip
    path = project.root / Path(str(named)).expanduser()
    return path if path.is_dir() else path.parent.parent


def start_variables(project: Project, root: Path) -> dict[str, str]:
    """Return the variables with which programs of the environment at ``root`` start.

    Those of `patchwright run` where ``rebuild`` made it, else those of this process.
    """
    from patchwright.environment.locked import read_environment
    from patchwright.environment.record import read_record
    from patchwright.environment.running import run_variables

    outer = dict(os.environ)
    lock = project.lock
    if read_record(root) is None or lock is None or not lock.environment:
        return outer
    environment = read_environment(lock.environment, str(project.lock_path))
    return run_variables(project, root, environment, outer) if environment else outer
