"""Commits of a git repository, one patch each; StGit's stacks are branches too."""

from __future__ import annotations

from pathlib import Path

from patchwright.errors import InputError
from patchwright.git import Git, validated_revision
from patchwright.importing.items import Bundle, Item

# What the repository's own configuration could change in a patch is set here.
_FORMAT = (
    "-c", "format.signOff=false", "-c", "format.headers=",
    "format-patch", "-1", "-O/dev/null", "--stdout", "--full-index", "--binary", "--find-renames",
    "--no-signature", "--subject-prefix=PATCH", "--src-prefix=a/", "--dst-prefix=b/",
    "--no-ext-diff", "--no-textconv", "--no-color", "--no-notes", "--no-to", "--no-cc",
    "--no-attach", "--no-thread", "--no-cover-letter", "--no-numbered", "--unified=3",
)  # fmt: skip


def find_repository(path: Path) -> Path | None:
    """Return the git directory of a repository at ``path`` itself, or None."""
    if not path.is_dir():
        return None
    bare = (path / "HEAD").is_file() and (path / "objects").is_dir()
    if not bare and not (path / ".git").exists():
        return None
    done = Git().run("rev-parse", "--absolute-git-dir", cwd=path, ok=range(256))
    if done.returncode:
        raise InputError(
            f"git cannot read this repository: {done.stderr.decode('utf-8', 'replace').strip()}",
            where=str(path), next_step="repair it, or import a mailbox made with git format-patch",
        )  # fmt: skip
    return Path(done.stdout.decode("utf-8", "surrogateescape").removesuffix("\n"))


def read_range(git_dir: Path, shown: Path, wanted: str | None) -> Bundle:
    """Return the commits of ``A..B``, the oldest first. Raises InputError."""
    if wanted is None or ".." not in wanted:
        raise InputError(
            "which commits of this repository are to be imported?", where=str(shown),
            next_step="name a range: --range v1.0..topic (StGit: --range "
            '"$(stg id {base})..HEAD")',
        )  # fmt: skip
    if "..." in wanted:
        raise InputError(
            f"{wanted} is a symmetric difference, not a range", next_step="write it with two dots"
        )
    git = Git(git_dir)
    listed = git.run(
        "rev-list", "--reverse", "--topo-order", "--parents", "--end-of-options",
        validated_revision(wanted), "--", ok=range(256),
    )  # fmt: skip
    if listed.returncode:
        raise InputError(
            f"git does not know {wanted}: "
            + listed.stderr.decode("utf-8", "replace").strip().partition("\n")[0],
            where=str(shown), next_step="correct --range",
        )  # fmt: skip
    items = []
    for line in listed.stdout.decode("ascii").splitlines():
        commit, *parents = line.split()
        raw = git.run("cat-file", "commit", commit).stdout
        if len(parents) > 1:
            trouble = "this is a merge; rebase it away, or import the ranges on its sides"
            items.append(Item(commit, raw, "commit", b"", trouble=trouble))
            continue
        text = git.run(*_FORMAT, commit).stdout
        trouble = "" if text else "the commit changes nothing"
        items.append(Item(commit, raw, "commit", text, strip=1, trouble=trouble))
    nothing = () if items else (f"{wanted} holds no commit",)
    return Bundle(shown.resolve().name.removesuffix(".git"), "git", tuple(items), {}, (), nothing)
