"""Declared facts that no reading of the sources can settle, each with where it is from.

Prebuilt kernels know the architectures that they were built for, vendor libraries those
that they accept; neither stands in the upstreams' Python or CUDA. The facts are in
``knowledge.toml``; a project adds its own in ``audit-knowledge.toml`` at its root.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchwright.errors import InputError

FILE_NAME = "audit-knowledge.toml"


@dataclass(frozen=True)
class Fact:
    """What some functions accept.

    ``functions`` is a regular expression on ``path::function``, ``accepts`` the
    capabilities (``10.0``) or major versions (``10``) that work. ``why`` is a sentence
    without a full stop, ``source`` a place to check it.
    """

    name: str
    functions: re.Pattern[str]
    accepts: tuple[str, ...]
    why: str
    source: str

    def takes(self, capability: tuple[int, int]) -> bool:
        """Return whether a capability is among those that work."""
        major, minor = capability
        return str(major) in self.accepts or f"{major}.{minor}" in self.accepts


@dataclass(frozen=True)
class Knowledge:
    """All facts, and the mnemonics that are allowed to go (``kernels``)."""

    facts: tuple[Fact, ...]
    rewrites: Mapping[str, str]
    arguments: Mapping[str, tuple[Mapping[str, object], ...]]

    def refuses(
        self, upstream: str, path: str, function: str, capability: tuple[int, int]
    ) -> Fact | None:
        """Return the fact by which a function does not work for a capability, or None."""
        name = f"{path}::{function}"
        for fact in self.facts:
            if fact.functions.search(name) and not fact.takes(capability):
                return fact
        return None


def load(root: Path | None = None) -> Knowledge:
    """Return the tool's facts and those of the project at ``root``.

    Raises InputError for a file that is not such a list.
    """
    files = [Path(__file__).with_name("knowledge.toml")]
    if root is not None and (root / FILE_NAME).exists():
        files.append(root / FILE_NAME)
    facts: list[Fact] = []
    rewrites: dict[str, str] = {}
    arguments: dict[str, tuple[Mapping[str, object], ...]] = {}
    for path in files:
        try:
            data = tomllib.loads(path.read_text("utf-8"))
            facts += [_fact(entry) for entry in data.get("fact", ())]
            rewrites |= {str(k): str(v) for k, v in data.get("rewrites", {}).items()}
            arguments |= {k: tuple(v) for k, v in data.get("arguments", {}).items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, re.error) as error:
            raise InputError(
                f"the declared facts cannot be read: {error}", where=str(path),
                next_step="each [[fact]] has name, functions, accepts, why and source",
            ) from error  # fmt: skip
    return Knowledge(tuple(facts), rewrites, arguments)


def _fact(entry: Mapping[str, Any]) -> Fact:
    return Fact(
        name=str(entry["name"]), functions=re.compile(entry["functions"]),
        accepts=tuple(map(str, entry["accepts"])), why=str(entry["why"]),
        source=str(entry["source"]),
    )  # fmt: skip
