"""The variables with which a command runs in the rebuilt environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.environment.content import compiled_from
from patchwright.environment.installed import distributions, site_packages
from patchwright.environment.wanted import read_wanted
from patchwright.errors import PatchwrightError
from patchwright.files import lock_folder

if TYPE_CHECKING:
    from patchwright.environment.locked import LockedEnvironment
    from patchwright.project import Project

# They would put other code, or bytecode and objects of another state, in front of what is
# installed.
_DROPPED = (
    "PYTHONPATH", "PYTHONHOME", "PYTHONPYCACHEPREFIX", "PYTHONUSERBASE", "PYTHONSTARTUP",
    "FLASHINFER_DISABLE_VERSION_CHECK", "CONDA_PREFIX",
)  # fmt: skip


def run_variables(
    project: Project, folder: Path, environment: LockedEnvironment, outer: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment variables of a command that runs in ``folder``.

    The locked settings win over those of the caller. Raises PatchwrightError where there
    is no environment.
    """
    python = folder / "bin" / "python"
    if not os.access(python, os.X_OK):
        raise PatchwrightError(
            "there is no environment here", where=str(folder),
            next_step="make it: `patchwright rebuild`",
        )  # fmt: skip
    inner = {name: value for name, value in outer.items() if name not in _DROPPED}
    path = outer.get("PATH") or os.defpath
    inner |= {
        "PATH": os.pathsep.join((str(folder / "bin"), path)),
        "VIRTUAL_ENV": str(folder),
        "PYTHONNOUSERSITE": "1",
    }
    inner |= environment.settings
    toolkit = Path(f"/usr/local/cuda-{environment.cuda}")
    if environment.cuda and "CUDA_HOME" not in inner and toolkit.is_dir():
        inner["CUDA_HOME"] = str(toolkit)
    for name, workspace in workspaces(project, folder).items():
        inner.setdefault(name, str(workspace))
    return inner


def hold(folders: Iterable[Path]) -> None:
    """Make the workspaces and lock them for this process and all that it becomes or starts."""
    for workspace in folders:
        with contextlib.suppress(OSError):
            workspace.mkdir(parents=True, exist_ok=True)
            os.utime(workspace)
            os.set_inheritable(lock_folder(workspace, shared=True), True)


def workspaces(project: Project, folder: Path) -> dict[str, Path]:
    """Return for each variable of ``workspaces`` the folder that belongs to this content.

    Equal files below its prefixes, and equal versions of every other package, give the
    same folder: what was compiled in it is used again. Anything else gives another one,
    so that nothing stale is ever found. So does an environment in another place, as the
    command lines in it name that.
    """
    wanted = read_wanted(project.config)
    if not wanted.workspaces:
        return {}
    from patchwright.environment.patched import distribution_name

    there = distributions(site_packages(folder))
    own = {distribution_name(u) for u in project.config.upstreams.values()}
    companions = {c.distribution for u in project.config.upstreams.values() for c in u.companions}
    others = [f"{d.name}=={d.version}" for d in there.values() if d.name not in own | companions]
    place = str(folder.resolve())
    return {
        name: project.cache_dir
        / "compiled"
        / _key(place, compiled_from({n: there[n] for n in own & there.keys()}, prefixes), others)
        for name, prefixes in wanted.workspaces.items()
    }


def _key(folder: str, content: str, others: list[str]) -> str:
    import hashlib

    return hashlib.sha256("\n".join([folder, content, *sorted(others)]).encode()).hexdigest()[:40]
