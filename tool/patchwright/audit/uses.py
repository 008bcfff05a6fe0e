"""Where a name or a configuration value of an upstream is asked for, found in its sources.

A gate seldom calls what it opens: it answers a question (``apply_..._fusion()``), sets a
flag (``self.enable_... = True``) or a value (``"flashinfer_mxfp4"``) that another place
reads. Those places are found by name; one that is used all over is given up on.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from patchwright.audit.trees import StoredTrees
from patchwright.audit.values import Bound, ClassOf, Function, Instance, V
from patchwright.smoke.bindings import Module, Modules
from patchwright.smoke.outcomes import SmokeError

_DEPTH = 4
_FILES = 40
_SKIPPED = re.compile(r"(?:^|/)(?:tests?|test_\w+|benchmarks?|docs?)(?:/|\.py$)")
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, eq=False)
class Start:
    """Statements of a function from which something is followed; ``line`` is the condition's."""

    module: Module
    function: Function
    name: str
    body: tuple[ast.stmt, ...]
    line: int
    why: str = ""


class Uses:
    """The places in the upstreams that ask for a name or a value."""

    def __init__(self, trees: StoredTrees, modules: Modules) -> None:
        self.trees = trees
        self.modules = modules
        self._methods: dict[tuple[str, str], list[Bound]] = {}
        self._parents: dict[int, dict[int, ast.AST]] = {}

    def of_name(self, upstream: str, name: str, *, path: str = "", depth: int = 0) -> Iterator[Start]:
        """Yield the branches that are taken where ``name`` is true; in one file with ``path``."""
        if depth >= _DEPTH or len(name) < 5:
            return
        pattern = re.compile(rf"\b{re.escape(name)}\b".encode())
        for module in self._modules(upstream, pattern, path):
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                    if getattr(node, "attr", getattr(node, "id", "")) == name:
                        yield from self._at(module, node, name, depth)

    def of_text(self, upstream: str, text: str, *, depth: int = 0) -> Iterator[Start]:
        """Yield the branches that are taken where a configuration value is ``text``."""
        if len(text) < 5:
            return
        pattern = re.compile(rf"[\"']{re.escape(text)}[\"']".encode())
        for module in self._modules(upstream, pattern, ""):
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Constant) and node.value == text:
                    yield from self._at(module, node, text, depth)
                elif isinstance(node, ast.ClassDef):
                    for method in _asks(node, text):
                        yield from self.of_name(upstream, method, depth=depth + 1)

    def methods(self, name: str, upstream: str) -> list[Bound]:
        """Return the methods of a name in an upstream's classes; none where there are many."""
        key = (upstream, name)
        if key not in self._methods:
            found: list[Bound] = []
            pattern = re.compile(rf"\n[ \t]+def {re.escape(name)}\b".encode())
            for module in self._modules(upstream, pattern, ""):
                for node in ast.walk(module.tree):
                    if not isinstance(node, ast.ClassDef):
                        continue
                    of = ClassOf(module, node)
                    found += [
                        Bound(Function(module, part, None, of), (V(Instance(of)),))
                        for part in node.body
                        if isinstance(part, _FUNCTIONS) and part.name == name
                    ]
            self._methods[key] = found if len(found) <= 4 else []
        return self._methods[key]

    def place(self, module: Module, node: ast.AST) -> tuple[Function, str] | None:
        """Return the function around a node and its qualified name; None at module level."""
        parents = self.parents(module)
        chain: list[ast.AST] = []
        at: ast.AST | None = node
        while at is not None:
            chain.append(at)
            at = parents.get(id(at))
        defs = [part for part in reversed(chain) if isinstance(part, (_FUNCTIONS, ast.ClassDef))]
        functions = [part for part in defs if isinstance(part, _FUNCTIONS)]
        if not functions:
            return None
        before = defs[defs.index(functions[-1]) - 1] if defs.index(functions[-1]) else None
        owner = ClassOf(module, before) if isinstance(before, ast.ClassDef) else None
        name = ".".join(part.name for part in defs)
        return Function(module, functions[-1], None, owner), name

    def parents(self, module: Module) -> dict[int, ast.AST]:
        """Return each node's parent."""
        if id(module) not in self._parents:
            self._parents[id(module)] = {
                id(child): node
                for node in ast.walk(module.tree)
                for child in ast.iter_child_nodes(node)
            }
        return self._parents[id(module)]

    def _modules(self, upstream: str, pattern: re.Pattern[bytes], path: str) -> Sequence[Module]:
        paths = [path] if path else [
            p for p in self.trees.files(upstream)
            if p.endswith(".py") and _SKIPPED.search(p) is None
        ]  # fmt: skip
        hits = [p for p in paths if pattern.search(self.trees.read(upstream, p))]
        found = []
        for hit in hits if len(hits) <= _FILES else ():
            try:
                found.append(self.modules.at(upstream, hit))
            except SmokeError:
                continue
        return found

    def _at(self, module: Module, node: ast.AST, token: str, depth: int) -> Iterator[Start]:
        """Yield what hangs on a condition that holds a node."""
        parents = self.parents(module)
        negated = False
        at, above = node, parents.get(id(node))
        while above is not None:
            if isinstance(above, ast.UnaryOp) and isinstance(above.op, ast.Not):
                negated = not negated
            if isinstance(above, ast.Compare):
                negated = negated != isinstance(above.ops[0], ast.NotEq | ast.NotIn)
            if isinstance(above, ast.If | ast.While) and at is above.test:
                yield from self._branch(module, above, token, negated)
                return
            if isinstance(above, ast.IfExp) and at is above.test:
                return
            if isinstance(above, ast.Return) and not negated:
                place = self.place(module, above)
                if place is not None and not _is_enum_question(place[0]):
                    yield from self.of_name(module.upstream, place[0].name, depth=depth + 1)
                return
            if isinstance(above, ast.Assign) and at is above.value and not negated:
                yield from self._assigned(module, above, depth)
                return
            if isinstance(above, ast.stmt):
                return
            at, above = above, parents.get(id(above))

    def _branch(
        self, module: Module, node: ast.If | ast.While, token: str, negated: bool
    ) -> Iterator[Start]:
        place = self.place(module, node)
        body = node.orelse if negated else node.body
        if negated and not body:
            body = self.rest(module, node)
        if place is not None and body:
            yield Start(module, place[0], place[1], tuple(body), node.lineno, token)

    def rest(self, module: Module, node: ast.stmt) -> list[ast.stmt]:
        """Return the statements behind one, in its block."""
        above = self.parents(module).get(id(node))
        for part in ("body", "orelse", "finalbody"):
            block = getattr(above, part, None)
            if isinstance(block, list) and node in block:
                return block[block.index(node) + 1 :]
        return []

    def _assigned(self, module: Module, node: ast.Assign, depth: int) -> Iterator[Start]:
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                yield from self.of_name(
                    module.upstream, target.attr, path=module.path, depth=depth + 1
                )
            elif isinstance(target, ast.Name):
                local = self.place(module, node) is not None
                path = module.path if local else ""
                yield from self.of_name(module.upstream, target.id, path=path, depth=depth + 1)


def _asks(node: ast.ClassDef, text: str) -> Iterator[str]:
    """Yield the methods of an enumeration that ask for the member with a value."""
    members = {
        target.id
        for part in node.body
        if isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant)
        and part.value.value == text
        for target in part.targets
        if isinstance(target, ast.Name)
    }  # fmt: skip
    for part in node.body if members else ():
        if isinstance(part, _FUNCTIONS) and part.name.startswith("is_"):
            named = {p.attr for p in ast.walk(part) if isinstance(p, ast.Attribute)}
            if named & members:
                yield part.name


def _is_enum_question(function: Function) -> bool:
    return function.owner is not None and any(
        "Enum" in ast.unparse(base) for base in function.owner.node.bases
    )
