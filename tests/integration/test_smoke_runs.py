"""Runs of smoke tests in real trees: every way in which a test can end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from projects import TinyProject, make_project

from patchwright.applying.chain import Chain, State
from patchwright.project import Project
from patchwright.smoke.runs import Run, RunResult, collect, execute

FILES = {
    "tiny/__init__.py": "",
    "tiny/gate.py": "OPEN = False\n\n\ndef check(x):\n    assert x, 'upstream says no'\n",
    "csrc/a.cu": "__global__ void f() {}\n",
}


class Bench:
    """A project with one patch, and the state with and without it."""

    def __init__(self, folder: Path) -> None:
        self.tiny: TinyProject = make_project(folder, FILES)
        self.tiny.add_patch(1, {"tiny/gate.py": FILES["tiny/gate.py"].replace("False", "True")})
        self.open()

    def open(self) -> None:
        self.project = Project.open(self.tiny.root)
        chain = Chain(self.project)
        self.without = chain.base()
        self.patched, verdicts = chain.apply(self.project.series.patches)
        assert all(verdict.ok for verdict in verdicts)

    def smoke(self, body: str, name: str = "test_0001.py") -> Path:
        return self.tiny.add_smoke(name, f"import pytest\n\n{body}")

    def run(self, body: str, *, tier: str = "static", state: State | None = None) -> RunResult:
        """Run a file with one test whose body this is (or the file, with its own defs)."""
        if "def test_" not in body:
            lines = "".join(f"    {line}\n" for line in body.splitlines())
            body = f'@pytest.mark.tier("static")\ndef test_it(tree, baseline, tmp_path):\n{lines}'
        run = Run(self.smoke(body), tier, state or self.patched, self.without)
        return execute(self.project, [run])[run]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_passes_with_the_patch_and_fails_without(bench: Bench) -> None:
    body = """
text = tree.text("tiny", "tiny/gate.py")
assert "OPEN = True" in text
assert "OPEN = False" in baseline.text("tiny", "tiny/gate.py")
import tiny.gate
assert tiny.gate.OPEN
assert tree.read("tiny", "csrc/a.cu").startswith(b"__global__")
assert tree.path("tiny", "csrc/a.cu") == tree.site / "tiny/data/csrc/a.cu"
"""
    result = bench.run(body)
    assert (result.outcome, result.reason) == ("passed", "")
    assert [test["test"] for test in result.tests] == ["test_0001.py::test_it"]
    control = bench.run(body, state=bench.without)
    assert control.outcome == "failed"
    assert control.reason.startswith("test_it: assert 'OPEN = True' in 'OPEN = False")
