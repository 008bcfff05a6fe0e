"""Who writes a new patch: the name that git would take for this project."""

from __future__ import annotations

import os
from pathlib import Path

from patchwright.errors import InputError
from patchwright.git import Git


def author(root: Path) -> str:
    """Return ``Name <address>``; InputError where git knows none.

    Git's own order: GIT_AUTHOR_NAME and GIT_AUTHOR_EMAIL, the project's repository, the
    user's configuration.
    """
    found = []
    for key, variable in (("user.name", "GIT_AUTHOR_NAME"), ("user.email", "GIT_AUTHOR_EMAIL")):
        value = os.environ.get(variable) or _configured(root, key)
        if not value:
            raise InputError(
                f"git does not know your {key.partition('.')[2]}", where=key,
                next_step=f"run `git config --global {key} …`, or give --author 'Name <address>'",
            )  # fmt: skip
        found.append(value)
    return f"{found[0]} <{found[1]}>"


def _configured(root: Path, key: str) -> str:
    home = Path.home()
    xdg = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    named = os.environ.get("GIT_CONFIG_GLOBAL")
    users = [Path(named)] if named else [home / ".gitconfig", xdg / "git" / "config"]
    for path in (root / ".git" / "config", *users):
        if path.is_file():
            # A file is asked, so that what git.py sets for trees does not answer.
            done = Git().run(
                "config", "--file", str(path), "--includes", "--get", key, ok=(0, 1, 128)
            )
            value = done.stdout.decode("utf-8", "replace").strip()
            if value:
                return value
    return ""
