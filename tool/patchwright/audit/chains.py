"""Follows what a gate lets through: from a condition's branch to what it ends in.

Calls are followed with the values that they are handed, into the other upstream, through
the branches that the capability could take. A chain ends where the capability is refused:
by an operator's list, by a JIT module's list, by a raise, or by a declared fact.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from patchwright.audit import effects
from patchwright.audit.findings import GateScanner
from patchwright.audit.knowledge import Knowledge
from patchwright.audit.lookup import Frame
from patchwright.audit.scanner import is_static, terminates
from patchwright.audit.values import (
    UNKNOWN,
    Bound,
    ClassOf,
    Function,
    Instance,
    V,
    accepted,
    joined,
    negated,
)
from patchwright.smoke.bindings import bound

_BUDGET = 400
_SPEC = "gen_jit_spec"
_FIXED = re.compile(r"^sm_?(\d{2,3})([af]?)_nvcc_flags$")


@dataclass(frozen=True)
class Step:
    """One function on a chain; ``called_at`` is the line in the step before (0: the first)."""

    upstream: str
    path: str
    line: int
    function: str
    called_at: int = 0


@dataclass(frozen=True)
class Refusal:
    """The end of a chain: ``kind`` is ``operator``, ``module``, ``raise`` or ``declared``.

    ``why`` is a sentence without a full stop; ``source`` says where a declared fact is from.
    """

    kind: str
    name: str
    why: str
    upstream: str
    path: str
    line: int
    source: str = ""


@dataclass(frozen=True)
class Chain:
    """A way from a gate to its end; ``when`` are the other conditions on it."""

    steps: tuple[Step, ...]
    refusal: Refusal | None
    when: tuple[str, ...] = ()
    module: str = ""  # the JIT generator that it ends in, path::name


class Follower(GateScanner):
    """Follows calls for one capability; ``chains`` are those found."""

    def prepare(self, knowledge: Knowledge) -> None:
        """Set what is declared."""
        self.knowledge = knowledge
        self.chains: list[Chain] = []
        self.asked: set[str] = set()
        self._seen: set[tuple[int, tuple[object, ...]]] = set()
        self._left = _BUDGET

    def follow(self, function: Function, inside: Sequence[ast.stmt], first: Step) -> list[Chain]:
        """Return the chains that start in statements of a function (its body: all of them)."""
        self.chains, self.asked, self._seen, self._left = [], set(), set(), _BUDGET
        given = [V(Instance(function.owner))] if function.owner and not _static(function) else []
        frame = self.frame_of(function, given, {})
        body = [] if isinstance(function.node, ast.Lambda) else function.node.body
        wanted = {id(part) for part in inside}
        self._walk(body, frame, (first,), (), (), wanted)
        return self.chains

    # Walking

    def _walk(  # noqa: PLR0912
        self, body: Sequence[ast.stmt], frame: Frame, steps: tuple[Step, ...],
        when: tuple[str, ...], path: tuple[V, ...], wanted: set[int] | None,
    ) -> None:  # fmt: skip
        """Walk statements; ``wanted`` are those that count, None where all do."""
        for node in body:
            if self._left <= 0:
                return
            self.steps = 0
            inside = None if wanted is None or id(node) in wanted else wanted
            active = inside is None
            match node:
                case ast.If():
                    when, path = self._branches(node, frame, steps, when, path, inside)
                    if path and path[-1].truth is False:
                        return
                case ast.Try():
                    for block in (node.body, node.orelse, node.finalbody):
                        self._walk(block, frame, steps, when, path, inside)
                case ast.With() | ast.AsyncWith():
                    if active:
                        for item in node.items:
                            self._calls(item.context_expr, frame, steps, when)
                    self._walk(node.body, frame, steps, when, path, inside)
                case ast.For() | ast.While() | ast.AsyncFor():
                    self._forget(bound(node), frame)
                    self._walk(node.body, frame, steps, when, path, inside)
                case ast.Raise():
                    if active and path and path[-1].arch and all(v.truth for v in path if v.arch):
                        self._raised(node, steps, when, frame)
                    return
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    self.statement(node, frame)
                case _:
                    if active:
                        for part in ast.iter_child_nodes(node):
                            if isinstance(part, ast.expr):
                                self._calls(part, frame, steps, when)
                    if isinstance(node, ast.Return):
                        return
                    self.statement(node, frame)

    def _branches(
        self, node: ast.If, frame: Frame, steps: tuple[Step, ...], when: tuple[str, ...],
        path: tuple[V, ...], wanted: set[int] | None,
    ) -> tuple[tuple[str, ...], tuple[V, ...]]:  # fmt: skip
        tested = self.evaluate(node.test, frame)
        if wanted is None:
            self._calls(node.test, frame, steps, when)
        text = effects.short(node.test)
        start = dict(frame.locals)
        # A place that is asked for is walked into, whatever its condition is.
        ask = wanted is not None and any(id(p) in wanted for p in ast.walk(node))
        if tested.truth is not False or ask:
            more = () if tested.truth else (text,)
            self._walk(node.body, frame, steps, (*when, *more), (*path, tested), wanted)
        after, frame.locals = frame.locals, dict(start)
        if (tested.truth is not True or ask) and node.orelse:
            more = () if tested.truth is False else (f"not ({text})",)
            self._walk(node.orelse, frame, steps, (*when, *more), (*path, negated(tested)), wanted)
        if tested.truth:
            frame.locals = after
        elif tested.truth is None:
            frame.locals = joined(after, frame.locals, arch=tested.arch)
        if terminates(node.body):
            return when, (*path, negated(tested))
        return when, path

    def _calls(
        self, node: ast.expr, frame: Frame, steps: tuple[Step, ...], when: tuple[str, ...]
    ) -> None:
        """Go into what an expression calls, and into the functions that it names."""
        called: set[int] = set()
        for part in _parts(node):
            if isinstance(part, ast.Call):
                called.add(id(part.func))
                args = [self.evaluate(a, frame) for a in part.args]
                kwargs = {k.arg: self.evaluate(k.value, frame) for k in part.keywords if k.arg}
                name = str(getattr(part.func, "attr", getattr(part.func, "id", "")))
                self.asked.add(name)
                if name == "SimpleNamespace":
                    # A table of functions, too.
                    called.update(id(k.value) for k in part.keywords)
                    continue
                for target in self._targets(self.evaluate(part.func, frame), name, frame):
                    self._enter(target, args, kwargs, part.lineno, steps, when)
            elif isinstance(part, ast.Dict):
                # A table of functions: which one is taken is told where it is read.
                called.update(id(v) for v in ast.walk(part))
            elif isinstance(part, ast.Name | ast.Attribute) and id(part) not in called:
                value = self.evaluate(part, frame).known
                if isinstance(value, Function) and not isinstance(value.node, ast.Lambda):
                    self._enter(value, None, {}, part.lineno, steps, when)

    def _targets(self, value: V, name: str, frame: Frame) -> Iterator[Function | Bound]:
        known = value.known
        if isinstance(known, Function | Bound):
            yield known
        elif isinstance(known, ClassOf):
            for method in ("__init__", "__post_init__"):
                found = self.member(known, method, V(Instance(known))).known
                if isinstance(found, Bound):
                    yield found
        elif isinstance(known, Instance):
            for method in ("forward", "__call__"):
                found = self.member(known.of, method, value).known
                if isinstance(found, Bound):
                    yield found
        elif known is UNKNOWN and len(name) > 12:
            yield from self.methods(name, frame.module.upstream)

    def methods(self, name: str, upstream: str) -> list[Bound]:
        """Return the methods of that name in an upstream, where there are few; see uses.py."""
        return []

    def _enter(
        self, target: Function | Bound, args: list[V] | None, kwargs: dict[str, V], line: int,
        steps: tuple[Step, ...], when: tuple[str, ...],
    ) -> None:  # fmt: skip
        while isinstance(target, Bound):
            args = [*target.args, *(args or [])]
            kwargs = {**target.kwargs, **kwargs}
            if not isinstance(target.function, Function | Bound):
                return
            target = target.function
        if isinstance(target.node, ast.Lambda):
            return
        frame = self.frame_of(target, args or [], kwargs)
        if args is None:
            # Only named: with what it will be called is not known.
            for parameter in ast.walk(target.node.args):
                if isinstance(parameter, ast.arg):
                    frame.locals[parameter.arg] = V()
        plain = tuple(
            v.known if isinstance(v.known, str | bool | int) else None
            for v in frame.locals.values()
        )
        key = (id(target.node), plain)
        if key in self._seen or len(steps) > 12:
            return
        self._seen.add(key)
        self._left -= 1
        module = target.module
        here = Step(module.upstream, module.path, target.node.lineno, _qualified(target), line)
        way = (*steps, here)
        refusal = self._refusal(target, frame, here)
        if refusal is not None:
            self.chains.append(Chain(way, refusal, when))
            return
        if self._is_generator(target):
            self._module(target, frame, way, when)
            return
        self._walk(target.node.body, frame, way, when, (), None)

    # Ends

    def _raised(
        self, node: ast.Raise, steps: tuple[Step, ...], when: tuple[str, ...], frame: Frame
    ) -> None:
        if len(steps) < 2:
            return  # The gate's own refusal is no route that leads to one.
        here = steps[-1]
        why = effects.of_body([node]).removeprefix("raises ")
        refusal = Refusal("raise", here.function, f"{here.function} raises {why}",
                          frame.module.upstream, frame.module.path, node.lineno)  # fmt: skip
        self.chains.append(Chain(steps, refusal, when))

    def _refusal(self, target: Function, frame: Frame, here: Step) -> Refusal | None:
        assert not isinstance(target.node, ast.Lambda)
        fact = self.knowledge.refuses(target.module.upstream, here.path, here.function,
                                      self.capability)  # fmt: skip
        if fact is not None:
            return Refusal("declared", here.function, fact.why, here.upstream, here.path, here.line,
                           fact.source)  # fmt: skip
        own = self.accepts(target)
        if own.truth is False:
            return self._operator(here, here.function)
        for part in target.node.decorator_list:
            if isinstance(part, ast.Call) and part.args and isinstance(part.args[0], ast.Dict):
                found = self._backend(target, part.args[0], part, frame, here)
                if found is not None:
                    return found
        return None

    def _backend(
        self, target: Function, table: ast.Dict, call: ast.Call, frame: Frame, here: Step
    ) -> Refusal | None:
        outer = Frame(target.module)
        backend = frame.locals.get("backend", V()).known
        answers = {}
        for key, checker in zip(table.keys, table.values, strict=True):
            if key is not None:
                answers[self.evaluate(key, outer).known] = self.requirement(checker, outer).truth
        if not answers:
            for part in call.keywords:
                if (
                    part.arg == "common_check"
                    and self.requirement(part.value, outer).truth is False
                ):
                    return self._operator(here, here.function)
            return None
        if backend in answers:
            if answers[backend] is False:
                return self._operator(here, f"{here.function}(backend={backend!r})")
        elif all(value is False for value in answers.values()):
            return self._operator(here, f"every backend of {here.function}")
        return None

    def _operator(self, here: Step, what: str) -> Refusal:
        why = f"{what} refuses compute capability {self.shown}"
        return Refusal("operator", here.function, why, here.upstream, here.path, here.line)

    @property
    def shown(self) -> str:
        """The capability as people write it."""
        return f"{self.capability[0]}.{self.capability[1]}"

    def _is_generator(self, target: Function) -> bool:
        return any(
            isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == _SPEC
            for part in ast.walk(target.node)
        ) or (target.name.startswith("gen_") and target.name.endswith("_module"))

    def _module(
        self, target: Function, frame: Frame, way: tuple[Step, ...], when: tuple[str, ...]
    ) -> None:
        """Take down the JIT module that a chain ends in, with whether it builds."""
        here = way[-1]
        why = ""
        for part in ast.walk(target.node):
            if isinstance(part, ast.keyword) and part.arg == "supported_major_versions":
                majors = self.evaluate(part.value, frame).known
                if majors is not UNKNOWN and accepted(majors, self.capability) is False:
                    why = (f"opens onto {here.function}, which does not build for major version "
                           f"{self.capability[0]} (it lists {list(majors)})")  # fmt: skip
        fixed = [] if isinstance(target.node, ast.Lambda) else self._fixed(target.node.body, frame)
        if not why and fixed and not any(self.machine.builds_for(n, s) for n, s in fixed):
            names = ", ".join(f"sm_{n}{s}" for n, s in fixed)
            why = f"opens onto {here.function}, which is compiled for {names} whatever is asked"
        refusal = None
        if why:
            refusal = Refusal("module", here.function, why, here.upstream, here.path, here.line)
        self.chains.append(Chain(way, refusal, when, f"{here.path}::{here.function}"))

    def _fixed(self, nodes: Iterable[ast.AST], frame: Frame) -> list[tuple[int, str]]:
        """Return the architectures of flags that are used whatever is asked.

        Where a condition is not known, those count that either branch uses.
        """
        found: list[tuple[int, str]] = []
        for node in nodes:
            if isinstance(node, ast.If | ast.IfExp):
                first, second = _branch(node.body), _branch(node.orelse)
                tested = self.evaluate(node.test, frame).truth
                one = self._fixed(first, frame) if tested is not False else []
                other = self._fixed(second, frame) if tested is not True else []
                if tested is None and not (one and other):
                    # A branch without any is another way to build, unless it refuses.
                    one = one if _raises(second) else []
                    other = other if _raises(first) else []
                found += [*one, *other]
            elif isinstance(node, ast.Name) and (match := _FIXED.match(node.id)):
                found.append((int(match[1]), match[2]))
            else:
                found += self._fixed(ast.iter_child_nodes(node), frame)
        return found


def _qualified(function: Function) -> str:
    if function.owner is not None and function.outer is None:
        return f"{function.owner.node.name}.{function.name}"
    return function.name


def _static(function: Function) -> bool:
    return not isinstance(function.node, ast.Lambda) and is_static(function.node)


def _raises(body: Sequence[object]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Raise)


def _branch(part: object) -> list[Any]:
    return part if isinstance(part, list) else [part]


def _parts(node: ast.expr) -> Iterator[ast.AST]:
    todo: list[ast.AST] = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, ast.Lambda):
            continue
        yield part
        todo.extend(ast.iter_child_nodes(part))
