"""What the environment must change together with a pin: what distributions require."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from patchwright.config import UpstreamConfig
    from patchwright.project import Project
    from patchwright.store import ObjectStore

_METADATA = (b".dist-info/METADATA", b"PKG-INFO")


@dataclass(frozen=True)
class Needed:
    """One thing that the environment must follow; ``breaks`` where it cannot stay as it is."""

    said: str
    breaks: bool


def needed(old: Project, new: Project, moving: Iterable[str]) -> tuple[Needed, ...]:
    """Return what follows for the environment where the upstreams ``moving`` move.

    First where an upstream requires another one in a version that it would not be, then
    what ``environment`` in pyproject.toml pins itself and what the lock has of the old pin,
    then what else the new distributions require that the old ones did not.
    """
    names = tuple(moving)
    found = list(_between(new))
    found += _pinned(new, names)
    found += _locked(old, names)
    for name in names:
        config = new.config.upstreams[name]
        found += [Needed(f"{each.distribution} has to be {config.version} as well", breaks=False)
                  for each in config.companions]  # fmt: skip
        found += _changed(old, new, name)
    return tuple(found)


def _between(project: Project) -> Iterator[Needed]:
    by_distribution = {
        config.distribution: config
        for config in project.config.upstreams.values()
        if config.distribution is not None
    }
    for config in project.config.upstreams.values():
        for requirement in requirements(project, config.name).values():
            other = by_distribution.get(_canonical(requirement))
            if other is None or other.name == config.name or not requirement.specifier:
                continue
            if not requirement.specifier.contains(other.version, prereleases=True):
                yield Needed(
                    f"{config.name} {config.version} requires {requirement}, and the pin would be "
                    f"{other.name} {other.version}: move {_mover(requirement, config, other)}, or "
                    "let the environment override that requirement",
                    breaks=True,
                )


def _locked(old: Project, names: Iterable[str]) -> Iterator[Needed]:
    if old.lock is None or not old.lock.environment:
        return
    pins = ", ".join(f"{name} {old.upstream(name).version}" for name in names)
    yield Needed(
        f"upstream.lock keeps its [environment], which is that of {pins}: `patchwright lock` "
        "resolves it for the new pin; until then `lock --check` names it and `rebuild` refuses",
        breaks=True,
    )


def _mover(requirement: Requirement, config: UpstreamConfig, other: UpstreamConfig) -> str:
    exact = [s.version for s in requirement.specifier if s.operator == "=="]
    return f"{other.name} to {exact[0]} or {config.name} as well" if exact else config.name


def _pinned(project: Project, names: Iterable[str]) -> Iterator[Needed]:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    moving: dict[str, UpstreamConfig] = {
        canonicalize_name(config.distribution): config
        for config in (project.config.upstreams[name] for name in names)
        if config.distribution is not None
    }
    for key, text in _texts(project.config.environment, "environment"):
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        config = moving.get(_canonical(requirement))
        if config and not requirement.specifier.contains(config.version, prereleases=True):
            yield Needed(
                f"pyproject.toml, {key}: {text} does not let {config.name} {config.version} in",
                breaks=True,
            )


def _texts(value: object, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, f"{key}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key)


def _changed(old: Project, new: Project, name: str) -> Iterator[Needed]:
    before, after = requirements(old, name), requirements(new, name)
    for key in sorted(before.keys() | after.keys()):
        was, now = before.get(key), after.get(key)
        if str(was) == str(now):
            continue
        if was is None:
            yield Needed(f"{name} requires {now}, new", breaks=False)
        elif now is None:
            yield Needed(f"{name} no longer requires {was}", breaks=False)
        else:
            yield Needed(f"{name} requires {now}, before: {was}", breaks=False)


def requirements(project: Project, name: str) -> dict[str, Requirement]:
    """Return what an upstream requires at its pin, without extras; empty where it does not say."""
    from packaging.requirements import InvalidRequirement, Requirement

    found: dict[str, Requirement] = {}
    for line in _lines(project, name):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        if marker is None or "extra" not in str(marker):
            found[f"{_canonical(requirement)} {marker or ''}"] = requirement
    return found


def _lines(project: Project, name: str) -> list[str]:
    from email.parser import BytesParser

    pristine = project.pristine(name)
    store: ObjectStore = project.store
    for path, entry in store.files(pristine.outside):
        if path.endswith(_METADATA):
            mail = BytesParser().parsebytes(store.blob(entry.oid), headersonly=True)
            return [str(value) for value in mail.get_all("Requires-Dist", [])]
    for path, entry in store.files(pristine.tree):
        if path.rpartition(b"/")[2] in (b"pyproject.toml",) and path.count(b"/") <= 1:
            declared = _declared(store.blob(entry.oid))
            if declared:
                return declared
    return []


def _declared(data: bytes) -> list[str]:
    import tomllib

    try:
        table: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
        return [str(text) for text in table["project"]["dependencies"]]
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError):
        return []


def _canonical(requirement: Requirement) -> str:
    from packaging.utils import canonicalize_name

    return canonicalize_name(requirement.name)
