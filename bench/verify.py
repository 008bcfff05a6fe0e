"""The static tier of a series, beside one interpreter per run; and the same again.

    python bench/verify.py [--rounds 3]

The series is this repository's. Both make one run after the other (``--jobs 1``). The
peer makes each in an interpreter of its own, on trees that lie there already: moving the
trees is not counted against it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tool"))
# An installed tool has its bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from patchwright.evidence import EvidenceStore  # noqa: E402
from patchwright.project import Project  # noqa: E402
from patchwright.series import Selection  # noqa: E402
from patchwright.smoke import isolation, protocol  # noqa: E402
from patchwright.smoke.evidenced import Evidenced  # noqa: E402
from patchwright.smoke.runs import Run, deadline_of  # noqa: E402
from patchwright.smoke.seats import Seat, take_seat  # noqa: E402
from patchwright.smoke.sites import site_tree  # noqa: E402
from patchwright.verify import Planner, Request  # noqa: E402

ONE = """
import sys
sys.path.insert(0, sys.argv[1])
import pytest
from patchwright.smoke import session
from patchwright.smoke.held import hold
from patchwright.smoke.protocol import Request
request = Request.from_line(sys.stdin.buffer.readline())
def run(held):
    session.run(request, session.Prepared(), held)
    pytest.exit("the run is made")  # and the interpreter ends as any other does
hold(request.test.parent, request.folder, run)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for name, value in measure(options.rounds).items():
        print(f"{name:32} {value:8.3f}")


def measure(rounds: int) -> dict[str, float]:
    """Return medians in seconds (verify, peer, again, interpreter), and two counts."""
    seconds: dict[str, list[float]] = {}

    def timed(name: str, start: float) -> None:
        seconds.setdefault(name, []).append(time.perf_counter() - start)

    with tempfile.TemporaryDirectory(prefix="bench-verify-") as folder:
        project = _project(Path(folder))
        runs = _runs(project)
        for _ in range(rounds):
            shutil.rmtree(project.state_dir / "evidence", ignore_errors=True)
            for name in ("verify", "again"):
                start = time.perf_counter()
                _verify(project)
                timed(name, start)
            seconds.setdefault("peer", []).append(_one_by_one(project, runs))
            for _ in range(5):
                start = time.perf_counter()
                subprocess.run([sys.executable, "-c", "pass"], check=True)
                timed("interpreter", start)
    counts = {"runs": float(len(runs)), "patches": float(len(project.series.patches))}
    return {name: statistics.median(times) for name, times in seconds.items()} | counts


def _project(folder: Path) -> Project:
    for name in ("pyproject.toml", "upstream.lock"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "patches", folder / "patches")
    shutil.copytree(ROOT / "tests" / "smoke", folder / "tests" / "smoke")
    return Project.open(folder)


def _runs(project: Project) -> list[Run]:
    """Return the runs that verify makes, each once; everything is imported and applied then."""
    tests = Evidenced(project, EvidenceStore(project.state_dir / "evidence"))
    request = Request((), Selection(None, None, frozenset()), ("static",))
    questions = Planner(project, tests).plan(request)
    return list(
        dict.fromkeys(
            run for q in questions if q.settled is None for _, run in (*q.runs, *q.controls)
        )
    )


def _verify(project: Project) -> None:
    command = ("verify", "--tier", "static", "--jobs", "1", "--json")
    subprocess.run(
        [sys.executable, "-m", "patchwright", *command],
        cwd=project.root, env=os.environ | {"PYTHONPATH": str(ROOT / "tool")}, check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _one_by_one(project: Project, runs: list[Run]) -> float:
    """Make every run in an interpreter of its own and return the seconds that they took."""
    seat = take_seat(project.cache_dir / "slots")
    total = 0.0
    try:
        for run in runs:
            request = _asked(project, seat, run)
            shutil.rmtree(request.folder, ignore_errors=True)
            isolation.make_folders(request.folder)
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", ONE, str(ROOT / "tool")], input=request.to_line(),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
            )  # fmt: skip
            total += time.perf_counter() - start
    finally:
        seat.close()
    return total


def _asked(project: Project, seat: Seat, run: Run) -> protocol.Request:
    """Lay the trees of a run out and return what its interpreter is asked."""
    tree, baseline = (
        seat.place(project.store, name, site_tree(project, state), state.trees)
        for name, state in (
            ("tree", run.state),
            ("tree" if run.baseline == run.state else "baseline", run.baseline),
        )
    )
    folder = seat.folder_of(run.tier)
    return protocol.Request(
        test=run.test.resolve(), tier=run.tier, deadline=deadline_of(project, run.tier),
        folder=folder, sources=protocol.sources_of(project.config), tree=tree, baseline=baseline,
        environment=isolation.run_environment(
            run.tier, folder, project.cache_dir, tree.site, os.environ
        ),
    )  # fmt: skip


if __name__ == "__main__":
    main()
