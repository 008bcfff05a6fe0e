"""How an upstream project takes changes: branch, template, titles, checks, sign-off, CI.

``profiles.toml`` knows some projects; ``contribute`` of an upstream in pyproject.toml names
one of them, overrides what it says, or says it all for another project.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from patchwright.config import UpstreamConfig, read_toml
from patchwright.errors import InputError
from patchwright.upstreaming.contribution import Contribution

_FILE = Path(__file__).with_name("profiles.toml")
_OWNER_AND_NAME = re.compile(r"[/:]([\w.-]+/[\w.-]+?)(?:\.git)?/?$")


@dataclass(frozen=True)
class Profile:
    """What a change to one upstream must look like there.

    ``repository`` is ``owner/name`` (empty: not known), ``branch`` where changes go,
    ``templates`` the places, in that repository, where the text of a pull request may
    be given; the first that is there counts. ``title`` is ``conventional`` (``fix(jit):
    …``) or ``plain``. ``checks`` name what that repository runs on changed files, ``ci``
    says how its own machines are asked, ``reviewers`` what its reviewers want, for people.
    ``fork`` is the git address that branches are pushed to.
    """

    name: str = ""
    repository: str = ""
    branch: str = "main"
    templates: tuple[str, ...] = (".github/pull_request_template.md",)
    title: Literal["conventional", "plain"] = "plain"
    sign_off: bool = False
    checks: tuple[str, ...] = ("pre-commit",)
    ci: str = ""
    reviewers: tuple[str, ...] = ()
    fork: str = ""
    source: str = ""


def profile_of(upstream: UpstreamConfig) -> Profile:
    """Return the profile of an upstream.

    The known one that ``contribute.profile`` names, else the one whose repository its git
    address names, else a general one; then what ``contribute`` says itself. Raises
    InputError for a profile that is not known.
    """
    known = _known()
    wanted = upstream.contribute
    address = repository_of(upstream.git or "")
    if wanted.profile is not None:
        if wanted.profile not in known:
            raise InputError(
                f"tool.patchwright.upstreams.{upstream.name}.contribute.profile: there is no "
                f"profile {wanted.profile!r}",
                where="pyproject.toml", next_step=f"known: {', '.join(sorted(known))}",
            )  # fmt: skip
        base = known[wanted.profile]
    else:
        base = next((p for p in known.values() if p.repository == address),
                    Profile(repository=address))  # fmt: skip
    return dataclasses.replace(base, **_said(wanted))


def repository_of(address: str) -> str:
    """Return ``owner/name`` of a git address on a server; empty for a local one."""
    if address.startswith(("/", "file:")):
        return ""
    found = _OWNER_AND_NAME.search(address)
    return found[1] if found is not None else ""


@lru_cache(maxsize=1)
def _known() -> dict[str, Profile]:
    def profile(name: str, table: dict[str, Any]) -> Profile:
        values: dict[str, Any] = {
            key.replace("-", "_"): tuple(value) if isinstance(value, list) else value
            for key, value in table.items()
        }
        return Profile(name, **values)

    return {name: profile(name, table) for name, table in read_toml(_FILE).items()}


def _said(wanted: Contribution) -> dict[str, Any]:
    """Return what ``contribute`` says, without what it leaves open."""
    values = {field.name: getattr(wanted, field.name) for field in dataclasses.fields(wanted)}
    values.pop("profile")
    return {name: value for name, value in values.items() if value is not None}
