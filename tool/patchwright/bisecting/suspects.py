"""Which patches a failure points at: those that change a file of its traceback."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from patchwright.changes import CorruptPatch
from patchwright.upstreams.layout import path_map

if TYPE_CHECKING:
    from patchwright.config import Config
    from patchwright.patch import Patch
    from patchwright.startup.judging import Started

_NEAR = 12  # lines between a hunk and a frame; later patches move the lines
_GROUPS = 4


class Suspects:
    """The files that the patches of a selection change."""

    def __init__(self, config: Config, patches: Sequence[Patch]) -> None:
        self._maps = {name: path_map(u.layout) for name, u in config.upstreams.items()}
        self._changes: dict[tuple[str, bytes], list[tuple[int, list[tuple[int, int]]]]] = {}
        for patch in patches:
            self._add(patch)

    def _add(self, patch: Patch) -> None:
        try:
            changes = patch.changes
        except CorruptPatch:
            return
        for change in changes:
            spans = [(h.new_start, h.new_start + h.new_count) for h in change.hunks]
            for path in {change.old_path, change.new_path} - {None}:
                assert path is not None
                key = (patch.upstream or "", path)
                self._changes.setdefault(key, []).append((patch.number, spans))

    def of(self, started: Started) -> tuple[tuple[int, ...], ...]:
        """Return groups of patch numbers, the likeliest first."""
        groups: list[tuple[int, ...]] = []
        places = [(path, line) for path, line, _ in started.frames]
        for path, line in [*places, *((path, 0) for path in started.files)]:
            group = self._group(path, line)
            if group and group not in groups:
                groups.append(group)
        return tuple(groups[:_GROUPS])

    def _group(self, path: str, line: int) -> tuple[int, ...]:
        found: list[tuple[int, list[tuple[int, int]]]] = []
        for upstream, paths in self._maps.items():
            for place in (paths.to_repository(os.fsencode(path)), os.fsencode(path)):
                if place is not None and (upstream, place) in self._changes:
                    found = found or self._changes[upstream, place]
        near = [n for n, spans in found
                if any(a - _NEAR <= line <= b + _NEAR for a, b in spans)]  # fmt: skip
        return tuple(sorted(set(near or [n for n, _ in found])))
