"""Functions of a file by name, so that a change is compared where it belongs, not by line.

Python is read by its own parser. C and CUDA are read as git reads them for a hunk's
heading: a function starts on a line that begins in the first column, and goes on to the
next one. That is a heuristic: it decides no verdict by itself.
"""

from __future__ import annotations

import ast
import functools
import io
import re
from dataclasses import dataclass

_C_NAME = re.compile(rb"([A-Za-z_]\w*)\s*\(")
_C_TYPE = re.compile(rb"(?:struct|class|enum(?:\s+class)?|namespace)\s+([A-Za-z_]\w*)")
_NOT_NAMES = (b"__launch_bounds__", b"__attribute__", b"__align__", b"template", b"decltype",
              b"requires", b"alignas", b"defined")  # fmt: skip


@dataclass(frozen=True)
class Function:
    """A function or class: its dotted name, and its lines (0-based, half open)."""

    name: str
    start: int
    end: int
    is_class: bool = False


@functools.lru_cache(maxsize=32)  # the patches of a series change the same few files
def functions(path: bytes, data: bytes) -> tuple[Function, ...]:
    """Return the functions of a file; none where it cannot be read or is of another kind."""
    return _python(data) if path.endswith(b".py") else _c(io.BytesIO(data).readlines())


def around(known: tuple[Function, ...], line: int) -> Function | None:
    """Return the innermost function that holds a line (0-based)."""
    inside = [f for f in known if f.start <= line < f.end]
    return min(inside, key=lambda f: f.end - f.start, default=None)


def _python(data: bytes) -> tuple[Function, ...]:
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    found: list[Function] = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                start = min([child.lineno, *(d.lineno for d in child.decorator_list)]) - 1
                name = f"{prefix}{child.name}"
                end = child.end_lineno or child.lineno
                found.append(Function(name, start, end, isinstance(child, ast.ClassDef)))
                visit(child, f"{name}.")
            else:
                visit(child, prefix)

    visit(tree, "")
    return tuple(found)


def _c(lines: list[bytes]) -> tuple[Function, ...]:
    starts = [
        n for n, line in enumerate(lines)
        if re.match(rb"[A-Za-z_]", line) and not re.match(rb"\w+:\s*$|using\b|typedef\b", line)
    ]  # fmt: skip
    found: list[Function] = []
    at = 0
    while at < len(starts):
        start = starts[at]
        # `template <…>` and attributes stand on lines of their own before the name.
        end_of_head = next((n for n in range(start, min(start + 12, len(lines)))
                            if b"{" in lines[n] or b";" in lines[n]), start)  # fmt: skip
        head = b"".join(lines[start : end_of_head + 1]).partition(b"{")[0]
        following = [s for s in starts[at + 1 :] if s > end_of_head]
        end = following[0] if following else len(lines)
        name = _c_name(head)
        if name and b";" not in head and not head.startswith(b"namespace"):
            found.append(Function(name, start, end, b"(" not in head))
        at = starts.index(end) if following else len(starts)
    return tuple(found)


def _c_name(head: bytes) -> str:
    head = re.sub(rb"^template\s*<[^{;]*?>\s*\n", b"", head)
    names = [m[1] for m in _C_NAME.finditer(head) if m[1] not in _NOT_NAMES]
    if names:
        return names[0].decode()
    kind = _C_TYPE.match(head)
    return kind[1].decode() if kind is not None else ""
