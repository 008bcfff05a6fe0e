"""What stands in for the real thing is announced, so that a run's record can name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchwright.smoke.decisions import FunctionGate, decision_table
from patchwright.smoke.jit import jit_spec
from patchwright.smoke.torch_stub import StubDtype, StubGap, finfo
from tiny_flashinfer import GENERATOR, make_trees, tiny_flashinfer

CODE = """
import torch

def is_open():
    return torch.cuda.get_device_capability()[0] >= flag()

def flag():
    raise RuntimeError
"""


def test_reading_files_stubs_nothing(tmp_path: Path) -> None:
    trees = make_trees(tmp_path / "site", tiny_flashinfer())
    trees.text("flashinfer", "csrc/comm.cu")
    assert trees.stubs == set()


def test_a_jit_spec_announces_the_torch_stub(tmp_path: Path) -> None:
    trees = make_trees(tmp_path / "site", tiny_flashinfer())
    jit_spec(trees, GENERATOR, arch="10.0a")
    assert trees.stubs == {"torch (stub)"}


def test_a_decision_table_announces_what_it_simulates_and_what_the_test_gave(
    tmp_path: Path,
) -> None:
    trees = make_trees(tmp_path / "site", tiny_flashinfer(more=CODE))
    gate = FunctionGate("flashinfer", "flashinfer/jit/comm.py", "is_open")
    table = decision_table(trees, gate, stubs={"flag": lambda: 9}, capabilities=("8.9", "9.0"))
    assert table == {"8.9": False, "9.0": True}
    assert trees.stubs == {"torch (simulated)", "flag (given by the test)"}


def test_the_limits_of_types_are_torchs() -> None:
    # As torch 2.9 gives them.
    half, brain = finfo(StubDtype("float16", 2)), finfo(StubDtype("bfloat16", 2))
    assert (half.bits, half.max, half.min, half.eps) == (16, 65504.0, -65504.0, 0.0009765625)
    assert (brain.max, brain.eps, brain.tiny) == (
        3.3895313892515355e38, 0.0078125, 1.1754943508222875e-38
    )  # fmt: skip
    assert finfo(StubDtype("float32", 4)).max == 3.4028234663852886e38
    assert finfo(StubDtype("float8_e4m3fn", 1)).smallest_normal == 0.015625
    with pytest.raises(StubGap, match="int8"):
        finfo(StubDtype("int8", 1))


def test_a_generator_may_ask_for_limits_and_name_what_is_not_there(tmp_path: Path) -> None:
    core = tiny_flashinfer()["flashinfer/jit/core.py"]
    asks = """
import requests

def fetch(session: requests.Session, graph: torch.cuda.CUDAGraph):
    return session.get(graph)

assert torch.finfo(torch.float8_e4m3fn).max == 448
"""
    files = tiny_flashinfer() | {"flashinfer/jit/core.py": core + "\nimport torch\n" + asks}
    trees = make_trees(tmp_path / "site", files)
    assert jit_spec(trees, GENERATOR, arch="10.0a").targets == ("100a",)
