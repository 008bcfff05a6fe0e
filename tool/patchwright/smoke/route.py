"""The route from a place in one upstream to the JIT generators that it ends in.

Found by following the source: what a function calls and names, through imports and
re-exports, into the other upstream. A generator is a function whose body calls
flashinfer's ``gen_jit_spec``. Which branch is taken at run time is not asked: a route
says what can be reached, not what will be.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from patchwright.smoke.bindings import Modules, children
from patchwright.smoke.conditions import find_class, find_function
from patchwright.smoke.entities import Class, Entity, Function, Instance, Unknown
from patchwright.smoke.resolution import Resolver
from patchwright.smoke.trees import Trees

_SPEC = "gen_jit_spec"
_MADE_BY = ("__init__", "__post_init__", "__new__")
_CALLED_BY = ("__call__", "forward")
_INNER = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef})
_FOLLOWED = frozenset({ast.Name, ast.Attribute, ast.Call, ast.Return})


@dataclass(frozen=True)
class Hop:
    """One function on a route.

    ``path`` is a repository path, ``line`` where the function is defined, ``called_at``
    the line in the hop before that leads here (0 for the first).
    """

    upstream: str
    path: str
    line: int
    function: str
    called_at: int = 0

    @property
    def name(self) -> str:
        """``path::function``."""
        return f"{self.path}::{self.function}"


@dataclass(frozen=True)
class Route:
    """The shortest way to one function that gives a JIT spec.

    ``generator`` calls ``gen_jit_spec`` itself. ``entry`` is the outermost function on
    the route that returns the generator's spec: mostly the generator, but where several
    share one (``gen_x_sm120_module``, ``gen_x_sm90_module``) each is an entry of its own,
    and the list of architectures stands there. Both are ``path::function`` in
    ``generator_upstream``.
    """

    hops: tuple[Hop, ...]
    generator: str
    generator_upstream: str
    entry: str

    def describe(self) -> str:
        """Return the route for a person to read, one hop a line."""
        lines = []
        for before, hop in zip((None, *self.hops), self.hops, strict=False):
            at = f"{before.path}:{hop.called_at} -> " if before else ""
            lines.append(f"{at}{hop.upstream}: {hop.path}:{hop.line} {hop.function}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Unresolved:
    """A call whose target is decided at run time, so that it was not followed."""

    upstream: str
    path: str
    line: int
    function: str
    text: str


class Routes(tuple[Route, ...]):
    """The routes found, shortest first, and the calls that could not be followed."""

    unresolved: tuple[Unresolved, ...]

    def __new__(cls, routes: Iterable[Route], unresolved: Iterable[Unresolved] = ()) -> Routes:
        """Make it from both."""
        made = super().__new__(cls, routes)
        made.unresolved = tuple(unresolved)
        return made


def route(trees: Trees, upstream: str, path: str, function: str) -> Routes:
    """Return the routes from a function (or ``Class.method``) of a file to generators.

    Raises SmokeError where the tree has no such file or function.
    """
    modules = Modules(trees)
    module = modules.at(upstream, path)
    resolver = Resolver(modules)
    outer = resolver.module_scope(module)
    owner = find_class(module, function.partition(".")[0]) if "." in function else None
    if owner is not None:
        outer = resolver.inner(owner, outer)
    start = Function(resolver.inner(find_function(module, function), outer))

    came_from: dict[Function, tuple[Function, int] | None] = {start: None}
    unresolved: list[Unresolved] = []
    found: list[Route] = []
    todo = deque([start])
    while todo:
        here = todo.popleft()
        tail = _spec_tail(resolver, here, frozenset())
        if tail is not None:
            found.append(_trace(here, tail, came_from))
            continue
        for target, line in _targets(resolver, here, unresolved):
            if target not in came_from:
                came_from[target] = (here, line)
                todo.append(target)
    return Routes(found, dict.fromkeys(unresolved))


def _hop(function: Function, line: int = 0) -> Hop:
    module = function.scope.module
    return Hop(module.upstream, module.path, function.node.lineno, function.name, line)


def _trace(
    entry: Function,
    tail: tuple[tuple[Function, int], ...],
    came_from: dict[Function, tuple[Function, int] | None],
) -> Route:
    hops = [_hop(function, line) for function, line in tail]
    here: Function | None = entry
    while here is not None:
        before = came_from[here]
        hops.insert(0, _hop(here, before[1] if before else 0))
        here = before[0] if before else None
    generator = hops[-1]
    return Route(tuple(hops), generator.name, generator.upstream, _hop(entry).name)


def _body(function: Function) -> tuple[ast.expr | ast.Return, ...]:
    """Return the names, attributes, calls and returns that run when the function does.

    Not those of inner functions. The node keeps the answer: syntax trees are shared.
    """
    known: tuple[ast.expr | ast.Return, ...] | None = vars(function.node).get("runs")
    if known is None:
        known = vars(function.node)["runs"] = tuple(_running(function.node.body))
    return known


def _running(statements: Sequence[ast.stmt]) -> Iterator[ast.expr | ast.Return]:
    todo: list[ast.AST] = []
    todo.extend(reversed(statements))
    while todo:
        node = todo.pop()
        kind = type(node)
        if kind in _INNER:
            continue
        if kind in _FOLLOWED:
            assert isinstance(node, ast.expr | ast.Return)
            yield node
        if isinstance(node, ast.AnnAssign):
            todo.extend(part for part in (node.value, node.target) if part is not None)
        else:
            todo.extend(children(node)[::-1])


def _spec_tail(
    resolver: Resolver, function: Function, above: frozenset[Function]
) -> tuple[tuple[Function, int], ...] | None:
    """Return the way from a function that gives a spec to its generator, or None.

    Empty where the function calls ``gen_jit_spec`` itself; otherwise the functions whose
    result it returns in turn, each with the line of the call.
    """
    returned: list[tuple[Function, int]] = []
    for node in _body(function):
        if isinstance(node, ast.Call):
            called = resolver.resolve(node.func, function.scope)
            if any(isinstance(part, Function) and part.name == _SPEC for part in called):
                return ()
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            called = resolver.resolve(node.value.func, function.scope)
            line = node.value.lineno
            returned.extend((part, line) for part in called if isinstance(part, Function))
    for target, line in returned:
        if target not in above and target != function:
            tail = _spec_tail(resolver, target, above | {function})
            if tail is not None:
                return ((target, line), *tail)
    return None


def _targets(
    resolver: Resolver, function: Function, unresolved: list[Unresolved]
) -> Iterator[tuple[Function, int]]:
    """Yield the functions that a function's body calls or names, with the line."""
    for node in _body(function):
        entities: Iterable[Entity] = ()
        if isinstance(node, ast.Call):
            called = resolver.resolve(node.func, function.scope)
            entities = (*called, *_by_call(resolver, called))
            if any(isinstance(entity, Unknown) for entity in called):
                module = function.scope.module
                text = ast.unparse(node.func)
                unresolved.append(
                    Unresolved(module.upstream, module.path, node.lineno, function.name, text)
                )
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            entities = resolver.resolve(node, function.scope)
        for entity in entities:
            if isinstance(entity, Function):
                yield entity, node.lineno


def _by_call(resolver: Resolver, called: Iterable[Entity]) -> Iterator[Entity]:
    """Yield the methods that calling a class or an object runs."""
    for entity in called:
        if isinstance(entity, Class):
            for name in _MADE_BY:
                yield from resolver.attribute(Instance(entity), name)
        elif isinstance(entity, Instance):
            for name in _CALLED_BY:
                yield from resolver.attribute(entity, name)
