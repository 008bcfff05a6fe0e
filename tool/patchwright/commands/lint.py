"""``patchwright lint``: whether patch files are well-formed; needs no upstream."""

from __future__ import annotations

from pathlib import Path

import click

from patchwright.commands import Invocation, json_option, print_json


@click.command(short_help="Check that patch files are well-formed.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@json_option
@click.pass_obj
def command(invocation: Invocation, files: tuple[Path, ...], as_json: bool) -> int:
    """Read each patch file; say file and line where one is damaged. Default: all of them.

    Nothing is applied and no upstream is needed: a hook for commits can afford it.
    """
    from patchwright.errors import InputError
    from patchwright.patch import Patch
    from patchwright.project import PATCHES, Project
    from patchwright.series import patch_files

    project = Project.open(invocation.directory)
    found: list[tuple[str, str]] = []
    if files:
        chosen = [path.resolve() for path in files]
        known = {path.resolve(): raw for f in {p.parent for p in chosen}
                 for path, raw in patch_files(f)}  # fmt: skip
        for path in chosen:
            if path not in known:
                raise InputError(
                    "there is no such patch file", where=str(path),
                    next_step="name files that end in .patch",
                )  # fmt: skip
        read = [(path, known[path]) for path in chosen]
    else:
        read = patch_files(project.root / PATCHES)
    for path, raw in read:
        try:
            _ = Patch.parse(raw, path).changes
        except InputError as error:
            found.append((error.where, error.what))
    if not found:
        try:
            _ = project.series  # numbers and needs, which no file shows alone
        except InputError as error:
            found.append((error.where, error.what))
    if as_json:
        print_json({"files": len(read), "faults": [{"where": w, "what": t} for w, t in found]})
    else:
        for where, what in found:
            click.echo(f"{where}: {what}")
        if not found:
            click.echo(f"{len(read)} patch file{'s' * (len(read) != 1)} well-formed")
    return 1 if found else 0
