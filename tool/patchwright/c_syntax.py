"""C and CUDA text: comments removed, brackets matched, expressions parsed.

Enough of C for preprocessor conditions, index expressions and simple statements; types
are not known, nothing is executed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_BRACKET = re.compile(r"[()\[\]{}]")
_NOISE = re.compile(
    r"//(?:[^\n\\]|\\.|\\\n)*"
    r"|/\*.*?\*/"
    r'|(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"'
    r'|"(?:[^"\\\n]|\\.|\\\n)*"'
    r"|(?<![0-9A-Za-z_])'(?:[^'\\\n]|\\.)+'",
    re.DOTALL,
)
_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F']+[uUlL]*|0[bB][01']+[uUlL]*|\d[\d']*[uUlL]*)(?![\w.])"
    r"|(?P<name>(?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)"
    r"|(?P<text>\"[^\"]*\"|'[^']*')"
    r"|(?P<operator><<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%<>=!~&|^?:()\[\].,{}]))"
)
# The alternative tokens of C++ (ISO 646), keywords also in the preprocessor.
_KEYWORDS = {"and": "&&", "or": "||", "not": "!", "bitand": "&", "bitor": "|", "xor": "^",
             "compl": "~", "not_eq": "!="}  # fmt: skip
_BINARY = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
_CASTS = frozenset({"static_cast", "reinterpret_cast", "const_cast", "dynamic_cast"})
_TYPES = frozenset(
    {
        "void",
        "bool",
        "char",
        "short",
        "int",
        "long",
        "float",
        "double",
        "unsigned",
        "signed",
        "size_t",
        "ssize_t",
        "int8_t",
        "uint8_t",
        "int16_t",
        "uint16_t",
        "int32_t",
        "uint32_t",
        "int64_t",
        "uint64_t",
        "uintptr_t",
        "intptr_t",
        "auto",
        "const",
    }
)  # fmt: skip


class CSyntaxError(ValueError):
    """A text that is not one C expression of the kind that is understood."""


@dataclass(frozen=True)
class Number:
    """An integer."""

    value: int


@dataclass(frozen=True)
class Name:
    """An identifier, with its namespaces."""

    name: str


@dataclass(frozen=True)
class Unary:
    """``- + ! ~ * &`` before its operand."""

    operator: str
    operand: Node


@dataclass(frozen=True)
class Binary:
    """Two operands and what stands between them."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Conditional:
    """``test ? then : otherwise``."""

    test: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True)
class Call:
    """``function(arguments)``."""

    function: Node
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Index:
    """``value[index]``."""

    value: Node
    index: Node


@dataclass(frozen=True)
class Member:
    """``value.name`` and ``value->name``."""

    value: Node
    name: str


@dataclass(frozen=True)
class Cast:
    """A cast, of which the type is only text."""

    type: str
    value: Node


Node = Number | Name | Unary | Binary | Conditional | Call | Index | Member | Cast


def arithmetic(operator: str, left: int, right: int) -> int | None:
    """Return a binary operation on integers as C does it; None for a division by zero."""
    if operator in ("/", "%"):
        if right == 0:
            return None
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if operator == "/" else left - quotient * right
    results = {
        "+": left + right, "-": left - right, "*": left * right,
        "==": left == right, "!=": left != right, "<": left < right, ">": left > right,
        "<=": left <= right, ">=": left >= right,
        "&": left & right, "|": left | right, "^": left ^ right,
        "&&": bool(left and right), "||": bool(left or right),
    }  # fmt: skip
    if operator in results:
        return int(results[operator])
    return left << right if operator == "<<" else left >> right


@lru_cache(maxsize=16)
def without_comments(text: str) -> str:
    """Replace comments by spaces; lines and columns stay, literals stay."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return re.sub(r"[^\n]", " ", found) if found.startswith(("//", "/*")) else found

    return _NOISE.sub(blank, text)


@lru_cache(maxsize=2048)
def without_literals(text: str) -> str:
    """Replace comments and the insides of literals by spaces: only code brackets remain."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        if found.startswith(("//", "/*")):
            return re.sub(r"[^\n]", " ", found)
        return found[0] + re.sub(r"[^\n]", " ", found[1:-1]) + found[-1]

    return _NOISE.sub(blank, text)


def closing(text: str, start: int) -> int:
    """Return the position of the bracket that closes the one at ``start``.

    ``text`` is without literals. Raises CSyntaxError where nothing closes it.
    """
    pairs = {"(": ")", "[": "]", "{": "}"}
    stack: list[str] = []
    for match in _BRACKET.finditer(text, start):
        bracket = match.group()
        if bracket in pairs:
            stack.append(pairs[bracket])
        elif not stack or stack.pop() != bracket:
            raise CSyntaxError(f"unbalanced {bracket!r}")
        if not stack:
            return match.start()
    raise CSyntaxError(f"nothing closes {text[start]!r}")


@lru_cache(maxsize=2048)
def parse(text: str) -> Node:
    """Parse one expression without assignments.

    Raises CSyntaxError for anything else.
    """
    parser = _Parser(text)
    node = parser.conditional()
    if parser.position < len(parser.tokens):
        raise CSyntaxError(f"{parser.tokens[parser.position][1]!r} is not expected in {text!r}")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        self.position = 0
        at = 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise CSyntaxError(f"{text[at:].strip()[:20]!r} is not understood in {text!r}")
            kind = str(match.lastgroup)
            value = match.group(kind)
            if kind == "name" and value in _KEYWORDS:
                kind, value = "operator", _KEYWORDS[value]
            self.tokens.append((kind, value))
            at = match.end()

    def peek(self) -> str:
        """Return the next token, or an empty text at the end."""
        return self.tokens[self.position][1] if self.position < len(self.tokens) else ""

    def take(self, expected: str = "") -> tuple[str, str]:
        """Return the next token and go on; CSyntaxError when it is not the expected one."""
        if self.position >= len(self.tokens) or (expected and self.peek() != expected):
            raise CSyntaxError(f"{expected or 'an operand'} is missing in {self.text!r}")
        self.position += 1
        return self.tokens[self.position - 1]

    def conditional(self) -> Node:
        """Parse ``test ? then : otherwise`` and everything that binds more tightly."""
        test = self.binary(1)
        if self.peek() != "?":
            return test
        self.take("?")
        then = self.conditional()
        self.take(":")
        return Conditional(test, then, self.conditional())

    def binary(self, level: int) -> Node:
        """Parse binary operators of at least this precedence."""
        left = self.unary()
        while (found := _BINARY.get(self.peek(), 0)) >= level:
            operator = self.take()[1]
            left = Binary(operator, left, self.binary(found + 1))
        return left

    def unary(self) -> Node:
        """Parse an operand with what stands before it."""
        if self.peek() in ("-", "+", "!", "~", "*", "&"):
            return Unary(self.take()[1], self.unary())
        if self.peek() == "(" and (end := self._cast_end()):
            type_ = " ".join(value for _, value in self.tokens[self.position + 1 : end])
            self.position = end + 1
            return Cast(type_, self.unary())
        return self.postfix(self.primary())

    def _cast_end(self) -> int:
        """The position of the ``)`` of a C cast such as ``(int64_t *)``; 0 where it is none."""
        at, words = self.position + 1, 0
        while at < len(self.tokens):
            kind, value = self.tokens[at]
            if kind == "name" and value.removeprefix("std::") in _TYPES:
                words += 1
            elif value == ")":
                return at if words else 0
            elif value not in ("*", "&"):
                return 0
            at += 1
        return 0

    def primary(self) -> Node:
        """Parse a number, a name, a cast operator or a parenthesis."""
        kind, value = self.take()
        if kind == "number":
            digits = value.replace("'", "").rstrip("uUlL")
            octal = len(digits) > 1 and digits.isdigit() and digits.startswith("0")
            return Number(int(digits, 8 if octal else 0))
        if kind == "name":
            if value in _CASTS:
                type_ = self._template()
                self.take("(")
                inner = self.conditional()
                self.take(")")
                return Cast(type_, inner)
            if value in ("true", "false"):
                return Number(int(value == "true"))
            return Name(value)
        if value == "(":
            inner = self.conditional()
            self.take(")")
            return inner
        if kind == "text":
            return Name(value)
        raise CSyntaxError(f"{value!r} is not expected in {self.text!r}")

    def _template(self) -> str:
        depth, parts = 0, []
        while True:
            value = self.take()[1]
            depth += value.count("<") - (value.count(">") if value in (">", ">>") else 0)
            parts.append(value)
            if depth == 0:
                return " ".join(parts[1:-1])

    def postfix(self, node: Node) -> Node:
        """Parse calls, subscripts and members after an operand."""
        while True:
            following = self.peek()
            if following == "(":
                node = Call(node, self._arguments())
            elif following == "[":
                self.take("[")
                index = self.conditional()
                self.take("]")
                node = Index(node, index)
            elif following in (".", "->"):
                self.take()
                node = Member(node, self.take()[1])
            else:
                return node

    def _arguments(self) -> tuple[Node, ...]:
        self.take("(")
        found: list[Node] = []
        while self.peek() != ")":
            found.append(self.conditional())
            if self.peek() != ")":
                self.take(",")
        self.take(")")
        return tuple(found)
