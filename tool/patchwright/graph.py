"""Which patch stands on which: as declared, by the lines they touch, by their smoke tests.

Lines: a patch stands on another one if its diff shows or changes lines that the other one
wrote, or the place where it removed some. It is read from the diffs as they apply, without
a tree, and only for files that two patches touch. Smoke tests: a patch that is not needed
leaves another's test as it is when it is left out (context ``without``); only runs on
record count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from patchwright.applying.verdicts import ApplyVerdict
from patchwright.capturing.owners import Owners, Run, runs
from patchwright.changes import CorruptPatch, FileChange
from patchwright.patch import Patch
from patchwright.series import Selection, Series

if TYPE_CHECKING:
    from patchwright.project import Project

Kind = Literal["declared", "lines", "evidence"]


@dataclass
class Graph:
    """``edges`` maps (patch, what it stands on) to why that is known.

    ``unneeded`` are needs that are declared although the patch's own test passes
    without them.
    """

    series: Series
    edges: dict[tuple[int, int], set[Kind]] = field(default_factory=dict)
    unneeded: set[tuple[int, int]] = field(default_factory=set)

    def add(self, number: int, on: int, kind: Kind) -> None:
        if number != on:
            self.edges.setdefault((number, on), set()).add(kind)

    def warnings(self) -> list[str]:
        """Return where what is declared differs from what is so, one line each."""
        found = []
        for (number, on), kinds in sorted(self.edges.items()):
            if on in self.series.closure(number):
                continue
            whys = [why for kind, why in (
                ("lines", f"stands on lines of {on:04d}"),
                ("evidence", f"fails its smoke test without {on:04d}"),
            ) if kind in kinds]  # fmt: skip
            found.append(f"{number:04d} {' and '.join(whys)} and does not declare it")
        for number, on in sorted(self.unneeded):
            if "lines" not in self.edges.get((number, on), ()):
                found.append(
                    f"{number:04d} declares {on:04d}, but its smoke test passes without it"
                )
        return found


def by_files(series: Series, picked: Sequence[Patch], verdicts: Sequence[ApplyVerdict]) -> Graph:
    """Return the graph as the patch files tell it: what is declared, and by lines."""
    graph = Graph(series)
    for patch in picked:
        for need in patch.depends:
            graph.add(patch.number, need.number, "declared")
    for number, on in _by_lines(picked, verdicts):
        graph.add(number, on, "lines")
    return graph


def _by_lines(
    picked: Sequence[Patch], verdicts: Sequence[ApplyVerdict]
) -> Iterable[tuple[int, int]]:
    touched: dict[tuple[str, str], list[int]] = {}
    for verdict in verdicts:
        for file in verdict.files if verdict.ok else ():
            touched.setdefault((verdict.upstream, file.path), []).append(verdict.patch_number)
    # What one patch alone touches it shares with nobody: most of a long series.
    shared = {n for numbers in touched.values() if len(numbers) > 1 for n in numbers}
    owners: dict[tuple[str, bytes], Owners] = {}
    for patch, verdict in zip(picked, verdicts, strict=True):
        if patch.number not in shared or not verdict.ok:
            continue
        with suppress(CorruptPatch):
            offsets = {file.path: file.offsets for file in verdict.files}
            for change in patch.changes:
                moved = offsets.get(change.path.decode("utf-8", "replace"), ())
                for on in _follow(owners, verdict.upstream, change, patch.number, moved):
                    yield patch.number, on


def _follow(
    owners: dict[tuple[str, bytes], Owners], upstream: str, change: FileChange, number: int,
    moved: Sequence[int],
) -> set[int]:  # fmt: skip
    """Return whose lines a change of one file shows, and let it be theirs."""
    old, new = change.old_path, change.new_path
    known = owners.get((upstream, old), Owners()) if old is not None else Owners()
    everyone = {n for n in (*known.lines, *known.gaps) if n is not None}
    if new is None:
        owners.pop((upstream, old or b""), None)
        return everyone
    mine = Owners(list(known.lines), list(known.gaps))
    stands_on: set[int] = set()
    placed: list[Run] = []
    for at, hunk in enumerate(change.hunks):
        by = moved[at] if at < len(moved) else 0
        start = hunk.old_start - (hunk.old_count > 0) + by
        mine.pad(start + hunk.old_count)
        shown = mine.lines[start : start + hunk.old_count]
        gaps = mine.gaps[start : start + hunk.old_count + 1]
        stands_on |= {n for n in (*shown, *gaps) if n is not None}
        placed += [Run(r.start + by, r.end + by, r.new) for r in runs((hunk,))]
    if change.binary is not None or change.kind in ("rename", "copy"):
        stands_on |= everyone
    mine.apply(placed, number)
    if old is not None and change.kind == "rename":
        owners.pop((upstream, old), None)
    owners[upstream, new] = mine
    return stands_on


# Smoke tests


def with_evidence(project: Project, graph: Graph) -> bool:
    """Add what runs on record show; False where the smoke tests were never collected."""
    from patchwright.evidence import EvidenceStore
    from patchwright.smoke.evidenced import Evidenced
    from patchwright.tiers import TIERS
    from patchwright.verify import Planner, Request

    tests = Evidenced(project, EvidenceStore(project.state_dir / "evidence"))
    names = [name for patch in project.series.patches for name in patch.smoke]
    files = [project.root / name for name in names]
    known = tests.recall([path for path in files if path.is_file()], imported=True)
    if not files or not all(path in known for path in files):
        return False
    for question in Planner(project, tests).plan(Request((), Selection(), TIERS, ("without",))):
        left_out = question.number
        for number, run in question.runs:
            result = tests.recorded(run)
            if result is not None and result.outcome == "failed":
                graph.add(number, left_out, "evidence")
        for number, run in question.controls:
            result = tests.recorded(run)
            if number == left_out or result is None:
                continue
            if result.outcome == "failed":
                graph.add(number, left_out, "evidence")
            elif result.outcome == "passed" and (number, left_out) in graph.edges:
                graph.unneeded.add((number, left_out))
    # A test of one tier that falls shows the need, whatever those of others do.
    graph.unneeded -= {edge for edge, kinds in graph.edges.items() if "evidence" in kinds}
    return True


def save(project: Project, graph: Graph) -> None:
    """Keep what the smoke tests showed, for ``status``: working it out takes a while."""
    from patchwright.editing.changing import digest
    from patchwright.files import write_atomically

    shown = {
        "series": digest(graph.series),
        "evidence": sorted(edge for edge, kinds in graph.edges.items() if "evidence" in kinds),
        "unneeded": sorted(graph.unneeded),
    }
    with suppress(OSError):  # it is only a convenience
        write_atomically(project.state_dir / "graph.json", json.dumps(shown).encode())


def recall(project: Project, graph: Graph) -> None:
    """Add what ``save`` kept, if it is about this series."""
    from patchwright.editing.changing import digest

    with suppress(OSError, ValueError, KeyError, TypeError):
        shown = json.loads((project.root / ".patchwright" / "graph.json").read_bytes())
        if shown["series"] == digest(graph.series):
            for number, on in shown["evidence"]:
                graph.add(number, on, "evidence")
            graph.unneeded |= {(number, on) for number, on in shown["unneeded"]}


# Pictures


def dot(graph: Graph) -> str:
    """Return the graph for Graphviz: solid is declared, dashed by lines, dotted by evidence."""
    lines = ["digraph series {", "  rankdir=BT;", "  node [shape=box, fontname=sans];"]
    for patch in graph.series.patches:
        label = f"{patch.number:04d} {patch.title}".replace("\\", "\\\\").replace('"', '\\"')
        gone = ", style=dashed" if patch.number in graph.series.off else ""
        lines.append(f'  "{patch.number:04d}" [label="{label}"{gone}];')
    for (number, on), kinds in sorted(graph.edges.items()):
        style = "solid" if "declared" in kinds else "dashed" if "lines" in kinds else "dotted"
        colour = "" if on in graph.series.closure(number) else ", color=red"
        label = ", ".join(sorted(kinds))
        lines.append(f'  "{number:04d}" -> "{on:04d}" [style={style}{colour}, label="{label}"];')
    return "\n".join([*lines, "}"])


def picture(graph: Graph) -> list[tuple[str, Patch]]:
    """Return a row per patch: lines that lead from each patch to those that stand on it."""
    rows = [patch.number for patch in graph.series.patches]
    place = {number: at for at, number in enumerate(rows)}
    ends: dict[int, set[int]] = {}
    for number, on in graph.edges:
        if number in place and on in place:
            ends.setdefault(place[on], set()).add(place[number])
    lanes: list[list[tuple[int, set[int]]]] = []
    for start, users in sorted(ends.items(), key=lambda item: -item[0]):
        for lane in lanes:
            if all(max(users) < other for other, _ in lane):
                lane.append((start, users))
                break
        else:
            lanes.append([(start, users)])
    drawn = []
    for at, patch in enumerate(graph.series.patches):
        cells = ""
        across = False
        for lane in reversed(lanes):
            here = next(((s, u) for s, u in lane if min(s, *u) <= at <= max(s, *u)), None)
            cell = "─" if across else " "
            if here is not None:
                start, users = here
                if at == start or at in users:
                    low, high = min(start, *users), max(start, *users)
                    corners = "┬┴┼" if across else "╭╰├"
                    cell = corners[0 if at == low else 1 if at == high else 2]
                    across = True
                else:
                    cell = "┼" if across else "│"
            cells += cell + ("─" if across else " ")
        tip = "▸" if any(at in users for users in ends.values()) else "─" if across else " "
        drawn.append((f"{cells}{tip} " if lanes else "", patch))
    return drawn
