"""patchwright apply: how each patch applies; the patched trees as files, or installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patchwright.commands import (
    Invocation,
    SelectingCommand,
    console,
    json_option,
    not_applied,
    print_json,
    progress,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from patchwright.applying.chain import State
    from patchwright.applying.verdicts import ApplyVerdict
    from patchwright.environment.inplace import Applied
    from patchwright.environment.installed import Site
    from patchwright.patch import Patch
    from patchwright.project import Project
    from patchwright.series import Selection


@click.command(cls=SelectingCommand, short_help="Apply the series; write or install it.")
@click.option("--into", type=click.Path(path_type=Path), metavar="DIR",
              help="Write the patched trees into this new or empty folder.")  # fmt: skip
@click.option("--installed-layout", is_flag=True,
              help="With --into: all upstreams in one folder, as they are installed.")  # fmt: skip
@click.option("--env", "directory", type=click.Path(path_type=Path), metavar="DIR",
              help="Patch the pinned versions that are installed in this environment.")  # fmt: skip
@json_option
@click.pass_obj
def command(
    invocation: Invocation, selection: Selection, into: Path | None, installed_layout: bool,
    directory: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Apply the series and print what came of each patch.

    With --into, write the patched trees: one sub-folder per upstream with the paths of
    its repository. With --env, patch an environment in place; `patchwright unapply` gives
    its files back. All of it is written or, where a patch does not apply, nothing.
    """
    from patchwright.applying.chain import Chain
    from patchwright.environment import inplace
    from patchwright.environment.installed import find_site
    from patchwright.materialise import check_free
    from patchwright.project import Project
    from patchwright.series import Series

    _check_places(into, installed_layout, directory)
    project = Project.open(invocation.directory)
    if into is not None:
        check_free(into)
    site = find_site(directory) if directory is not None else None
    done: Applied | None = None
    patches = selection.pick(project.series)
    versions = {name: config.version for name, config in project.config.upstreams.items()}
    for problem in Series(patches).check_pins(versions):
        raise problem
    notes = [
        f"{patch.number:04d} needs {need.number:04d}"
        + (f" ({need.reason})" if need.reason else "")
        + ", which is left out"
        for patch, need in selection.unmet(project.series)
    ]
    with progress("applying the series") as say:
        project.progress = say
        state, verdicts = Chain(project).apply(patches)
        refused = [v for v in verdicts if not v.ok]
        if into is not None and not refused:
            _write(project, state, into, installed_layout)
        if site is not None and not refused:
            done = inplace.apply(project, site, patches, state, say)
    if as_json:
        value: dict[str, Any] = {
            "patches": [_json(p, v) for p, v in zip(patches, verdicts, strict=True)],
            "trees": dict(state.trees),
            "notes": notes,
        }
        if into is not None:
            value["into"] = None if refused else str(into)
        if site is not None:
            value["environment"] = _installed_json(site, done)
        print_json(value)
    else:
        _print(patches, verdicts, state, notes, None if refused else into)
        _print_installed(site, done)
    if refused:
        numbers = [v.patch_number for v in refused]
        if into is None and site is None:
            raise not_applied(numbers, len(verdicts))
        where = str(into or directory)
        raise not_applied(numbers, len(verdicts), ", so nothing was written", where)
    return 0


def _check_places(into: Path | None, installed_layout: bool, directory: Path | None) -> None:
    if installed_layout and into is None:
        raise click.UsageError("--installed-layout says how to write; add --into DIR")
    if directory is not None and into is not None:
        raise click.UsageError("--into and --env are two places; name one of them")


def _write(project: Project, state: State, into: Path, installed: bool) -> None:
    from patchwright.materialise import write_tree_at_once
    from patchwright.store import DIRECTORY, TreeEntry

    if installed:
        from patchwright.smoke.sites import site_tree

        tree = site_tree(project, state)
    else:
        entries = [TreeEntry(DIRECTORY, name.encode(), oid) for name, oid in state.trees]
        tree = project.store.add_tree(entries)
    write_tree_at_once(project.store, tree, into)


def _json(patch: Patch, verdict: ApplyVerdict) -> dict[str, Any]:
    return {
        "number": patch.number,
        "file": patch.path.name,
        "upstream": verdict.upstream,
        "verdict": verdict.verdict,
        "tree": verdict.tree,
        "files": [
            {"path": file.path, "verdict": file.verdict, "detail": file.detail}
            for file in verdict.files
        ],
        "reason": verdict.reason,
    }


def _installed_json(site: Site, done: Applied | None) -> dict[str, Any] | None:
    if done is None:
        return None
    return {
        "path": str(site.root),
        "versions": dict(done.versions),
        "not_installed": list(done.left_out),
        "files": [m.path.decode("utf-8", "backslashreplace") for m in done.moves],
    }


def _print_installed(site: Site | None, done: Applied | None) -> None:
    if site is None or done is None:
        return
    for name in done.left_out:
        click.echo(f"note: {name} is not installed here")
    for name, version in done.versions.items():
        click.echo(f"{name} {version}")
    count = len(done.moves)
    what = f"{count} file{'s' * (count != 1)} changed" if count else "nothing to change"
    click.echo(f"{site.root}: {what}")


def _print(
    patches: Sequence[Patch], verdicts: Sequence[ApplyVerdict], state: State,
    notes: Sequence[str], into: Path | None,
) -> None:  # fmt: skip
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from patchwright.quoting import printable

    out = console()
    if patches:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("patch", no_wrap=True)
        table.add_column("", overflow="ellipsis", no_wrap=True, max_width=60)
        table.add_column("apply", no_wrap=True)
        table.add_column("tree after it", no_wrap=True)
        for patch, verdict in zip(patches, verdicts, strict=True):
            colour = "green" if verdict.ok else "red"
            table.add_row(
                f"{patch.number:04d}", f"{verdict.upstream}: {printable(patch.title)}",
                Text(verdict.verdict, colour), verdict.tree or "not applied",
            )  # fmt: skip
        out.print(table)
    else:
        out.print("no patches")
    for verdict in verdicts:
        if verdict.reason:
            click.echo(f"{verdict.patch_number:04d} {verdict.verdict}: {verdict.reason}")
    for note in notes:
        click.echo(f"note: {note}")
    for name, tree in state.trees:
        click.echo(f"{name}: tree {tree}")
    if into is not None:
        click.echo(f"written to {into}")
