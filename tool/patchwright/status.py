"""What ``patchwright status`` shows. An answer that follows from files alone is kept.

That is so where the lock agrees with pyproject.toml and the patch files, every patch
applies and none can have evidence. The answer then lies in the user's cache under a
digest of the bytes of all those files, of the selection and of this tool. Bytes decide,
not times: whatever changes, the answer is worked out anew.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.applying.cache import key
from patchwright.editing.switches import FILE as OFF
from patchwright.errors import InputError, PatchwrightError
from patchwright.project import PATCHES
from patchwright.series import read_patches

if TYPE_CHECKING:
    from patchwright.applying.verdicts import ApplyVerdict
    from patchwright.patch import Patch
    from patchwright.project import Project
    from patchwright.series import Selection

_FORMAT = 2
# What turns those files into an answer; of a smoke run nothing is kept here.
_OWN_CODE = (
    "*.py",
    "applying/*.py",
    "upstreams/*.py",
    "environment/locking.py",
    "environment/wanted.py",
    "editing/switches.py",
    "capturing/owners.py",
)


@dataclass(frozen=True)
class Known:
    """What is on record for one tier and context: a verdict, ``stale`` or ``missing``.

    ``source`` names the machine where the record was imported from another one.
    """

    verdict: str
    why: str = ""
    source: str = ""


def unproven() -> dict[str, dict[str, Known]]:
    """Return the evidence, by tier and context, of a patch that names no smoke test."""
    return {"static": {"step": Known("unproven", "names no smoke test")}}


@dataclass(frozen=True)
class Row:
    """One patch: how it applies in the selection, its upstream's tree after it, its evidence."""

    number: int
    file: str
    upstream: str
    title: str
    apply: str
    reason: str
    tree: str
    evidence: Mapping[str, Mapping[str, Known]]  # by tier and context
    applies: bool = True


@dataclass(frozen=True)
class Status:
    """The selected patches in order; ``base`` has the pristine tree of each upstream.

    ``stale`` says where the lock disagrees with the project, ``warnings`` where declared
    needs differ from what is so. ``off`` are the patches that are off on this machine.
    """

    stale: tuple[str, ...]
    base: Mapping[str, str]
    rows: tuple[Row, ...]
    off: tuple[Row, ...] = ()
    warnings: tuple[str, ...] = ()


def status(project: Project, selection: Selection) -> Status:
    """Return the status of a selection. Runs nothing; imports a pin not yet imported.

    Raises InputError for a patch that was made for another version than its pin.
    """
    files = _patch_files(project.root)
    digest = _digest(project, selection, files) if files is not None else None
    row = key("status", _hashed(bytes(project.root)), "")
    if digest is not None and (kept := _read(project.applied.get(row), digest)) is not None:
        return kept
    found = _worked_out(project, selection)
    if digest is not None and _follows_from_files(project, selection, found):
        # What was read for the digest may have been edited before it was read again.
        read = sorted((p.path.name, p.raw) for p in project.series.patches)
        if _digest(project, selection, read) == digest:
            with suppress(PatchwrightError):  # a cache that can only be read
                project.applied.put({row: _format(found, digest)})
    return found


def _worked_out(project: Project, selection: Selection) -> Status:
    from patchwright.applying.chain import Chain

    picked = selection.pick(project.series)
    if _may_have_evidence(project, picked):
        from patchwright.overview import overview

        seen = overview(project, selection)
        verdicts: Sequence[ApplyVerdict] = [o.apply for o in seen]
        rows = [
            Row(o.patch.number, o.patch.path.name, o.apply.upstream, o.patch.title,
                o.apply.verdict, o.apply.reason, o.tree, o.evidence, o.apply.ok)
            for o in seen
        ]  # fmt: skip
        base = Chain(project).base()
    else:
        project.check_pins(picked)
        chain = Chain(project)
        _, verdicts = chain.apply(picked)
        base = state = chain.base()
        rows = []
        for patch, verdict in zip(picked, verdicts, strict=True):
            state = state.after(verdict)
            rows.append(
                Row(patch.number, patch.path.name, verdict.upstream, patch.title, verdict.verdict,
                    verdict.reason, state.tree(verdict.upstream), unproven(), verdict.ok)
            )  # fmt: skip
    return Status(
        tuple(str(each) for each in project.stale()),
        dict(base.trees),
        tuple(rows),
        _off(project, {row.number for row in rows}),
        _warnings(project, picked, verdicts),
    )


def _off(project: Project, taking_part: Collection[int]) -> tuple[Row, ...]:
    series = project.series
    return tuple(
        Row(p.number, p.path.name, p.upstream or "", p.title, "off", "", "", {})
        for p in series.patches
        if p.number in series.off and p.number not in taking_part
    )


def _warnings(
    project: Project, picked: Sequence[Patch], verdicts: Sequence[ApplyVerdict]
) -> tuple[str, ...]:
    from patchwright import graph as graphs

    graph = graphs.by_files(project.series, picked, verdicts)
    if _may_have_evidence(project, picked):
        graphs.recall(project, graph)
    return tuple(graph.warnings())


def _may_have_evidence(project: Project, patches: Iterable[Patch]) -> bool:
    # A start of the whole server speaks for patches without a smoke test as well.
    return bool(project.config.startup) or any(patch.smoke for patch in patches)


def _follows_from_files(project: Project, selection: Selection, found: Status) -> bool:
    """Whether nothing but files decided: no resolving, no evidence, no blob in the store.

    Only a patch that does not apply may apply another time, with other blobs in the store.
    """
    return (
        project.lock is not None
        and not found.stale
        and all(row.applies for row in found.rows)
        and not _may_have_evidence(project, selection.pick(project.series))
    )


# The digest


def _patch_files(root: Path) -> list[tuple[str, bytes]] | None:
    try:
        return read_patches(root / PATCHES)
    except InputError:
        return None  # the series says it


def _digest(
    project: Project, selection: Selection, patches: Sequence[tuple[str, bytes]]
) -> str | None:
    """Return a digest of all that an answer follows from; None where something is missing."""
    wanted, locked = _bytes(project.root / "pyproject.toml"), _bytes(project.lock_path)
    if wanted is None or locked is None:
        return None
    own = Path(__file__).parent
    parts = [("pyproject.toml", wanted), ("lock", locked), ("off", _bytes(project.root / OFF))]
    parts += [(path.name, path.read_bytes()) for g in _OWN_CODE for path in sorted(own.glob(g))]
    parts += patches
    head = repr((
        _FORMAT, sys.version, selection.to, sorted(selection.only or ()), selection.only is None,
        sorted(selection.without), _local_archives(project.root, wanted),
        [(name, None if data is None else len(data)) for name, data in parts],
    ))  # fmt: skip
    start = b"%d " % len(head) + head.encode("utf-8", "surrogateescape")
    return _hashed(start, *(data for _, data in parts if data is not None))


def _bytes(path: Path) -> bytes | None:
    """Return a file's bytes; None where it is no regular file or cannot be read."""
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError:
        return None


def _local_archives(root: Path, wanted: bytes) -> list[str | None]:
    """Return the sha256 of each archive that an upstream is taken from: the lock has it too."""
    try:
        upstreams = tomllib.loads(wanted.decode())["tool"]["patchwright"]["upstreams"]
        paths = [entry.get("path") for entry in upstreams.values()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []  # the configuration says it
    named = [path for path in paths if isinstance(path, str)]
    if not named:
        return []
    from patchwright.lock import file_sha256

    return [file_sha256(root / path) for path in named]


# The kept form: the digest, one of the answer itself, the answer


def _format(found: Status, digest: str) -> str:
    rows = [[r.number, r.file, r.upstream, r.title, r.apply, r.reason, r.tree] for r in found.rows]
    off = [[r.number, r.file, r.upstream, r.title] for r in found.off]
    text = json.dumps([found.base, rows, off, found.warnings])
    return f"{digest} {_hashed(text.encode())} {text}"


def _read(kept: str | None, digest: str) -> Status | None:
    """Return the answer that is kept under this digest, or None."""
    if kept is None or not kept.startswith(f"{digest} "):
        return None
    _, _, rest = kept.partition(" ")
    seal, _, text = rest.partition(" ")
    if seal != _hashed(text.encode()):
        return None
    base, rows, off, warnings = json.loads(text)
    row = partial(Row, evidence=unproven())
    left_out = partial(Row, apply="off", reason="", tree="", evidence={})
    return Status(
        (), base, tuple(row(*each) for each in rows), tuple(left_out(*each) for each in off),
        tuple(warnings),
    )  # fmt: skip


def _hashed(*data: bytes) -> str:
    return hashlib.blake2b(b"".join(data), digest_size=32).hexdigest()
