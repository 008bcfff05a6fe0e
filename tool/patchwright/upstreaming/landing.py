"""Which patches an upstream's current branch contains, and what became of what was sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from patchwright.patch import CorruptPatch, Patch
from patchwright.quoting import display
from patchwright.series import Series
from patchwright.upstreaming.history import Commit, History, open_history
from patchwright.upstreaming.moves import Move, Mover
from patchwright.upstreaming.pins import moved_project
from patchwright.upstreaming.profiles import profile_of
from patchwright.upstreaming.pulls import Pull, ask, pull_of

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.upstreaming.trial import Without


@dataclass(frozen=True)
class Landed:
    """What is known of one patch upstream.

    ``commit`` is the upstream commit that has it, where one was found by its patch id;
    ``merged`` the one whose title names its pull request: what was merged may differ;
    ``without`` how its smoke test ends on upstream's branch without it; ``status`` the
    Upstream-Status that follows, empty where it stays.
    """

    move: Move
    head: Commit
    commit: Commit | None = None
    merged: Commit | None = None
    without: Without | None = None
    pull: Pull | None = None
    status: str = ""

    @property
    def landed(self) -> bool:
        """Whether upstream contains all of it."""
        return self.move.verdict == "upstream" or self.commit is not None


def landed(
    project: Project, names: Iterable[str], *, fetch: bool, static: bool
) -> tuple[Landed, ...]:
    """Return what is known of every patch for the upstreams ``names``.

    Raises AnswerNo where a history was never fetched, PatchwrightError where it cannot be.
    """
    found: list[Landed] = []
    for name in names:
        if any(patch.upstream == name for patch in project.series.patches):
            with open_history(project, name, fetch=fetch) as history:
                found += _upstream(project, history, static=static)
    return tuple(sorted(found, key=lambda each: each.move.number))


def _upstream(project: Project, history: History, *, static: bool) -> list[Landed]:
    name = history.config.name
    branch = profile_of(history.config).branch
    oid = history.needed(branch)
    title = history.git.run("log", "-1", "--format=%s", oid).stdout.decode("utf-8", "replace")
    head = Commit(oid, title.strip())
    tree = history.tree(oid)
    project.progress(f"the series on {name} {branch}, {head}")
    mover = Mover(project, {name: tree}, {name: project.upstream(name).version})
    moves = mover.moves()
    without = _without(project, history, oid, tree, mover, moves) if static else {}
    found = []
    for move in moves:
        pull = ask(pull_of(move.patch)) if pull_of(move.patch) else None
        one = Landed(move, head, _by_patch_id(history, move, head), _by_pull(history, move, head),
                     without.get(move.number), pull)  # fmt: skip
        found.append(replace(one, status=_status(one)))
    return found


def _without(
    project: Project, history: History, oid: str, tree: str, mover: Mover, moves: Sequence[Move]
) -> Mapping[int, Without]:
    from patchwright.upstreaming.bump import standing
    from patchwright.upstreaming.trial import without_each

    name = history.config.name
    kept, _ = standing(mover.series(moves), moves, project.series)
    at = moved_project(project, {}, Series(kept))
    for other in project.config.upstreams:
        at.use(project.locked_upstream(other))
    locked, pristine = project.locked_upstream(name), project.pristine(name)
    # The branch is nobody's pin: its commit keeps it apart from all of them.
    at.use(replace(locked, commit=oid, revision=oid), replace(pristine, tree=tree))
    return without_each(at, moves)


def _by_pull(history: History, move: Move, head: Commit) -> Commit | None:
    """Return the commit of the branch that says it is the pull request a patch names.

    Servers that squash a pull request end the title with its number: ``… (#3903)``.
    """
    number = pull_of(move.patch).rpartition("/")[2]
    start = history.commit(history.config.revision or f"v{history.config.version}")
    if not number or start is None:
        return None
    done = history.git.run("log", "--fixed-strings", f"--grep=(#{number})", "--format=%H%x09%s",
                           f"{start}..{head.oid}")  # fmt: skip
    lines = (line.split("\t", 1) for line in done.stdout.decode("utf-8", "replace").splitlines())
    return next((Commit(*pair) for pair in lines if pair[1].endswith(f"(#{number})")), None)


def _by_patch_id(history: History, move: Move, head: Commit) -> Commit | None:
    """Return the commit whose diff of the patch's files is the patch's, as git compares them."""
    own = _patch_id(history, move.patch)
    start = history.commit(history.config.revision or f"v{history.config.version}")
    if not own or start is None:
        return None
    paths = [display(change.path) for change in move.patch.changes]
    log = history.git.run("log", "-p", "--no-color", "--no-ext-diff", "--no-textconv", "-M",
                          "--full-index", "--format=commit %H%n%n    %s%n",
                          f"{start}..{head.oid}", "--", *paths)  # fmt: skip
    ids = history.git.run("patch-id", "--stable", data=log.stdout).stdout.decode("ascii")
    pairs = (line.split() for line in ids.splitlines())
    oid = next((commit for found, commit in pairs if found == own), None)
    if oid is None:
        return None
    title = history.git.run("log", "-1", "--format=%s", oid).stdout.decode("utf-8", "replace")
    return Commit(oid, title.strip())


def _patch_id(history: History, patch: Patch) -> str:
    try:
        diff = b"".join(change.text for change in patch.changes)
    except CorruptPatch:
        return ""
    made = history.git.run("patch-id", "--stable", data=diff).stdout.split()
    return made[0].decode("ascii") if made else ""


def _status(one: Landed) -> str:
    """Return the Upstream-Status that follows; empty where nothing follows."""
    now = one.move.patch.upstream_status or ""
    pull = one.pull
    if one.landed:
        where = one.commit.oid if one.commit is not None else ""
        if pull is not None and (pull.state == "merged" or one.merged is not None):
            where = pull.address
        wanted = f"Backport [{where or one.head.oid}]"
    elif pull is not None and pull.state == "closed":
        wanted = f"Denied [{pull.address}]"
    else:
        return ""
    # Which commit of the branch was looked at says less than what stands there already.
    return "" if now.startswith(wanted.partition(" ")[0]) else wanted


def write_status(project: Project, found: Iterable[Landed]) -> tuple[Patch, ...]:
    """Write what follows into the patches' Upstream-Status, as one change; return them."""
    from patchwright.editing.transaction import begin
    from patchwright.lock import patch_file

    wanted = {one.move.number: one.status for one in found if one.status}
    written = []
    with begin(project, "landed --write") as change:
        for patch in project.series.patches:
            if patch.number in wanted:
                new = patch.with_fields({"Upstream-Status": [wanted[patch.number]]})
                change.write(patch_file(project.root, patch.path), new.raw)
                written.append(new)
        if written:
            change.relock()
            change.commit()
    return tuple(written)
