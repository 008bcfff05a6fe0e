"""Pull requests through the user's ``gh`` program; this tool holds no token."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from patchwright.upstreaming.secrecy import redacted

_URL = re.compile(r"https://\S+/pull/\d+")
_TIMEOUT = 120.0  # seconds
_NO_LOGIN = 4  # gh help exit-codes


@dataclass(frozen=True)
class Asked:
    """What came of asking gh: the pull request's address, or why there is none."""

    address: str = ""
    trouble: str = ""


def create_command(
    repository: str, branch: str, head: str, title: str, body_file: str
) -> list[str]:
    """Return gh's arguments for a new pull request; ``head`` is ``owner:branch``."""
    return [
        "pr", "create", f"--repo={repository}", f"--base={branch}", f"--head={head}",
        f"--title={title}", f"--body-file={body_file}",
    ]  # fmt: skip


def comment_command(address: str, body_file: str) -> list[str]:
    """Return gh's arguments for a comment: what a new version changes."""
    return ["pr", "comment", address, f"--body-file={body_file}"]


def page(repository: str, branch: str, head: str) -> str:
    """Return the page on which a pull request is opened by hand."""
    return f"https://github.com/{repository}/compare/{quote(branch)}...{quote(head)}?expand=1"


def ask(arguments: Sequence[str], body: str) -> Asked:
    """Run gh with ``body`` on its standard input (``--body-file=-``).

    gh finds its own login, in its own store or in its own environment variable; nothing
    of what it says is shown before secrets are taken out.
    """
    program = shutil.which("gh")
    if program is None:
        return Asked(trouble="gh was not found on PATH")
    try:
        done = subprocess.run(
            [program, *arguments], input=body, capture_output=True, encoding="utf-8",
            errors="replace", timeout=_TIMEOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Asked(trouble=f"gh gave no answer within {_TIMEOUT:.0f} s")
    except OSError as error:
        return Asked(trouble=f"gh cannot be started: {error.strerror}")
    if done.returncode == _NO_LOGIN:
        return Asked(trouble="gh is not logged in: run `gh auth login`")
    if done.returncode:
        said = " ".join(redacted(done.stderr).split())[:400]
        return Asked(trouble=f"gh ended with status {done.returncode}: {said}")
    found = _URL.search(done.stdout)
    return Asked(found[0]) if found is not None else Asked(trouble="gh named no address")
