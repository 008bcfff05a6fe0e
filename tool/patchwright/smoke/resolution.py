"""What a name in an upstream's source can stand for, found without executing anything.

Names are followed through scopes, imports, re-exports, aliases, module-level instances,
attributes of ``self``, caches and partials, and the returned values of functions. Where
the answer depends on values at run time there is no answer: Unknown.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Sequence

from patchwright.smoke.bindings import STAR, Module, Modules, bound, bound_by, in_scope
from patchwright.smoke.entities import (
    NOTHING,
    Class,
    Entity,
    External,
    Fields,
    Found,
    Function,
    Instance,
    Package,
    Scope,
    Unknown,
)

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = _Function | ast.ClassDef
# Calls that give back their first argument, as far as reachability goes.
_TRANSPARENT = ("functools.", "typing.cast", "contextlib.", "torch.compile", "copy.")


class Resolver:
    """Resolves expressions of the upstreams of one state; remembers what it found."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self._scopes: dict[int, Scope] = {}
        self._memo: dict[tuple[int, int], Found] = {}
        self._tables: dict[int, dict[str, list[ast.stmt]]] = {}
        self._parameters: dict[int, dict[str, ast.arg]] = {}
        self._own: dict[int, dict[str, list[tuple[ast.expr, _Function]]]] = {}
        self._names: dict[tuple[str, str], Found] = {}
        self._globals: dict[str, dict[str, list[tuple[ast.stmt, Scope]]]] = {}

    def module_scope(self, module: Module) -> Scope:
        """Return the scope of a module's top level."""
        return self._scopes.setdefault(id(module), Scope(module))

    def inner(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, outer: Scope
    ) -> Scope:
        """Return the scope inside a function or class."""
        return self._scopes.setdefault(id(node), Scope(outer.module, node, outer))

    def resolve(self, node: ast.expr, scope: Scope) -> Found:
        """Return everything that an expression can stand for; empty for plain values."""
        key = (id(node), id(scope))
        if key not in self._memo:
            self._memo[key] = NOTHING  # A value that depends on itself adds nothing.
            self._memo[key] = frozenset(self._resolve(node, scope))
        return self._memo[key]

    def attribute(self, entity: Entity, name: str) -> Found:
        """Return what an attribute of an entity can stand for."""
        if isinstance(entity, Package):
            return self._module_attribute(entity.dotted, name)
        if isinstance(entity, Class):
            return self._member(entity, name) or frozenset({Unknown(f"attribute {name}")})
        if isinstance(entity, Instance):
            found = self._member(entity.of, name) | self._assigned(entity.of, name)
            return found or frozenset({Unknown(f"attribute {name} of an instance")})
        if isinstance(entity, Fields):
            values = [part.value for part in entity.call.keywords if part.arg == name]
            return self._union(values, entity.scope)
        if isinstance(entity, External):
            return frozenset({External(f"{entity.dotted}.{name}")})
        return frozenset({Unknown(f"attribute {name}")})

    def bases(self, owner: Class) -> Iterator[Class]:
        """Yield the base classes that are an upstream's own."""
        node = owner.scope.node
        assert isinstance(node, ast.ClassDef)
        outer = owner.scope.parent
        assert outer is not None
        for base in node.bases:
            yield from (found for found in self.resolve(base, outer) if isinstance(found, Class))

    def _union(self, nodes: Iterable[ast.expr], scope: Scope) -> Found:
        return frozenset(entity for node in nodes for entity in self.resolve(node, scope))

    def _resolve(self, node: ast.expr, scope: Scope) -> Iterable[Entity]:  # noqa: PLR0911
        match node:
            case ast.Name(id=name):
                return self._name(name, scope)
            case ast.Attribute(value=value, attr=name):
                owners = self.resolve(value, scope)
                return {found for owner in owners for found in self.attribute(owner, name)}
            case ast.Call():
                owners = self.resolve(node.func, scope)
                return {found for owner in owners for found in self._called(owner, node, scope)}
            case ast.IfExp(body=first, orelse=second):
                return self._union((first, second), scope)
            case ast.BoolOp(values=values) | ast.Dict(values=values):
                return self._union(values, scope)
            case ast.NamedExpr(value=value) | ast.Await(value=value):
                return self.resolve(value, scope)
            case ast.Subscript(value=value):
                # A table of functions: any of its entries.
                inner = self.resolve(value, scope)
                return {found for found in inner if isinstance(found, Function | Unknown)}
            case ast.List(elts=values) | ast.Tuple(elts=values):
                return self._union(values, scope)
        return NOTHING

    def _called(self, entity: Entity, call: ast.Call, scope: Scope) -> Found:  # noqa: PLR0911
        if isinstance(entity, Class):
            return frozenset({Instance(entity)})
        if isinstance(entity, Function):
            returns = [
                part.value
                for part in in_scope(entity.node.body)
                if isinstance(part, ast.Return) and part.value is not None
            ]
            return self._union(returns, entity.scope)
        if isinstance(entity, External):
            if entity.dotted == "types.SimpleNamespace":
                return frozenset({Fields(call, scope)})
            if entity.dotted == "builtins.super" and (owner := _enclosing_class(scope)):
                return frozenset(Instance(base) for base in self.bases(owner))
            if entity.dotted == "builtins.getattr" and len(call.args) > 1:
                name = call.args[1]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    owners = self.resolve(call.args[0], scope)
                    return frozenset(f for o in owners for f in self.attribute(o, name.value))
            if entity.dotted.startswith(_TRANSPARENT) and call.args:
                values = call.args[1:] if entity.dotted == "typing.cast" else call.args[:1]
                return self._union(values, scope)
            return frozenset({External(entity.dotted + "()")})
        return frozenset({Unknown("the result of a dynamic call")})

    def _name(self, name: str, scope: Scope) -> Found:
        inside: Scope | None = scope
        while inside is not None:
            node = inside.node
            if node is None:
                return self._module_name(inside.module, name)
            # A class body's names are not visible inside its methods.
            if inside is scope or not isinstance(node, ast.ClassDef):
                statements = self._table(node).get(name, ())
                parameter = None
                if not isinstance(node, ast.ClassDef):
                    parameter = self._parameter(name, inside)
                if statements or parameter is not None:
                    return self._bindings(statements, name, inside) | (parameter or NOTHING)
            inside = inside.parent
        return NOTHING

    def _table(self, node: _Definition) -> dict[str, list[ast.stmt]]:
        """Return the statements that bind each local name of a function or class."""
        if id(node) not in self._tables:
            table: dict[str, list[ast.stmt]] = {}
            shared: set[str] = set()
            for part in in_scope(node.body):
                if isinstance(part, ast.Global):
                    shared.update(part.names)
                for name in _direct(part):
                    table.setdefault(name, []).append(part)
            self._tables[id(node)] = {n: found for n, found in table.items() if n not in shared}
        return self._tables[id(node)]

    def _parameter(self, name: str, scope: Scope) -> Found | None:
        function = scope.node
        assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        if id(function) not in self._parameters:
            parts = ast.walk(function.args)
            self._parameters[id(function)] = {p.arg: p for p in parts if isinstance(p, ast.arg)}
        argument = self._parameters[id(function)].get(name)
        if argument is None:
            return None
        first = (function.args.posonlyargs + function.args.args)[:1]
        owner = scope.owner
        if owner is not None and first and first[0] is argument:
            kinds = {ast.unparse(part) for part in function.decorator_list}
            if "classmethod" in kinds:
                return frozenset({owner})
            if "staticmethod" not in kinds:
                return frozenset({Instance(owner)})
        outer = scope.parent
        assert outer is not None
        return self._annotated(argument.annotation, outer) or frozenset(
            {Unknown(f"the parameter {name}")}
        )

    def _annotated(self, annotation: ast.expr | None, scope: Scope) -> Found:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            return NOTHING
        if annotation is None:
            return NOTHING
        found = self.resolve(annotation, scope)
        made = {Instance(entity) for entity in found if isinstance(entity, Class)}
        outside = {entity for entity in found if isinstance(entity, External)}
        return frozenset(made | outside)

    def _module_name(self, module: Module, name: str) -> Found:
        key = (module.dotted, name)
        if key not in self._names:
            self._names[key] = NOTHING  # `from . import name` asks for itself.
            self._names[key] = self._find_module_name(module, name)
        return self._names[key]

    def _find_module_name(self, module: Module, name: str) -> Found:
        scope = self.module_scope(module)
        statements = [
            part for part in in_scope(module.statements.get(name, ())) if name in _direct(part)
        ]
        found = self._bindings(statements, name, scope)
        for statement, inside in self._global_bindings(module).get(name, ()):
            found |= self._bindings([statement], name, inside)
        if found or statements:
            return found
        for star in in_scope(module.statements.get(STAR, ())):
            if isinstance(star, ast.ImportFrom) and star.names[0].name == STAR:
                dotted = module.absolute(star.module, star.level)
                source = self.modules.get(dotted)
                if source is not None and (more := self._module_name(source, name)):
                    return more
        if hasattr(builtins, name):
            return frozenset({External(f"builtins.{name}")})
        return NOTHING

    def _module_attribute(self, dotted: str, name: str) -> Found:
        if not self.modules.owns(dotted):
            return frozenset({External(f"{dotted}.{name}")})
        module = self.modules.get(dotted)
        if module is not None:
            found = self._module_name(module, name)
            found -= {External(f"builtins.{name}")}
            if found:
                return found
        inner = f"{dotted}.{name}"
        if self.modules.get(inner) is not None or self.modules.is_folder(inner):
            return frozenset({Package(inner)})
        if module is not None and name in module.statements:
            return NOTHING  # A plain value.
        return frozenset({Unknown(f"{dotted} has no {name}")})

    def _global_bindings(self, module: Module) -> dict[str, list[tuple[ast.stmt, Scope]]]:
        """Assignments to module-level names from inside functions (``global name``)."""
        if module.dotted not in self._globals:
            found: dict[str, list[tuple[ast.stmt, Scope]]] = {}
            outer = self.module_scope(module)
            for node in in_scope(module.tree.body):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                parts = list(in_scope(node.body))
                shared = {n for p in parts if isinstance(p, ast.Global) for n in p.names}
                for part in parts if shared else ():
                    for name in _direct(part) & shared:
                        found.setdefault(name, []).append((part, self.inner(node, outer)))
            self._globals[module.dotted] = found
        return self._globals[module.dotted]

    def _bindings(self, statements: Sequence[ast.stmt], name: str, scope: Scope) -> Found:
        return frozenset(
            entity for part in statements for entity in self._binding(part, name, scope)
        )

    def _binding(self, statement: ast.stmt, name: str, scope: Scope) -> Iterable[Entity]:  # noqa: PLR0911
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return {Function(self.inner(statement, scope))}
            case ast.ClassDef():
                return {Class(self.inner(statement, scope))}
            case ast.Import() | ast.ImportFrom():
                return self._imported(statement, name, scope.module)
            case ast.Assign(targets=targets, value=value):
                if any(isinstance(target, ast.Name) for target in targets):
                    return self.resolve(value, scope)
                return self._unpacked(targets[0], value, name, scope)
            case ast.AnnAssign(annotation=annotation, value=value):
                found = self.resolve(value, scope) if value is not None else NOTHING
                return found or self._annotated(annotation, scope)
            case ast.AugAssign():
                return NOTHING
        for part in ast.walk(statement):
            if isinstance(part, ast.NamedExpr) and part.target.id == name:
                return self.resolve(part.value, scope)
        return {Unknown(f"{name} is bound by a loop or a context")}

    def _unpacked(
        self, target: ast.expr, value: ast.expr, name: str, scope: Scope
    ) -> Iterable[Entity]:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for part, given in zip(target.elts, value.elts, strict=False):
                if isinstance(part, ast.Name) and part.id == name:
                    return self.resolve(given, scope)
        return {Unknown(f"{name} is unpacked")}

    def _imported(
        self, statement: ast.Import | ast.ImportFrom, name: str, module: Module
    ) -> Iterable[Entity]:
        found: set[Entity] = set()
        for alias in statement.names:
            if bound_by(statement, alias) != name:
                continue
            if isinstance(statement, ast.ImportFrom):
                dotted = module.absolute(statement.module, statement.level)
                found |= self._module_attribute(dotted, alias.name)
            else:
                dotted = alias.name if alias.asname else name
                found.add(Package(dotted) if self.modules.owns(dotted) else External(dotted))
        return found

    def _member(self, owner: Class, name: str) -> Found:
        node = owner.scope.node
        assert isinstance(node, ast.ClassDef)
        statements = self._table(node).get(name, ())
        found = self._bindings(statements, name, owner.scope)
        if statements:
            return found
        for base in self.bases(owner):
            if more := self._member(base, name):
                return more
        return NOTHING

    def _assigned(self, owner: Class, name: str) -> Found:
        """What the methods of a class and its bases assign to ``self.<name>``."""
        found: set[Entity] = set()
        node = owner.scope.node
        assert isinstance(node, ast.ClassDef)
        if id(node) not in self._own:
            self._own[id(node)] = _own_attributes(node)
        for value, method in self._own[id(node)].get(name, ()):
            found |= self.resolve(value, self.inner(method, owner.scope))
        for base in self.bases(owner):
            found |= self._assigned(base, name)
        return frozenset(found)


def _direct(statement: ast.stmt) -> frozenset[str]:
    """The names that a statement binds itself, not by the statements in its blocks."""
    if isinstance(statement, ast.If | ast.Try | ast.While | ast.Match):
        walrus = {
            part.target.id
            for field in ("test", "subject")
            if isinstance(tested := getattr(statement, field, None), ast.expr)
            for part in ast.walk(tested)
            if isinstance(part, ast.NamedExpr)
        }
        return frozenset(walrus)
    if isinstance(statement, ast.For | ast.AsyncFor):
        return frozenset(n.id for n in ast.walk(statement.target) if isinstance(n, ast.Name))
    if isinstance(statement, ast.With | ast.AsyncWith):
        targets = [item.optional_vars for item in statement.items if item.optional_vars]
        return frozenset(n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
    return bound(statement)


def _own_attributes(owner: ast.ClassDef) -> dict[str, list[tuple[ast.expr, _Function]]]:
    """Return what the methods of a class assign to ``self.<name>``, and which of them."""
    found: dict[str, list[tuple[ast.expr, _Function]]] = {}
    for method in in_scope(owner.body):
        if not isinstance(method, _Function):
            continue
        for part in in_scope(method.body):
            if not isinstance(part, ast.Assign | ast.AnnAssign) or part.value is None:
                continue
            for target in part.targets if isinstance(part, ast.Assign) else [part.target]:
                match target:
                    case ast.Attribute(value=ast.Name(id="self"), attr=name):
                        found.setdefault(name, []).append((part.value, method))
    return found


def _enclosing_class(scope: Scope) -> Class | None:
    inside: Scope | None = scope
    while inside is not None:
        if isinstance(inside.node, ast.ClassDef):
            return Class(inside)
        inside = inside.parent
    return None
