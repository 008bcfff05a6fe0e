"""The patches to be sent, made on upstream's main with what they need and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchwright.applying.chain import apply_one
from patchwright.applying.files import PatchOnTree
from patchwright.applying.verdicts import ApplyVerdict
from patchwright.changes import CorruptPatch
from patchwright.fields import KNOWN
from patchwright.quoting import display
from patchwright.upstreaming.secrecy import held_in

if TYPE_CHECKING:
    from patchwright.patch import Patch
    from patchwright.project import Project
    from patchwright.upstreaming.mainline import Mainline

_SENT = ("Submitted", "Backport")


@dataclass(frozen=True)
class Step:
    """One patch made on main: the trees before and after it.

    ``asked`` is false for a need that was submitted earlier and that main still lacks.
    """

    patch: Patch
    verdict: ApplyVerdict
    before: str
    after: str
    asked: bool


@dataclass(frozen=True)
class Fit:
    """What came of making patches on main.

    ``landed`` are the needs that main has already; ``refusals`` say why it must not be
    sent, one sentence each.
    """

    steps: tuple[Step, ...]
    landed: tuple[int, ...]
    refusals: tuple[str, ...]


def fit(
    project: Project, main: Mainline, upstream: str, numbers: Sequence[int], *, again: bool
) -> Fit:
    """Make the patches on main in series order, on top of those needs that it lacks.

    ``again`` says that they were sent before and this is a new version. Writes the trees
    to the store.
    """
    series = project.series
    project.pristine(upstream)  # its files are the bases that patches are merged on
    wanted = sorted({n for number in numbers for n in series.closure(number)})
    steps: list[Step] = []
    landed: list[int] = []
    refusals: list[str] = []
    tree = main.tree
    for number in wanted:
        patch = series.get(number)
        asked = number in numbers
        if patch.upstream != upstream:
            refusals += _unsent(project, patch, numbers, main=None)
            continue
        work = PatchOnTree(project.store, tree, None, lambda oid: _maker(project, oid))
        verdict = apply_one(work, patch, upstream)
        if asked:
            refusals += _status(patch, again=again)
            refusals += [f"{number:04d}: {line}" for line in own_fields(patch)]
            refusals += [
                f"{number:04d} holds the value of the environment variable {name}: take it out"
                for name in held_in(patch.raw)
            ]
        if verdict.tree is not None:
            steps.append(Step(patch, verdict, tree, verdict.tree, asked))
            tree = verdict.tree
            if not asked:
                refusals += _unsent(project, patch, numbers, main=main)
        elif asked:
            refusals.append(_unfit(patch, verdict, main))
        elif verdict.verdict == "already-upstream" or _word(patch) == "Backport":
            landed.append(number)
        elif _word(patch) == "Submitted":
            refusals.append(f"{_unfit(patch, verdict, main)}; it was sent before and is needed")
        else:
            refusals += _unsent(project, patch, numbers, main=main)
    project.store.flush()
    return Fit(tuple(steps), tuple(landed), tuple(refusals))


def own_fields(patch: Patch) -> list[str]:
    """Return where the message, which upstream reads, holds fields of ours."""
    first = patch.raw.count(b"\n", 0, patch.raw.find(patch.message)) + 1
    names = {name.lower(): name for name in KNOWN}
    found = []
    for at, line in enumerate(patch.message.splitlines(), first):
        name = names.get(line.partition(b":")[0].decode("latin-1").lower())
        if name is not None and b":" in line:
            found.append(
                f"the message still carries our own field {name} (line {at}): put it below "
                "the '---' line, or reword it"
            )
    return found


def _maker(project: Project, oid: str) -> int | None:
    """Return the patch of the series that makes a blob: it is no base for a merge."""
    for patch in project.series.patches:
        with suppress(CorruptPatch):
            if any((change.new_oid or "-").startswith(oid) for change in patch.changes):
                return patch.number
    return None


def _word(patch: Patch) -> str:
    return (patch.upstream_status or "Pending").split()[0]


def _status(patch: Patch, *, again: bool) -> list[str]:
    word, said = _word(patch), patch.upstream_status
    if word == "Submitted" and not again:
        return [f"{patch.number:04d} was sent already ({said}): a new version is -v2 and so on"]
    if word in ("Inappropriate", "Denied"):
        return [
            f"{patch.number:04d} is not for sending by its Upstream-Status ({said}): set it to "
            "Pending if that has changed"
        ]
    return []


def _unsent(
    project: Project, need: Patch, numbers: Sequence[int], main: Mainline | None
) -> list[str]:
    """Say which patch needs one that upstream has never seen."""
    if _word(need) in _SENT:
        return []
    series = project.series
    by = next(n for n in numbers if need.number in series.closure(n))
    lacks = f"is not on {main.branch} and " if main is not None else ""
    status = need.upstream_status or "no Upstream-Status"
    together = "send both, or it first" if main is not None else "send it first"
    return [
        f"{by:04d} needs {need.number:04d} ({need.upstream}: {need.title}), which {lacks}"
        f"was not sent ({status}): {together}"
    ]


def _unfit(patch: Patch, verdict: ApplyVerdict, main: Mainline) -> str:
    number = patch.number
    if verdict.verdict == "already-upstream":
        return f"{number:04d} is there already: {main.name} has all of it"
    said = f"{number:04d} does not apply to {main.name}: {verdict.verdict}: {verdict.reason}"
    if _word(patch) == "Backport":
        said += f"\nupstream has it in words of its own, by its status: {patch.upstream_status}"
    inside = next(
        (path for path in main.submodules
         if any(file.path.startswith(f"{path}/") for file in verdict.files)), None
    )  # fmt: skip
    if inside is not None:
        said += f" ({display(inside.encode())} is a repository of its own: send it there)"
    return said
