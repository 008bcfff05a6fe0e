"""The CUDA behind a JIT module, read without a compiler: its files, guards and kernels."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from patchwright.audit.guards import Guard, guards
from patchwright.audit.trees import StoredTrees
from patchwright.c_syntax import CSyntaxError, closing, without_comments, without_literals
from patchwright.smoke.outcomes import SmokeError

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
_HEAD = re.compile(r"\b(\w+)\s*\(")
_EXPORT = re.compile(
    r"TVM_FFI_DLL_EXPORT_TYPED_FUNC\(\s*(\w+)\s*,\s*([\w:]+)|TORCH_LIBRARY_FRAGMENT"
)
_BARRIER = re.compile(
    r"cudaGridDependencySynchronize|cudaTriggerProgrammaticLaunchCompletion|griddepcontrol|"
    r"cluster_(?:arrive|wait|sync)|launch_dependent_grids|wait_on_dependent_grids"
)
_SEARCHED = ("csrc/", "include/", "csrc/nv_internal/", "csrc/nv_internal/include/")
_NO_FUNCTION = frozenset(
    {"if", "for", "while", "switch", "catch", "sizeof", "alignas", "defined", "decltype", "return",
     "__launch_bounds__", "static_assert", "asm"}
)  # fmt: skip


@dataclass(frozen=True)
class Body:
    """A function's body: its name and its lines, 1-based; ``kernel`` for ``__global__``."""

    name: str
    first: int
    last: int
    kernel: bool
    text: str


@dataclass(frozen=True)
class Lost:
    """What a guard takes from the target and gives to the reference.

    ``loss`` is ``kernel`` (a whole kernel's body), ``barrier`` or ``code``.
    """

    path: str
    line: int
    last: int  # the directive that ends the branch
    condition: str
    function: str
    kernel: bool
    loss: str


class Sources:
    """The CUDA files of one upstream in one state."""

    def __init__(self, trees: StoredTrees, upstream: str) -> None:
        self.trees = trees
        self.upstream = upstream
        self._bodies: dict[str, list[Body]] = {}
        self._lost: dict[tuple[str, str, str], list[Lost]] = {}

    @cached_property
    def _by_name(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self.trees.files(self.upstream):
            if path.startswith(("csrc/", "include/")):
                found.setdefault(path.rpartition("/")[2], []).append(path)
        return found

    def of_generator(self, path: str, name: str) -> list[str]:
        """Return the sources that a generator names, by repository path."""
        tree = self.trees.ast(self.upstream, path)
        found: list[str] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                for part in ast.walk(node):
                    if isinstance(part, ast.Constant) and str(part.value).endswith(".cu"):
                        file = str(part.value)
                        hits = self._by_name.get(file.rpartition("/")[2], [])
                        found += [p for p in hits if p.endswith(f"/{file}")]
        return list(dict.fromkeys(found))

    def closure(self, paths: Iterable[str]) -> list[str]:
        """Return files and those that they include from the upstream, vendored ones left out."""
        todo, done = list(paths), dict[str, None]()
        while todo:
            path = todo.pop()
            if path in done:
                continue
            done[path] = None
            for name in _INCLUDE.findall(self.trees.text(self.upstream, path)):
                found = self._included(path, name)
                if found is not None:
                    todo.append(found)
        return sorted(done)

    def _included(self, path: str, name: str) -> str | None:
        base = path.rpartition("/")[0]
        for folder in (f"{base}/", *_SEARCHED):
            candidate = _normal(folder + name)
            if self.trees.exists(self.upstream, candidate):
                return candidate
        return None

    def bodies(self, path: str) -> list[Body]:
        """Return the function bodies of a file, outermost functions only."""
        if path not in self._bodies:
            self._bodies[path] = list(_bodies(self.trees.text(self.upstream, path)))
        return self._bodies[path]

    def lost(self, path: str, reference: str, target: str) -> list[Lost]:
        """Return what the guards of a file give to the reference and not to the target."""
        key = (path, reference, target)
        if key not in self._lost:
            text = self.trees.text(self.upstream, path)
            found = [
                guard
                for guard in guards(text, (reference, target))
                if guard.directive != "else"
                and guard.reached[reference] is True and guard.taken[target] is False
            ]  # fmt: skip
            self._lost[key] = [self._judged(path, text, guard) for guard in found]
        return self._lost[key]

    def _judged(self, path: str, text: str, guard: Guard) -> Lost:
        lines = text.split("\n")
        last = _end_of_branch(lines, guard.line)
        span = "\n".join(lines[guard.line : last - 1])
        around = next((b for b in self.bodies(path) if b.first <= guard.line <= b.last), None)
        loss = "barrier" if _BARRIER.search(span) else "code"
        if around is not None and around.kernel:
            rest = lines[around.first - 1 : guard.line - 1] + lines[last : around.last]
            code = without_comments("\n".join(rest))
            code = re.sub(r"^[ \t]*#.*$", "", code, flags=re.MULTILINE)
            inside = code[code.find("{") + 1 : code.rfind("}")]
            if not re.sub(r"[\s{};]", "", inside):
                loss = "kernel"
        return Lost(path, guard.line, last, guard.condition, around.name if around else "",
                    around.kernel if around else False, loss)  # fmt: skip

    def exports(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the functions that sources export to Python: exported name to C++ name."""
        found = {}
        for path in paths:
            for name, function in _EXPORT.findall(self.trees.text(self.upstream, path)):
                if name:
                    found[name] = function.rpartition(":")[2]
        return found

    def reached_by(self, name: str, paths: Iterable[str]) -> set[str]:
        """Return the functions of files that can come to ``name``, by who mentions whom."""
        mentions = {
            body.name: set(re.findall(r"\b\w+\b", body.text))
            for path in paths
            for body in self.bodies(path)
        }
        found, todo = {name}, [name]
        while todo:
            wanted = todo.pop()
            for other, words in mentions.items():
                if wanted in words and other not in found:
                    found.add(other)
                    todo.append(other)
        return found


def _end_of_branch(lines: list[str], line: int) -> int:
    """Return the 1-based line of the directive that ends the branch which starts at ``line``."""
    depth = 0
    for number in range(line + 1, len(lines) + 1):
        word = re.match(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b", lines[number - 1])
        if word is None:
            continue
        if word[1].startswith("if"):
            depth += 1
        elif depth == 0:
            return number
        elif word[1] == "endif":
            depth -= 1
    return len(lines)


def _bodies(text: str) -> Iterator[Body]:
    plain = without_literals(text)
    plain = re.sub(
        r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda m: re.sub(r"[^\n]", " ", m[0]), plain,
        flags=re.MULTILINE,
    )  # fmt: skip
    at = 0
    while (match := _HEAD.search(plain, at)) is not None:
        at = match.end()
        if match[1] in _NO_FUNCTION:
            continue
        try:
            end = closing(plain, match.end() - 1) + 1
            tail = re.compile(r"[\w\s:<>,&*()]{0,200}?\{").match(plain, end)
            if tail is None or ";" in tail[0]:
                continue
            last = closing(plain, tail.end() - 1)
        except CSyntaxError:
            continue
        start = max(plain.rfind("}", 0, match.start()), plain.rfind(";", 0, match.start()), 0)
        before = plain[start : match.start()]
        first = plain.count("\n", 0, tail.end() - 1) + 1
        # The text as it stands: macros that are defined inside launch kernels, too.
        yield Body(match[1], first, plain.count("\n", 0, last) + 1, "__global__" in before,
                   text[tail.end() : last])  # fmt: skip
        at = last


def _normal(path: str) -> str:
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in (".", ""):
            parts.append(part)
    return "/".join(parts)


__all__ = ["Body", "Lost", "SmokeError", "Sources"]
