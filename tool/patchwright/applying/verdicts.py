"""What came of applying one patch: one word, where, and why."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, cast

Verdict = Literal[
    "clean", "offset", "three-way", "already-upstream", "partly-upstream",
    "conflict", "corrupt", "target-missing", "outside", "empty",
]  # fmt: skip

OK: tuple[Verdict, ...] = ("clean", "offset", "three-way")

# Of several files with trouble, the first of these names the whole patch.
_WORST_FIRST: tuple[Verdict, ...] = (
    "corrupt", "outside", "target-missing", "conflict", "partly-upstream",
)  # fmt: skip


@dataclass(frozen=True)
class FileVerdict:
    """What came of one file of a patch.

    ``path`` is for display (not UTF-8: with replacement). ``offsets`` are lines, one
    per hunk, and only given where a hunk did not go to the place that it names.
    """

    path: str
    verdict: Verdict
    detail: str = ""
    offsets: tuple[int, ...] = ()


@dataclass(frozen=True)
class ApplyVerdict:
    """What came of one patch; ``tree`` is its upstream's tree after it, None if not applied."""

    patch_number: int
    upstream: str
    verdict: Verdict
    ok: bool
    tree: str | None
    files: tuple[FileVerdict, ...] = ()
    reason: str = ""

    def of(self, number: int, upstream: str) -> ApplyVerdict:
        """Return the same outcome for a patch of another number (same bytes, same tree)."""
        if (number, upstream) == (self.patch_number, self.upstream):
            return self
        return replace(self, patch_number=number, upstream=upstream)


def shown(path: bytes) -> str:
    """Return a path as text for messages."""
    return path.decode("utf-8", "replace")


def combine(files: Iterable[FileVerdict]) -> tuple[Verdict, str]:
    """Return the verdict and the reason that the verdicts on all files of a patch give."""
    files = tuple(files)
    words = {f.verdict for f in files}
    already = [f for f in files if f.verdict == "already-upstream"]
    for word in _WORST_FIRST:
        if word in words:
            bad = [f for f in files if f.verdict == word]
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            return word, f"{bad[0].path}: {bad[0].detail}{more}"
    if already and len(already) == len(files):
        return "already-upstream", "all of it is in the tree already"
    if already:
        names = ", ".join(f.path for f in already)
        return "partly-upstream", f"in the tree already: {names}"
    for good in reversed(OK):
        if good in words:
            details = [f"{f.path}: {f.detail}" for f in files if f.detail and f.verdict == good]
            return good, "; ".join(details)
    return "empty", "the patch changes no file"


def encode(verdict: ApplyVerdict) -> str:
    """Return a verdict as JSON, without what its key in the cache says."""
    if verdict.verdict == "clean" and not verdict.reason:
        return json.dumps([verdict.verdict, verdict.tree, [f.path for f in verdict.files]])
    files = [[f.path, f.verdict, f.detail, f.offsets] for f in verdict.files]
    return json.dumps([verdict.verdict, verdict.tree, files, verdict.reason])


def decode(text: str, number: int, upstream: str) -> ApplyVerdict:
    """Return the verdict that ``encode`` wrote; ValueError for anything else."""
    match json.loads(text):
        case ["clean", str(tree), list(paths)]:
            files = tuple(FileVerdict(path, "clean") for path in paths)
            return ApplyVerdict(number, upstream, "clean", True, tree, files)
        case [str(word), str() | None as tree, list(rows), str(reason)]:
            files = tuple(
                FileVerdict(path, file_word, detail, tuple(offsets))
                for path, file_word, detail, offsets in rows
            )
            verdict = cast("Verdict", word)
            return ApplyVerdict(number, upstream, verdict, verdict in OK, tree, files, reason)
    raise ValueError("not a verdict")
