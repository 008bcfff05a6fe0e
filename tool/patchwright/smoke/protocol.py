"""What the prepared worker is asked, as one line of JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchwright.config import Config, Layout, LayoutRule
from patchwright.smoke.trees import Source


@dataclass(frozen=True)
class Place:
    """A site folder: what state it holds and the file that lists it."""

    site: Path
    state: tuple[tuple[str, str], ...]
    listing: Path


@dataclass(frozen=True)
class Request:
    """One run, or one collection where ``tree`` is None.

    ``folder`` is the run's own, made empty for it. ``deadline`` is in seconds.
    """

    test: Path
    tier: str
    deadline: float
    folder: Path
    environment: Mapping[str, str]
    sources: tuple[Source, ...]
    tree: Place | None = None
    baseline: Place | None = None

    def to_line(self) -> bytes:
        """Return the request as one line."""
        data = {
            "test": str(self.test),
            "tier": self.tier,
            "deadline": self.deadline,
            "folder": str(self.folder),
            "environment": dict(self.environment),
            "sources": [_from_source(source) for source in self.sources],
            "tree": _from_place(self.tree),
            "baseline": _from_place(self.baseline),
        }
        return json.dumps(data).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Request:
        """Return the request that a line holds."""
        data = json.loads(line)
        return cls(
            test=Path(data["test"]),
            tier=data["tier"],
            deadline=data["deadline"],
            folder=Path(data["folder"]),
            environment=data["environment"],
            sources=tuple(map(_to_source, data["sources"])),
            tree=_to_place(data["tree"]),
            baseline=_to_place(data["baseline"]),
        )


def sources_of(config: Config) -> tuple[Source, ...]:
    """Return the upstreams of a project as a run sees them."""
    return tuple(
        Source(name, upstream.packages, upstream.layout)
        for name, upstream in sorted(config.upstreams.items())
    )


def _from_source(source: Source) -> dict[str, Any]:
    rules = [[os.fsdecode(r.repository), os.fsdecode(r.installed)] for r in source.layout.rules]
    return {
        "name": source.name,
        "packages": source.packages,
        "rules": rules,
        "outside": source.layout.outside,
    }


def _to_source(data: Mapping[str, Any]) -> Source:
    rules = tuple(LayoutRule(os.fsencode(r), os.fsencode(i)) for r, i in data["rules"])
    return Source(data["name"], tuple(data["packages"]), Layout(rules, tuple(data["outside"])))


def _from_place(place: Place | None) -> dict[str, Any] | None:
    if place is None:
        return None
    return {"site": str(place.site), "state": place.state, "listing": str(place.listing)}


def _to_place(data: Mapping[str, Any] | None) -> Place | None:
    if data is None:
        return None
    pairs: Sequence[Sequence[str]] = data["state"]
    state = tuple((name, tree) for name, tree in pairs)
    return Place(Path(data["site"]), state, Path(data["listing"]))
