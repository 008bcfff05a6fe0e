"""What stands in for the real thing is announced, so that a run's record can name it."""

from __future__ import annotations

from pathlib import Path

from patchwright.smoke.decisions import FunctionGate, decision_table
from patchwright.smoke.jit import jit_spec
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
