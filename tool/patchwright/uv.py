"""The one place that runs uv: with the user's index, credentials and cache, and no other
setting of theirs that would change what is resolved, built or installed.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from patchwright.errors import PatchwrightError

# Settings that would change what is installed, or where. Index, cache, proxy and
# credential settings stay.
_DROPPED = frozenset({
    "UV_BREAK_SYSTEM_PACKAGES", "UV_BUILD_CONSTRAINT", "UV_COMPILE_BYTECODE", "UV_CONSTRAINT",
    "UV_CUSTOM_COMPILE_COMMAND", "UV_EXCLUDE", "UV_NO_BINARY", "UV_NO_BINARY_PACKAGE",
    "UV_NO_VERIFY_HASHES", "UV_OVERRIDE", "UV_PRERELEASE", "UV_PYTHON", "UV_REQUIRE_HASHES",
    "UV_RESOLUTION", "UV_SYSTEM_PYTHON", "UV_TARGET", "UV_TORCH_BACKEND", "UV_WORKING_DIRECTORY",
    "VIRTUAL_ENV", "CONDA_PREFIX",
})  # fmt: skip
BY_HAND = "or download the file yourself and name it with `path` in pyproject.toml"
_NO_LOGIN = re.compile(r"\b(401|403)\b|[Uu]nauthorized|[Ff]orbidden|credentials")
_NO_NETWORK = re.compile(
    r"error sending request|network was disabled|network connectivity is disabled|dns error"
    r"|[Cc]onnection|timed out|[Cc]ould not connect"
)
_NOT_THERE = re.compile(r"not found in|there is no version|no version of|No solution found")
_NO_ROOM = re.compile(r"No space left on device|[Dd]isk quota exceeded|os error (28|122)\b")
_NO_PYTHON = re.compile(r"No interpreter found|[Nn]o download found")


def run_uv(
    *arguments: str, root: Path, data: str = "", python: str | None = None, holds: int = -1,
    env: Mapping[str, str] | None = None, show: bool = False,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run uv in ``root``, where it also finds the project's own index settings.

    ``data`` is its standard input, ``python`` the interpreter that it works for (this one
    where none is named; empty: none), ``holds`` a descriptor that it keeps open until it
    has ended, ``env`` more variables. ``show`` lets its own progress through to standard
    error where that is a terminal. Returns text; the caller looks at the exit code.
    """
    import sys

    import uv

    outer = {
        name: value
        for name, value in os.environ.items()
        if name not in _DROPPED and not name.startswith(("GIT_", "PYTHON"))
    }
    command = [uv.find_uv_bin(), *arguments, "--color", "never"]
    show = show and sys.stderr.isatty()
    if not show:
        command.append("--quiet")
    python = sys.executable if python is None else python
    if python:
        command += ["--python", python]
    try:
        done = subprocess.run(
            command, input=data, stdout=subprocess.PIPE, stderr=None if show else subprocess.PIPE,
            env={**outer, **(env or {})}, cwd=root, check=False, encoding="utf-8",
            errors="replace", pass_fds=(holds,) if holds >= 0 else (),
        )  # fmt: skip
    except OSError as error:
        raise PatchwrightError(
            f"uv cannot be run: {error.strerror}", where=command[0],
            next_step="install patchwright again; uv comes with it",
        ) from error  # fmt: skip
    if done.returncode < 0 and not done.stderr:
        done.stderr = f"it was killed by signal {-done.returncode}"
    return done


def reason(stderr: str | None) -> str:
    """Return what uv said as one line of at most 600 characters."""
    lines = [line.strip() for line in (stderr or "").splitlines() if line.strip()]
    return "; ".join(lines)[:600] or "uv gave no reason"


def wrong_hash(stderr: str | None) -> tuple[str, str] | None:
    """Return the expected and the actual sha256 where uv found another than required."""
    pair = re.search(r"Expected:\s+sha256:(\w+)\s+Computed:\s+sha256:(\w+)", stderr or "")
    return (pair[1], pair[2]) if pair else None


def is_network(stderr: str | None) -> bool:
    """Return whether uv failed for want of a network, not for what is asked of it."""
    return bool(_NO_NETWORK.search(stderr or ""))


def refuse(stderr: str | None, where: str, *, by_hand: str = "") -> NoReturn:
    """Raise PatchwrightError: uv's words as one message, with the step that fits.

    ``by_hand`` is added to the steps that a network or an index needs.
    """
    text, detail = stderr or "", reason(stderr)
    rest = f", {by_hand}" if by_hand else ""
    if _NO_ROOM.search(text):
        raise PatchwrightError(
            f"the disk is full ({detail})", where=where,
            next_step="make room there (UV_CACHE_DIR names uv's cache), and run it again",
        )  # fmt: skip
    if _NO_PYTHON.search(text):
        raise PatchwrightError(
            f"there is no such Python here ({detail})", where=where,
            next_step="install that Python (uv python install VERSION), or let uv fetch it: "
            "leave out --offline, UV_OFFLINE and UV_PYTHON_DOWNLOADS=never",
        )  # fmt: skip
    if _NO_LOGIN.search(text):
        raise PatchwrightError(
            f"the package index refuses access ({detail})",
            where=where,
            next_step=f"give uv the login (UV_INDEX_<NAME>_USERNAME, …, or netrc){rest}",
        )
    if _NO_NETWORK.search(text):
        raise PatchwrightError(
            f"the package index cannot be reached ({detail})", where=where,
            next_step=f"check network, proxy and UV_DEFAULT_INDEX{rest}",
        )  # fmt: skip
    if _NOT_THERE.search(text):
        raise PatchwrightError(
            f"the package index in use does not have it ({detail})", where=where,
            next_step=f"correct version or distribution, set UV_DEFAULT_INDEX{rest}",
        )  # fmt: skip
    raise PatchwrightError(f"uv failed ({detail})", where=where, next_step="correct what uv names")
