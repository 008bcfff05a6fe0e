"""Modules of the upstreams for evaluation: parsed as far as that looks into them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from patchwright.audit.lookup import rebound_in
from patchwright.audit.marks import Marks, Place
from patchwright.audit.pruning import Part, Statements, divided, pruned
from patchwright.audit.tables import Table, without_tables
from patchwright.smoke.bindings import Module, Modules
from patchwright.smoke.outcomes import SmokeError

# Longer functions are interpreted only where they mention an architecture.
SHORT = 12
_UNPARSED = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Less:
    """What is left of a source for ``lines`` that are marked, and what was left out."""

    lines: Sequence[int]
    text: bytes
    parts: list[Part]
    tables: list[Table]
    rebound: Counter[str]


class MarkedModules(Modules):
    """Modules without what is never interpreted; a tree is made again where marks grew.

    ``less`` keeps what is left of the sources by file: it outlives the syntax trees, which
    are thirty times as large.
    """

    def __init__(self, marks: Marks, less: dict[Place, Less] | None = None) -> None:
        super().__init__(marks.trees)
        self.marks = marks
        self._less = {} if less is None else less
        self._made: dict[str, tuple[Less, Module]] = {}
        # Bytes that were parsed.
        self.size = 0

    def renew(self) -> None:
        """Look at the marks again."""
        self._known.clear()

    def tables(self, module: Module) -> Sequence[Table]:
        """Return the tables of architectures that were left out of a module."""
        return self._left(module.upstream, module.path).tables

    def _left(self, upstream: str, path: str) -> Less:
        lines, place = self.marks.lines((upstream, path)), (upstream, path)
        less = self._less.get(place)
        if less is None or less.lines != lines:
            data = self.marks.trees.peek(upstream, path)
            text, tables = without_tables(data, lines)
            text, parts = divided(pruned(text, lines, SHORT), lines)
            less = self._less[place] = Less(lines, text, parts, tables, rebound_in(data))
        return less

    def _read(self, dotted: str, upstream: str, path: str) -> Module:
        less = self._left(upstream, path)
        before = self._made.get(dotted)
        if before is not None and (before[0].text, before[0].parts) == (less.text, less.parts):
            return before[1]
        filename = str(self.trees.path(upstream, path))
        try:
            tree = ast.parse(less.text, filename)
        except _UNPARSED:
            # A text in quotes that looks like code, maybe: taken whole.
            data = self.marks.trees.peek(upstream, path)
            less = self._less[upstream, path] = Less(less.lines, data, [], [], less.rebound)
            tree = self._whole(data, filename, f"{upstream}: {path}")
        module = Module(dotted, upstream, path, tree, filename)
        # What was left out is bound all the same.
        vars(module)["statements"] = Statements(module.statements, less.parts)
        vars(module)["rebound"] = less.rebound
        self._made[dotted] = less, module
        self.size += len(less.text)
        return module

    def _whole(self, data: bytes, filename: str, place: str) -> ast.Module:
        try:
            return ast.parse(data, filename)
        except _UNPARSED as error:
            raise SmokeError(f"{place} is not valid Python: {error}") from error
