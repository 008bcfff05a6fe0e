"""What is installed in an environment.

An environment is a folder with an interpreter: a virtual one, or the prefix of a Python
in a container image. Its interpreter is asked where packages lie; nothing of them is
imported. RECORD is the list that every installer leaves (Python packaging specification
"Recording installed projects").
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from patchwright.environment.metadata import read_record
from patchwright.errors import InputError

# What installers write for themselves: it differs from one installation to the next.
BOOKKEEPING = frozenset({b"RECORD", b"INSTALLER", b"REQUESTED", b"direct_url.json",
                         b"uv_cache.json", b"uv_build.json"})  # fmt: skip
_START = 60.0  # seconds that an interpreter may take to say where it is
_ASK = (
    "import json, platform, sysconfig\n"
    "p = sysconfig.get_paths()\n"
    "print(json.dumps([platform.python_version(), p['purelib'], p['platlib']]))\n"
)


@dataclass(frozen=True)
class Site:
    """An environment: its interpreter (``version`` as in ``3.11.4``) and its packages."""

    root: Path
    python: Path
    version: str
    packages: Path
    platform_packages: Path

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that distributions are installed into: one, seldom two."""
        return tuple(dict.fromkeys((self.packages, self.platform_packages)))

    @cached_property
    def distributions(self) -> dict[str, Distribution]:
        """Everything installed, by canonical name, as it was when first asked for."""
        return {n: d for folder in self.folders for n, d in distributions(folder).items()}


@dataclass(frozen=True)
class Distribution:
    """One installed distribution; ``info`` is the name of its ``.dist-info`` folder."""

    name: str
    version: str
    folder: Path
    info: bytes

    @property
    def place(self) -> Path:
        """Its ``.dist-info`` folder."""
        return self.folder / os.fsdecode(self.info)

    @cached_property
    def rows(self) -> list[tuple[bytes, str, str]]:
        """The rows of RECORD: path, hash, size. InputError where there is none to read."""
        path = self.place / "RECORD"
        try:
            return read_record(path.read_bytes())
        except (OSError, ValueError, csv.Error) as error:
            raise InputError(
                f"the list of {self.name}'s files cannot be read: {error}", where=str(path),
                next_step=f"install {self.name} {self.version} again",
            ) from error  # fmt: skip

    @cached_property
    def files(self) -> dict[bytes, str]:
        """The recorded hash (or nothing) of each file, without bytecode and bookkeeping."""
        own = self.info + b"/"
        return {
            path: digest
            for path, digest, _ in self.rows
            if not path.endswith(b".pyc")
            and not (path.startswith(own) and path[len(own) :] in BOOKKEEPING)
        }

    @property
    def has_record(self) -> bool:
        """Whether its installer left a list of its files; a system's own package has none."""
        return (self.place / "RECORD").is_file()

    @cached_property
    def is_editable(self) -> bool:
        """Whether it only points to a source folder elsewhere."""
        path = self.place / "direct_url.json"
        try:
            return bool(json.loads(path.read_bytes())["dir_info"]["editable"])
        except (OSError, ValueError, KeyError, TypeError):
            return False


def find_site(directory: Path) -> Site:
    """Return the environment in ``directory``; InputError where there is none that runs."""
    root = directory.absolute()
    python = next(
        (p for n in ("python", "python3") if os.access(p := root / "bin" / n, os.X_OK)), None
    )
    step = "name the folder of a virtual environment (or another Python's prefix)"
    if python is None or python.is_dir():
        what = "there is no interpreter in bin/" if root.is_dir() else "there is no such folder"
        raise InputError(what, where=str(directory), next_step=step)
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", _ASK], capture_output=True, timeout=_START, check=True,
            stdin=subprocess.DEVNULL, env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        version, pure, platform = json.loads(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        raise InputError(
            f"its interpreter does not run: {error}", where=str(python), next_step=step
        ) from error
    return Site(root, python, version, Path(pure), Path(platform))


def site_packages(environment: Path) -> Path:
    """Return the folder with an environment's packages; a site-packages folder is its own.

    Nothing is run for it. Raises InputError.
    """
    step = "name one with --env: a virtual environment, or its site-packages"
    if not environment.is_dir():
        raise InputError("there is no such environment", where=str(environment), next_step=step)
    found = sorted(environment.glob("lib/python3*/site-packages"))
    if not found and any(environment.glob("*.dist-info")):
        return environment
    if len(found) != 1:
        raise InputError(
            f"this folder has {len(found) or 'no'} site-packages", where=str(environment),
            next_step=step,
        )  # fmt: skip
    return found[0]


def distributions(folder: Path) -> dict[str, Distribution]:
    """Return what is installed in a site-packages folder, by canonical name."""
    from packaging.utils import canonicalize_name

    try:
        names = sorted(e.name for e in os.scandir(os.fsencode(folder)))
    except OSError:
        return {}
    found: dict[str, Distribution] = {}
    for name in names:
        if name.endswith(b".dist-info"):
            stem, _, version = os.fsdecode(name).removesuffix(".dist-info").rpartition("-")
            if stem:
                own = canonicalize_name(stem)
                found[own] = Distribution(own, version, folder, name)
    return found


def version_in(site: Path, distribution: str) -> str | None:
    """Return the version of a distribution that is installed; None where it is not."""
    from packaging.utils import canonicalize_name

    found = distributions(site).get(canonicalize_name(distribution))
    return found.version if found is not None else None
