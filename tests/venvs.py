"""Virtual environments for tests: made by uv, files hard-linked to a cache of their own.

env = make_env(tmp_path, project.wheels.values())    # Env(root, site, cache)
env.files()                      # path -> bytes of everything in site-packages, no bytecode
env.cached()                     # the same of the cache that uv links from
env.python("-c", "...")          # run its interpreter; returns what it printed
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import uv


@dataclass(frozen=True)
class Env:
    """An environment; ``site`` is its site-packages, ``cache`` the cache that uv links from."""

    root: Path
    site: Path
    cache: Path

    def files(self) -> dict[str, bytes]:
        return _content(self.site)

    def cached(self) -> dict[str, bytes]:
        return _content(self.cache)

    def install(self, *arguments: str) -> None:
        _uv(self.cache, "pip", "install", "--offline", "--no-deps", "--link-mode", "hardlink",
            "--python", str(self.root), *arguments)  # fmt: skip

    def install_online(self, *arguments: str) -> None:
        """Install from the index in use; for slow tests only."""
        subprocess.run(
            [uv.find_uv_bin(), "pip", "install", "--quiet", "--link-mode", "hardlink",
             "--python", str(self.root), *arguments], check=True,
        )  # fmt: skip

    def python(self, *arguments: str, **env: str) -> str:
        done = subprocess.run(
            [str(self.root / "bin" / "python"), *arguments], capture_output=True, text=True,
            env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]} | env, check=True,
        )  # fmt: skip
        return done.stdout


def make_env(folder: Path, wheels: Iterable[Path]) -> Env:
    """Return a new environment in ``folder/env`` that holds ``wheels`` and nothing else."""
    env = make_venv(folder)
    env.install(*map(str, wheels))
    return env


def make_venv(folder: Path) -> Env:
    """Return a new and empty environment in ``folder/env``."""
    root, cache = folder / "env", folder / "uv-cache"
    _uv(cache, "venv", "--python", sys.executable, str(root))
    [site] = root.glob("lib/python*/site-packages")
    return Env(root, site, cache)


def _uv(cache: Path, *arguments: str) -> None:
    subprocess.run(
        [uv.find_uv_bin(), *arguments, "--quiet"], check=True,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "UV_CACHE_DIR": str(cache),
             "UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never"},
    )  # fmt: skip


def _content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
