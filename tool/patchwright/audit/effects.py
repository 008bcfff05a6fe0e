"""What follows from a condition, in words: what is raised, called, set, imported, added."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from patchwright.smoke.bindings import in_scope

_LONG = 100
_QUIET = ("logger", "logging", "print", "warnings", "len", "str", "int", "isinstance", "range",
          "super", "getattr", "hasattr", "log_info_on_rank0", "print_info_once", "min", "max",
          "torch", "list", "tuple", "set", "dict", "partial", "bool")  # fmt: skip


def of_branches(body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> str:
    """Return what the two branches of an ``if`` do."""
    then, other = of_body(body), of_body(orelse)
    parts = [f"then {then}" if then else "", f"else {other}" if other else ""]
    return "; ".join(part for part in parts if part)


def of_test(statement: ast.If | ast.While | ast.Assert) -> str:
    """Return what follows from a statement's condition."""
    if isinstance(statement, ast.Assert):
        message = f": {text(statement.msg)}" if statement.msg is not None else ""
        return f"else raises AssertionError{message}"
    return of_branches(statement.body, statement.orelse)


def of_body(body: Sequence[ast.stmt]) -> str:
    """Return what statements do that a reader of a gate wants to know."""
    found: list[str] = []
    for statement in in_scope(body):
        found += _of_statement(statement)
    unique = list(dict.fromkeys(found))
    return ", ".join(unique[:4]) + (", ..." if len(unique) > 4 else "")


def _of_statement(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.Raise(exc=ast.Call(func=func, args=args)):
            yield f"raises {ast.unparse(func)}" + (f": {text(args[0])}" if args else "")
        case ast.Raise(exc=exc):
            yield f"raises {ast.unparse(exc)}" if exc is not None else "raises again"
        case ast.Return(value=value):
            yield "returns" if value is None else f"returns {short(value)}"
        case ast.Import(names=names):
            yield "imports " + ", ".join(a.name for a in names)
        case ast.ImportFrom(names=names):
            source = f"{'.' * node.level}{node.module or ''}"
            yield f"imports {', '.join(a.name for a in names)} from {source}"
        case ast.Assign(targets=targets, value=value) if _plain(value):
            yield f"sets {ast.unparse(targets[0])} = {short(value)}"
        case ast.Assign(value=value) | ast.Expr(value=value) | ast.AugAssign(value=value):
            yield from (f"calls {name}" for name in called([value]))


def _plain(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant | ast.Name | ast.Attribute | ast.Tuple)


def called(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the names of what is called, logging and builtins left out."""
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.Call):
                name = ast.unparse(part.func)
                if len(name) < 60 and name.partition(".")[0] not in _QUIET and "(" not in name:
                    yield name


def short(node: ast.AST) -> str:
    """Return the source of an expression on one line, cut when it is long."""
    source = " ".join(ast.unparse(node).split())
    return source if len(source) <= _LONG else source[: _LONG - 3] + "..."


def text(node: ast.expr) -> str:
    """Return a message: its constant parts."""
    if isinstance(node, ast.Constant):
        found = str(node.value)
    elif isinstance(node, ast.JoinedStr):
        found = "".join(
            str(p.value) if isinstance(p, ast.Constant) else "{...}" for p in node.values
        )
    else:
        found = ast.unparse(node)
    found = " ".join(found.split())
    return found if len(found) <= _LONG else found[: _LONG - 3] + "..."


def use(node: ast.expr, statement: ast.stmt) -> str:
    """Return what becomes of a value: what it is assigned to, returned or handed to."""
    match statement:
        case ast.Return():
            return "the answer" if statement.value is node else f"in {short(statement)}"
        case ast.Assign(targets=targets):
            return f"sets {', '.join(ast.unparse(part) for part in targets)}"
        case ast.AnnAssign(target=target):
            return f"sets {ast.unparse(target)}"
        case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
            return f"decorates {statement.name}"
    return f"in {short(statement)}" if isinstance(statement, ast.Expr) else ""


def may_answer(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function returns anything."""
    return any(
        isinstance(part, ast.Return) and part.value is not None for part in in_scope(node.body)
    )


def lost_flags(node: ast.IfExp) -> tuple[str, ...]:
    """Return the flags that ``[...] + a if test else b`` gives to one side only.

    ``+`` binds closer than ``if``: the list belongs to the first side alone.
    """
    if not isinstance(node.body, ast.BinOp):
        return ()
    flags = [
        part.value
        for part in ast.walk(node.body)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
        and part.value.startswith("-")
    ]  # fmt: skip
    other = {part.value for part in ast.walk(node.orelse) if isinstance(part, ast.Constant)}
    return tuple(flag for flag in flags if flag not in other)
