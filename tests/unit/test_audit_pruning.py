"""What is left out of a source before it is parsed, and which lines ask for an architecture."""

from __future__ import annotations

import ast

import pytest

from patchwright.audit.mentions import facts, marked, named, words
from patchwright.audit.pruning import Statements, divided, pruned

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
    less = pruned(data, marked(data), 12)
    assert less.count(b"\n") == data.count(b"\n")
    whole, short = _functions(ast.parse(data)), _functions(ast.parse(less))
    assert {n: (f.lineno, len(f.body)) for n, f in short.items()} == {
        "plain": (3, 1), "inside": (whole["inside"].lineno, 1), "gate": (whole["gate"].lineno, 21),
    }  # fmt: skip
    # A long function stays long: short ones are interpreted though they mention nothing.
    assert (short["plain"].end_lineno or 0) - 3 > 12
    assert ast.dump(short["gate"]) == ast.dump(whole["gate"])
    assert b"AFTER = 3" in less


def test_what_mentions_nothing_is_parsed_when_it_is_asked_for() -> None:
    data = b"""\
import torch

@cache
def helper(x):
    return '''
def inner():
    is_sm100_supported()
'''

class Idle(
    Base,
):
    size = 3

if torch:
    def below(): return 1

def gate():
    return is_sm100_supported()

def helper(y): return 2

LAST = gate()
"""
    text, parts = divided(data, (19,))
    assert text.count(b"\n") == data.count(b"\n")
    assert [(part.name, part.line) for part in parts] == [
        ("helper", 3),
        ("Idle", 10),
        ("helper", 21),
    ]
    eager = ast.parse(text)
    assert [type(n).__name__ for n in eager.body] == ["Import", "If", "FunctionDef", "Assign"]
    whole = ast.parse(data)
    made = Statements({"gate": (eager.body[2],)}, parts)
    assert set(made) == {"gate", "helper", "Idle"}
    assert "Idle" in made
    assert "inner" not in made
    lines = {"helper": (4, 21), "Idle": (10,), "gate": (18,)}
    for name, expected in lines.items():
        assert tuple(n.lineno for n in made[name]) == expected
        same = [n for n in whole.body if n.lineno in expected]
        assert [ast.dump(n) for n in made[name]] == [ast.dump(n) for n in same]
    assert divided(data, (3, 10, 18, 21))[0] is data


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
    assert marked(data) == (4, 5, 6)
    assert named(data, (b"fused_gate",)) == (7,)
    assert b"fused_gate" in words(data)
    assert not marked(b"x = cute.arch.thread_idx()\nresearch = 1\n")


def test_prose_and_kernels_names_do_not_ask() -> None:
    data = b'''\
"""For SM100 and is_sm120_supported()."""
import sm100_utils  # is_blackwell()
x = Sm120Kernel(sm100_utils.make(a), "an is_sm90_supported # text")
def f(self, sm_count, arch_config):
    r"""Only where is_blackwell() is."""
    return {"sm_100a": 1}, self.use_sm100_path, arch >= 90, arch_config.size
if has_arch(120): pass
'''
    assert marked(data) == (3, 6, 7)


def test_names_count_where_they_are_imported_from_the_upstreams() -> None:
    data = b"""\
from torch import is_foreign
from .utils import (  # (
    is_ours,  # is_not
    short as shorter_name,
)
import serve.other as other
from serve import things, more
other.predicate(x).ignored, things.sub.deep_predicate, self.attribute
"""
    found = facts(data, ("serve",))
    assert found.imported == {
        b"is_ours", b"shorter_name", b"things", b"predicate", b"deep_predicate",
    }  # fmt: skip
    assert (found.star, facts(b"from . import *\n", ()).star) == (False, True)


def test_a_broken_source_is_broken_however_little_is_parsed() -> None:
    data = b"x = (\ndef f():\n    return 1\n"
    with pytest.raises(SyntaxError):
        ast.parse(divided(data, ())[0])
