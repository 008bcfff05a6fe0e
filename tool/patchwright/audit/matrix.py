"""The matrix of JIT modules by architecture, at the pin and with the series."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchwright.audit.census import Cell, Generator, generators, run_census
from patchwright.audit.knowledge import load
from patchwright.audit.sites import site_of
from patchwright.smoke.outcomes import SmokeError

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.project import Project

ARCHS = ("8.0", "8.9", "9.0a", "10.0a", "10.3a", "11.0a", "12.0a", "12.1a")
LETTERS = {"builds": "+", "refused": "-", "other": "o", "drops": "d", "cannot-tell": "?"}
LEGEND = {
    "+": "is built for it", "-": "refuses it", "o": "is compiled for another architecture",
    "d": "silently drops a part of the list", "?": "cannot tell",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One module: what its generator answers for each list, before and after the series."""

    generator: Generator
    before: tuple[Cell, ...]
    after: tuple[Cell, ...]

    @property
    def changed(self) -> bool:
        """Whether the series makes a difference."""
        return [c.word for c in self.before] != [c.word for c in self.after]


def matrix(
    project: Project, base: State, state: State, archs: Sequence[str],
    say: Callable[[str], None] = lambda _: None,
) -> list[Row]:  # fmt: skip
    """Return the rows of every upstream that has generators."""
    knowledge = load(project.root)
    tables: list[dict[str, tuple[Generator, list[Cell]]]] = []
    for one in dict.fromkeys((base, state)):
        with site_of(project, one) as trees:
            table: dict[str, tuple[Generator, list[Cell]]] = {}
            for upstream in trees.upstreams:
                wanted = generators(trees, upstream, knowledge)
                for arch in archs if wanted else ():
                    say(f"asking {len(wanted)} generators for {arch}")
                    for generator, cell in zip(
                        wanted, run_census(trees, upstream, wanted, arch), strict=True
                    ):
                        table.setdefault(generator.entry, (generator, []))[1].append(cell)
            tables.append(table)
    first, last = tables[0], tables[-1]
    return [
        Row(generator, tuple(first[entry][1]) if entry in first else (), tuple(cells))
        for entry, (generator, cells) in last.items()
    ]


def as_html(rows: Sequence[Row], archs: Sequence[str], title: str) -> str:
    """Return the matrix as one page that needs nothing else."""
    heads = "".join(f"<th>{html.escape(a)}</th>" for a in archs)
    lines = []
    for row in rows:
        cells = []
        for at, cell in enumerate(row.after):
            was = row.before[at].word if at < len(row.before) else ""
            new = " new" if was != cell.word else ""
            note = html.escape(cell.why or cell.word)
            cells.append(f'<td class="{cell.word}{new}" title="{note}">{LETTERS[cell.word]}</td>')
        name, path = html.escape(row.generator.name), html.escape(row.generator.path)
        lines.append(f'<tr><th class="m" title="{path}">{name}</th>{"".join(cells)}</tr>')
    legend = ", ".join(f"<b>{k}</b> {html.escape(v)}" for k, v in LEGEND.items())
    return _PAGE.format(title=html.escape(title), heads=heads, rows="\n".join(lines), legend=legend)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px sans-serif; margin: 2em; }} table {{ border-collapse: collapse; }}
th, td {{ border: 1px solid #ccc; padding: .2em .6em; text-align: center; }}
th.m {{ text-align: left; font-weight: normal; font-family: monospace; }}
.builds {{ background: #d6f0d6; }} .refused {{ background: #f6d5d5; }}
.other, .drops {{ background: #f8e7c4; }} .cannot-tell {{ color: #888; }}
.new {{ outline: 2px solid #06c; font-weight: bold; }}
</style></head><body><h1>{title}</h1>
<p>{legend}. Outlined: changed by the series.</p>
<table><tr><th>module</th>{heads}</tr>
{rows}
</table></body></html>
"""

__all__ = ["ARCHS", "LEGEND", "LETTERS", "Row", "SmokeError", "as_html", "matrix"]
