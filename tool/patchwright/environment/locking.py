"""Makes ``[environment]`` of the lock, and says where it disagrees with what is wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from patchwright.environment.locked import LockedEnvironment, LockedPackage, read_environment
from patchwright.environment.patched import distribution_name
from patchwright.environment.wanted import Wanted, read_wanted
from patchwright.errors import AnswerNo, InputError
from patchwright.files import temporary_folder
from patchwright.lock import ABSENT, Disagreement

if TYPE_CHECKING:
    from patchwright.config import Config
    from patchwright.environment.resolve import Pinned
    from patchwright.lock import Lock, LockedUpstream
    from patchwright.project import Project


def environment_disagreements(lock: Lock, config: Config) -> list[Disagreement]:
    """Compare the lock's environment with what is wanted, from the two files alone.

    The list of packages is not looked at: ``status`` and ``verify`` ask this as well.
    """
    wanted, table = read_wanted(config), lock.environment
    if not wanted or not table:
        if bool(wanted) == bool(table):
            return []
        pair = (f"Python {wanted.python}", ABSENT) if wanted else (ABSENT, "one")
        return [Disagreement("environment", pair[1], pair[0])]
    pairs = {
        "python": wanted.python,
        "cuda": wanted.cuda,
        "platforms": [platform.name for platform in wanted.platforms],
        "requirements": list(wanted.requirements),
        "upstreams": _pins(config),
        "settings": dict(wanted.settings),
    }
    return [
        Disagreement(f"environment: {key}", _shown(table.get(key)), _shown(value))
        for key, value in pairs.items()
        if (table.get(key) or None) != (value or None)
    ]


def make_environment(
    project: Project, upstreams: Iterable[LockedUpstream], upgrade: Collection[str] | None = ()
) -> LockedEnvironment | None:
    """Return the environment to lock, without patched wheels; None where none is wanted.

    What the lock has is kept where nothing that it was resolved from changed. ``upgrade``
    names the packages that move on; None moves all of them. Raises InputError for a wrong
    section, PatchwrightError where uv cannot resolve it.
    """
    wanted = read_wanted(project.config)
    if not wanted:
        return None
    old = locked_environment(project)
    if (
        old is not None
        and upgrade is not None
        and not upgrade
        and _still_holds(project, old, wanted, {u.name: u for u in upstreams})
    ):
        return replace(old, cuda=wanted.cuda, settings=wanted.settings)
    return _resolved(project, wanted, old, upgrade)


def locked_environment(project: Project) -> LockedEnvironment | None:
    """Return the environment that the project's lock has, None where it has none."""
    if project.lock is None:
        return None
    return read_environment(project.lock.environment, str(project.lock_path))


def required_environment(project: Project) -> LockedEnvironment:
    """Return the locked environment of a lock that agrees with the project.

    Raises AnswerNo where there is none, or where the lock disagrees with pyproject.toml or
    the patch files, naming both values.
    """
    environment = locked_environment(project)
    if environment is None:
        step = "run `patchwright lock`"
        if not read_wanted(project.config):
            step = 'add python = "3.11" to [tool.patchwright.environment], then ' + step
        raise AnswerNo("no environment is locked", where=str(project.lock_path), next_step=step)
    stale = project.stale()
    if stale:
        more = f" (and {len(stale) - 1} more)" if len(stale) > 1 else ""
        raise AnswerNo(
            f"the lock disagrees with the project: {stale[0]}{more}",
            where=str(project.lock_path),
            next_step="run `patchwright lock`, or undo the change; `patchwright lock --check` "
            "lists all of it",
        )
    return environment


def _still_holds(
    project: Project, old: LockedEnvironment, wanted: Wanted, now: Mapping[str, LockedUpstream]
) -> bool:
    lock = project.lock
    if lock is None or set(now) != {u.name for u in lock.upstreams}:
        return False
    same_files = all(
        (u.sha256, u.commit) == (now[u.name].sha256, now[u.name].commit) for u in lock.upstreams
    )
    return (
        same_files
        and old.python == wanted.python
        and old.platforms == tuple(p.name for p in wanted.platforms)
        and old.requirements == wanted.requirements
        and dict(old.upstreams) == _pins(project.config)
    )


def _resolved(
    project: Project, wanted: Wanted, old: LockedEnvironment | None,
    upgrade: Collection[str] | None,
) -> LockedEnvironment:  # fmt: skip
    from patchwright.environment.building import build_requirements
    from patchwright.environment.resolve import Unresolved, merged, no_platform, resolve_platform
    from patchwright.environment.sources import upstream_requirements

    pins = _pins(project.config)
    known = old.packages if old is not None else ()
    there = {package.name for package in known}
    for name in upgrade or ():
        if name not in there:
            raise InputError(
                f"the lock has no package {name!r} to upgrade", where=str(project.lock_path),
                next_step="see the names in its [environment]",
            )  # fmt: skip
    resolved: list[Pinned] = []
    reasons: dict[str, str] = {}
    with temporary_folder(project.cache_dir / "tmp") as (folder, _):
        requirements = [*wanted.requirements, *upstream_requirements(project, folder)]
        for platform in wanted.platforms:
            project.progress(f"resolving the environment for {platform.name}")
            # What one platform chose the next one prefers: one version on all of them.
            chosen = [f"{n}=={v}" for p in resolved for n, (v, _) in p.packages.items()]
            preferred = chosen or _pinned(known, platform.machine)
            try:
                resolved.append(
                    resolve_platform(
                        project.root, wanted.python, platform, requirements, folder,
                        preferred=preferred, upgrade=() if chosen else upgrade, without=pins,
                    )
                )  # fmt: skip
            except Unresolved as error:
                reasons[platform.machine] = str(error)
        if not resolved:
            raise no_platform(reasons)
        build = build_requirements(project, wanted, resolved, folder)
    return LockedEnvironment(
        python=wanted.python, platforms=tuple(p.name for p in wanted.platforms),
        cuda=wanted.cuda, requirements=wanted.requirements, upstreams=pins,
        settings=wanted.settings, unresolved=reasons, packages=merged(resolved),
        build=merged(build),
    )  # fmt: skip


def _pinned(packages: Iterable[LockedPackage], machine: str) -> list[str]:
    return [f"{p.name}=={p.version}" for p in packages if machine in p.files]


def _pins(config: Config) -> dict[str, str]:
    return {distribution_name(u): u.version for u in config.upstreams.values()}


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={value[key]}" for key in sorted(value)) or ABSENT
    if isinstance(value, list):
        return ", ".join(map(str, value)) or ABSENT
    return str(value) if value else ABSENT
