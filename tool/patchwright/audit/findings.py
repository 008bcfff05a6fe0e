"""What counts as a gate: the shapes in which the upstreams ask for the architecture."""

from __future__ import annotations

import ast
import re
from typing import Any

from patchwright.audit import effects
from patchwright.audit.evaluate import ARCHITECTURE_NAME, HAS_SM, PREDICATE_NAME
from patchwright.audit.externals import READS
from patchwright.audit.literals import literal
from patchwright.audit.lookup import Frame
from patchwright.audit.scanner import is_static
from patchwright.audit.slices import called_name, children, names_in, walk
from patchwright.audit.texts import TextScanner
from patchwright.audit.values import (
    NOTHING_KNOWN,
    UNKNOWN,
    Bound,
    Function,
    Instance,
    Properties,
    V,
    accepted,
    both,
    is_pair,
    negated,
)

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_FIXED_FLAGS = re.compile(r"^sm_?(\d{2,3})([af]?)_nvcc_flags$")
_ARCH_TEXT = re.compile(r"(?:sm_?)?\d{2,3}[af]?")
_MAJORS = "supported_major_versions"
_CAPABILITIES = "supported_compute_capability"
_BACKENDS = "backend_requirement"
# What turns a capability into another form of it: no decision.
_FORMS = {"str", "int", "tuple", "len", "print", "format", "isinstance", "Version", "float", "bool",
          "hasattr", "getattr", "lru_cache", "partial"}  # fmt: skip


class GateScanner(TextScanner):
    """The scanner that knows the shapes."""

    # Definitions and decorators

    def decorators(self, node: ast.ClassDef | _FUNCTIONS, frame: Frame) -> None:
        """A list of capabilities, or backends that each have one."""
        for part in node.decorator_list:
            if not isinstance(part, ast.Call):
                self.parts(part, node, frame)
                continue
            name = called_name(part)
            if name == _CAPABILITIES and part.args:
                given = self.evaluate(part.args[0], frame)
                self.recorded_as(
                    node.name, "decorator", part, self.in_list(given), "a call is refused"
                )
            elif name == _BACKENDS:
                self._backends(node, part, frame)
            else:
                self.parts(part, node, frame)

    def _backends(self, node: ast.ClassDef | _FUNCTIONS, call: ast.Call, frame: Frame) -> None:
        tables = [part for part in (*call.args, *(k.value for k in call.keywords))
                  if isinstance(part, ast.Dict)]  # fmt: skip
        for table in tables:
            for key, checker in zip(table.keys, table.values, strict=True):
                if key is not None:
                    value = self.requirement(checker, frame)
                    text = f"{effects.short(key)}: {effects.short(checker)}"
                    self.recorded_as(node.name, "backend", key, value, "a call is refused", text)
        for part in call.keywords if not any(table.keys for table in tables) else ():
            if part.arg == "common_check":
                value = self.requirement(part.value, frame)
                self.recorded_as(node.name, "backend", part.value, value, "a call is refused")

    def recorded_as(
        self, name: str, kind: str, node: ast.AST, value: V, effect: str, condition: str = ""
    ) -> None:
        """Record under a function that is not the one that is scanned."""
        before, self._function = self._function, ".".join(filter(None, (self._function, name)))
        self.record(kind, node, value, effect=effect, condition=condition)
        self._function = before

    def requirement(self, checker: ast.expr, frame: Frame) -> V:
        """Return whether a requirement function's decorator accepts the capability."""
        function = self.evaluate(checker, frame).known
        if isinstance(function, Function) and not isinstance(function.node, ast.Lambda):
            return self.accepts(function)
        return V(UNKNOWN, arch=True)

    def accepts(self, function: Function) -> V:
        """Return whether the capability list on a function, if any, accepts this one."""
        assert not isinstance(function.node, ast.Lambda)
        for part in function.node.decorator_list:
            if isinstance(part, ast.Call) and called_name(part) == _CAPABILITIES and part.args:
                return self.in_list(self.evaluate(part.args[0], Frame(function.module)))
        return V(UNKNOWN, arch=True)

    def in_list(self, given: V) -> V:
        """Return whether a list of numbers such as 103 holds the capability."""
        if not isinstance(given.known, list | tuple | set | frozenset) or UNKNOWN in given.known:
            return V(UNKNOWN, arch=True)
        return V(self.machine.number in given.known, arch=True)

    def definition(self, node: ast.ClassDef | _FUNCTIONS, frame: Frame) -> None:
        """A function that answers for the architecture."""
        if isinstance(node, ast.ClassDef):
            return
        name = ".".join(filter(None, (self._function, node.name)))
        if self._first is not None:
            if not self._first.functions.get(name):
                return
        elif not effects.may_answer(node):
            return
        made = Function(frame.module, node, frame if frame.is_function else None, frame.owner)
        own = frame.owner if not is_static(node) else None
        value = self.interpreted(made, [V(Instance(own))] if own is not None else [], {})
        if not value.arch:
            return
        if isinstance(value.known, bool | str) or (not value.is_known and _is_bool(node)):
            if not frame.is_function and frame.owner is None:
                self._scan.names.add(node.name)
            self.recorded_as(node.name, "definition", node, value, "answers", f"def {node.name}")
        elif not frame.is_function and frame.owner is None:
            self._scan.names.add(node.name)

    # Expressions

    def expression(self, node: ast.expr, statement: ast.stmt, frame: Frame) -> None:
        """A condition, or an expression with conditions inside."""
        if isinstance(statement, ast.If | ast.While | ast.Assert) and node is statement.test:
            value = self.evaluate(node, frame)
            if value.arch:
                self.record(
                    self.kind(node, statement, frame), node, value,
                    effect=effects.of_test(statement),
                )  # fmt: skip
            # What another platform decides alone is that platform's, with all that is in it.
            if value.arch or not (isinstance(node, ast.BoolOp) and value.is_known):
                self.parts(node, statement, frame, inside=value.arch)
            return
        if isinstance(statement, ast.Assign) and not frame.is_function and frame.owner is None:
            self._constant(statement, frame)
        self.parts(node, statement, frame)

    def _constant(self, statement: ast.Assign, frame: Frame) -> None:
        value = self.evaluate(statement.value, frame)
        for target in statement.targets:
            if not isinstance(target, ast.Name):
                continue
            if isinstance(value.known, Bound):
                answer = self.invoke(value.known, [], {}, arch=False)
                if answer.arch:
                    self._scan.names.add(target.id)
                    text = f"{target.id} = {effects.short(statement.value)}"
                    self.record("definition", target, answer, effect="answers", condition=text)
            elif value.arch:
                self._scan.names.add(target.id)

    def parts(  # noqa: PLR0912
        self, node: ast.AST, statement: ast.stmt, frame: Frame, *, inside: bool = False
    ) -> None:
        """Look for gates inside an expression; ``inside`` a condition that is recorded."""
        data = literal(node)
        if data is not None:
            self.data(data)
            return
        match node:
            case ast.Lambda() | ast.DictComp():
                return
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                for each, inner in _comprehended(node, frame):
                    self.parts(each, statement, inner)
                return
            case ast.IfExp():
                self._if_expression(node, statement, frame, inside)
                return
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                if not inside:
                    value = self.evaluate(node, frame)
                    if value.arch:
                        kind = self.kind(node, statement, frame)
                        self.record(kind, node, value, effect=effects.use(node, statement))
                        inside = True
                    elif isinstance(node, ast.BoolOp) and value.is_known:
                        return
            case ast.Call():
                inside = self._call(node, statement, frame, inside)
            case ast.Subscript(value=owner, slice=index):
                self._table(node, owner, index, statement, frame)
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                self._by_name(node, name, V())
                if (fixed := _FIXED_FLAGS.match(name)) is not None:
                    value = V(self.machine.builds_for(int(fixed[1]), fixed[2]), arch=True)
                    self.record(
                        "flags", node, value, effect="compiled for this one, whatever is asked"
                    )
                elif not inside and isinstance(node, ast.Name) and _bare(node, statement):
                    value = self.evaluate(node, frame)
                    if value.arch and isinstance(value.known, bool):
                        self.record("alias", node, value, effect=effects.use(node, statement))
            case ast.List(elts=elts) | ast.Tuple(elts=elts) | ast.Set(elts=elts):
                self.names_of_archs(node, elts)
            case ast.Constant(value=str(text)):
                self.text_of(node, text)
            case ast.JoinedStr():
                self.text_of(node, node)
                for piece in node.values:
                    if isinstance(piece, ast.FormattedValue):
                        self.parts(piece.value, statement, frame, inside=inside)
                return
        for part in children(node):
            below = part
            if isinstance(part, ast.keyword):
                self._keyword(part, statement, frame)
                below = part.value
            if isinstance(below, ast.expr):
                self.parts(
                    below, statement, frame, inside=inside and not isinstance(node, ast.Call)
                )

    def _if_expression(
        self, node: ast.IfExp, statement: ast.stmt, frame: Frame, inside: bool
    ) -> None:
        value = self.evaluate(node.test, frame)
        if value.arch:
            effect = f"then {effects.short(node.body)}; else {effects.short(node.orelse)}"
            if lost := effects.lost_flags(node):
                effect = f"then also {', '.join(lost)}, which the other side loses; {effect}"
            kind = (
                "flags"
                if "flags" in ast.unparse(node.orelse)
                else self.kind(node.test, statement, frame)
            )
            self.record(kind, node.test, value, effect=effect)
        self.parts(node.test, statement, frame, inside=value.arch or inside)
        for part in (node.body, node.orelse):
            self.parts(part, statement, frame)

    def _call(self, node: ast.Call, statement: ast.stmt, frame: Frame, inside: bool) -> bool:
        name = called_name(node)
        value = self.evaluate(node, frame)
        if value.arch and (name in READS or isinstance(value.known, Properties)):
            self.record("read", node, V(UNKNOWN, arch=True))
        elif value.arch and (isinstance(value.known, bool) or PREDICATE_NAME.search(name)):
            if not inside:
                self.record("predicate", node, value, effect=effects.use(node, statement))
        elif name not in _FORMS and name not in READS and not name.startswith("get_device_"):
            self._dispatch(node, statement, frame)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            self._table(node, node.func.value, node.args[0], statement, frame)
        return inside

    def _dispatch(self, node: ast.Call, statement: ast.stmt, frame: Frame) -> None:
        """A call that is handed the architecture, in whatever form."""
        for part in (*node.args, *(k.value for k in node.keywords)):
            if isinstance(part, ast.Compare | ast.BoolOp | ast.IfExp | ast.Call):
                continue
            given = self.evaluate(part, frame)
            if given.arch and type(given.known) in (str, int, tuple):
                self.record(
                    "dispatch", node, V(UNKNOWN, arch=True), effect=effects.use(node, statement)
                )
                return

    def _table(
        self, node: ast.expr, owner: ast.expr, index: ast.expr, statement: ast.stmt, frame: Frame
    ) -> None:
        if isinstance(index, ast.Slice | ast.Constant):
            return
        key = self.evaluate(index, frame)
        table = self.evaluate(owner, frame)
        if not key.arch or table.arch or isinstance(table.known, tuple | list | str):
            return
        plain = isinstance(key.known, int | str) or is_pair(key.known)
        if not isinstance(table.known, dict) and not plain:
            return  # A cache, or the grid of a kernel's launch.
        if not isinstance(table.known, dict):
            self.record("table", node, V(UNKNOWN, arch=True), effect=effects.use(node, statement))
            return
        if not table.known:
            return  # Filled later: what it holds is not known.
        value: bool | Any = key.known in table.known if key.is_known else UNKNOWN
        missing = "None" if isinstance(node, ast.Call) else "raises KeyError"
        self.record("table", node, V(value, arch=True), effect=f"where it is missing: {missing}")

    def _keyword(self, node: ast.keyword, statement: ast.stmt, frame: Frame) -> None:
        if node.arg != _MAJORS:
            return
        majors = self.evaluate(node.value, frame)
        value = accepted(majors.known, self.capability) if majors.is_known else None
        shown = f"{_MAJORS}={effects.short(node.value)}"
        self.record(
            "jit-list", node, V(UNKNOWN if value is None else value, arch=True),
            effect="otherwise raises: no supported CUDA architectures", condition=shown,
        )  # fmt: skip

    def match(self, node: ast.Match, frame: Frame) -> None:
        """Look at a ``match``: one gate, its cases in words."""
        subject = self.evaluate(node.subject, frame)
        if subject.arch:
            cases = ", ".join(ast.unparse(case.pattern) for case in node.cases)
            self.record("comparison", node.subject, V(UNKNOWN, arch=True), effect=f"cases {cases}")

    def otherwise(self, node: ast.If, frame: Frame) -> None:
        """The last ``else`` of a chain that raises: what no condition let through."""
        tests: list[ast.If] = [node]
        while len(tests[-1].orelse) == 1 and isinstance(tests[-1].orelse[0], ast.If):
            tests.append(tests[-1].orelse[0])
        last = tests[-1].orelse
        place = (getattr(last[0], "lineno", 0), getattr(last[0], "col_offset", 0)) if last else None
        if any(key[:2] == place and f.kind == "otherwise" for key, f in self._scan.found.items()):
            return  # Told at the head of the chain.
        if not last or not any(isinstance(part, ast.Raise) for part in last):
            return
        values = [negated(self.evaluate(part.test, frame)) for part in tests]
        value = both(values, conjunction=True)
        if value.arch:
            shown = "none of: " + " | ".join(effects.short(part.test) for part in tests)
            self.record(
                "otherwise", last[0], value, effect=effects.of_body(last), condition=shown[:300]
            )

    def kind(self, node: ast.expr, statement: ast.stmt, frame: Frame) -> str:
        """Return which kind of condition an expression is."""
        if (
            isinstance(statement, ast.If)
            and not frame.is_function
            and any(isinstance(part, ast.Import | ast.ImportFrom) for part in statement.body)
        ):
            return "import"
        kinds = set()
        for part in walk(node):
            if isinstance(part, ast.Call) and self.evaluate(part, frame).arch:
                known = isinstance(self.evaluate(part, frame).known, bool)
                if known or PREDICATE_NAME.search(called_name(part)):
                    kinds.add("predicate")
            elif isinstance(part, ast.Compare) and self.evaluate(part, frame).arch:
                if part in self.assumed:
                    kinds.add("parameter")
                else:
                    kinds.add("comparison" if self._of_capability(part, frame) else "derived")
            elif isinstance(part, ast.Name | ast.Attribute) and part in self.assumed:
                name = part.id if isinstance(part, ast.Name) else part.attr
                kinds.add("aot" if HAS_SM.match(name) and "has" in name else "parameter")
        order = ("predicate", "comparison", "aot", "parameter", "derived")
        return next((kind for kind in order if kind in kinds), "alias")

    def _of_capability(self, node: ast.Compare, frame: Frame) -> bool:
        """Return whether a comparison is one of the capability, not of what was set by it."""
        for part in (node.left, *node.comparators):
            value = self.evaluate(part, frame)
            name = str(getattr(part, "attr", getattr(part, "id", "")))
            if value.arch and (
                type(value.known) in (int, tuple)
                or (isinstance(value.known, str) and _ARCH_TEXT.fullmatch(value.known))
                or ARCHITECTURE_NAME.search(name)
                or any(isinstance(p, ast.Call) and called_name(p) in READS for p in walk(part))
            ):
                return True
        return False


def _comprehended(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame
) -> list[tuple[ast.expr, Frame]]:
    """Return the expressions of a comprehension, each with its frame: items are not known."""
    names = frozenset().union(*(names_in(g.target) for g in node.generators))
    inner = Frame(frame.module, frame, frame.owner, dict.fromkeys(names, NOTHING_KNOWN))
    tests = [test for g in node.generators for test in g.ifs]
    return [(part, inner) for part in (node.elt, *tests, *(g.iter for g in node.generators))]


def _bare(node: ast.Name, statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Return | ast.Assign) and statement.value is node


def _is_bool(node: _FUNCTIONS) -> bool:
    return PREDICATE_NAME.search(node.name) is not None or (
        node.returns is not None and ast.unparse(node.returns) == "bool"
    )
