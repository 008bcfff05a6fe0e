"""Gates in texts: names of architectures, compiler flags, the variable that sets what is built."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

from patchwright.audit.scanner import Scanner
from patchwright.audit.values import UNKNOWN, V

_GENCODE = re.compile(r"compute_(\d{2,3})([af]?)")
_ARCH_NAME = re.compile(r"sm_?(\d{2,3})[af]?")
_ARCH_ENV = re.compile(r"[A-Z_]*CUDA_ARCH_LIST")


class TextScanner(Scanner):
    """The scanner that knows what texts say."""

    def data(self, parts: Sequence[ast.expr]) -> None:
        """Look at a literal: names of architectures in it, and compiler flags."""
        for part in parts:
            if isinstance(part, ast.Constant):
                self.text_of(part, part.value)
            else:
                self.names_of_archs(part, getattr(part, "elts", []))

    def names_of_archs(self, node: ast.expr, elts: list[ast.expr]) -> None:
        texts = [p.value for p in elts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
        names = [found for text in texts if (found := _ARCH_NAME.fullmatch(text))]
        if elts and len(names) == len(elts):
            value = any(int(found[1]) == self.machine.number for found in names)
            self.record("arch-list", node, V(value, arch=True))

    def text_of(self, node: ast.expr, text: object) -> None:
        constant = text if isinstance(text, str) else ""
        if isinstance(text, ast.JoinedStr):
            constant = "".join(str(p.value) for p in text.values if isinstance(p, ast.Constant))
        if "gencode" in constant or _GENCODE.search(constant) or constant.startswith("compute_"):
            archs = _GENCODE.findall(constant)
            value: Any = UNKNOWN
            if archs and len(constant) < 200:
                value = any(self.machine.builds_for(int(n), s) for n, s in archs)
            self.record("gencode", node, V(value, arch=True))
        elif "CUDA_ARCH" in constant and _ARCH_ENV.fullmatch(constant):
            self.record("environment", node, V(UNKNOWN, arch=True))
