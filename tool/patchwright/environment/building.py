"""What has no wheel is built from source, with build requirements that are locked.

Only the requirements that pyproject.toml's ``[build-system]`` names are known without
running anything; a backend that asks for more fails with the name of what is missing.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.environment.locked import LockedEnvironment, LockedPackage
from patchwright.environment.wanted import Wanted
from patchwright.errors import InputError, PatchwrightError
from patchwright.files import temporary_folder
from patchwright.uv import refuse, run_uv, wrong_hash

if TYPE_CHECKING:
    from patchwright.environment.resolve import Pinned
    from patchwright.project import Project
    from patchwright.upstreams.fetch import Found

# What PEP 517 says for a project without [build-system].
_DEFAULT = ("setuptools>=40.8.0",)
# 1 January 1980: the time of what a backend packs, where it honours this.
_SOURCE_DATE = "315532800"


def build_requirements(
    project: Project, wanted: Wanted, resolved: Sequence[Pinned], folder: Path
) -> list[Pinned]:
    """Return what is needed, on each platform, to build whatever has no wheel there.

    Versions agree with the environment's own packages. Raises InputError where the
    requirements of two builds contradict each other.
    """
    from patchwright.environment.resolve import Unresolved, resolve_platform

    upstream = _upstreams(project)
    found = []
    for pinned in resolved:
        asked = set(upstream)
        for name, source in sorted(pinned.sources.items()):
            asked.update(_of_source(project, name, source))
        if not asked:
            continue
        own = [f"{name}=={version}" for name, (version, _) in pinned.packages.items()]
        try:
            found.append(
                resolve_platform(
                    project.root, wanted.python, pinned.platform, sorted(asked), folder,
                    constraints=own,
                )
            )  # fmt: skip
        except Unresolved as error:
            raise InputError(
                f"what is built from source on {pinned.platform.machine} cannot be built: {error}",
                where="[tool.patchwright.environment]",
                next_step="choose a version of it that has a wheel",
            ) from error
    return found


def _upstreams(project: Project) -> set[str]:
    asked: set[str] = set()
    for name, config in project.config.upstreams.items():
        if config.source != "wheel":
            tree = project.pristine(name).tree
            entry = project.store.entry(tree, b"pyproject.toml")
            data = project.store.blob(entry.oid) if entry is not None else b""
            asked.update(_requires(data, f"upstream {name}"))
    return asked


def _of_source(project: Project, name: str, source: Found) -> set[str]:
    from patchwright.upstreams.archive import read_archive
    from patchwright.upstreams.fetch import fetch_file

    project.progress(f"reading what {name} is built with")
    path = fetch_file(source, project.cache_dir / "archives", name)
    members = read_archive(path)
    roots = [member for member in members if member.count(b"/") == 1]
    data = next((members[m].data for m in roots if m.endswith(b"/pyproject.toml")), b"")
    return _requires(data, path.name)


def _requires(pyproject: bytes, where: str) -> set[str]:
    try:
        table = tomllib.loads(pyproject.decode()).get("build-system", {})
        requires = table.get("requires", _DEFAULT) if table else _DEFAULT
        return {str(requirement) for requirement in requires}
    except (ValueError, AttributeError, TypeError) as error:
        raise InputError(
            f"its pyproject.toml cannot be read: {error}", where=where,
            next_step="choose another version of it",
        ) from error  # fmt: skip


def build_wheel(
    project: Project, source: Path, key: str, environment: LockedEnvironment, machine: str,
    *, version: str = "", options: Mapping[str, str] | None = None, finds: Sequence[Path] = (),
    offline: bool = False,
) -> Path:  # fmt: skip
    """Build ``source`` (a folder or an sdist) and return the wheel, kept in the cache.

    ``key`` says what the source is: equal keys, build requirements, Python and settings
    give the same wheel without a build. ``version`` is for backends that ask git.
    Raises PatchwrightError.
    """
    from packaging.utils import parse_wheel_filename

    settings = {**environment.settings, **(options or {})}
    parts = [key, environment.python, machine, version, *map(repr, environment.build)]
    parts += [f"{name}={value}" for name, value in sorted(settings.items())]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    kept = project.cache_dir / "built" / digest
    found = sorted(kept.glob("*.whl"))
    if found:
        return found[0]
    project.progress(f"building {source.name}")
    with temporary_folder(project.cache_dir / "tmp") as (folder, lock):
        constraints = folder / "build.txt"
        constraints.write_text("".join(hashed(environment.build, machine)), "utf-8")
        arguments = [
            "build", "--wheel", str(source), "--out-dir", str(folder / "out"),
            "--build-constraints", str(constraints), "--require-hashes", *found_in(finds),
        ]  # fmt: skip
        variables = {**settings, "SOURCE_DATE_EPOCH": _SOURCE_DATE}
        if version:
            variables |= {"SETUPTOOLS_SCM_PRETEND_VERSION": version, "PBR_VERSION": version}
        done = uv_twice(arguments, project.root, offline=offline, env=variables,
                        python=environment.python, holds=lock)  # fmt: skip
        if done is not None:
            refuse(done, f"the build of {source.name}")
        made = sorted((folder / "out").glob("*.whl"))
        if len(made) != 1:
            raise PatchwrightError(
                f"the build made {len(made)} wheels, not one", where=source.name,
                next_step="see what its build backend does",
            )  # fmt: skip
        parse_wheel_filename(made[0].name)
        kept.parent.mkdir(parents=True, exist_ok=True)
        if not kept.exists():
            (folder / "out").rename(kept)
    return next(iter(sorted(kept.glob("*.whl"))))


def hashed(packages: Iterable[LockedPackage], machine: str) -> list[str]:
    """Return a line with its hash, for uv, for each package that ``machine`` has."""
    return [
        f"{package.name}=={package.version} --hash=sha256:{package.files[machine].sha256}\n"
        for package in packages
        if machine in package.files
    ]


def found_in(folders: Sequence[Path], also: Sequence[Path] = ()) -> list[str]:
    """Return uv's options for taking files from ``folders`` alone; none: from the index.

    What is in the folders ``also`` is taken from there in any case.
    """
    places = [*folders, *also]
    words = [word for place in places for word in ("--find-links", str(place))]
    if folders:
        return ["--no-index", *words]
    if also:
        # The option hides the user's own variable of its name.
        own = os.environ.get("UV_FIND_LINKS", "").split(",")
        words += [word for place in own if place for word in ("--find-links", place)]
    return words


def uv_twice(
    arguments: Sequence[str], root: Path, *, offline: bool = False, python: str = "",
    env: Mapping[str, str] | None = None, holds: int = -1, data: str = "", show: bool = False,
) -> str | None:  # fmt: skip
    """Run uv from its cache, then with the network; return None, or what it said at last.

    An index whose answers count as stale has everything downloaded again, so what the
    cache has is taken from there.
    """
    first = run_uv(*arguments, "--offline", root=root, data=data, env=env, python=python,
                   holds=holds)  # fmt: skip
    if first.returncode == 0:
        return None
    if offline or wrong_hash(first.stderr):
        return first.stderr
    done = run_uv(*arguments, root=root, data=data, env=env, python=python, holds=holds, show=show)
    if done.returncode == 0:
        return None
    return done.stderr or first.stderr


def source_wheel(
    project: Project, name: str, tree: str, environment: LockedEnvironment, machine: str,
    version: str, *, finds: Sequence[Path] = (), offline: bool = False,
) -> Path:  # fmt: skip
    """Build an upstream's tree, patched or not, and return the wheel.

    ``version`` goes into its version files and to backends that ask git for it.
    """
    from patchwright.environment.metadata import with_version
    from patchwright.materialise import write_tree
    from patchwright.upstreams.layout import to_repository

    config = project.upstream(name)

    with temporary_folder(project.cache_dir / "tmp") as (folder, _):
        source = folder / name
        write_tree(project.store, tree, source)
        for file in config.version_files:
            path = to_repository(config.layout, file.encode())
            place = source / os.fsdecode(path) if path is not None else None
            if place is not None and place.is_file():  # else the build makes it
                data = with_version(file.encode(), place.read_bytes(), config.version, version)
                place.write_bytes(data)
        key = " ".join(("tree", tree, *config.version_files))
        return build_wheel(
            project, source, key, environment, machine, version=version, finds=finds,
            offline=offline,
        )  # fmt: skip
