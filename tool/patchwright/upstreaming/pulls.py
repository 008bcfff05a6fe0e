"""What became of a pull request, asked through the ``gh`` program: no token is held here."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Literal

from patchwright.patch import Patch

_PULL = re.compile(r"https://[\w.-]+/[\w.-]+/[\w.-]+/pull/\d+")
_TIMEOUT = 60.0  # seconds


@dataclass(frozen=True)
class Pull:
    """A pull request: ``state`` is what became of it, ``why`` says what is not known."""

    address: str
    state: Literal["merged", "closed", "open", "unknown"]
    commit: str = ""
    why: str = ""


def pull_of(patch: Patch) -> str:
    """Return the address of the pull request in a patch's Upstream-Status, or an empty text."""
    found = _PULL.search(patch.upstream_status or "")
    return found[0] if found is not None else ""


def ask(address: str) -> Pull:
    """Return what became of a pull request; ``unknown`` where ``gh`` cannot be asked."""
    gh = shutil.which("gh")
    if gh is None:
        return Pull(address, "unknown", why="the program gh is not installed")
    fields = "state,mergeCommit"
    try:
        done = subprocess.run(
            [gh, "pr", "view", address, "--json", fields], capture_output=True, check=False,
            timeout=_TIMEOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return Pull(address, "unknown", why="gh does not answer")
    if done.returncode:
        # Not in its own words: they may quote what it was given to log in with.
        login = done.returncode == 4 or b"gh auth login" in done.stderr
        why = "gh is not logged in: run `gh auth login`" if login else "gh found no answer"
        return Pull(address, "unknown", why=why)
    try:
        answer = json.loads(done.stdout)
        state = {"MERGED": "merged", "CLOSED": "closed", "OPEN": "open"}[answer["state"]]
        commit = (answer.get("mergeCommit") or {}).get("oid", "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return Pull(address, "unknown", why="gh's answer is not understood")
    return Pull(address, state, commit)  # type: ignore[arg-type]
