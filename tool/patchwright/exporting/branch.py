"""The series as commits: one for the pristine tree, one for each patch."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.errors import InputError
from patchwright.exporting.chosen import Chosen
from patchwright.git import Git
from patchwright.importing.commits import find_repository

if TYPE_CHECKING:
    from patchwright.project import Project

_NOBODY = b"patchwright <patchwright@localhost>"
# A patch without a date: its commit must not depend on when it is exported.
_NO_DATE = b"0 +0000"


def make_commits(
    project: Project, chosen: Sequence[Chosen], upstream: str, git: Git | None
) -> list[str]:
    """Put the commits into the store and return their ids, the base first.

    The base is the pin's own commit where ``git``, the repository that they go to, has
    it with the pristine tree; else a commit without parents that holds this tree. A
    commit that was imported and stands on its own parent again gets its own id again.
    """
    store = project.store
    locked = project.locked_upstream(upstream)
    tree = chosen[0].base.tree if chosen else project.pristine(upstream).tree
    base = locked.commit if git is not None and _has(git, locked.commit, tree) else None
    if base is None:
        title = f"{upstream} {project.upstream(upstream).version}, unpatched\n"
        who = _NOBODY + b" " + _NO_DATE
        base = store.add("commit", _commit([b"tree " + tree.encode()], who, title.encode()))
    commits = [base]
    for one in chosen:
        commits.append(store.add("commit", _of_patch(one, commits[-1])))
    store.flush()
    return commits


def _has(git: Git, commit: str | None, tree: str) -> bool:
    if commit is None:
        return False
    found = git.run("rev-parse", "--verify", "--quiet", f"{commit}^{{tree}}", ok=range(256))
    return found.returncode == 0 and found.stdout.decode().strip() == tree


def _commit(place: list[bytes], who: bytes, text: bytes) -> bytes:
    return b"\n".join([*place, b"author " + who, b"committer " + who, b"", text])


def _of_patch(one: Chosen, parent: str) -> bytes:
    place = [b"tree " + one.tree.encode(), b"parent " + parent.encode()]
    if one.original is not None and one.original.entry.kind == "commit":
        headers, _, text = one.original.raw.partition(b"\n\n")
        lines = headers.split(b"\n")
        kept = [ln for ln in lines if not ln.startswith((b"tree ", b"parent "))]
        if lines[: len(place)] != place:
            kept = _unsigned(kept)  # a signature holds for the whole commit
        return b"\n".join([*place, *kept]) + b"\n\n" + text
    patch = one.patch
    who = _identity(patch.author) + b" " + _date(patch.date)
    text = f"{patch.title}\n".encode("utf-8", "surrogateescape")
    if patch.message_text:
        text += f"\n{patch.message_text}\n".encode("utf-8", "surrogateescape")
    return _commit(place, who, text)


def _unsigned(lines: list[bytes]) -> list[bytes]:
    kept: list[bytes] = []
    dropping = False
    for line in lines:
        if not line.startswith(b" "):
            dropping = line.startswith((b"gpgsig", b"mergetag"))
        if not dropping:
            kept.append(line)
    return kept


def _identity(author: str) -> bytes:
    name, _, address = author.rpartition("<")
    name, address = (
        "".join(c for c in text if c not in "<>\n\0").strip().strip('"')
        for text in (name, address.partition(">")[0])
    )
    return f"{name or 'unknown author'} <{address}>".encode("utf-8", "surrogateescape")


def _date(text: str) -> bytes:
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return _NO_DATE
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    seconds = int(when.timestamp())
    return b"%d %s" % (seconds, when.strftime("%z").encode()) if seconds > 0 else _NO_DATE


def put(project: Project, commits: Sequence[str], target: Path, branch: str, git: Git) -> None:
    """Give the commits to a repository, and then the branch its name: all or nothing.

    Raises InputError for a branch that is there already, and a name that git refuses.
    """
    ref = f"refs/heads/{branch}"
    if git.run("check-ref-format", ref, ok=(0, 1)).returncode:
        raise InputError(f"{branch!r} is not a name for a branch", next_step="correct --branch")
    if git.run("rev-parse", "--verify", "--quiet", ref, ok=(0, 1, 128)).returncode == 0:
        raise InputError(
            f"the branch {branch} is there already", where=str(target),
            next_step="name another one with --branch, or delete it first",
        )  # fmt: skip
    had = git.run("cat-file", "-e", commits[0], ok=range(256)).returncode == 0
    wanted = f"{commits[-1]}\n" + (f"^{commits[0]}\n" if had else "")
    assert git.git_dir is not None
    # The pin's commit may be in the repository and not in the store, which has its tree.
    env = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(git.git_dir / "objects")}
    packed = project.store.git.run(
        "pack-objects", "--revs", "--stdout", "--thin", "-q", data=wanted.encode(), env=env
    )
    git.run("index-pack", "--stdin", "--fix-thin", data=packed.stdout)
    git.run("update-ref", "-m", "patchwright export", ref, commits[-1], "0" * 40)


def new_repository(project: Project, commits: Sequence[str], target: Path, branch: str) -> None:
    """Make a repository at ``target``, where nothing is, with the branch checked out."""
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        git = Git(folder / ".git")
        Git().run("init", "--quiet", str(folder), cwd=folder)
        put(project, commits, target, branch, git)
        git.run("symbolic-ref", "HEAD", f"refs/heads/{branch}")
        git.run("reset", "--quiet", "--hard", cwd=folder, env={"GIT_WORK_TREE": str(folder)})
        folder.chmod(0o755)
        if target.is_dir():
            target.rmdir()
        folder.rename(target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def repository_at(target: Path) -> Git | None:
    """Return the repository at ``target``, None where nothing stands there yet.

    Raises InputError where something else stands there.
    """
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return None
    found = find_repository(target)
    if found is None:
        raise InputError(
            "this is not a git repository", where=str(target),
            next_step="name a repository, or a folder that is not there yet",
        )  # fmt: skip
    return Git(found)
