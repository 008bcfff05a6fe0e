"""``patchwright export``: the series as a quilt folder, a mailbox, a branch, patch files."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchwright.commands import (
    Invocation,
    SelectingCommand,
    json_option,
    print_json,
    progress,
)
from patchwright.errors import InputError

if TYPE_CHECKING:
    from patchwright.exporting.chosen import Chosen
    from patchwright.exporting.folder import File
    from patchwright.project import Project
    from patchwright.series import Selection


@click.command(cls=SelectingCommand, short_help="Write the series for others: quilt, mbox, git.")
@click.option("--format", "-f", "format_", required=True,
              type=click.Choice(["quilt", "mbox", "git-branch", "dir"]))  # fmt: skip
@click.argument("dest", required=False, type=click.Path(path_type=Path))
@click.option("--upstream", metavar="NAME", help="Patches of this upstream.")
@click.option("--branch", metavar="NAME", help="The branch to make.  [patchwright/UPSTREAM]")
@click.option("--anew", is_flag=True, help="Write every patch anew, not as it was imported.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation, format_: str, dest: Path | None, upstream: str | None,
    branch: str | None, anew: bool, as_json: bool, selection: Selection,
) -> int:  # fmt: skip
    """Write the selected patches of one upstream for others, without our fields.

    What was imported and not changed since goes out byte for byte. DEST is a folder
    (quilt, dir), a file (mbox; standard output without it) or a git repository, and must
    hold nothing that would be overwritten.
    """
    from patchwright.exporting import folder
    from patchwright.exporting.chosen import choose
    from patchwright.project import Project

    if dest is None and (format_ != "mbox" or as_json):
        raise click.UsageError(f"--format {format_} needs DEST")
    if branch is not None and format_ != "git-branch":
        raise click.UsageError("--branch goes with --format git-branch")
    project = Project.open(invocation.directory)
    with progress("applying the series") as project.progress:
        chosen = choose(project, selection, upstream, anew=anew)
    if format_ == "git-branch":
        assert dest is not None
        return _branch(project, chosen, dest, upstream, branch, as_json)
    if not chosen:
        raise InputError("no patch is selected", next_step="see `patchwright status`")
    files = {"quilt": folder.quilt, "mbox": folder.mails, "dir": folder.patch_files}[format_](
        project.store, chosen
    )
    if format_ != "mbox":
        assert dest is not None
        _write_folder(dest, files)
    elif dest is None:
        _warn(chosen)
        sys.stdout.flush()
        sys.stdout.buffer.write(folder.joined(files))
        return 0
    else:
        _warn(chosen)
        _write_file(dest, folder.joined(files))
    _say(format_, dest, chosen, files, as_json)
    return 0


def _warn(chosen: Sequence[Chosen]) -> None:
    """Say which mails `git am --keep-cr` does not read as they came."""
    numbers = [
        f"{one.patch.number:04d}" for one in chosen
        if one.original is not None
        and (not one.original.faithful or one.original.entry.strip not in (None, 1))
    ]  # fmt: skip
    if numbers:
        click.echo(
            f"{', '.join(numbers)}: as it came, `git am --keep-cr` does not take it (CRLF, "
            "or names without a/ and b/); --anew writes it so that it does",
            err=True,
        )


def _say(
    format_: str, dest: Path, chosen: Sequence[Chosen], files: Sequence[File], as_json: bool
) -> None:
    if as_json:
        print_json({
            "format": format_, "dest": str(dest), "upstream": chosen[-1].base.upstream,
            "tree": chosen[-1].tree,
            "files": [
                {"name": f.name, "number": f.number, "original": f.original} for f in files
            ],
        })  # fmt: skip
        return
    same = sum(f.original for f in files if f.number is not None)
    click.echo(
        f"{len(chosen)} patch{'' if len(chosen) == 1 else 'es'} to {dest}, {same} byte for byte "
        "as imported"
    )


def _branch(
    project: Project, chosen: Sequence[Chosen], dest: Path, upstream: str | None,
    branch: str | None, as_json: bool,
) -> int:  # fmt: skip
    from patchwright.exporting.branch import make_commits, new_repository, put, repository_at

    names = [upstream] if upstream else sorted({c.base.upstream for c in chosen})
    name = names[0] if names else next(iter(project.config.upstreams))
    branch = branch or f"patchwright/{name}"
    git = repository_at(dest)
    commits = make_commits(project, chosen, name, git)
    if git is None:
        new_repository(project, commits, dest, branch)
    else:
        put(project, commits, dest, branch, git)
    if as_json:
        print_json({
            "format": "git-branch", "dest": str(dest), "upstream": name, "branch": branch,
            "base": commits[0], "commits": commits[1:],
            "tree": chosen[-1].tree if chosen else project.pristine(name).tree,
        })  # fmt: skip
    else:
        click.echo(f"{len(chosen)} commits on {branch} in {dest}: {commits[-1]}")
    return 0


def _write_folder(dest: Path, files: Sequence[File]) -> None:
    """Make the folder with all files in it, or nothing."""
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise InputError(
            "something stands here already", where=str(dest), next_step="name another folder"
        )
    dest.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{dest.name}.", dir=dest.parent))
    try:
        for file in files:
            path = new / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
        new.chmod(0o755)
        if dest.is_dir():
            dest.rmdir()
        new.rename(dest)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _write_file(dest: Path, data: bytes) -> None:
    from patchwright.files import write_atomically

    if dest.exists():
        raise InputError(
            "something stands here already", where=str(dest), next_step="name another file"
        )
    write_atomically(dest, data)
