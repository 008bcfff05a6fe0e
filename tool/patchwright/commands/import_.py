"""``patchwright import``: bring in a quilt series, mails, commits or single diffs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patchwright.commands import Invocation, json_option, print_json, progress
from patchwright.errors import AnswerNo, InputError

if TYPE_CHECKING:
    from patchwright.importing.plan import Plan, Row
    from patchwright.importing.sources import Wishes
    from patchwright.project import Project


@click.command(short_help="Bring in quilt series, mails, commits, single diffs.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...",
                type=click.Path(path_type=Path))  # fmt: skip
@click.option("--range", "range_", metavar="A..B", help="Which commits of a git repository.")
@click.option("--upstream", metavar="NAME", help="What the patches change; else it is found out.")
@click.option("--strip", "-p", type=click.IntRange(0, 99), metavar="N",
              help="Leading folders of names in loose diffs; else it is found out.")  # fmt: skip
@click.option("--no-trailers", is_flag=True, help="Collect no Reviewed-by and the like.")
@click.option("--partial", is_flag=True, help="Take a thread of which mails are missing.")
@click.option("--dry-run", "-n", is_flag=True, help="Report; write nothing.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation, paths: tuple[Path, ...], range_: str | None, upstream: str | None,
    strip: int | None, no_trailers: bool, partial: bool, dry_run: bool, as_json: bool,
) -> int:  # fmt: skip
    """Put what people bring on top of the series: all of it, or nothing.

    PATH is a quilt series or the folder of one, a mailbox, a folder of patch files, a
    git repository (with --range), a patches.yml of west, or a diff. What was imported
    stays beside the patches, byte for byte, for `patchwright export`.
    """
    from patchwright.importing.sources import Wishes
    from patchwright.project import Project

    project = Project.open(invocation.directory)
    wishes = Wishes(range_, strip, upstream, not no_trailers, partial)
    with progress("reading the patches") as project.progress:
        plan = _run(project, paths, wishes, dry_run)
    while _is_question(plan) and sys.stdin.isatty() and not as_json:
        row = plan.refused[0]
        click.echo(f"{row.item.name}: {row.refused}")
        if row.asked == "strip":
            wishes = replace(wishes, strip=click.prompt("--strip", type=click.IntRange(0, 99)))
        else:
            names = click.Choice(sorted(project.config.upstreams))
            wishes = replace(wishes, upstream=click.prompt("--upstream", type=names))
        plan = _run(project, paths, wishes, dry_run)
    good = not plan.refused and not plan.trouble
    if as_json:
        print_json(_json(plan, written=good and not dry_run))
    else:
        _print(plan)
    if not good:
        raise _refusal(plan)
    if not as_json:
        count = len(plan.rows)
        what = "would be imported" if dry_run else "imported; unproven until they name a smoke test"
        click.echo(f"{count} patch{'' if count == 1 else 'es'} {what}")
    return 0


def _run(project: Project, paths: tuple[Path, ...], wishes: Wishes, dry_run: bool) -> Plan:
    from patchwright.editing.transaction import begin
    from patchwright.importing.plan import make_plan
    from patchwright.importing.sources import read_paths

    bundles = read_paths(paths, wishes)
    with begin(project, f"import {' '.join(str(path) for path in paths)}") as change:
        plan = make_plan(project, change.series(), bundles, wishes)
        if not dry_run and not plan.refused and not plan.trouble:
            for path, data in plan.files.items():
                change.write(path, data)
            change.relock()
            change.commit()
    return plan


def _is_question(plan: Plan) -> bool:
    return not plan.trouble and bool(plan.refused) and all(row.asked for row in plan.refused)


def _refusal(plan: Plan) -> AnswerNo | InputError:
    what = "nothing was imported"
    if _is_question(plan):
        first = plan.refused[0]
        return InputError(
            f"{what}: {first.refused}", where=first.item.name,
            next_step="run it again with that option",
        )  # fmt: skip
    if plan.trouble:
        return AnswerNo(f"{what}: {plan.trouble[0]}", next_step="repair it, and run it again")
    first = plan.refused[0]
    more = f" ({len(plan.refused) - 1} more above)" if len(plan.refused) > 1 else ""
    return AnswerNo(
        f"{what}: {first.refused}{more}", where=first.item.name,
        next_step="repair the patch, or leave it out, and run it again",
    )  # fmt: skip


def _print(plan: Plan) -> None:
    from patchwright.quoting import printable

    for line in plan.notes:
        click.echo(printable(line))
    for line in plan.trouble:
        click.echo(printable(f"refused: {line}"))
    for row in plan.rows:
        if row.patch is not None:
            click.echo(printable(f"{row.item.name} -> {row.patch.path.name}"))
        else:
            click.echo(printable(f"{row.item.name} refused: {row.refused}"))
        for note in row.notes:
            click.echo(printable(f"    {note}"))


def _json(plan: Plan, *, written: bool) -> dict[str, Any]:
    return {
        "imported": written,
        "patches": [_row(row) for row in plan.rows],
        "notes": plan.notes,
        "trouble": plan.trouble,
    }


def _row(row: Row) -> dict[str, Any]:
    patch = row.patch
    return {
        "name": row.item.name,
        "number": patch.number if patch else None,
        "file": patch.path.name if patch else None,
        "upstream": patch.upstream if patch else None,
        "title": patch.title if patch else None,
        "tree": row.tree or None,
        "refused": row.refused or None,
        "notes": list(row.notes),
    }
