"""Which pin is meant, and the project as it would be with it: nothing is written here."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.config import FILE_NAME, UpstreamConfig
from patchwright.errors import InputError, PatchwrightError
from patchwright.git import validated_revision
from patchwright.project import Project
from patchwright.series import Series

if TYPE_CHECKING:
    from packaging.version import Version

_PIN_KEYS = ("version", "revision", "path")


@dataclass(frozen=True)
class Target:
    """One upstream that is to move: to a version, to a git revision, or (neither) to the latest."""

    upstream: str
    version: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        if self.revision is not None:
            return f"{self.upstream}@{self.revision}"
        return f"{self.upstream} {self.version or 'latest'}"


def targets(words: Iterable[str], project: Project, *, latest: bool) -> tuple[Target, ...]:
    """Read what stands behind ``bump``: ``NAME VERSION``, ``NAME@VERSION``, ``NAME@REV``.

    With ``latest`` only names stand there; none means every upstream. Raises InputError.
    """
    found: list[Target] = []
    left = list(words)
    while left:
        name, at, rest = left.pop(0).partition("@")
        config = project.upstream(name)
        if latest:
            if at:
                raise InputError(f"{name}@{rest} names a version, and --to-latest another one",
                                 next_step="give one of the two")  # fmt: skip
            found.append(Target(name))
            continue
        if not at:
            if not left:
                raise InputError(
                    f"which version of {name}?",
                    next_step=f"write `patchwright bump {name} VERSION`, or add --to-latest",
                )
            rest = left.pop(0)
        if config.source == "git" and at:
            found.append(Target(name, revision=validated_revision(rest)))
        else:
            found.append(Target(name, version=_version(rest, config)))
    if latest and not found:
        found = [Target(name) for name in project.config.upstreams]
    if not found:
        raise InputError(
            "which upstream is to move, and where to?",
            next_step="write `patchwright bump NAME VERSION`, or --to-latest",
        )
    names = [target.upstream for target in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{twice} is named twice", next_step="give one version for it")
    return tuple(found)


def _version(text: str, config: UpstreamConfig) -> str:
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(text))
    except InvalidVersion:
        raise InputError(
            f"{text!r} is not a version (PEP 440), and {config.name} is pinned by its "
            f"{config.source}",
            next_step="give a version; a branch or a commit is for upstreams with source = \"git\"",
        ) from None  # fmt: skip


def moved_config(project: Project, target: Target) -> UpstreamConfig:
    """Return the upstream as pyproject.toml would have it. May ask the index or the repository.

    Raises InputError where the target is not there, PatchwrightError where nobody can be asked.
    """
    config = project.upstream(target.upstream)
    if config.source == "git":
        return _moved_git(project, config, target)
    version = target.version or _latest(project, config)
    moved = replace(config, version=version)
    if config.path is not None:
        moved = replace(moved, path=_neighbour(project.root, config, version))
    if config.revision in (config.version, f"v{config.version}"):
        prefix = config.revision.removesuffix(config.version)
        moved = replace(moved, revision=f"{prefix}{version}")
    return moved


def _latest(project: Project, config: UpstreamConfig) -> str:
    if config.path is not None:
        return str(max(_local_versions(project.root, config)))
    from patchwright.upstreams.fetch import newest_version

    return newest_version(config, project.root)


def _neighbour(root: Path, config: UpstreamConfig, version: str) -> str:
    """Return the local wheel or sdist of another version, beside the one that is pinned."""
    known = _local_versions(root, config)
    folder = Path(str(config.path)).parent
    found = next((name for there, name in known.items() if str(there) == version), None)
    if found is None:
        offered = ", ".join(str(v) for v in sorted(known)) or "none"
        raise InputError(
            f"there is no {config.source} of {config.name} {version} here (there: {offered})",
            where=str(root / folder), next_step="put the file there, or correct the version",
        )  # fmt: skip
    return (folder / found).as_posix()


def _local_versions(root: Path, config: UpstreamConfig) -> dict[Version, str]:
    from packaging.utils import (
        InvalidSdistFilename,
        InvalidWheelFilename,
        canonicalize_name,
        parse_sdist_filename,
        parse_wheel_filename,
    )

    pinned = root / str(config.path)

    def parsed(name: str) -> tuple[str, Version] | None:
        try:
            if config.source == "wheel":
                return parse_wheel_filename(name)[:2]
            return parse_sdist_filename(name)
        except (InvalidWheelFilename, InvalidSdistFilename):
            return None

    own = parsed(pinned.name)
    wanted = own[0] if own is not None else canonicalize_name(config.distribution or config.name)
    try:
        names = sorted(path.name for path in pinned.parent.iterdir())
    except OSError as error:
        raise InputError(
            f"the folder cannot be read: {error.strerror}", where=str(pinned.parent),
            next_step=f"correct `path` of upstream {config.name} in pyproject.toml",
        ) from error  # fmt: skip
    found = {}
    for name in names:
        entry = parsed(name)
        if entry is not None and entry[0] == wanted:
            found[entry[1]] = name
    return found


def _moved_git(project: Project, config: UpstreamConfig, target: Target) -> UpstreamConfig:
    from packaging.version import Version

    from patchwright.upstreams.revision import check_tag, remote_tags

    entry = project.lock.upstream(config.name) if project.lock is not None else None
    if entry is not None:
        check_tag(config, project.cache_dir, project.root, entry)
    revision = target.revision
    if revision is None:
        tags = {version: tag for tag in remote_tags(config, project.cache_dir, project.root)
                if (version := _released(tag)) is not None}  # fmt: skip
        if target.version is not None:
            wanted = Version(target.version)
            if wanted not in tags:
                raise InputError(
                    f"{config.name} has no tag for version {target.version}",
                    next_step=f"name the revision: `patchwright bump {config.name}@REV`",
                )
        else:
            final = [version for version in tags if not version.is_prerelease]
            if not final:
                raise InputError(
                    f"{config.name} has no tag that is a version",
                    next_step=f"name the revision: `patchwright bump {config.name}@REV`",
                )
            wanted = max(final)
        revision = tags[wanted]
    version = _released(revision)
    if version is None:
        return replace(config, revision=revision)
    return replace(config, revision=revision, version=str(version))


def _released(tag: str) -> Version | None:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(tag.removeprefix("v"))
    except InvalidVersion:
        return None


def moved_project(
    project: Project, configs: Mapping[str, UpstreamConfig], series: Series
) -> Project:
    """Return the project as it would be with other pins and patches; nothing is written.

    It shares cache and evidence with the real one: what is verified on it holds for the
    real one once it is the same.
    """
    moved = Project(project.root)
    moved.progress = project.progress
    upstreams = {**project.config.upstreams, **configs}
    moved.__dict__["config"] = replace(project.config, upstreams=upstreams)
    moved.__dict__["lock"] = project.lock
    moved.__dict__["series"] = series
    return moved


def edited(text: str, old: UpstreamConfig, new: UpstreamConfig) -> str:
    """Return pyproject.toml with the pin of one upstream changed and all else as it is.

    Raises PatchwrightError where the text is written in a way that this does not find.
    """
    lines = text.splitlines(keepends=True)
    header = re.compile(
        r"\s*\[\s*tool\s*\.\s*patchwright\s*\.\s*upstreams\s*\.\s*"
        rf"[\"']?{re.escape(old.name)}[\"']?\s*\]"
    )
    start = next((n for n, line in enumerate(lines) if header.match(line)), len(lines))
    changes = {key: (getattr(old, key), getattr(new, key)) for key in _PIN_KEYS
               if getattr(old, key) != getattr(new, key)}  # fmt: skip
    for number in range(start + 1, len(lines)):
        if lines[number].lstrip().startswith("["):
            break
        match = re.match(r"(\s*(\w+)\s*=\s*)(\"[^\"\\]*\"|'[^']*')(.*)$", lines[number], re.DOTALL)
        if match is not None and match[2] in changes:
            quote, rest = match[3][0], match[4]
            # A comment that is a commit id named the old revision.
            rest = re.sub(r"\s*#\s*[0-9a-f]{7,40}\s*$", "\n" if rest.endswith("\n") else "", rest)
            lines[number] = f"{match[1]}{quote}{changes[match[2]][1]}{quote}{rest}"
    made = "".join(lines)
    wanted = tomllib.loads(text)
    table = wanted["tool"]["patchwright"]["upstreams"][old.name]
    table.update({key: now for key, (_, now) in changes.items()})
    if tomllib.loads(made) != wanted:
        said = ", ".join(f'{key} = "{now}"' for key, (_, now) in changes.items())
        raise PatchwrightError(
            f"the pin of {old.name} is written in a way that is not found here",
            where=FILE_NAME, next_step=f"write it as a table of its own, with {said} to change",
        )  # fmt: skip
    return made
