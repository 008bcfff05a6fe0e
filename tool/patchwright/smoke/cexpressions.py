"""Integer expressions and simple loops of C sources, evaluated with given values.

For layouts that two sources must agree on: where the host stores pointer k of buffer b,
and where the kernel reads it. What is stored may stay symbolic, an index may not: a name
that nobody gives is an error, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from patchwright.c_syntax import (
    Binary,
    Call,
    Cast,
    Conditional,
    CSyntaxError,
    Index,
    Member,
    Name,
    Node,
    Number,
    Unary,
    arithmetic,
    closing,
    parse,
    without_comments,
    without_literals,
)
from patchwright.smoke.outcomes import SmokeError

_ASSIGNS = re.compile(r"(<<|>>|[-+*/%&|^]|)=(?!=)")
_STOP = re.compile(r"[;(\[{]")
_CONSTANT = re.compile(
    r"\b(?:static\s+|inline\s+)*constexpr\s+(?:static\s+|inline\s+)*[\w:\s]*?\b(\w+)\s*=\s*([^;{}]+);"
)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\S[^\n]*)$", re.MULTILINE)
_ROUNDS = 10_000


@dataclass(frozen=True)
class CFunction:
    """A function's body, its braces included, and the 1-based line that it starts at."""

    name: str
    line: int
    body: str


@dataclass(frozen=True)
class Subscript:
    """``array[index]`` in a source; ``stored`` when it is what an assignment stores to."""

    line: int
    index: str
    stored: bool


@dataclass(frozen=True)
class Symbol:
    """A value that is not an integer: its source text, and the index where one is read.

    ``static_cast<int64_t*>(a.data_ptr())[3]`` is ``Symbol("a.data_ptr()", 3)``.
    """

    text: str
    index: int | None = None


Value = int | Symbol


@lru_cache(maxsize=128)  # tests ask the same header for each case that they look at
def functions(text: str, name: str) -> tuple[CFunction, ...]:
    """Return the functions of that name that have a body, overloads and members included.

    Raises SmokeError where there is none.
    """
    code, plain = without_comments(text), without_literals(text)
    found = []
    for match in re.finditer(rf"(?<![\w.>]){re.escape(name)}\s*(?:<[^<>()]*>\s*)?(?=\()", plain):
        try:
            end = closing(plain, plain.index("(", match.end())) + 1
            # Qualifiers, a trailing return type; an initialiser list is a constructor's.
            tail = re.compile(r"[\w\s:<>,&*]*\{").match(plain, end)
            if tail is None:
                continue
            body = tail.end() - 1
            last = closing(plain, body)
        except CSyntaxError:
            continue
        line = plain.count("\n", 0, body) + 1
        found.append(CFunction(name, line, code[body : last + 1]))
    if not found:
        raise SmokeError(f"the source defines no function {name}")
    return tuple(found)


def constants(text: str, variables: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the integer ``constexpr`` variables and object-like macros that have a value.

    ``variables`` are names known beforehand (those of an included header).
    """
    code = without_comments(text)
    given: dict[str, int] = dict(variables or {})
    found: dict[str, int] = {}
    for match in sorted(
        [*_CONSTANT.finditer(code), *_MACRO.finditer(code)], key=lambda match: match.start()
    ):
        try:
            value = evaluate(match[2], given)
        except SmokeError:
            continue
        if isinstance(value, int):
            given[match[1]] = found[match[1]] = value
    return found


def subscripts(text: str, array: str) -> tuple[Subscript, ...]:
    """Return every ``array[...]`` in a source, in order; declarations are left out.

    Raises SmokeError where there is none.
    """
    plain, code = without_literals(text), without_comments(text)
    found = []
    for match in re.finditer(rf"\b{re.escape(array)}\s*\[", plain):
        end = closing(plain, match.end() - 1)
        before = plain[: match.start()].rstrip()
        if before[-1:] in ("*", "&") or re.search(r"[\w>]$", before):
            word = re.search(r"\w+$", before)
            if word is None or word.group() not in ("return", "case", "else"):
                continue  # A type before it: `void* array[4];`
        stored = re.match(r"\s*=(?!=)", plain[end + 1 :]) is not None
        line = plain.count("\n", 0, match.start()) + 1
        found.append(Subscript(line, " ".join(code[match.end() : end].split()), stored))
    if not found:
        raise SmokeError(f"the source has no {array}[...]")
    return tuple(found)


def evaluate(expression: str, variables: Mapping[str, int]) -> Value:
    """Return the value of an expression: an integer, or a Symbol where no operator needs one.

    ``variables`` are the values of names; a member or a call is named by its text
    (``params.local_rank``, ``weight.has_value()``). Raises SmokeError for an operand
    that has no value and for text that is not an expression.
    """
    try:
        return _value(parse(expression), variables)
    except CSyntaxError as error:
        raise SmokeError(str(error)) from error


def stores(body: str, array: str, variables: Mapping[str, int]) -> dict[int, Value]:
    """Run what a function body stores to ``array[...]``: index to value, the last one wins.

    ``for`` loops and ``if``s around the stores are run with ``variables``, which must
    hold what their conditions and the indices read; locals that are assigned an integer
    on the way are known. Everything else in the body is passed over. Raises SmokeError
    where a store cannot be evaluated, or none is made.
    """
    run = _Run(array, dict(variables))
    run.block(_strip_directives(without_comments(body)))
    if not run.stored:
        raise SmokeError(f"nothing is stored to {array}[...]")
    return run.stored


def text_of(node: Node) -> str:  # noqa: PLR0911
    """Return the text of a name, member, call or subscript without its casts."""
    match node:
        case Number(value):
            return str(value)
        case Name(name):
            return name
        case Member(value, name):
            return f"{text_of(value)}.{name}"
        case Call(function, arguments):
            return f"{text_of(function)}({', '.join(map(text_of, arguments))})"
        case Index(value, index):
            return f"{text_of(value)}[{text_of(index)}]"
        case Cast(_, value):
            return text_of(value)
        case Unary(operator, operand):
            return f"{operator}{text_of(operand)}"
        case Binary(operator, left, right):
            return f"({text_of(left)} {operator} {text_of(right)})"
        case Conditional(test, then, otherwise):
            return f"({text_of(test)} ? {text_of(then)} : {text_of(otherwise)})"


def _value(node: Node, variables: Mapping[str, int]) -> Value:  # noqa: PLR0911
    match node:
        case Number(value):
            return value
        case Cast(_, value):
            return _value(value, variables)
        case Name() | Member() | Call():
            text = text_of(node)
            return variables[text] if text in variables else Symbol(text)
        case Index(value, index):
            text = text_of(node)
            if text in variables:
                return variables[text]
            return Symbol(text_of(value), _integer(index, variables))
        case Unary("&" | "*", operand):
            return Symbol(node.operator + text_of(operand))
        case Unary(operator, operand):
            number = _integer(operand, variables)
            return {"-": -number, "+": number, "!": int(not number), "~": ~number}[operator]
        case Conditional(test, then, otherwise):
            return _value(then if _integer(test, variables) else otherwise, variables)
        case Binary("&&", left, right):
            return int(bool(_integer(left, variables) and _integer(right, variables)))
        case Binary("||", left, right):
            return int(bool(_integer(left, variables) or _integer(right, variables)))
        case Binary(operator, left, right):
            result = arithmetic(operator, _integer(left, variables), _integer(right, variables))
            if result is None:
                raise SmokeError(f"{text_of(node)} divides by zero")
            return result


def _integer(node: Node, variables: Mapping[str, int]) -> int:
    value = _value(node, variables)
    if isinstance(value, Symbol):
        raise SmokeError(f"{value.text} has no value: give it in variables")
    return value


def _strip_directives(text: str) -> str:
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", "", text, flags=re.MULTILINE)


class _Run:
    """Runs the statements of a body for their stores to one array."""

    def __init__(self, array: str, variables: dict[str, int]) -> None:
        self.array = re.compile(rf"\b{re.escape(array)}\s*\[")
        self.variables = variables
        self.stored: dict[int, Value] = {}
        self.rounds = 0

    def block(self, text: str) -> None:
        """Run a statement list, with or without braces around it."""
        text = text.strip()
        if text.startswith("{") and closing(without_literals(text), 0) == len(text) - 1:
            text = text[1:-1]
        at = 0
        while at < len(text):
            at = self.statement(text, at)

    def statement(self, text: str, at: int) -> int:
        """Run the statement that starts at a position; return where the next one starts."""
        rest = text[at:]
        lead = len(rest) - len(rest.lstrip())
        at, rest = at + lead, rest[lead:]
        if not rest:
            return len(text)
        plain = without_literals(rest)
        if rest.startswith("{"):
            end = closing(plain, 0) + 1
            self.block(rest[1 : end - 1])
            return at + end
        head = re.match(r"(for|while|switch|if(?:\s+constexpr)?)\s*\(", plain)
        if head is not None:
            inside = closing(plain, head.end() - 1)
            end = self.extent(plain, inside + 1)
            clause, branch = rest[head.end() : inside], rest[inside + 1 : end]
            other = re.compile(r"\s*else\b").match(plain, end)
            otherwise = ""
            if head[1].startswith("if") and other is not None:
                end = self.extent(plain, other.end())
                otherwise = rest[other.end() : end]
            if self.array.search(branch) or self.array.search(otherwise):
                self.compound(head[1], clause, branch, otherwise)
            return at + end
        end = self.extent(plain, 0)
        self.simple(rest[:end].rstrip().removesuffix(";"))
        return at + end

    def extent(self, plain: str, at: int) -> int:
        """Return where the statement that starts at ``at`` ends."""
        start = re.compile(r"\s*").match(plain, at)
        at = start.end() if start is not None else at
        if plain.startswith("{", at):
            return closing(plain, at) + 1
        head = re.compile(r"(?:for|while|switch|if(?:\s+constexpr)?)\s*\(").match(plain, at)
        if head is not None:
            end = self.extent(plain, closing(plain, head.end() - 1) + 1)
            other = re.compile(r"\s*else\b").match(plain, end)
            return self.extent(plain, other.end()) if other is not None else end
        while (stop := _STOP.search(plain, at)) is not None and stop.group() != ";":
            at = closing(plain, stop.start()) + 1
        at = stop.start() if stop is not None else len(plain)
        return min(at + 1, len(plain))

    def compound(self, word: str, clause: str, branch: str, otherwise: str) -> None:
        """Run a loop or an ``if`` that holds a store."""
        if word.startswith("if"):
            self.block(branch if self.number(clause) else otherwise)
            return
        parts = clause.split(";")
        if word != "for" or len(parts) != 3:
            raise SmokeError(f"a store stands inside `{word} ({clause})`, which is not run")
        self.simple(parts[0])
        while not parts[1].strip() or self.number(parts[1]):
            self.rounds += 1
            if self.rounds > _ROUNDS:
                raise SmokeError(f"`for ({clause})` does not end")
            self.block(branch)
            self.simple(parts[2], must=True)

    def simple(self, text: str, *, must: bool = False) -> None:
        """Run an assignment; a statement with a lambda or block inside runs the block."""
        stores = self.array.search(text) is not None
        step = re.fullmatch(r"\s*(?:(\+\+|--)\s*(\w+)|(\w+)\s*(\+\+|--))\s*", text)
        if step is not None:
            name, sign = step[2] or step[3], step[1] or step[4]
            self.assign(name, lambda: self.variables[name] + (1 if sign == "++" else -1))
            return
        sides = _assignment(text)
        if sides is None:
            plain = without_literals(text)
            at = plain.find("{")
            while stores and at >= 0:
                end = closing(plain, at)
                self.block(text[at + 1 : end])
                at = plain.find("{", end)
            if must:
                raise SmokeError(f"{text.strip()!r} is not run")
            return
        left, operator, right = sides
        target = self.array.search(left)
        if target is not None:
            end = closing(without_literals(left), target.end() - 1)
            if operator or left[end + 1 :].strip():
                raise SmokeError(f"{text.strip()!r} is not a plain store")
            index = self.number(left[target.end() : end])
            self.stored[index] = evaluate(right, self.variables)
            return
        name = re.findall(r"\w+", left)[-1] if re.fullmatch(r"[\w\s:<>*&]+", left) else ""
        if name:
            full = f"{name} {operator} ({right})" if operator else right
            self.assign(name, lambda: self.number(full))

    def assign(self, name: str, value: Callable[[], int]) -> None:
        """Give a local its integer; without one it has no value from here on."""
        try:
            self.variables[name] = value()
        except (SmokeError, KeyError):
            self.variables.pop(name, None)

    def number(self, text: str) -> int:
        """Return the integer value of an expression; SmokeError where it has none."""
        try:
            return _integer(parse(text), self.variables)
        except CSyntaxError as error:
            raise SmokeError(str(error)) from error


def _assignment(text: str) -> tuple[str, str, str] | None:
    """Split ``left op= right`` at the assignment that stands outside all brackets."""
    plain = without_literals(text)
    if "=" not in plain:
        return None
    at = 0
    while at < len(plain):
        if plain[at] in "([{":
            at = closing(plain, at) + 1
            continue
        match = _ASSIGNS.match(plain, at)
        if match is not None and plain[at - 1 : at] not in tuple("=!<>"):
            return text[:at], match[1], text[match.end() :]
        at += 2 if plain.startswith(("==", "!=", "<=", ">="), at) else 1
    return None
