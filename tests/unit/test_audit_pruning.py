"""What is left out of a source before it is parsed, and which lines ask for an architecture."""

from __future__ import annotations

import ast

import pytest

from patchwright.audit.mentions import marked, mentions, words
from patchwright.audit.pruning import parsed, pruned

LONG = "".join(f"    x{n} = {n}\n" for n in range(20))
SOURCE = f"""\
import torch

def plain(a,
          b):
{LONG}
    return x1

class Holder:
    def inside(self):
{LONG.replace("    ", "        ")}
        return 2

    def gate(self):
{LONG.replace("    ", "        ")}
        return is_sm100_supported()

AFTER = 3
"""


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def test_bodies_that_mention_nothing_are_left_out_and_lines_stay() -> None:
    data = SOURCE.encode()
    less = pruned(data, marked(data, ()), 12)
    assert less.count(b"\n") == data.count(b"\n")
    whole, short = _functions(ast.parse(data)), _functions(ast.parse(less))
    assert {n: (f.lineno, len(f.body)) for n, f in short.items()} == {
        "plain": (3, 1), "inside": (whole["inside"].lineno, 1), "gate": (whole["gate"].lineno, 21),
    }  # fmt: skip
    # A long function stays long: short ones are interpreted though they mention nothing.
    assert (short["plain"].end_lineno or 0) - 3 > 12
    assert ast.dump(short["gate"]) == ast.dump(whole["gate"])
    assert b"AFTER = 3" in less


def test_a_text_that_looks_like_code_does_not_hide_the_rest() -> None:
    text = f'def made():\n    return """\ndef inner():\n{LONG}"""\n\ndef after():\n    return 1\n'
    data = text.encode()
    tree = parsed(data, pruned(data, (), 12), "x.py")
    assert {n: f.lineno for n, f in _functions(tree).items()} == {"made": 1, "after": 26}
    broken = b"x = (\n" + data
    assert pruned(broken, (), 12) != broken
    with pytest.raises(SyntaxError):
        parsed(broken, pruned(broken, (), 12), "x.py")


def test_lines_that_ask_for_an_architecture() -> None:
    data = b"""\
import cutlass
x = cute.arch.thread_idx()
research = search_all()
if get_device_capability()[0] >= 10: pass
names = ["90", 'sm_100']
FLASHINFER_CUDA_ARCH_LIST
helper = fused_gate(x)
other_fused_gate(x)
"""
    assert marked(data, ()) == (4, 5, 6)
    assert marked(data, (b"fused_gate",)) == (4, 5, 6, 7)
    assert b"fused_gate" in words(data)
    assert not mentions(b"x = cute.arch.thread_idx()\nresearch = 1\n")
