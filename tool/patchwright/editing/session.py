"""The work tree in which a person changes a patch, or resolves a conflict.

It stands in ``.patchwright/edit``: ``tree`` are the files of one upstream in repository
paths, a git work tree whose last commit is what it was opened with; ``session.json``
says which patch that is and, while a conflict waits, the whole plan that it interrupts.
Nothing of the series is changed until the plan is through.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from patchwright.editing.carrying import Item, Resolution
from patchwright.editing.plans import Plan
from patchwright.errors import AnswerNo, InputError, PatchwrightError
from patchwright.files import write_atomically
from patchwright.patch import Patch
from patchwright.store import EXECUTABLE, FILE, SYMLINK, ObjectStore, object_id

if TYPE_CHECKING:
    from patchwright.project import Project

FOLDER = "edit"
Stages = Mapping[bytes, Mapping[int, tuple[bytes, str]]]
_FORMAT = 1
# What tools leave beside the files that they work on.
_JUNK = re.compile(
    rb"(.*/)?(__pycache__/.*|[^/]*\.(pyc|orig|rej)|[^/]*~|\.[^/]*\.sw[a-z]|\.#[^/]*)"
)
_MARKERS = re.compile(rb"^(<{7}|>{7}) ", re.MULTILINE)


@dataclass(frozen=True)
class Waiting:
    """A conflict that waits for a person, with the plan that it interrupted.

    ``series`` is a digest of the series that the plan was made for, ``origin`` the patch
    whose change does not go on ``base`` by itself; ``stages`` are the files in conflict
    with what git's index says of each (see ``Conflict``).
    ``resolved`` is what was answered before. ``then`` is the patch whose work tree is open
    again when the plan is through, by its number in the new series.
    """

    plan: Plan
    series: str
    origin: int
    base: str
    stages: Stages
    resolved: Mapping[int, Resolution] = field(default_factory=dict)
    then: int | None = None

    @property
    def of_bump(self) -> bool:
        """Whether a move of pins waits: its plan is not this one, `bump` knows it."""
        return self.plan.command.startswith("bump ")


@dataclass(frozen=True)
class Session:
    """What the work tree is open for.

    ``base`` is the tree before the patch, ``opened`` the one that was written into the
    folder. ``sha256`` is the patch file's; None for a patch that is not written yet,
    whose text (without a diff) is then ``draft``, and ``smoke`` its test's file and
    skeleton. ``writing``: the folder is being written, or its writer was killed.
    """

    kind: Literal["edit", "new", "conflict"]
    number: int
    upstream: str
    base: str
    opened: str
    sha256: str | None = None
    draft: Patch | None = None
    smoke: tuple[str, str] | None = None
    waiting: Waiting | None = None
    writing: bool = False


class Bench:
    """The folder ``.patchwright/edit`` of one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.path = project.root / ".patchwright" / FOLDER
        self.tree = self.path / "tree"
        self._file = self.path / "session.json"

    # The record

    def session(self) -> Session | None:
        """Return what the work tree is open for; None where it is not."""
        try:
            record = json.loads(self._file.read_bytes())
            session = _session(record, self.project.root / "patches")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PatchwrightError(
                f"what the work tree is open for cannot be read: {error}", where=str(self._file),
                next_step=f"take what you need from {self.tree} and remove that file",
            ) from error  # fmt: skip
        if session.writing:
            # Killed in the middle: what stands there is of no one's making.
            session = replace(session, writing=False)
            self.open(session)
        return session

    def save(self, session: Session) -> None:
        """Write down what the work tree is open for. Raises PatchwrightError."""
        self._write(self._file, json.dumps(_record(session)).encode("ascii"))

    def close(self) -> None:
        """Remove the work tree and all that is known of it."""
        self._file.unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def put_aside(self, session: Session, tree: str) -> Path:
        """Keep what the work tree has beyond what it was opened with, as a diff; say where."""
        from patchwright.editing.rewriting import diff_between

        folder = self.project.state_dir / "discarded"
        taken = [int(p.stem) for p in folder.glob("*.diff") if p.stem.isdigit()]
        path = folder / f"{max(taken, default=0) + 1:04d}.diff"
        self._write(path, diff_between(self.project.store, session.opened, tree))
        return path

    def _write(self, path: Path, data: bytes) -> None:
        try:
            write_atomically(path, data)
        except OSError as error:
            raise PatchwrightError(
                f"the project's state cannot be written: {error.strerror}", where=str(path),
                next_step="make room there, or make it writable",
            ) from error  # fmt: skip

    # The files

    def open(self, session: Session) -> None:
        """Write ``session.opened`` into the work tree and say what it is open for.

        A work tree that is open already is changed where it differs; what it holds
        beyond that must be looked after before.
        """
        from patchwright.materialise import update, write_tree_at_once

        store = self.project.store
        store.flush()
        folder = self.project.state_dir / FOLDER
        assert folder == self.path
        self.save(replace(session, writing=True))
        if self.tree.is_dir() and not self.tree.is_symlink():
            update(store, self.scan(session).tree, session.opened, self.tree)
        else:
            write_tree_at_once(store, session.opened, self.tree)
        _make_git(self.tree, store, session)
        self.save(session)

    def scan(self, session: Session) -> Scan:
        """Return the tree of what stands in the folder; new blobs go to the store.

        Raises PatchwrightError where the folder is gone, InputError for what no patch
        can carry.
        """
        store = self.project.store
        if not self.tree.is_dir() or self.tree.is_symlink():
            raise PatchwrightError(
                "the work tree is gone", where=str(self.tree),
                next_step="leave it with `patchwright edit --close --discard` and open it anew",
            )  # fmt: skip
        known = {path: (e.mode, e.oid) for path, e in store.files(session.opened)}
        files: dict[bytes, tuple[bytes, str]] = {}
        junk = []
        for path, entry in _walk(os.fsencode(self.tree)):
            if path not in known and _JUNK.fullmatch(path):
                junk.append(path)
                continue
            mode, data = _content(path, entry)
            oid = object_id("blob", data)
            if known.get(path) != (mode, oid):
                store.add("blob", data)
            files[path] = (mode, oid)
        gone = known.keys() - files.keys()
        edits: dict[bytes, tuple[bytes, str] | None] = dict.fromkeys(gone)
        edits |= {path: now for path, now in files.items() if known.get(path) != now}
        tree = store.edit_tree(session.opened, edits)
        store.flush()
        return Scan(tree, tuple(sorted(edits)), tuple(sorted(junk)))

    def unresolved(self, session: Session) -> list[bytes]:
        """Return the files of a conflict that still have its markers."""
        assert session.waiting is not None
        left = []
        for path in session.waiting.stages:
            place = os.path.join(os.fsencode(self.tree), path)  # noqa: PTH118 - bytes
            if os.path.isfile(place) and not os.path.islink(place):  # noqa: PTH113, PTH114
                with open(place, "rb") as stream:  # noqa: PTH123
                    if _MARKERS.search(stream.read()):
                        left.append(path)
        return left


@dataclass(frozen=True)
class Scan:
    """The tree in the folder, the paths that differ from what was opened, and left-overs."""

    tree: str
    changed: tuple[bytes, ...]
    junk: tuple[bytes, ...]


def refuse_while_waiting(project: Project) -> None:
    """Raise AnswerNo while a conflict waits: its plan was made for the series as it is."""
    session = Bench(project).session()
    if session is not None and session.waiting is not None:
        bump = session.waiting.of_bump
        raise AnswerNo(
            f"`{session.waiting.plan.command}` waits for a conflict in "
            f"{session.waiting.origin:04d} to be resolved",
            where=str(Bench(project).tree),
            next_step=f"resolve it and run `patchwright {'bump' if bump else 'refresh'} "
            f"--continue`, {'' if bump else 'or leave that patch out with --skip, '}or give it up "
            "with --abort",
        )


def _walk(root: bytes) -> Iterator[tuple[bytes, os.DirEntry[bytes]]]:
    todo = [(root, b"")]
    while todo:
        place, prefix = todo.pop()
        with os.scandir(place) as entries:
            for entry in entries:
                path = prefix + entry.name
                if entry.name == b".git":
                    if prefix:
                        raise InputError(
                            "there is a git repository in the work tree",
                            where=os.fsdecode(path),
                            next_step="move it out: no patch can carry it",
                        )
                elif entry.is_dir(follow_symlinks=False):
                    todo.append((entry.path, path + b"/"))
                else:
                    yield path, entry


def _content(path: bytes, entry: os.DirEntry[bytes]) -> tuple[bytes, bytes]:
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        return SYMLINK, os.readlink(entry.path)  # noqa: PTH115 - the target is bytes
    if not stat.S_ISREG(status.st_mode):
        raise InputError(
            "this is neither a file nor a link", where=os.fsdecode(path),
            next_step="remove it: no patch can carry it",
        )  # fmt: skip
    with open(entry.path, "rb") as stream:  # noqa: PTH123 - the path is bytes
        return EXECUTABLE if status.st_mode & stat.S_IXUSR else FILE, stream.read()


def _make_git(tree: Path, store: ObjectStore, session: Session) -> None:
    """Let the folder be a git work tree: one commit for the base, one for the patch."""
    from patchwright.git import Git, make_bare

    conflict = session.waiting.stages if session.waiting is not None else {}
    folder = tree / ".git"
    if not folder.is_dir():
        make_bare(folder)
        config = folder / "config"
        config.write_text(config.read_text().replace("bare = true", "bare = false"))
        (folder / "objects/info/alternates").write_bytes(
            os.fsencode(store.path / "objects") + b"\n"
        )
    git = Git(folder)
    where = {"GIT_WORK_TREE": str(tree)}
    base = git.run("commit-tree", session.base, "-m", f"the series before {session.number:04d}")
    head = base.stdout.decode().strip()
    if session.opened != session.base and not conflict:
        patch = git.run("commit-tree", session.opened, "-p", head, "-m", f"{session.number:04d}")
        head = patch.stdout.decode().strip()
    git.run("update-ref", "refs/heads/main", head)
    (folder / "index").unlink(missing_ok=True)
    git.run("read-tree", session.opened, env=where, cwd=tree)
    lines = b"".join(
        b"0 %s\t%s\0" % (b"0" * 40, path)
        + b"".join(b"%s %s %d\t%s\0" % (mode, oid.encode(), stage, path)
                   for stage, (mode, oid) in sorted(stages.items()))
        for path, stages in conflict.items()
    )  # fmt: skip
    if lines:
        git.run("update-index", "-z", "--index-info", data=lines, env=where, cwd=tree)
    git.run("update-index", "-q", "--refresh", env=where, cwd=tree, ok=(0, 1))


# session.json


def _record(session: Session) -> dict[str, Any]:
    waiting = session.waiting
    return {
        "format": _FORMAT, "kind": session.kind, "number": session.number,
        "upstream": session.upstream, "base": session.base, "opened": session.opened,
        "sha256": session.sha256, "draft": _patch_record(session.draft), "smoke": session.smoke,
        "writing": session.writing,
        "waiting": None if waiting is None else {
            "plan": {
                "command": waiting.plan.command,
                "items": [
                    {"patch": _patch_record(item.patch), "origins": item.origins}
                    for item in waiting.plan.items
                ],
                "renames": dict(waiting.plan.renames), "off": waiting.plan.off,
                "writes": {p: d.decode("latin-1") for p, d in waiting.plan.writes.items()},
            },
            "series": waiting.series, "origin": waiting.origin, "base": waiting.base,
            "stages": {
                path.decode("latin-1"): {n: [m.decode(), oid] for n, (m, oid) in stages.items()}
                for path, stages in waiting.stages.items()
            },
            "resolved": {
                str(n): [r.base, r.diff.decode("latin-1")] for n, r in waiting.resolved.items()
            },
            "then": waiting.then,
        },
    }  # fmt: skip


def _patch_record(patch: Patch | None) -> list[str] | None:
    return None if patch is None else [patch.path.name, patch.raw.decode("latin-1")]


def _session(record: Mapping[str, Any], patches: Path) -> Session:
    if record["format"] != _FORMAT:
        raise ValueError(f"format {record['format']} is not known")

    def patch(told: list[str] | None) -> Patch | None:
        return None if told is None else Patch.parse(told[1].encode("latin-1"), patches / told[0])

    session = Session(
        record["kind"], record["number"], record["upstream"], record["base"], record["opened"],
        record["sha256"], patch(record["draft"]),
        tuple(record["smoke"]) if record["smoke"] else None, writing=record["writing"],
    )  # fmt: skip
    told = record["waiting"]
    if told is None:
        return session
    items = []
    for item in told["plan"]["items"]:
        parsed = patch(item["patch"])
        assert parsed is not None
        items.append(Item(parsed, tuple(item["origins"])))
    plan = Plan(
        told["plan"]["command"], tuple(items), tuple(told["plan"]["off"]), told["plan"]["renames"],
        {p: d.encode("latin-1") for p, d in told["plan"]["writes"].items()},
    )  # fmt: skip
    resolved = {
        int(n): Resolution(base, diff.encode("latin-1"))
        for n, (base, diff) in told["resolved"].items()
    }
    waiting = Waiting(
        plan, told["series"], told["origin"], told["base"],
        {
            path.encode("latin-1"): {int(n): (m.encode(), oid) for n, (m, oid) in stages.items()}
            for path, stages in told["stages"].items()
        }, resolved,
        told["then"],
    )  # fmt: skip
    return replace(session, waiting=waiting)
