"""The gates of one file, out of its scans for all capabilities and of its tables."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from patchwright.audit.gates import CAPABILITIES, Gate
from patchwright.audit.scanner import Found
from patchwright.audit.tables import MANY, Table, decided, numbers, told
from patchwright.smoke.bindings import Module

Place = tuple[int, int, str]


def gates_of(
    module: Module, scans: Mapping[str, Mapping[Place, Found]], tables: Sequence[Table]
) -> list[Gate]:
    """Return a file's gates; ``scans`` are by capability, ``tables`` those that were left out."""
    inside = dict(_tables(scans))
    gates = [_table(module, table) for table in (*tables, *dict.fromkeys(inside.values()))]
    for key in sorted({key for found in scans.values() for key in found}.difference(inside)):
        by_capability = {c: found[key] for c, found in scans.items() if key in found}
        kinds = [f.kind for f in by_capability.values()]
        first = max(by_capability.values(), key=lambda f: (kinds.count(f.kind), f.kind))
        gates.append(Gate(
            kind=first.kind, upstream=module.upstream, path=module.path, line=key[0],
            end_line=getattr(first.node, "end_lineno", None) or key[0],
            function=first.function, condition=first.condition,
            values={c: by_capability[c].value if c in by_capability else None for c in scans},
            # A place that the walk does not come to is not reached.
            reached={c: by_capability[c].reached if c in by_capability else False
                     for c in scans},
            effect=first.effect, assumed=any(f.assumed for f in by_capability.values()),
        ))  # fmt: skip
    return gates


def _tables(scans: Mapping[str, Mapping[Place, Found]]) -> Iterator[tuple[Place, Table]]:
    """Yield the places of lists of architectures that stand in a table, each with the table."""
    groups: dict[ast.stmt, dict[Place, Found]] = {}
    for scan in scans.values():
        for key, found in scan.items():
            if found.kind == "arch-list" and found.statement is not None:
                groups.setdefault(found.statement, {})[key] = found
    for statement, members in groups.items():
        if len(members) < MANY:
            continue
        function = next(iter(members.values())).function
        lists = tuple(numbers(map(ast.literal_eval, members[key].node.elts))  # type: ignore[attr-defined]
                      for key in sorted(members))  # fmt: skip
        line, last = statement.lineno, statement.end_lineno or statement.lineno
        table = Table(_name(statement), line, last, lists, function)
        yield from ((key, table) for key in members)


def _name(statement: ast.stmt) -> str:
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return ", ".join(ast.unparse(part) for part in targets if part is not None) or "a table"


def _table(module: Module, table: Table) -> Gate:
    values = {c: decided(table.lists, int(c.replace(".", ""))) for c in CAPABILITIES}
    return Gate(
        kind="arch-table", upstream=module.upstream, path=module.path, line=table.line,
        end_line=table.end_line, function=table.function, condition=table.name, values=values,
        reached=values, effect=told(table.lists),
    )  # fmt: skip
