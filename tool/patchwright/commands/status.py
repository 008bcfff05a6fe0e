"""patchwright status: the series, how each patch applies, and what is verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from patchwright.commands import (
    Invocation,
    SelectingCommand,
    console,
    json_option,
    not_applied,
    print_json,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from patchwright.series import Selection
    from patchwright.status import Known, Row, Status


@click.command(cls=SelectingCommand, short_help="Print the series and what is verified.")
@json_option
@click.pass_obj
def command(invocation: Invocation, selection: Selection, as_json: bool) -> int:
    """Print the series: how each patch applies, the tree after it, what is on record.

    Evidence is stale when something that decides its outcome changed since. Runs
    nothing. Exits with 1 when a patch does not apply.
    """
    from patchwright.project import Project
    from patchwright.status import status

    project = Project.open(invocation.directory)
    project.progress = lambda text: click.echo(text, err=True)
    found = status(project, selection)
    if as_json:
        print_json({
            "stale": list(found.stale),
            "base": dict(found.base),
            "patches": [_json(row) for row in found.rows],
            "off": [row.number for row in found.off],
            "warnings": list(found.warnings),
        })  # fmt: skip
    else:
        _print(found)
    refused = [row.number for row in found.rows if not row.applies]
    if refused:
        raise not_applied(refused, len(found.rows))
    return 0


def _json(row: Row) -> dict[str, Any]:
    return {
        "number": row.number,
        "file": row.file,
        "upstream": row.upstream,
        "title": row.title,
        "apply": row.apply,
        "reason": row.reason,
        "tree": row.tree,
        "evidence": {
            tier: {context: {"verdict": known.verdict, "why": known.why, "from": known.source}
                   for context, known in contexts.items()}
            for tier, contexts in row.evidence.items()
        },
    }  # fmt: skip


def _print(found: Status) -> None:
    from rich import box
    from rich.table import Table

    from patchwright.quoting import printable

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("patch", no_wrap=True)
    table.add_column("", overflow="ellipsis", no_wrap=True, max_width=52)
    for heading in ("apply", "tree", "evidence"):
        table.add_column(heading)
    lines: list[tuple[int, str, str, str, str]] = [
        (row.number, f"{row.upstream}: {printable(row.title)}",
         row.apply, row.tree[:12], _evidence(row.evidence))
        for row in (*found.rows, *found.off)
    ]  # fmt: skip
    for number, *rest in sorted(lines):
        table.add_row(f"{number:04d}", *rest)
    # Only the table goes through rich, which would fold long lines.
    if lines:
        console().print(table)
    else:
        click.echo("no patches")
    for row in found.rows:
        if row.reason:
            click.echo(f"{row.number:04d}: {row.reason}")
    for line in found.stale:
        click.echo(f"stale: {line}")
    for warning in found.warnings:
        click.echo(f"warning: {warning}")


def _evidence(evidence: Mapping[str, Mapping[str, Known]]) -> str:
    lines = []
    for tier, contexts in evidence.items():
        words = {c: _word(known) for c, known in contexts.items()}
        if len(set(words.values())) == 1:
            lines.append(f"{tier} {next(iter(words.values()))}")
        else:
            lines += [f"{tier} {context} {word}" for context, word in words.items()]
    return "\n".join(lines)


def _word(known: Known) -> str:
    # A pass that has a reason is one on a device that the patch is not for.
    told = known.why if known.verdict in ("stale", "passed") else ""
    word = f"{known.verdict} ({told})" if told else known.verdict
    return f"{word} on {known.source} (imported)" if known.source else word
