"""The locked environment for other installers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchwright.environment.building import hashed
from patchwright.uv import refuse, run_uv

if TYPE_CHECKING:
    from patchwright.environment.locked import LockedEnvironment
    from patchwright.project import Project

_NOTE = "# {python} on {machine}; the upstreams unpatched. Made by `patchwright lock --export`.\n"


def requirements(project: Project, environment: LockedEnvironment, machine: str) -> str:
    """Return requirements.txt with hashes: for pip and uv, behind any mirror.

    The upstreams are in it as they are on the index: their patched wheels are files of
    this project only.
    """
    from patchwright.environment.patched import distribution_name

    lines = hashed(environment.packages, machine)
    for config in project.config.upstreams.values():
        locked = project.locked_upstream(config.name)
        if config.source != "git" and config.path is None:
            name = distribution_name(config)
            lines.append(f"{name}=={config.version} --hash=sha256:{locked.sha256}\n")
    head = _NOTE.format(python=f"Python {environment.python}", machine=machine)
    return head + "".join(sorted(lines))


def pylock(project: Project, environment: LockedEnvironment, machine: str) -> str:
    """Return pylock.toml (PEP 751) for the index in use, whose addresses it holds.

    Raises PatchwrightError where the index cannot be asked.
    """
    platform = next(p for p in environment.platforms if p.startswith(f"{machine}-"))
    done = run_uv(
        "pip", "compile", "-", "--no-deps", "--no-header", "--no-annotate",
        "--format", "pylock.toml", "--python-version", environment.python,
        "--python-platform", platform, root=project.root,
        data=requirements(project, environment, machine),
    )  # fmt: skip
    if done.returncode:
        refuse(done.stderr, "lock --export pylock")
    return done.stdout
