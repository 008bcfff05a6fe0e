"""The ninja that a command started by ``run`` finds first: it compiles nothing twice.

flashinfer keys its workspace by its own version, and a patched state has a version of its
own, so that nothing stale is ever found; but a patch to one Python file would cost the
compiling of every module. When flashinfer builds a module that is not there, objects that
are known by content are put in their places before the real ninja runs, and what that one
compiled is kept. Whatever goes wrong with that, the real ninja does as it always does:
a start must not fail for want of a cache.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchwright.environment.objects import Objects, do_nothing
from patchwright.environment.workspace import MODULES, Hashes, Manifest
from patchwright.files import write_atomically

_FOLDER = "bin"
_MARK = "written by patchwright run"
_CODE = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    "from patchwright.environment.jit_ninja import main; main(sys.argv[2:])"
)


def with_ninja(
    workspaces: Mapping[str, Path], packages: Path, cache: Path, variables: Mapping[str, str]
) -> dict[str, str]:
    """Return ``variables`` with our ninja first on PATH; it is made in each workspace.

    ``packages`` is the site-packages folder of the environment. Without a ninja on PATH,
    or where it cannot be written, the variables are as they were.
    """
    # A command that `run` started may start another one: ours must not be the real one then.
    entries = variables["PATH"].split(os.pathsep)
    path = os.pathsep.join(entry for entry in entries if not _is_ours(Path(entry, "ninja")))
    real = shutil.which("ninja", path=path)
    for workspace in workspaces.values():
        place = workspace / _FOLDER / "ninja"
        tool = Path(__file__).resolve().parents[2]
        python = [sys.executable, "-I", "-B", "-c", _CODE, str(tool)]
        if real is None:
            break
        words = [*python, real, str(workspace), str(packages), str(cache)]
        text = (
            f"#!/bin/sh\n# {_MARK}\n"
            f"[ -x {shlex.quote(sys.executable)} ] || exec {shlex.quote(real)} \"$@\"\n"
            f"exec {shlex.join(words)} \"$@\"\n"
        )  # fmt: skip
        with contextlib.suppress(OSError):
            if not place.is_file() or place.read_text("utf-8") != text:
                write_atomically(place, text.encode(), mode=0o755)
            path = f"{place.parent}{os.pathsep}{path}"
    return {**variables, "PATH": path}


def _is_ours(ninja: Path) -> bool:
    try:
        with ninja.open("rb") as stream:
            return _MARK.encode() in stream.read(1000)
    except OSError:
        return False


def main(words: Sequence[str]) -> None:
    """Do what ninja would; the words before its own are those of ``with_ninja``."""
    real, workspace, packages, cache = words[:4]
    arguments = words[4:]
    module = _module(arguments, Path(workspace))
    objects, known = None, list[str]()
    if module is not None and not (module / f"{module.name}.so").exists():
        with contextlib.suppress(Exception):
            objects = _objects(module, Path(packages), Path(cache))
            known = _restored(objects, module, real, Path(cache))
    if objects is None or module is None:
        os.execv(real, [real, *arguments])  # noqa: S606
    done = subprocess.run([real, *arguments], check=False)
    if done.returncode == 0:
        with contextlib.suppress(Exception):
            objects.keep(but=known)
            _note(module, objects)
    sys.exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)


def _module(arguments: Sequence[str], workspace: Path) -> Path | None:
    """Return the folder of the module that flashinfer builds (jit/cpp_ext.py, run_ninja)."""
    with contextlib.suppress(ValueError, IndexError):
        folder = Path(arguments[arguments.index("-C") + 1])
        file = Path(arguments[arguments.index("-f") + 1])
        inside = folder.resolve().is_relative_to(workspace.resolve())
        if inside and folder.parent.name == MODULES and file == folder / "build.ninja":
            return folder
    return None


def _objects(module: Path, packages: Path, cache: Path) -> Objects:
    """Return the module's objects; ValueError where its compilers are not the toolkit's."""
    from patchwright.smoke.compiler import find_compiler
    from patchwright.smoke.ninja import parse_ninja

    variables = parse_ninja((module / "build.ninja").read_text("utf-8")).variables
    if (variables["cxx"], variables["nvcc"]) != ("c++", "$cuda_home/bin/nvcc"):
        raise ValueError("another compiler is named")
    home = Path(variables["cuda_home"])
    compiler = find_compiler((0, 0), named=str(home))
    if (home / "bin" / "nvcc").resolve() != compiler.nvcc.resolve():
        raise ValueError("the toolkit has no compiler")
    return Objects(module, packages, home, compiler.identity, cache, os.environ, Hashes())


def _restored(objects: Objects, module: Path, real: str, cache: Path) -> list[str]:
    known = objects.restore()
    if known:
        subprocess.run(
            [real, "-C", str(module), "-f", str(module / "build.ninja"), *known],
            env={**os.environ, **do_nothing(cache, os.environ["PATH"])}, check=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    return known


def _note(module: Path, objects: Objects) -> None:
    """Write down what the module was made from, for `check`."""
    import hashlib

    hashes = Hashes()
    names = [*(Path(part.output).name for part in objects.parts), f"{module.name}.so"]
    results = {name: hashes.of(str(module / name)) for name in names}
    ninja = hashlib.sha256(objects.text).hexdigest()
    Manifest("", ninja, objects.hashes, results).write(module)
