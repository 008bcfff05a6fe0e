"""The environment with upstream's own packages: where it is, and what is in it.

The tool itself needs neither torch nor what sglang imports. Runs at the ``import`` and
gpu tiers execute their code in another interpreter, which the user names; the upstreams
are taken from the tree under test there as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.smoke.outcomes import Blocked

if TYPE_CHECKING:
    from patchwright.config import Config

VARIABLE = "PATCHWRIGHT_ENVIRONMENT"
KEY = "interpreter"  # in [tool.patchwright.environment]
_HOW = f"name one with {VARIABLE}=VENV or {KEY} in [tool.patchwright.environment] (docs/tiers.md)"
_START = 60.0  # seconds that an interpreter may take to say what it is
# Names of folders, not their metadata: reading 170 of those takes longer than a static run.
_ASK = """\
import json, os, platform, sys
folders = [p for p in sys.path if os.path.isdir(p)]
files = [n for p in folders for n in os.listdir(p)]
names = sorted({n for n in files if n.endswith((".dist-info", ".egg-info"))})
torch = [p for p in folders if os.path.isfile(os.path.join(p, "torch", "__init__.py"))]
print(json.dumps({"python": platform.python_version(), "packages": names, "torch": torch[:1]}))
"""
_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*['\"]([\d.]+)['\"]", re.MULTILINE)


@dataclass(frozen=True)
class Environment:
    """An interpreter and what is installed beside it.

    ``identity`` is equal for equal sets of packages wherever they stand. ``cuda`` is the
    version that its torch is built for (``12.8``); empty for one that is built without,
    and where torch does not say. ``has_torch`` tells whether there is one at all.
    """

    python: Path
    identity: str
    has_torch: bool
    cuda: str

    @property
    def bin(self) -> Path:
        """The folder of its programs, such as ninja."""
        return self.python.parent


def interpreter(config: Config, outer: Mapping[str, str]) -> Path:
    """Return the interpreter that runs code with upstream's packages.

    The variable wins over the project's declaration; either names an environment's
    folder or the interpreter itself, relative to the project's root. With neither, what
    ``rebuild`` made serves, or the running interpreter where torch is installed beside
    it. Raises Blocked where there is none.
    """
    named = outer.get(VARIABLE) or config.environment.get(KEY)
    rebuilt = config.root / ".patchwright" / "env"
    if named is None and rebuilt.is_dir():
        named = rebuilt
    if named is None:
        if importlib.util.find_spec("torch") is not None:
            return Path(sys.executable)
        raise Blocked(f"needs an environment with torch and upstream's packages; {_HOW}")
    path = config.root / Path(str(named)).expanduser()
    python = path / "bin" / "python" if path.is_dir() else path
    if python.is_dir() or not os.access(python, os.X_OK):
        raise Blocked(f"needs an environment with upstream's packages; {named} has no interpreter")
    # Its link is not followed: a virtual environment is found by where that stands.
    return python.absolute()


@cache
def describe(python: Path) -> Environment:
    """Return what the environment of an interpreter holds; nothing of it is imported.

    Raises Blocked where the interpreter does not run.
    """
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", _ASK], capture_output=True, timeout=_START, check=True,
            env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        said = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise Blocked(f"needs an environment that runs; {python} does not: {error}") from error
    digest = hashlib.sha256("\n".join(said["packages"]).encode()).hexdigest()[:16]
    identity = f"python {said['python']}, {len(said['packages'])} packages {digest}"
    return Environment(python, identity, bool(said["torch"]), _torch_cuda(said["torch"]))


def require_torch(environment: Environment, cuda: str) -> None:
    """Check that torch can use devices whose driver serves ``cuda`` (``13.0``).

    Raises Blocked. Within one major version an older driver serves a newer toolkit
    (CUDA's minor version compatibility); across them it does not.
    """
    if not environment.has_torch:
        raise Blocked(f"needs torch in {environment.python}; {_HOW}")
    if not environment.cuda:
        raise Blocked(
            f"needs a torch that is built with CUDA; the one of {environment.python} is not"
        )
    if int(cuda.partition(".")[0]) < int(environment.cuda.partition(".")[0]):
        raise Blocked(
            f"needs a driver for CUDA {environment.cuda}, which torch of {environment.python} "
            f"is built for; this one serves {cuda}"
        )


def program_path(python: Path, outer: str) -> str:
    """Return PATH with the environment's own programs in front."""
    return os.pathsep.join(filter(None, (str(python.parent), outer or os.defpath)))


def _torch_cuda(folders: list[str]) -> str:
    for folder in folders:
        with contextlib.suppress(OSError):
            text = Path(folder, "torch", "version.py").read_text("utf-8", "replace")
            if found := _CUDA.search(text):
                return found[1]
    return ""
