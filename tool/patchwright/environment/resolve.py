"""Resolves the environment with uv: names, versions and the one file for each machine.

For each platform uv resolves twice: first what is needed, with the versions of the old
lock preferred, then which files these versions have. Of several wheels that fit the one
is locked that an installer on the oldest system of the platform would choose: it fits
every newer one. Addresses are used and forgotten.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchwright.environment.locked import SDIST, LockedFile, LockedPackage
from patchwright.environment.wanted import Platform
from patchwright.errors import PatchwrightError
from patchwright.upstreams.fetch import Found, entry_of
from patchwright.uv import is_network, reason, refuse, run_uv

_PIN = re.compile(r"([A-Za-z0-9._-]+)==(\S+)")
_ADDRESS = re.compile(r"\S*(?:://|/)\S+")
_LONGEST = 300  # characters of a reason in the lock
_COMPILE = ("pip", "compile", "-", "--no-header", "--no-annotate")


class Unresolved(Exception):
    """Nothing can be locked for a platform; the text says why, without addresses."""


@dataclass(frozen=True)
class Pinned:
    """What one platform needs: version and file of each package. ``sources`` are addresses
    of what has to be built from source, for this run only."""

    platform: Platform
    packages: Mapping[str, tuple[str, LockedFile]]
    sources: Mapping[str, Found]


def resolve_platform(
    root: Path, python: str, platform: Platform, requirements: Sequence[str],
    folder: Path, *, preferred: Iterable[str] = (), upgrade: Collection[str] | None = (),
    constraints: Iterable[str] = (), without: Collection[str] = (),
) -> Pinned:  # fmt: skip
    """Resolve ``requirements`` for one platform.

    ``folder`` is for files that uv reads. ``preferred`` are pins (``name==1.0``) that are
    kept where they fit, except for the names in ``upgrade`` (None: all); ``constraints``
    have to hold. The packages in ``without`` take part but are not in the result. Raises
    Unresolved, or PatchwrightError where the index cannot be reached.
    """
    fixed = folder / "constraints.txt"
    fixed.write_text("".join(f"{line}\n" for line in constraints), "utf-8")
    known = folder / f"known-{platform.machine}.txt"
    kept = "" if upgrade is None else "".join(f"{pin}\n" for pin in preferred)
    known.write_text(kept, "utf-8")
    options = ["--python-version", python, "--python-platform", platform.name]
    moved = [word for name in upgrade or () for word in ("--upgrade-package", name)]
    text = _uv(
        [*_COMPILE, *options, *moved, "--constraints", str(fixed), "--output-file", str(known)],
        requirements, root,
    )  # fmt: skip
    pins = {}
    for line in (text or known.read_text("utf-8")).splitlines():
        match = _PIN.match(line.strip())
        if match and _canonical(match[1]) not in without:
            pins[_canonical(match[1])] = match[2]
    if not pins:
        return Pinned(platform, {}, {})
    listed = _uv(
        [*_COMPILE, *options, "--no-deps", "--format", "pylock.toml"],
        [f"{name}=={version}" for name, version in pins.items()], root,
    )  # fmt: skip
    return _with_files(tomllib.loads(listed)["packages"], python, platform, root)


def _uv(arguments: list[str], requirements: Iterable[str], root: Path) -> str:
    """Run uv on requirements: online, or where there is no network from its cache."""
    data = "".join(f"{line}\n" for line in requirements)
    online = run_uv(*arguments, root=root, data=data)
    if online.returncode == 0:
        return online.stdout
    if is_network(online.stderr):
        offline = run_uv(*arguments, "--offline", root=root, data=data)
        if offline.returncode == 0:
            return offline.stdout
        refuse(online.stderr, "[tool.patchwright.environment]")
    if "No solution found" not in online.stderr:
        refuse(online.stderr, "[tool.patchwright.environment]")
    raise Unresolved(_ADDRESS.sub("…", reason(online.stderr))[:_LONGEST])


def _with_files(
    packages: list[dict[str, Any]], python: str, platform: Platform, root: Path
) -> Pinned:
    order = _tag_order(python, platform)
    chosen: dict[str, tuple[str, LockedFile]] = {}
    sources: dict[str, Found] = {}
    for package in packages:
        name, version = _canonical(package["name"]), str(package["version"])
        where = f"{name}=={version}"
        wheels = [entry_of(entry, root, where) for entry in package.get("wheels", [])]
        best = _best(wheels, order)
        if best is None and package.get("sdist"):
            sources[name] = entry_of(package["sdist"], root, where)
            chosen[name] = version, LockedFile(SDIST, sources[name].sha256)
        elif best is None:
            raise Unresolved(
                f"{where} has no wheel for Python {python} on {platform.name} and no source"
            )
        else:
            chosen[name] = version, LockedFile(wheel_tag(best.file), best.sha256)
    return Pinned(platform, chosen, sources)


def wheel_tag(file: str) -> str:
    """Return what stands behind name and version in the name of a wheel's file."""
    return "-".join(file.removesuffix(".whl").split("-")[2:])


def _best(wheels: list[Found], order: Callable[[str], int | None]) -> Found | None:
    ranked = [
        (rank, wheel.file, wheel) for wheel in wheels if (rank := order(wheel.file)) is not None
    ]
    return min(ranked)[2] if ranked else None


def _tag_order(python: str, platform: Platform) -> Callable[[str], int | None]:
    """Return how well a wheel fits the platform (0 is best), None where it does not."""
    from packaging.tags import compatible_tags, cpython_tags
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    version = tuple(int(part) for part in python.split(".")[:2])
    names = _platform_tags(platform)
    tags = [
        *cpython_tags(version, platforms=names),
        *compatible_tags(version, f"cp{version[0]}{version[1]}", names),
    ]
    order: dict[object, int] = {}
    for at, tag in enumerate(tags):
        order.setdefault(tag, at)

    def rank(file: str) -> int | None:
        try:
            found = parse_wheel_filename(file)[3]
        except InvalidWheelFilename:
            return None
        return min((order[tag] for tag in found if tag in order), default=None)

    return rank


def _platform_tags(platform: Platform) -> list[str]:
    """Return the platform tags that fit, best first (PEP 600 and its older names)."""
    major, minor = platform.glibc
    old = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    lowest = 5 if platform.machine == "x86_64" else 17
    names = []
    for number in range(minor, lowest - 1, -1):
        names.append(f"manylinux_{major}_{number}_{platform.machine}")
        if number in old:
            names.append(f"{old[number]}_{platform.machine}")
    return [*names, f"linux_{platform.machine}"]


def merged(resolved: Iterable[Pinned]) -> tuple[LockedPackage, ...]:
    """Return one list for all platforms, sorted by name and version."""
    found: dict[tuple[str, str], dict[str, LockedFile]] = {}
    for pinned in resolved:
        for name, (version, file) in pinned.packages.items():
            found.setdefault((name, version), {})[pinned.platform.machine] = file
    return tuple(LockedPackage(*key, files) for key, files in sorted(found.items()))


def _canonical(name: str) -> str:
    from packaging.utils import canonicalize_name

    return canonicalize_name(name)


def no_platform(reasons: Mapping[str, str]) -> PatchwrightError:
    """Return the error for a project that resolves on none of its platforms."""
    first = next(iter(reasons))
    return PatchwrightError(
        f"nothing can be locked for any platform; {first}: {reasons[first]}",
        where="[tool.patchwright.environment]",
        next_step="correct requirements, python or platforms",
    )
