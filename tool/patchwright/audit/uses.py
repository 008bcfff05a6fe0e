"""Where a name or a configuration value of an upstream is asked for, found in its sources.

A gate seldom calls what it opens: it answers a question (``apply_..._fusion()``), sets a
flag (``self.enable_... = True``) or a value (``"flashinfer_mxfp4"``) that another place
reads. Those places are found by name; one that is used all over is given up on.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from patchwright.audit import nodes
from patchwright.audit.trees import StoredTrees
from patchwright.audit.values import Bound, ClassOf, Function, Instance, V
from patchwright.smoke.bindings import Module, Modules
from patchwright.smoke.outcomes import SmokeError

_DEPTH = 4
_FILES = 40
_WORD = re.compile(rb"\w")
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

    def __init__(
        self, trees: StoredTrees, modules: Modules, corpora: dict[str, Corpus] | None = None
    ) -> None:
        """``corpora`` keeps what is searched by upstream, for others on the same trees."""
        self.trees = trees
        self.modules = modules
        self._methods: dict[tuple[str, str], list[Bound]] = {}
        self._corpora = {} if corpora is None else corpora
        # A name is asked for again and again: by every gate of a kind, and on many ways.
        self._starts: dict[tuple[str, str, str, int, str], Sequence[Start]] = {}

    def of_name(
        self, upstream: str, name: str, *, path: str = "", depth: int = 0,
        origin: Module | None = None,
    ) -> Sequence[Start]:  # fmt: skip
        """Return the branches that are taken where ``name`` is true; in one file with ``path``.

        Each is told once. ``origin`` is the module that binds a module-level name: elsewhere
        the same name counts only where it is imported from there.
        """
        if depth >= _DEPTH or len(name) < 5:
            return ()
        key = (upstream, name, path, depth, origin.dotted if origin is not None else "")
        if key not in self._starts:
            found: dict[int, Start] = {}
            for start in self._of_name(upstream, name, path, depth, origin):
                found.setdefault(id(start.body[0]), start)
            self._starts[key] = tuple(found.values())
        return self._starts[key]

    def _of_name(
        self, upstream: str, name: str, path: str, depth: int, origin: Module | None
    ) -> Iterator[Start]:
        for module in self._modules(upstream, name, path):
            if origin is not None and module is not origin and not _imports(module, name, origin):
                continue
            for node in self._nodes(module, name):
                if _asks_for(node, name):
                    yield from self.around(module, node, name, depth)

    def of_text(self, upstream: str, text: str, *, depth: int = 0) -> Iterator[Start]:
        """Yield the branches that are taken where a configuration value is ``text``."""
        if len(text) < 5:
            return
        for module in self._modules(upstream, text, ""):
            found = self._nodes(module, text)
            for node in found:
                if isinstance(node, ast.Constant) and node.value == text:
                    yield from self.around(module, node, text, depth)
            for owner in found:
                for method in _asks(owner, text) if isinstance(owner, ast.ClassDef) else ():
                    yield from self.of_name(upstream, method, depth=depth + 1)

    def methods(self, name: str, upstream: str) -> list[Bound]:
        """Return the methods of a name in an upstream's classes; none where there are many."""
        key = (upstream, name)
        if key not in self._methods:
            found: list[Bound] = []
            for module in self._modules(upstream, f"def {name}", ""):
                for node in self._nodes(module, f"def {name}"):
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
        chain = nodes.around(module.tree, node)
        defs = [part for part in reversed(chain) if isinstance(part, (_FUNCTIONS, ast.ClassDef))]
        functions = [part for part in defs if isinstance(part, _FUNCTIONS)]
        if not functions:
            return None
        before = defs[defs.index(functions[-1]) - 1] if defs.index(functions[-1]) else None
        owner = ClassOf(module, before) if isinstance(before, ast.ClassDef) else None
        name = ".".join(part.name for part in defs)
        return Function(module, functions[-1], None, owner), name

    def _modules(self, upstream: str, text: str, path: str) -> Sequence[Module]:
        """Return the modules that hold a text as a whole word; none where there are many."""
        if upstream not in self._corpora:
            self._corpora[upstream] = Corpus(self.trees, upstream)
        hits = [path] if path else self._corpora[upstream].files(text)
        found = []
        for hit in hits if len(hits) <= _FILES else ():
            try:
                found.append(self.modules.at(upstream, hit))
            except SmokeError:
                continue
        return found

    def _nodes(self, module: Module, text: str) -> list[ast.AST]:
        """Return the nodes on the lines that hold a text as a whole word."""
        lines = nodes.lines_of(self.trees.read(module.upstream, module.path), text)
        return list(nodes.on_lines(module.tree, lines))

    def around(self, module: Module, node: ast.AST, token: str, depth: int) -> Iterator[Start]:
        """Yield what hangs on a condition that holds a node."""
        negated = False
        for at, above in pairwise(nodes.around(module.tree, node)):
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
        above = nodes.around(module.tree, node)[1]
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
                yield from self.of_name(
                    module.upstream, target.id, path=module.path if local else "",
                    depth=depth + 1, origin=None if local else module,
                )  # fmt: skip


class Corpus:
    """All Python of an upstream in one text: a search is one pass over memory."""

    def __init__(self, trees: StoredTrees, upstream: str) -> None:
        self.paths = [p for p in trees.files(upstream)
                      if p.endswith(".py") and _SKIPPED.search(p) is None]  # fmt: skip
        self.text = bytearray()
        self.ends: list[int] = []
        for path in self.paths:
            self.text += trees.peek(upstream, path)
            self.text += b"\0"
            self.ends.append(len(self.text))

    def files(self, text: str) -> list[str]:
        """Return the files in which a text stands as a whole word."""
        found: list[str] = []
        word, at = text.encode(), 0
        while (at := self.text.find(word, at)) >= 0:
            end = at + len(word)
            number = bisect_right(self.ends, at)
            if not _WORD.match(self.text[end : end + 1]) and not _WORD.match(
                self.text[at - 1 : at]
            ):
                found.append(self.paths[number])
                at = self.ends[number]
            else:
                at = end
        return found


def _asks_for(node: ast.AST, name: str) -> bool:
    """Whether a node reads a name, or an attribute of that name."""
    return (
        (isinstance(node, ast.Name) and node.id == name)
        or (isinstance(node, ast.Attribute) and node.attr == name)
    ) and isinstance(node.ctx, ast.Load)


def _imports(module: Module, name: str, origin: Module) -> bool:
    """Whether a module has a name of another: by import, or as an attribute of that module."""
    statements = module.statements.get(name, ())
    if not statements:
        return True
    return any(
        isinstance(part, ast.ImportFrom)
        and f"{origin.dotted}.".startswith(f"{module.absolute(part.module, part.level)}.")
        for part in statements
    )


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
