"""Files of locked packages, from the index in use: for builds from source and bundles."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.errors import PatchwrightError
from patchwright.lock import file_sha256
from patchwright.uv import is_network, refuse, run_uv

if TYPE_CHECKING:
    from patchwright.environment.locked import LockedEnvironment, LockedPackage
    from patchwright.project import Project
    from patchwright.upstreams.fetch import Found


def fetch_packages(
    project: Project, environment: LockedEnvironment, machine: str,
    packages: Iterable[LockedPackage], *, offline: bool = False, finds: tuple[Path, ...] = (),
) -> dict[str, Path]:  # fmt: skip
    """Return the locked file of each package, kept in the cache; by the package's name.

    Raises PatchwrightError: the index in use has no file with the locked sha256, or cannot
    be reached.
    """
    archives = project.cache_dir / "archives"
    found: dict[str, Path] = {}
    missing = []
    for package in packages:
        sha256 = package.files[machine].sha256
        path = next(
            (p for f in (archives / sha256, *finds) for p in sorted(f.glob("*")) if _is(p, sha256)),
            None,
        )
        if path is not None:
            found[package.name] = path
        else:
            missing.append(package)
    if missing and (offline or finds):
        raise PatchwrightError(
            "its source is not here, and without a network it cannot be fetched",
            where=f"{missing[0].name}=={missing[0].version}",
            next_step="rebuild once with a network, or from a bundle",
        )
    if missing:
        from patchwright.upstreams.fetch import fetch_file

        places = _places(project, environment, machine, missing)
        for number, package in enumerate(missing, 1):
            place = places[package.name]
            project.progress(f"downloading {place.file} ({number} of {len(missing)})")
            found[package.name] = fetch_file(place, archives, f"{package.name}=={package.version}")
    return found


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and not path.name.endswith(".part") and file_sha256(path) == sha256


def _places(
    project: Project, environment: LockedEnvironment, machine: str, packages: list[LockedPackage]
) -> dict[str, Found]:
    from packaging.utils import canonicalize_name

    from patchwright.upstreams.fetch import entry_of

    platform = next(p for p in environment.platforms if p.startswith(f"{machine}-"))
    arguments = [
        "pip", "compile", "-", "--no-deps", "--no-header", "--no-annotate",
        "--format", "pylock.toml", "--python-version", environment.python,
        "--python-platform", platform,
    ]  # fmt: skip
    data = "".join(f"{package.name}=={package.version}\n" for package in packages)
    done = run_uv(*arguments, root=project.root, data=data)
    if done.returncode and is_network(done.stderr):
        # What the cache knows of the index may do: a file may be local.
        again = run_uv(*arguments, "--offline", root=project.root, data=data)
        done = again if again.returncode == 0 else done
    if done.returncode:
        refuse(done.stderr, "the locked packages")
    wanted = {package.name: package for package in packages}
    places: dict[str, Found] = {}
    for entry in tomllib.loads(done.stdout)["packages"]:
        package = wanted[canonicalize_name(entry["name"])]
        files = [*entry.get("wheels", []), *filter(None, [entry.get("sdist")])]
        offered = [entry_of(file, project.root, package.name) for file in files]
        sha256 = package.files[machine].sha256
        match = next((place for place in offered if place.sha256 == sha256), None)
        if match is None:
            raise PatchwrightError(
                f"the index in use has no file of it with sha256 {sha256}",
                where=f"{package.name}=={package.version}",
                next_step="use the index that it was locked from, or accept what this one has: "
                f"`patchwright lock --upgrade {package.name}`",
            )
        places[package.name] = match
    return places
