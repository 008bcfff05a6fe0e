"""The branch that upstream gets: commits on main in the cache's mirror, pushed to a fork."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.errors import AnswerNo, InputError, PatchwrightError
from patchwright.git import Git
from patchwright.upstreaming.secrecy import redacted

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.upstreaming.mainline import Mainline

_KEPT = "refs/sent"  # keeps commits in the mirror


@dataclass(frozen=True)
class Draft:
    """A commit to be made: the tree after it, its message, its author.

    ``author`` and ``committer`` are (name, address); ``date`` is the patch's own.
    """

    tree: str
    message: str
    author: tuple[str, str]
    committer: tuple[str, str]
    date: str


def name_for(title: str) -> str:
    """Return a branch's name for a title: ``fix-jit-build-trtllm-comm``."""
    from patchwright.editing.rewriting import slug

    return slug(title, "-")


def checked_name(name: str) -> str:
    """Return a name that git takes for a branch; InputError for another."""
    done = Git().run("check-ref-format", "--branch", name, ok=(0, 1, 128))
    if done.returncode or name.startswith("-"):
        raise InputError(f"{name!r} is not a branch's name", next_step="give another --branch")
    return name


def commit(project: Project, main: Mainline, drafts: Sequence[Draft]) -> tuple[str, ...]:
    """Make one commit per draft on main, in the mirror, and return their ids.

    Their dates are the patches': the same patch on the same main is the same commit, so
    that a send that was interrupted finds its own branch again.
    """
    from patchwright.upstreams.revision import mirror

    pack = project.store.git.run(
        "pack-objects", "--quiet", "--revs", "--stdout",
        data="".join(f"{draft.tree}\n" for draft in drafts).encode() + f"^{main.tree}\n".encode(),
    )  # fmt: skip
    made: list[str] = []
    with mirror(project.cache_dir, main.remote) as git:
        git.run("index-pack", "--stdin", data=pack.stdout)
        for draft in drafts:
            environment = identity(draft.author, draft.committer, draft.date)
            done = git.run(
                "commit-tree", draft.tree, "-p", made[-1] if made else main.commit, "-F", "-",
                data=draft.message.encode("utf-8", "surrogateescape"), env=environment,
            )  # fmt: skip
            made.append(done.stdout.decode().strip())
        git.run("update-ref", f"{_KEPT}/{made[-1]}", made[-1])
    return tuple(made)


def identity(author: tuple[str, str], committer: tuple[str, str], date: str = "") -> dict[str, str]:
    """Return git's environment for an author and a committer."""
    environment = {
        "GIT_AUTHOR_NAME": author[0], "GIT_AUTHOR_EMAIL": author[1],
        "GIT_COMMITTER_NAME": committer[0], "GIT_COMMITTER_EMAIL": committer[1],
    }  # fmt: skip
    if date:
        environment |= {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    return environment


def users_settings() -> dict[str, str]:
    """Return what lets git see the user's own configuration: a push needs their logins."""
    home = Path.home()
    named = os.environ.get("GIT_CONFIG_GLOBAL")
    xdg = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git" / "config"
    plain = home / ".gitconfig"
    path = named or str(plain if plain.exists() or not xdg.exists() else xdg)
    return {"GIT_CONFIG_GLOBAL": path}


def push(
    project: Project, main: Mainline, tip: str, branch: str, fork: str, previous: str | None
) -> bool:
    """Push ``tip`` as ``branch`` of the fork; False where it stands there already.

    ``previous`` is what an earlier version left there: only that is ever replaced. Raises
    AnswerNo where the branch holds something else, and for a fork that shares no history
    with upstream; PatchwrightError where it cannot be reached or refuses.
    """
    from patchwright.upstreams.revision import at_remote, mirror, without_login

    shown = without_login(fork)
    with mirror(project.cache_dir, main.remote) as git:
        listed = at_remote(git, fork, "ls-remote", "--quiet", "--", fork, env=users_settings())
        lines = listed.decode("utf-8", "replace").splitlines()
        refs = {name: oid for oid, _, name in (line.partition("\t") for line in lines)}
        there = refs.get(f"refs/heads/{branch}")
        if there == tip:
            return False
        if not refs:
            raise AnswerNo(
                "the fork is empty: upstream can take nothing from it", where=shown,
                next_step="fork upstream on its server, and name that address with --fork",
            )  # fmt: skip
        if there not in (None, previous):
            raise AnswerNo(
                f"branch {branch} is there already, at {there}, which was not sent from here",
                where=shown, next_step="give another name with --branch",
            )  # fmt: skip
        if main.commit not in refs.values():
            _join(project, git, main, fork, refs)
        at_remote(
            git, fork, "push", "--quiet", "--no-verify", "--no-follow-tags",
            "--recurse-submodules=no", f"--force-with-lease=refs/heads/{branch}:{there or ''}",
            "--", fork, f"{tip}:refs/heads/{branch}", env=users_settings(),
        )  # fmt: skip
    return True


def _join(project: Project, git: Git, main: Mainline, fork: str, refs: dict[str, str]) -> None:
    """Get the history that leads from what the fork has to main.

    A server takes no commit whose parents it lacks and that a shallow clone cannot give.
    """
    from patchwright.upstreams.revision import at_remote, without_login

    shown = without_login(fork)
    assert git.git_dir is not None
    if (git.git_dir / "shallow").exists():
        project.progress(f"the fork lacks {main.name}: fetching upstream's history")
        at_remote(
            git, main.remote, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head",
            "--unshallow", "--", main.remote,
            f"+refs/heads/{main.branch}:refs/all/heads/{main.branch}",
        )  # fmt: skip
    if (git.git_dir / "shallow").exists():
        raise PatchwrightError(
            f"the fork lacks {main.name}, and the clone that it came from is shallow",
            where=main.address,
            next_step="run `git fetch --unshallow` there, or bring the fork's "
            f"{main.branch} up to date first",
        )  # fmt: skip
    known = ("HEAD", f"refs/heads/{main.branch}")
    tips = [refs[name] for name in known if name in refs] or list(refs.values())[:1]
    for tip in dict.fromkeys(tips):
        at_remote(git, fork, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", fork,
                  tip, env=users_settings())  # fmt: skip
        if git.run("merge-base", tip, main.commit, ok=(0, 1)).returncode == 0:
            return
    raise AnswerNo(
        f"the fork shares no history with {main.address}, so upstream can take nothing from it",
        where=shown, next_step="fork upstream on its server, and name that address with --fork",
    )  # fmt: skip


def bring(project: Project, main: Mainline, tip: str, fork: str) -> bool:
    """Return whether an earlier version's commit is here, fetched from the fork if need be."""
    from patchwright.upstreams.revision import at_remote, mirror

    with mirror(project.cache_dir, main.remote) as git:

        def has() -> bool:
            return not git.run("cat-file", "-e", f"{tip}^{{tree}}", ok=(0, 1, 128)).returncode

        if not has() and fork:
            try:
                at_remote(git, fork, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head",
                          "--depth=50", "--", fork, tip, env=users_settings())  # fmt: skip
            except PatchwrightError:
                return False
        return has()


def range_diff(project: Project, main: Mainline, old: tuple[str, str], new: str) -> str:
    """Return ``git range-diff`` of an earlier version, (base, tip), and the new one on main."""
    done = Git(main.git_dir).run(
        "range-diff", "--no-color", "--creation-factor=90", f"{old[0]}..{old[1]}",
        f"{main.commit}..{new}", ok=(0, 128),
    )  # fmt: skip
    return redacted(done.stdout.decode("utf-8", "replace"))
