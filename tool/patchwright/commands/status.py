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
    from collections.abc import Mapping, Sequence

    from patchwright.overview import Known, PatchOverview
    from patchwright.patch import Patch
    from patchwright.project import Project
    from patchwright.series import Selection


@click.command(cls=SelectingCommand, short_help="Print the series and what is verified.")
@json_option
@click.pass_obj
def command(invocation: Invocation, selection: Selection, as_json: bool) -> int:
    """Print the series: how each patch applies, the tree after it, what is on record.

    Evidence is stale when something that decides its outcome changed since. Runs
    nothing. Exits with 1 when a patch does not apply.
    """
    from patchwright.overview import overview
    from patchwright.project import Project

    project = Project.open(invocation.directory)
    project.progress = lambda text: click.echo(text, err=True)
    rows = overview(project, selection)
    stale = [str(d) for d in project.stale()]
    warnings = _warnings(project, rows)
    off = [patch for patch in project.series.patches if patch.number in project.series.off]
    if as_json:
        print_json({
            "stale": stale,
            "base": _base(project),
            "patches": [_json(row) for row in rows],
            "off": [patch.number for patch in off],
            "warnings": warnings,
        })  # fmt: skip
    else:
        _print(rows, stale, off)
        for warning in warnings:
            click.echo(f"warning: {warning}")
    refused = [row.patch.number for row in rows if not row.apply.ok]
    if refused:
        raise not_applied(refused, len(rows))
    return 0


def _base(project: Project) -> dict[str, str]:
    from patchwright.applying.chain import Chain

    return dict(Chain(project).base().trees)


def _warnings(project: Project, rows: Sequence[PatchOverview]) -> list[str]:
    """Return where the needs that are declared differ from what is so."""
    from patchwright import graph as graphs

    graph = graphs.by_files(
        project.series, [row.patch for row in rows], [row.apply for row in rows]
    )
    graphs.recall(project, graph)
    return graph.warnings()


def _json(row: PatchOverview) -> dict[str, Any]:
    return {
        "number": row.patch.number,
        "file": row.patch.path.name,
        "upstream": row.apply.upstream,
        "title": row.patch.title,
        "apply": row.apply.verdict,
        "reason": row.apply.reason,
        "tree": row.tree,
        "evidence": {
            tier: {context: {"verdict": known.verdict, "why": known.why, "from": known.source}
                   for context, known in contexts.items()}
            for tier, contexts in row.evidence.items()
        },
    }  # fmt: skip


def _print(rows: Sequence[PatchOverview], stale: Sequence[str], off: Sequence[Patch]) -> None:
    from rich import box
    from rich.table import Table

    from patchwright.quoting import printable

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("patch", no_wrap=True)
    table.add_column("", overflow="ellipsis", no_wrap=True, max_width=52)
    for heading in ("apply", "tree", "evidence"):
        table.add_column(heading)
    taking_part = {row.patch.number for row in rows}
    lines: list[tuple[int, str, str, str, str]] = [
        (row.patch.number, f"{row.apply.upstream}: {printable(row.patch.title)}",
         row.apply.verdict, row.tree[:12], _evidence(row.evidence))
        for row in rows
    ]  # fmt: skip
    lines += [
        (patch.number, f"{patch.upstream}: {printable(patch.title)}", "off", "", "")
        for patch in off if patch.number not in taking_part
    ]  # fmt: skip
    for number, *rest in sorted(lines):
        table.add_row(f"{number:04d}", *rest)
    # Only the table goes through rich, which would fold long lines.
    if lines:
        console().print(table)
    else:
        click.echo("no patches")
    for row in rows:
        if row.apply.reason:
            click.echo(f"{row.patch.number:04d}: {row.apply.reason}")
    for line in stale:
        click.echo(f"stale: {line}")


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
