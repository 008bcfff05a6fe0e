"""Finds what a person changed in an environment, and which patch it belongs to.

Every run of changed lines goes to the patch that wrote those lines, if it is one. A run
on the lines of two patches or on none's goes into a new patch behind all others, with its
needs declared. Nothing is asked; where a line went is in the report. In the end the tree
of the series must be the environment's, by its id.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.capturing.owners import Owners, Run, owners_of, runs, tree_diff
from patchwright.capturing.reading import InstalledTree, read_installed
from patchwright.changes import FileChange
from patchwright.editing import plans
from patchwright.editing.carrying import Carried, Carrier, Item, Stopped
from patchwright.editing.changing import Changed, carry_out, unsaved
from patchwright.editing.merging import Conflict, changes, merge
from patchwright.editing.plans import Part, Plan
from patchwright.editing.rewriting import diff_between, file_name, new_patch
from patchwright.editing.session import Bench
from patchwright.editing.splitting import pieces_of, stages
from patchwright.editing.transaction import begin
from patchwright.environment.installed import site_packages, version_in
from patchwright.errors import AnswerNo, InputError, PatchwrightError
from patchwright.quoting import display

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.store import ObjectStore


Edits = dict[bytes, tuple[bytes, str] | None]


@dataclass(frozen=True)
class Told:
    """Where something went: into patch ``number`` (``new`` or its owner), and which files."""

    number: int
    new: bool
    files: tuple[str, ...]
    why: str = ""


@dataclass
class Capture:
    """What came of it. ``state`` is what each upstream was taken to be before the edits."""

    told: list[Told] = field(default_factory=list)
    state: dict[str, str] = field(default_factory=dict)
    outside: list[str] = field(default_factory=list)
    changed: Changed | None = None


@dataclass
class _Upstream:
    """One upstream in an environment: the state that it was in, and what was changed then.

    ``steps`` are the patches of that state with their trees; ``whole`` says that it is
    all of the series.
    """

    name: str
    state: str
    tree: str
    steps: list[tuple[int, str, str]]
    whole: bool
    owned: dict[int, str] = field(default_factory=dict)  # patch to the tree that it is to make
    files: dict[int, set[bytes]] = field(default_factory=dict)
    before: dict[int, str] = field(default_factory=dict)  # patch to its tree until now
    needs: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def capture(
    project: Project, environment: Path, author: str, date: str, *,
    upstreams: Sequence[str] = (), split_by: str = "none", title: str | None = None,
) -> Capture:  # fmt: skip
    """Turn the hand edits in ``environment`` into patches.

    ``author`` and ``date`` are for new ones. Raises InputError where an upstream is not
    installed there in its pinned version, AnswerNo where nothing differs, where an edit
    conflicts with a patch that the environment does not have, and while a work tree has
    changes.
    """
    site = site_packages(environment)
    done = Capture()
    with begin(project, f"capture {environment}") as change:
        session = Bench(project).session()
        if session is not None and (edited := Bench(project).scan(session).changed):
            raise unsaved(Bench(project), session, edited)
        carrier = Carrier(project, project.series)
        names = upstreams or [
            name for name, config in project.config.upstreams.items()
            if version_in(site, config.distribution or name) is not None
        ]  # fmt: skip
        if not names:
            raise InputError("no upstream is installed there", where=str(site),
                             next_step="name another environment with --env")  # fmt: skip
        found = []
        for name in names:
            found.append(_read(project, carrier, site, name, done))
        if all(each.tree == each.state for each in found):
            raise AnswerNo(
                "nothing in the installed packages was changed by hand", where=str(site),
                next_step=f"no patch can carry {', '.join(done.outside[:3])}" if done.outside
                else "name another environment with --env, if you meant one",
            )  # fmt: skip
        for each in found:
            _assign(project.store, carrier, each)
        plan = _plan(project, carrier, found, done, author, date, split_by, title)
        after = {n: tree for each in found for n, tree in each.owned.items()}
        done.changed = carry_out(project, change, plan, after=after)
        if session is not None:
            Bench(project).close()
    return done


def _read(project: Project, carrier: Carrier, site: Path, name: str, done: Capture) -> _Upstream:
    config = project.upstream(name)
    version = version_in(site, config.distribution or name)
    if version is None:
        raise InputError(
            f"{config.distribution or name} is not installed there", where=str(site),
            next_step="name another environment with --env",
        )  # fmt: skip
    # A patched distribution's version ends in the tree that it was made of.
    if re.sub(r"[.+]pw\.[0-9a-f]+$", "", version) != config.version.lstrip("v"):
        raise InputError(
            f"{config.distribution or name} {version} is installed, the pin is {config.version}",
            where=str(site), next_step="capture from an environment with the pinned version",
        )  # fmt: skip
    pristine = project.pristine(name)
    store = project.store
    steps = [
        (p.number, carrier.before[p.number], carrier.after[p.number])
        for p in project.series.patches
        if carrier.chain.upstream(p) == name and p.number in carrier.after
    ]
    states = [pristine.tree, *(after for _, _, after in steps)]
    installed = read_installed(store, site, config, pristine.tree, pristine.outside, states[-1:])
    done.outside += [display(path) for path in installed.outside]
    best = _closest(store, states, installed)
    number = steps[best - 1][0] if best else 0
    done.state[name] = "pristine" if not best else f"the series up to {number:04d}"
    return _Upstream(
        name, states[best], installed.tree, steps[:best], best == len(steps)
    )  # fmt: skip


def _closest(store: ObjectStore, states: Sequence[str], installed: InstalledTree) -> int:
    """Return the state from which the fewest files differ, then the fewest lines; the latest."""
    files = [tuple(changes(store, state, installed.tree)) for state in states]
    fewest = min(len(found) for found in files)
    sizes: dict[object, int] = {}  # states often differ in files that nobody edited
    best, least = 0, -1
    for at, found in enumerate(files):
        if len(found) == fewest:
            if found not in sizes:
                edits = tree_diff(store, states[at], installed.tree)
                found_runs = [run for edit in edits for run in runs(edit.hunks)]
                sizes[found] = sum(run.end - run.start + len(run.new) for run in found_runs)
            if least < 0 or sizes[found] <= least:
                best, least = at, sizes[found]
    return best


def _assign(store: ObjectStore, carrier: Carrier, found: _Upstream) -> None:
    """Give each run of changed lines to the patch that wrote them."""
    edits = tree_diff(store, found.state, found.tree)
    paths = {path for c in edits for path in (c.old_path, c.new_path) if path is not None}
    owners = owners_of(store, found.steps, paths)
    mine: dict[int, Edits] = {}
    for edit in edits:
        known = owners.get(edit.old_path or b"", Owners())
        if edit.kind == "modify" and edit.binary is None and edit.old_path is not None:
            for owner, chosen in _by_owner(edit, known, found).items():
                old = store.entry(found.state, edit.old_path)
                assert old is not None
                data = spliced(store.blob(old.oid), chosen)
                mine.setdefault(owner, {})[edit.old_path] = (old.mode, store.add("blob", data))
        elif (one := _whole_file(edit, known)) is not None:
            now = store.entry(found.tree, edit.path)
            mine.setdefault(one, {})[edit.path] = None if now is None else (now.mode, now.oid)
        else:
            found.needs |= {n for n in (*known.lines, *known.gaps) if n is not None}
    for number, changed in sorted(mine.items()):
        theirs = store.edit_tree(found.state, changed)
        own = merge(store, found.state, carrier.after[number], theirs, "the environment")
        if isinstance(own, Conflict) or own == carrier.before[number]:
            # A later patch changed what stands around it, or the edit takes the patch back.
            found.notes.append(f"an edit in the lines of {number:04d} cannot be put back into it")
            found.needs.add(number)
            continue
        found.owned[number] = own
        found.before[number] = carrier.after[number]
        found.files[number] = set(changed)


def _by_owner(edit: FileChange, owners: Owners, found: _Upstream) -> dict[int, list[Run]]:
    """Return the runs of changed lines that lie in one patch's lines, by that patch."""
    mine: dict[int, list[Run]] = {}
    for run in runs(edit.hunks):
        of = owners.of(run) if owners.lines else set()
        if len(of) == 1:
            mine.setdefault(next(iter(of)), []).append(run)
            continue
        if len(of) > 1:
            said = " and ".join(f"{n:04d}" for n in sorted(of))
            found.notes.append(
                f"{display(edit.path)}:{run.start + 1} changes lines of {said}: kept apart"
            )
        found.needs |= of or (owners.near(run) if owners.lines else set())
    return mine


def spliced(data: bytes, chosen: Sequence[Run]) -> bytes:
    """Return a file with these runs of its lines replaced."""
    lines = io.BytesIO(data).readlines()
    for run in reversed(chosen):
        lines[run.start : run.end] = run.new
    return b"".join(lines)


def _whole_file(edit: FileChange, owners: Owners) -> int | None:
    """Return the one patch that wrote all of a file, of which no line was upstream's."""
    wrote = set(owners.lines)
    if len(wrote) == 1 and edit.kind in ("delete", "modify") and edit.old_path == edit.path:
        return next(iter(wrote))
    return None


def _plan(
    project: Project, carrier: Carrier, found: Sequence[_Upstream], done: Capture,
    author: str, date: str, split_by: str, title: str | None,
) -> Plan:  # fmt: skip
    """Return the plan: the owners' new diffs, and new patches for the rest."""
    series, store = project.series, project.store
    for each in found:
        carrier.after.update(each.owned)
        carrier.changed.update(each.owned)
        for owner, paths in sorted(each.files.items()):
            done.told.append(Told(owner, False, _names(paths)))
    parts = plans.keep(series)
    carried = carrier.carry([Item(p.patch, p.origins) for p in parts])
    if isinstance(carried, Stopped):
        raise AnswerNo(
            f"an edit cannot be carried over {carried.origin:04d}, which changes the same lines",
            next_step="capture from an environment of the whole series, or edit that patch with "
            f"`patchwright edit {carried.origin}`",
        )
    numbers = [p.number for p in series.patches]
    for each in found:
        target = _target(store, each, carried)
        base = carried.state.tree(each.name)
        for old, new in _cut(store, base, target, split_by):
            number = max(numbers, default=0) + 1
            files = _names(c.path for c in tree_diff(store, old, new))
            short = ", ".join(f.rpartition("/")[2] for f in files[:3])
            said = title or f"{each.name}: local changes to {short}{' …' * (len(files) > 3)}"
            version = project.upstream(each.name).version
            fields = {"Upstream": [f"{each.name} {version}"]}
            if each.needs:
                fields["Depends"] = [", ".join(f"{n:04d} (same lines)" for n in sorted(each.needs))]
            patch = new_patch(
                project.root / "patches" / file_name(number, each.name, said), said, author, date,
                "Captured from an installed package, where it was edited by hand.",
                fields, diff_between(store, old, new),
            )  # fmt: skip
            parts.append(Part(patch, (), ()))
            numbers.append(number)
            done.told.append(Told(number, True, files, "; ".join(each.notes)))
    return plans.numbered("capture", series, parts, numbers)


def _target(store: ObjectStore, each: _Upstream, carried: Carried) -> str:
    if each.whole:
        return each.tree
    base = each.state
    for number in each.owned:
        # The owners have these already.
        made = merge(store, each.before[number], base, each.owned[number], "")
        base = made if isinstance(made, str) else base
    target = merge(store, base, carried.state.tree(each.name), each.tree, "the environment")
    if isinstance(target, Conflict):
        paths = ", ".join(display(path) for path in target.stages)
        raise AnswerNo(
            f"the edits in {paths} conflict with patches that the environment does not have",
            next_step="rebuild the environment with the whole series, edit there, and capture",
        )
    return target


def _cut(store: ObjectStore, base: str, target: str, split_by: str) -> list[tuple[str, str]]:
    if base == target:
        return []
    if split_by == "none":
        return [(base, target)]
    trees = stages(store, base, pieces_of(tree_diff(store, base, target), split_by))
    if trees[-1] != target:
        raise PatchwrightError(
            "the edits cannot be split that way", next_step="run it with --split-by none"
        )
    return list(zip((base, *trees), trees, strict=False))


def _names(paths: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(sorted(display(path) for path in paths))
