"""``patchwright graph``: which patch stands on which."""

from __future__ import annotations

import click

from patchwright.commands import Invocation, json_option, print_json
from patchwright.commands._changed import open_project


@click.command(short_help="Show which patch stands on which.")
@click.option("--dot", "as_dot", is_flag=True, help="Print it for Graphviz.")
@json_option
@click.pass_obj
def command(invocation: Invocation, as_dot: bool, as_json: bool) -> int:
    """Show which patch stands on which: declared, by lines, and by smoke tests.

    By lines: its diff shows or changes lines that the other one wrote. By smoke tests:
    the other one's absence fails its test (`verify --context without`, as far as that is
    on record). Where this differs from what is declared, `status` warns.
    """
    from patchwright import graph as graphs
    from patchwright.applying.chain import Chain
    from patchwright.quoting import printable

    project = open_project(invocation)
    series = project.series
    _, verdicts = Chain(project).apply(series.patches)
    graph = graphs.by_files(series, series.patches, verdicts)
    known = graphs.with_evidence(project, graph)
    graphs.save(project, graph)
    warnings = graph.warnings()
    if as_dot:
        click.echo(graphs.dot(graph))
    elif as_json:
        print_json({
            "edges": [
                {"patch": number, "on": on, "by": sorted(kinds)}
                for (number, on), kinds in sorted(graph.edges.items())
            ],
            "warnings": warnings, "evidence": known, "off": sorted(series.off),
        })  # fmt: skip
    else:
        for lines, patch in graphs.picture(graph):
            off = " (off)" if patch.number in series.off else ""
            click.echo(printable(f"{lines}{patch.number:04d}{off} {patch.title}"))
        for warning in warnings:
            click.echo(f"warning: {warning}")
    return 0
