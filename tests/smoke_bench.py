"""A project with one patch, for tests that run smoke tests in it.

bench = Bench(tmp_path)
bench.run("assert 'OPEN = True' in tree.text('tiny', 'tiny/gate.py')").outcome
bench.run_all({"a": "pass", "b": "pytest.skip('x')"})["b"].outcome
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from patchwright.applying.chain import Chain, State
from patchwright.project import Project
from patchwright.smoke.runs import Run, RunResult, execute
from projects import TinyProject, make_project

FILES = {
    "tiny/__init__.py": "",
    "tiny/gate.py": 'OPEN = False\n\n\ndef check(x):\n    assert x, "upstream says no"\n',
    "csrc/a.cu": "__global__ void f() {}\n",
}


LOOKS = "import tiny.gate\nassert 'OPEN = True' in tree.text('tiny', 'tiny/gate.py')"


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

    def deadline(self, seconds: float) -> None:
        path = self.tiny.root / "pyproject.toml"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("arch = ", f"smoke-deadline = {seconds}\narch = ", 1))
        self.open()

    def run(self, body: str, *, tier: str = "static", state: State | None = None) -> RunResult:
        """Run a file with one test whose body this is (or the file, with its own defs)."""
        run = Run(self.file(body), tier, state or self.patched, self.without)
        return execute(self.project, [run])[run]

    def run_all(self, bodies: Mapping[str, str]) -> dict[str, RunResult]:
        """Run many files in one worker; after each, one more run finds the tree as it was."""
        files = []
        for number, body in enumerate(bodies.values()):
            files.append(self.file(body, f"test_{number:04d}.py"))
            files.append(self.file(LOOKS, f"test_{number:04d}_after.py"))
        runs = [Run(file, "static", self.patched, self.without) for file in files]
        found = list(execute(self.project, runs).values())
        assert [after.reason for after in found[1::2]] == [""] * len(bodies)
        return dict(zip(bodies, found[::2], strict=True))

    def file(self, body: str, name: str = "test_0001.py") -> Path:
        if "def test_" not in body:
            lines = "".join(f"    {line}\n" for line in body.splitlines())
            body = f'@pytest.mark.tier("static")\ndef test_it(tree, baseline, tmp_path):\n{lines}'
        return self.smoke(body, name)


@dataclass
class Shared:
    """What the tests of one file share: a project, and runs that many tests look at."""

    made: list[Bench] = field(default_factory=list)
    results: dict[str, dict[str, RunResult]] = field(default_factory=dict)

    def bench(self, folder: Path) -> Bench:
        """Return the one project, made in ``folder`` by whoever asks first.

        That is a test, not the file: only within a test is the cache sealed off.
        """
        if not self.made:
            self.made.append(Bench(folder))
        return self.made[0]
