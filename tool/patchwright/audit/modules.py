"""Modules of the upstreams for evaluation: parsed as far as that looks into them."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from patchwright.audit.marks import Marks
from patchwright.audit.pruning import Part, Statements, divided, pruned
from patchwright.smoke.bindings import Module, Modules
from patchwright.smoke.outcomes import SmokeError

# Longer functions are interpreted only where they mention an architecture.
SHORT = 12


@dataclass(frozen=True)
class _Made:
    text: bytes
    parts: list[Part]
    module: Module


class MarkedModules(Modules):
    """Modules without what is never interpreted; a tree is made again where marks grew."""

    def __init__(self, marks: Marks) -> None:
        super().__init__(marks.trees)
        self.marks = marks
        self._made: dict[str, _Made] = {}
        # Bytes that were parsed.
        self.size = 0

    def renew(self) -> None:
        """Look at the marks again."""
        self._known.clear()

    def _read(self, dotted: str, upstream: str, path: str) -> Module:
        data = self.trees.read(upstream, path)
        lines = self.marks.lines((upstream, path))
        text, parts = divided(pruned(data, lines, SHORT), lines)
        made = self._made.get(dotted)
        if made is None or (made.text, made.parts) != (text, parts):
            filename = str(self.trees.path(upstream, path))
            tree, parts = self._parsed(data, text, parts, filename, f"{upstream}: {path}")
            module = Module(dotted, upstream, path, tree, filename)
            # What was left out is bound all the same.
            vars(module)["statements"] = Statements(module.statements, parts)
            made = self._made[dotted] = _Made(text, parts, module)
            self.size += len(text)
        return made.module

    def _parsed(
        self, data: bytes, text: bytes, parts: list[Part], filename: str, place: str
    ) -> tuple[ast.Module, list[Part]]:
        """Return the syntax tree without its parts, of the whole source where that fails."""
        try:
            return ast.parse(text, filename), parts
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
        try:
            return ast.parse(data, filename), []
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise SmokeError(f"{place} is not valid Python: {error}") from error
