"""One worker goes from run to run: what is made ready for the next one changes no outcome."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from patchwright.smoke import memory
from patchwright.smoke.runs import Run, execute
from smoke_bench import LOOKS, Bench

pytest_plugins = ("smoke_fixtures",)

WRITES = "tree.path('tiny', 'tiny/gate.py').write_text('OPEN = 1')"


def cores(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)))


def runs(bench: Bench, *bodies: str) -> list[Run]:
    """One run of each body, with the patch."""
    files = [bench.file(body, f"test_{number:04d}.py") for number, body in enumerate(bodies)]
    return [Run(file, "static", bench.patched, bench.without) for file in files]


@pytest.mark.parametrize("count", [1, 2])
def test_a_run_that_changes_its_tree_is_the_only_one_that_is_told_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    cores(monkeypatch, count)
    found = list(execute(bench.project, runs(bench, LOOKS, WRITES, LOOKS, WRITES, LOOKS)).values())
    told = ["", "wrote into the tree: tiny/gate.py"]
    assert [result.reason for result in found] == [*told, *told, ""]


def test_trees_are_laid_out_ahead_where_a_core_is_free_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    seat = bench.project.cache_dir / "slots" / "0"
    for count, there in ((1, False), (2, True)):
        cores(monkeypatch, count)
        # The second reads what the first does not, or it would not be made.
        made = execute(bench.project, runs(bench, "pass", LOOKS))
        assert [result.outcome for result in made.values()] == ["passed", "passed"]
        assert (seat / "tree").is_dir()
        assert (seat / "tree-ahead").is_dir() is there


def test_an_idle_worker_takes_over_what_lies_ready_for_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cores(monkeypatch, 3)
    mark = tmp_path / "mark"
    waits = (
        "import time\nfrom pathlib import Path\nend = time.monotonic() + 60\n"
        f"while not Path({str(mark)!r}).exists():\n"
        "    assert time.monotonic() < end\n    time.sleep(0.01)"
    )
    marks = f"from pathlib import Path\nPath({str(mark)!r}).touch()"
    found = execute(bench.project, runs(bench, waits, "pass", marks), jobs=2)
    assert [result.reason for result in found.values()] == ["", "", ""]


def test_files_in_several_folders_are_run_one_after_the_other(bench: Bench) -> None:
    made = []
    for number, folder in enumerate(("one", "two", "one")):
        path = bench.tiny.root / "tests" / folder / f"test_{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "import pytest\n\n@pytest.mark.tier('static')\ndef test_it(tree):\n"
            f"    assert 'OPEN = True' in tree.text('tiny', 'tiny/gate.py'), {number}\n"
        )
        made.append(Run(path, "static", bench.patched, bench.without))
    results = execute(bench.project, made)
    assert [[test["test"] for test in results[run].tests] for run in made] == [
        [f"test_{number}.py::test_it"] for number in range(3)
    ]
    assert {result.outcome for result in results.values()} == {"passed"}


def test_a_crash_says_where_it_happened(bench: Bench) -> None:
    result = bench.run("import faulthandler\nfaulthandler._sigsegv()")
    assert (result.outcome, result.reason) == (
        "error", "the test's process was killed by SIGSEGV",
    )  # fmt: skip
    assert "Fatal Python error: Segmentation fault" in result.log
    assert "test_0001.py" in result.log


def test_a_light_run_has_its_folder_in_memory_where_there_is_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    body = f"import os\nopen({str(seen)!r}, 'w').write(os.environ['TMPDIR'])"

    def folder() -> Path:
        (run,) = runs(bench, body)
        assert execute(bench.project, [run])[run].reason == ""
        return Path(seen.read_text())

    slots = bench.project.cache_dir / "slots"
    monkeypatch.setattr(memory, "_ROOM", 1)
    there = folder()
    assert there.is_relative_to("/dev/shm")
    assert not there.parent.parent.exists()
    assert not list(slots.glob("*/memory"))
    monkeypatch.setattr(memory, "_ROOM", 1 << 60)
    assert folder().is_relative_to(slots)
