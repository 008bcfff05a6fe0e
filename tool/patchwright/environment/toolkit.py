"""The CUDA toolkit as flashinfer's build files expect it, on a machine without a driver."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchwright.errors import PatchwrightError
from patchwright.files import hold_folder
from patchwright.smoke.compiler import Compiler, find_compiler

_LINKED = ("bin", "include", "nvvm", "lib")


@dataclass(frozen=True)
class Toolkit:
    """``home`` is what CUDA_HOME has to be; ``variables`` what else has to be set."""

    compiler: Compiler
    home: Path
    variables: Mapping[str, str]


def toolkit(cache: Path, named: str = "") -> Toolkit:
    """Return the machine's toolkit (that at ``named`` first), completed for linking.

    Wheels of the compiler have ``lib`` and no libcudart.so; without a driver there is no
    libcuda to link with. Raises Blocked where there is no compiler, PatchwrightError
    where what is missing cannot be made.
    """
    compiler = find_compiler(named=named)
    home, made = compiler.home, cache / "toolkits"
    try:
        made.mkdir(parents=True, exist_ok=True)
        if not (home / "lib64" / "libcudart.so").exists():
            home = _completed(home, made)
        variables = {"CUDA_HOME": str(home)}
        if not _has_libcuda(home):
            # Named as needed, as with the driver's own: the module asks for libcuda.so.1.
            flags = f"-L{_stub(made / 'stubs')} -Wl,--no-as-needed -lcuda"
            own = os.environ.get("FLASHINFER_EXTRA_LDFLAGS", "")
            variables["FLASHINFER_EXTRA_LDFLAGS"] = f"{own} {flags}".strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise PatchwrightError(
            f"the CUDA toolkit cannot be completed for linking: {error}", where=str(cache),
            next_step="install a whole toolkit and set CUDA_HOME, or make the cache writable",
        ) from error  # fmt: skip
    found = Toolkit(compiler, home, variables)
    hold_folder(made, found)  # `cache prune` leaves it alone
    return found


def _completed(home: Path, folder: Path) -> Path:
    runtime = sorted((home / "lib").glob("libcudart.so.*"))
    if not runtime:
        return home  # the linker says what it lacks
    made = folder / hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    (made / "lib64").mkdir(parents=True, exist_ok=True)
    for name in _LINKED:
        _link(made / name, home / name)
    _link(made / "lib64" / "libcudart.so", runtime[0])
    return made


def _link(place: Path, target: Path) -> None:
    if not place.is_symlink() or place.readlink() != target:
        place.unlink(missing_ok=True)
        place.symlink_to(target)


def _has_libcuda(home: Path) -> bool:
    if (home / "lib64" / "stubs" / "libcuda.so").exists():
        return True
    done = subprocess.run(
        ["g++", "-print-file-name=libcuda.so"], capture_output=True, text=True, check=False
    )
    return Path(done.stdout.strip()).is_absolute()


def _stub(folder: Path) -> Path:
    """Return a folder with an empty library of libcuda's name."""
    place = folder / "libcuda.so"
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f"libcuda.{os.getpid()}.so"
        subprocess.run(
            ["g++", "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-x", "c", os.devnull,
             "-o", str(temporary)], check=True, capture_output=True,
        )  # fmt: skip
        temporary.replace(place)
    return folder
