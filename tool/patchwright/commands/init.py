"""``patchwright init``: start a project for any upstream."""

from __future__ import annotations

from pathlib import Path

import click

from patchwright.commands import Invocation, json_option, print_json, progress


@click.command(short_help="Start a project for any upstream.")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--git", metavar="URL", help="Patch a git repository (an address or a folder).")
@click.option("--revision", metavar="REV", help="Its tag, branch or commit.")
@click.option("--wheel", metavar="NAME==VERSION", help="Patch a wheel (or a wheel file).")
@click.option("--sdist", metavar="NAME==VERSION", help="Patch an sdist (or its file).")
@click.option("--directory", metavar="DIR", help="Patch the files in DIR; a copy is kept.")
@click.option("--name", metavar="NAME", help="What to call the upstream; else it is found out.")
@click.option("--version", metavar="VERSION", help="Its version, where nothing says it.")
@click.option("--arch", metavar="ARCH", multiple=True, help="What the series is for: sm_120.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation, folder: Path | None, git: str | None, revision: str | None,
    wheel: str | None, sdist: str | None, directory: str | None, name: str | None,
    version: str | None, arch: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """Make a project in FOLDER (here): pyproject.toml, patches/, tests/smoke/, upstream.lock.

    A pyproject.toml that is there gets a section [tool.patchwright]; nothing else of it
    changes. Where something fails, nothing is left behind.
    """
    from patchwright.initialising import Wanted, initialise

    given = {"git": git, "wheel": wheel, "sdist": sdist, "directory": directory}
    named = [(kind, what) for kind, what in given.items() if what is not None]
    if len(named) != 1:
        raise click.UsageError("name one upstream: --git, --wheel, --sdist or --directory")
    kind, what = named[0]
    if revision is not None and kind != "git":
        raise click.UsageError("--revision goes with --git")
    if version is not None and kind in ("wheel", "sdist"):
        raise click.UsageError(f"the version of a {kind} stands in NAME==VERSION")
    wanted = Wanted(kind, what, revision, name, version, arch)  # type: ignore[arg-type]
    with progress("reading the upstream") as told:
        made = initialise(folder or invocation.directory, wanted, told)
    if as_json:
        print_json({
            "root": str(made.root), "upstream": made.upstream, "version": made.version,
            "tree": made.tree, "layout": dict(made.layout),
        })  # fmt: skip
        return 0
    click.echo(f"{made.root}: {made.upstream} {made.version}, pristine tree {made.tree}")
    click.echo("Next: patchwright import PATH, or patchwright new")
    return 0
