"""``contribute`` of an upstream in pyproject.toml: how that project takes changes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchwright.errors import InputError

if TYPE_CHECKING:
    from patchwright.config import _Table

_CONTRIBUTE_KEYS = (
    "profile", "repository", "branch", "templates", "title", "sign-off", "checks", "ci",
    "reviewers", "fork",
)  # fmt: skip
_TITLES = ("conventional", "plain")


@dataclass(frozen=True)
class Contribution:
    """How the upstream takes changes, as far as pyproject.toml says; None: by its profile.

    The meanings are those of ``upstreaming.profiles.Profile``; ``profile`` names a known one.
    """

    profile: str | None = None
    repository: str | None = None
    branch: str | None = None
    templates: tuple[str, ...] | None = None
    title: str | None = None
    sign_off: bool | None = None
    checks: tuple[str, ...] | None = None
    ci: str | None = None
    reviewers: tuple[str, ...] | None = None
    fork: str | None = None


def read_contribution(table: _Table) -> Contribution:
    """Return what a ``contribute`` table says. Raises InputError with the key that is wrong."""
    from patchwright.git import validated_revision

    table.check_keys(_CONTRIBUTE_KEYS)
    repository, branch, title = map(table.text, ("repository", "branch", "title"))
    if repository is not None and not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        table.refuse("repository", f"{repository!r} is not owner/name", "write it as owner/name")
    if branch is not None:
        try:
            validated_revision(branch)
        except InputError as error:
            table.refuse("branch", error.what, "give the branch that changes go to, as in main")
    if title is not None and title not in _TITLES:
        table.refuse("title", f"{title!r} is not a style of titles", f"one of {', '.join(_TITLES)}")
    lists = {
        key: table.texts(key) if key in table.values else None
        for key in ("templates", "checks", "reviewers")
    }
    for path in lists["templates"] or ():
        if path.startswith("/") or ".." in path.split("/"):
            table.refuse("templates", f"{path!r} leaves the repository", "give repository paths")
    return Contribution(
        profile=table.text("profile"), repository=repository, branch=branch, title=title,
        sign_off=table.flag("sign-off"), ci=table.text("ci"), fork=table.text("fork"), **lists,
    )  # fmt: skip
