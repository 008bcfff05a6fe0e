"""Finds the CUDA compiler and runs compilers: own process group, deadline, no leftovers.

Code for sm_120a needs nvcc 12.8 or newer. What is missing is a need (Blocked), never a
failure of a patch.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from patchwright.smoke.outcomes import Blocked, SmokeError

MINIMUM = (12, 8)
SYSTEM_HOME = Path("/usr/local/cuda")
_INSTALL = "get one with: pip install 'patchwright[nvcc]'"
_RELEASE = re.compile(r"release (\d+)\.(\d+)")

# Variables by which a user's shell would change what a compiler makes.
CHANGING = (
    "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH", "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH", "SOURCE_DATE_EPOCH",
)  # fmt: skip
_DROPPED = (*CHANGING, "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "LANG", "PYTHONPATH")


class Completed(NamedTuple):
    """What one program left behind."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Compiler:
    """An nvcc and the host compiler that it needs.

    ``home`` is the toolkit's folder (bin, include, nvvm), ``version`` its release as in
    ``(13, 0)``. ``identity`` is equal for equal compilers wherever they stand.
    """

    home: Path
    nvcc: Path
    version: tuple[int, int]
    identity: str


def find_compiler(minimum: tuple[int, int] = MINIMUM, named: str = "") -> Compiler:
    """Return the first compiler that is new enough.

    Looked for in ``named`` (a toolkit), in CUDA_HOME and CUDA_PATH, in the wheels of the
    ``nvcc`` extra, on PATH (a wrapper script is asked where it leads) and in
    /usr/local/cuda. Raises Blocked when there is none, when all are too old, and when the
    host compiler is missing.
    """
    unfit: dict[Path, str] = {}
    for nvcc in _candidates(named):
        try:
            text = run([nvcc, "--version"], deadline=60).stdout
        except (OSError, SmokeError):
            continue
        release = _RELEASE.search(text)
        if release is None:
            continue
        version = int(release[1]), int(release[2])
        if version < minimum:
            unfit.setdefault(nvcc.resolve(), f"{version[0]}.{version[1]} at {nvcc}")
            continue
        host = _host_version()
        home = _home(nvcc)
        if home is None:
            unfit[nvcc.resolve()] = f"an incomplete {version[0]}.{version[1]} at {nvcc}"
            continue
        return Compiler(home, home / "bin" / "nvcc", version, _identity(text, host))
    wanted = "{}.{}".format(*minimum)
    found = ", ".join(unfit.values()) or "none"
    raise Blocked(f"needs a CUDA compiler of {wanted} or newer; found {found} ({_INSTALL})")


def wheel_includes(compiler: Compiler) -> tuple[Path, ...]:
    """Return header folders of CUDA library wheels that stand beside another toolkit."""
    folders = [folder / "include" for folder in _wheel_homes()]
    return tuple(f for f in folders if f.is_dir() and f.parent.resolve() != compiler.home)


def require_memory(needed: int) -> None:
    """Raise Blocked when fewer than ``needed`` bytes of memory are free."""
    free = free_memory()
    if free is not None and free < needed:
        gib = 1 << 30
        raise Blocked(
            f"needs {needed / gib:.1f} GiB of free memory to compile; {free / gib:.1f} GiB free"
        )


def run(
    argv: Sequence[str | Path],
    *,
    deadline: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    data: str | None = None,
) -> Completed:
    """Run a program in its own process group and return what it said, as text.

    ``env`` is added to a scrubbed environment. The whole group is killed when the
    program does not end within ``deadline`` seconds, which raises SmokeError, and when
    the caller is interrupted.
    """
    with subprocess.Popen(
        [str(a) for a in argv], cwd=cwd, env=_environment() | dict(env or {}),
        stdin=subprocess.PIPE if data is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, encoding="utf-8", errors="surrogateescape", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            stdout, stderr = process.communicate(data, timeout=deadline)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                program = Path(argv[0]).name
                raise SmokeError(f"{program} did not end within {deadline:g} s") from None
            raise
    return Completed(process.returncode, stdout, stderr)


def _environment() -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k not in _DROPPED}
    return env | {"LC_ALL": "C"}


def _candidates(named: str) -> Iterator[Path]:
    if named:
        yield Path(named) / "bin" / "nvcc"
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin" / "nvcc"
    for folder in _wheel_homes():
        yield folder / "bin" / "nvcc"
    if found := shutil.which("nvcc"):
        yield Path(found)
    yield SYSTEM_HOME / "bin" / "nvcc"


def _wheel_homes() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    return sorted((p for f in folders for p in Path(f).glob("cu[0-9]*")), reverse=True)


def _home(nvcc: Path) -> Path | None:
    """Return the toolkit's folder, None when it has no device compiler.

    nvcc itself says where it is; the path of a wrapper script does not.
    """
    done = run([nvcc, "--dryrun", "-E", "-x", "cu", os.devnull], deadline=60)
    said = dict(
        line.removeprefix("#$ ").split("=", 1)
        for line in done.stderr.splitlines()
        if line.startswith("#$ ") and "=" in line
    )
    if not (Path(said.get("CICC_PATH", os.devnull)) / "cicc").is_file():
        return None
    return Path(said["_HERE_"]).resolve().parent


def _host_version() -> str:
    """Return the host compiler's name and version; nvcc needs it even for device code."""
    for name in ("g++", "gcc"):
        if shutil.which(name) is None:
            raise Blocked(f"needs the host compiler g++ beside nvcc; found no {name} on PATH")
    return run(["g++", "--version"], deadline=60).stdout.partition("\n")[0]


def _identity(version_text: str, host: str) -> str:
    digest = hashlib.sha256(f"{version_text}\0{host}".encode()).hexdigest()[:16]
    release = re.search(r"V(\d+\.\d+\.\d+)", version_text)
    return f"nvcc {release[1] if release else '?'} {digest}"


def free_memory() -> int | None:
    """Return MemAvailable in bytes, None where the system does not say."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None
