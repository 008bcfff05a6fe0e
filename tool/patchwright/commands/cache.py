"""patchwright cache: what the tool keeps in the user's cache, and pruning it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from patchwright.commands import Invocation, console, json_option, print_json

if TYPE_CHECKING:
    from pathlib import Path

_DAYS = 30.0


@click.group(short_help="List and prune what the tool keeps in your cache.")
def command() -> None:
    """List and prune the cache, which all projects of a user share.

    Nothing in it is precious: what is removed is made again when it is needed.
    """


@command.command("list")
@json_option
@click.pass_obj
def list_(invocation: Invocation, as_json: bool) -> int:
    """Print what the cache holds: how much, and when it was last used."""
    from patchwright.caches import holdings

    cache = _cache(invocation)
    found = holdings(cache)
    if as_json:
        print_json({
            "cache": str(cache),
            "size": sum(each.size for each in found),
            "holdings": [
                {"kind": each.kind, "path": str(each.path), "count": each.count,
                 "size": each.size, "used": _time(each.used)}
                for each in found
            ],
        })  # fmt: skip
        return 0
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("what")
    for heading in ("count", "size"):
        table.add_column(heading, justify="right")
    table.add_column("last used")
    table.add_column("path", overflow="fold")
    for each in found:
        table.add_row(
            each.kind, str(each.count), _size(each.size), _time(each.used), str(each.path)
        )
    if found:
        console().print(table)
    click.echo(f"{cache}: {_size(sum(each.size for each in found))}")
    return 0


@command.command("prune")
@click.option("--older-than", "days", type=click.FloatRange(min=0), default=None, metavar="DAYS",
              help="What was not used for so many days.  [default: 30]")  # fmt: skip
@click.option("--all", "everything", is_flag=True,
              help="All that no running process uses, whatever its age.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Remove nothing; say what would go.")
@json_option
@click.pass_obj
def prune(
    invocation: Invocation, days: float | None, everything: bool, dry_run: bool, as_json: bool
) -> int:
    """Remove old compiled objects and work trees, and what killed runs left behind.

    What a running process uses is kept and named. Downloads, pristine trees and git
    mirrors go only with --all.
    """
    from patchwright import caches

    if everything and days is not None:
        raise click.UsageError("--all goes by no age: drop it, or --older-than")
    done = caches.prune(
        _cache(invocation), older_than=_DAYS if days is None else days,
        everything=everything, dry_run=dry_run,
    )  # fmt: skip
    if as_json:
        print_json({
            "dry_run": dry_run,
            "size": done.size,
            "removed": [{"kind": r.kind, "path": str(r.path), "count": r.count, "size": r.size}
                        for r in done.removed],
            "kept": [{"kind": k.kind, "path": str(k.path), "why": k.why} for k in done.kept],
        })  # fmt: skip
        return 0
    verb = "would remove" if dry_run else "removed"
    for removed in done.removed:
        click.echo(
            f"{verb} {removed.kind} ({removed.count}): {_size(removed.size)} in {removed.path}"
        )
    for kept in done.kept:
        click.echo(f"kept {kept.kind}: {kept.path}: {kept.why}")
    click.echo(f"{verb} {_size(done.size)}")
    return 0


def _cache(invocation: Invocation) -> Path:
    from patchwright.project import Project

    # The cache is the user's: no project is needed, nor read.
    return Project(invocation.directory).cache_dir


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f} {unit}" if unit != "B" else f"{count} B"


def _time(used: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(used, UTC).isoformat(timespec="seconds") if used else ""
