"""Finds an ``if`` or an assignment inside a function of an upstream, by what it says, and
makes a function of its condition or value."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from patchwright.smoke.bindings import Module, blocks, bound, in_scope
from patchwright.smoke.outcomes import SmokeError

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class _Branch:
    """A statement, the ``if``s around it (innermost first, with whether it stands in
    their ``else``), the statements that surely ran before it, and whether the innermost
    ``if`` holds it directly."""

    statement: ast.stmt
    ifs: tuple[tuple[ast.If, bool], ...]
    before: tuple[ast.stmt, ...]
    direct: bool


def find_class(module: Module, name: str) -> ast.ClassDef | None:
    """Return the class of that name at a module's top level, or None."""
    found = [node for node in module.definitions(name) if isinstance(node, ast.ClassDef)]
    return found[-1] if found else None


def find_function(module: Module, name: str) -> Function:
    """Return the function ``name`` or ``Class.method``; SmokeError where it is not."""
    first, _, rest = name.partition(".")
    owner = find_class(module, first) if rest else None
    nodes = in_scope(owner.body) if owner is not None else module.definitions(name)
    found = [
        node
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == (rest or first)
    ]
    if not found:
        raise SmokeError(f"{module.upstream}: {module.path} has no {name}: the gate moved")
    return found[-1]


def condition_function(
    module: Module,
    name: str,
    assigns: str,
    *,
    mentions: str,
    enclosing: int,
    given: frozenset[str],
) -> ast.FunctionDef:
    """Return ``def condition(<given names>): <locals it needs>; return <condition>``.

    See ``decisions.ConditionGate``. Raises SmokeError where no such ``if`` or more than
    one is found, and for a local name that is neither given nor bound by exactly one
    plain statement that always runs before the ``if``.
    """
    function = find_function(module, name)

    def wanted(branch: _Branch) -> bool:
        return (
            branch.direct
            and _matches(statement, branch.statement)
            and mentions in ast.unparse(branch.ifs[0][0].test)
        )

    statement = _statement(assigns)
    branch = _find(module, function, name, wanted, f"`if` around {assigns!r}")
    count = 1 + (enclosing if enclosing >= 0 else len(branch.ifs))
    tests = [
        ast.UnaryOp(ast.Not(), part.test) if negated else part.test
        for part, negated in branch.ifs[:count]
    ]
    # Outermost first, as Python would evaluate them.
    condition = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests[::-1])
    return _make(module, function, condition, branch, given, branch.ifs[0][0])


def value_function(
    module: Module, name: str, target: str, *, mentions: str, given: frozenset[str]
) -> ast.FunctionDef:
    """Return ``def value(<given names>): <locals it needs>; return <what is assigned>``.

    See ``decisions.ValueGate``; raises SmokeError as ``condition_function`` does.
    """
    function = find_function(module, name)

    def wanted(branch: _Branch) -> bool:
        node = branch.statement
        return (
            isinstance(node, ast.Assign)
            and [ast.unparse(part) for part in node.targets] == [target]
            and mentions in ast.unparse(node.value)
        )

    branch = _find(module, function, name, wanted, f"assignment to {target!r}")
    assert isinstance(branch.statement, ast.Assign)
    return _make(module, function, branch.statement.value, branch, given, branch.statement)


def _make(
    module: Module,
    function: Function,
    result: ast.expr,
    branch: _Branch,
    given: frozenset[str],
    place: ast.stmt,
) -> ast.FunctionDef:
    needed = _locals_before(module, function, result, branch, given, place)
    arguments = [ast.arg(name) for name in sorted(given)]
    made = ast.FunctionDef(
        name=f"gate_in_{function.name}",
        args=ast.arguments([], [], None, arguments, [None] * len(given), None, []),
        body=[*needed, ast.copy_location(ast.Return(result), place)],
        decorator_list=[],
    )
    if hasattr(function, "type_params"):
        made.type_params = []  # type: ignore[attr-defined, unused-ignore]
    made = copy.deepcopy(ast.copy_location(made, place))
    return ast.fix_missing_locations(made)


def _statement(source: str) -> ast.stmt:
    try:
        (statement,) = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        raise SmokeError(f"{source!r} is not one Python statement") from error
    return statement


def _find(
    module: Module,
    function: Function,
    name: str,
    wanted: Callable[[_Branch], bool],
    what: str,
) -> _Branch:
    found: list[_Branch] = []

    def walk(
        body: Sequence[ast.stmt],
        ifs: tuple[tuple[ast.If, bool], ...],
        before: tuple[ast.stmt, ...],
        direct: bool,
    ) -> None:
        for statement in body:
            branch = _Branch(statement, ifs, before, direct)
            if wanted(branch):
                found.append(branch)
            if isinstance(statement, ast.If):
                walk(statement.body, ((statement, False), *ifs), before, True)
                walk(statement.orelse, ((statement, True), *ifs), before, True)
            elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                walk(statement.body, ifs, before, False)
            else:
                for block in blocks(statement):
                    walk(block, ifs, before, False)
            before = (*before, statement)

    walk(function.body, (), (), False)
    place = f"{module.upstream}: {module.path}: {name}"
    if not found:
        raise SmokeError(f"{place} has no {what}: the gate moved")
    if len(found) > 1:
        lines = ", ".join(str(branch.statement.lineno) for branch in found)
        raise SmokeError(f"{place} has more than one {what} (lines {lines}): say what it mentions")
    return found[0]


def _matches(wanted: ast.AST, node: object) -> bool:  # noqa: PLR0911
    """Compare syntax; ``...`` in ``wanted`` matches any expression, alone any arguments."""
    if isinstance(wanted, ast.Constant) and wanted.value is ...:
        return isinstance(node, ast.expr)
    if type(wanted) is not type(node):
        return False
    for field, value in ast.iter_fields(wanted):
        other = getattr(node, field, None)
        if field in ("ctx", "type_comment", "kind"):
            continue
        if isinstance(wanted, ast.Call) and _any_arguments(wanted) and field != "func":
            continue
        if isinstance(value, list):
            if not isinstance(other, list) or len(value) != len(other):
                return False
            pairs = zip(value, other, strict=True)
            if not all(_matches(a, b) if isinstance(a, ast.AST) else a == b for a, b in pairs):
                return False
        elif isinstance(value, ast.AST):
            if not _matches(value, other):
                return False
        elif value != other:
            return False
    return True


def _any_arguments(call: ast.Call) -> bool:
    return (
        len(call.args) == 1
        and not call.keywords
        and isinstance(call.args[0], ast.Constant)
        and call.args[0].value is ...
    )


def _locals_before(
    module: Module,
    function: Function,
    condition: ast.expr,
    branch: _Branch,
    given: frozenset[str],
    place: ast.stmt,
) -> list[ast.stmt]:
    """Return the statements that bind the locals which the condition needs, in order."""
    arguments = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    binders: dict[str, list[ast.stmt]] = {}
    shared: set[str] = set()
    for statement in in_scope(function.body):
        if isinstance(statement, ast.Global | ast.Nonlocal):
            shared.update(statement.names)
        if not blocks(statement) or isinstance(statement, ast.For | ast.With):
            for name in bound(statement):
                binders.setdefault(name, []).append(statement)
    needed: list[ast.stmt] = []
    todo: list[ast.AST] = [condition]
    while todo:
        for name in sorted(_reads(todo.pop()) - given - shared):
            if name not in arguments and name not in binders:
                continue
            statements = binders.get(name, [])
            if (
                name in arguments
                or len(statements) != 1
                or statements[0] not in branch.before
                or not isinstance(statements[0], ast.Assign | ast.Import | ast.ImportFrom)
            ):
                raise SmokeError(
                    f"{module.upstream}: {module.path}:{place.lineno}: the gate "
                    f"reads the local {name}: give it in names"
                )
            if statements[0] not in needed:
                needed.append(statements[0])
                todo.append(statements[0])
    return sorted(needed, key=lambda node: node.lineno)


def _reads(node: ast.AST) -> set[str]:
    stored = {
        part.id
        for comprehension in ast.walk(node)
        if isinstance(comprehension, ast.comprehension)
        for part in ast.walk(comprehension.target)
        if isinstance(part, ast.Name)
    }
    return {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)
    } - stored
