"""Runs of smoke tests in real trees: every way in which a test can end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from patchwright.applying.chain import Chain
from patchwright.errors import PatchwrightError
from patchwright.project import Project
from patchwright.smoke.runs import Run, collect, execute
from patchwright.smoke.seats import take_seat
from patchwright.store import FILE, ObjectStore
from projects import make_project
from smoke_bench import FILES, Bench, Shared

pytest_plugins = ("smoke_fixtures",)


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


OUTCOMES = {
    "asserts nothing": ("pass", "passed", ""),
    "fails": ("assert 1 == 2, 'because'", "failed", "test_it: because\nassert 1 == 2"),
    "fails by pytest.fail": ("pytest.fail('it is so')", "failed", "test_it: it is so"),
    "fails by pytest.raises": (
        "with pytest.raises(ValueError):\n    pass", "failed", "test_it: DID NOT RAISE ValueError",
    ),
    "upstream refused": (
        "from patchwright.smoke.outcomes import UpstreamRefused\n"
        "raise UpstreamRefused('No supported CUDA architectures found')",
        "failed", "test_it: No supported CUDA architectures found",
    ),
    "upstream asserts in process": (
        "import tiny.gate\ntiny.gate.check(False)",
        "error", "test_it: upstream's own assertion: upstream says no (tiny/gate.py:5 in check)",
    ),
    "raises": (
        "raise KeyError('lost')",
        "error", "test_it: KeyError: 'lost' (test_0006.py:5 in test_it)",
    ),
    "is not in the tree": (
        "tree.text('tiny', 'tiny/no.py')",
        "error", "SmokeError: tiny: the tree has no file tiny/no.py",
    ),
    "needs something": (
        "from patchwright.smoke.outcomes import Blocked\nraise Blocked('needs nvcc 12.8')",
        "blocked", "needs nvcc 12.8",
    ),
    "skips": ("pytest.skip('needs a moon')", "blocked", "needs a moon"),
    "imports something missing": (
        "pytest.importorskip('no_such_module_anywhere')", "blocked", "no_such_module_anywhere",
    ),
    "xfails": ("pytest.xfail('known')", "error", "test_it: xfail is not accepted"),
    "leaves with status 0": (
        "import os\nos._exit(0)",
        "error", "the test's process ended with status 0 before its tests did",
    ),
    "leaves by sys.exit": ("import sys\nsys.exit(0)", "error", "SystemExit: 0"),
    "leaves pytest": ("pytest.exit('enough', 0)", "error", "enough"),
    "kills itself": (
        "import os\nos.kill(os.getpid(), 9)",
        "error", "the test's process was killed by SIGKILL",
    ),
    "kills its group": (
        "import os\nos.killpg(0, 15)", "error", "the test's process was killed by SIGTERM",
    ),
    "kills the worker": (
        "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(60)",
        "error", "the process that forks the tests died",
    ),
    "writes into the tree": (
        "tree.path('tiny', 'tiny/gate.py').write_text('OPEN = 1')",
        "error", "wrote into the tree: tiny/gate.py",
    ),
    "adds to the tree": (
        "(tree.site / 'tiny' / '__pycache__').mkdir()",
        "error", "wrote into the tree: tiny/__pycache__/",
    ),
    "changes and reads the tree": (
        "tree.path('tiny', 'tiny/gate.py').write_text('OPEN = 1')\n"
        "tree.text('tiny', 'tiny/gate.py')",
        "error", "is not the tree's tiny/gate.py: it was changed on disk",
    ),
    "changes and imports the tree": (
        "tree.path('tiny', 'tiny/gate.py').write_text('OPEN = True')\nimport tiny.gate",
        "error", "which was changed: it is not the tree's",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OUTCOMES)
def test_every_way_to_end_has_its_outcome(bench: Bench, shared: Shared, case: str) -> None:
    if "outcomes" not in shared.results:
        bodies = {name: body for name, (body, *_) in OUTCOMES.items()}
        shared.results["outcomes"] = bench.run_all(bodies)
    result = shared.results["outcomes"][case]
    _, outcome, reason = OUTCOMES[case]
    assert result.outcome == outcome, result
    assert reason in result.reason
    assert len(result.reason) < 500


FILES_THAT_BREAK = {
    "dies on import": (
        "import no_such_module\n\n@pytest.mark.tier('static')\ndef test_it():\n    pass\n",
        "ModuleNotFoundError: No module named 'no_such_module' (test_0001.py:3)",
    ),
    "is not Python": ("def test_it(:\n", "SyntaxError"),
    "has no tier": (
        "def test_it():\n    pass\n",
        "test_it: mark it with its tier: @pytest.mark.tier(...) with one of static, compile",
    ),
    "has an unknown tier": (
        "@pytest.mark.tier('fast')\ndef test_it():\n    pass\n", "test_it: mark it with its tier",
    ),
    "is async": (
        "@pytest.mark.tier('static')\nasync def test_it():\n    assert False\n",
        "test_it: an async test is not run",
    ),
    "leaves on import": ("import sys\nsys.exit(0)\ndef test_it():\n    pass\n", "SystemExit: 0"),
    "imports an upstream": (
        "import tiny\n\n@pytest.mark.tier('static')\ndef test_it():\n    pass\n",
        "No module named 'tiny'",
    ),
    "skips all": (
        "pytest.importorskip('no_such_module')\n", "skips all of its tests: could not import",
    ),
    "has no tests": ("", "it has no tests"),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES_THAT_BREAK)
def test_a_file_that_cannot_be_collected_says_why(bench: Bench, case: str) -> None:
    body, reason = FILES_THAT_BREAK[case]
    path = bench.smoke(body)
    assert reason in collect(bench.project, [path])[path].error


def test_a_broken_file_is_an_error_in_run_and_control(bench: Bench) -> None:
    fine_in_a_tree = {"imports an upstream", "skips all", "has no tests"}
    broken = {n: case for n, case in FILES_THAT_BREAK.items() if n not in fine_in_a_tree}
    files = {
        bench.smoke(body, f"test_{number:04d}.py"): reason.replace(
            "test_0001", f"test_{number:04d}"
        )
        for number, (body, reason) in enumerate(broken.values())
    }
    runs = [
        Run(f, "static", s, bench.without) for f in files for s in (bench.patched, bench.without)
    ]
    for run, result in execute(bench.project, runs).items():
        assert result.outcome == "error"
        assert files[run.test] in result.reason


def test_collects_the_tiers_of_each_file(bench: Bench) -> None:
    body = """
@pytest.mark.tier("static")
@pytest.mark.parametrize("x", [1, 2])
def test_a(tree, x): pass

@pytest.mark.tier("gpu")
class TestB:
    def test_b(self): pass
"""
    path = bench.smoke(body)
    found = collect(bench.project, [path])[path]
    assert found.error == ""
    assert found.tiers == {
        "static": ("test_0001.py::test_a[1]", "test_0001.py::test_a[2]"),
        "gpu": ("test_0001.py::TestB::test_b",),
    }
    assert bench.run(body, tier="compile").outcome == "none"
    assert len(bench.run(body, tier="gpu").tests) == 1


def test_a_fixture_that_dies_is_an_error_also_by_an_assertion(bench: Bench) -> None:
    body = """
@pytest.fixture
def broken():
    {}

@pytest.mark.tier("static")
def test_it(broken):
    assert False
"""
    result = bench.run(body.format("assert 1 == 2"))
    assert result.outcome == "error"
    assert result.reason == "test_it, in setup: assert 1 == 2 (test_0001.py:6 in broken)"
    late = bench.run(body.format("yield\n    assert 1 == 2").replace("assert False", "pass"))
    assert late.outcome == "error"
    assert late.reason == "test_it, in teardown: assert 1 == 2 (test_0001.py:7 in broken)"


def test_the_worst_test_decides(bench: Bench) -> None:
    body = """
from patchwright.smoke.outcomes import Blocked
pytestmark = pytest.mark.tier("static")
def test_a(): pass
def test_b(): assert False
"""
    assert bench.run(body).outcome == "failed"
    body += "def test_c(): raise Blocked('needs a')\ndef test_d(): raise Blocked('needs b')\n"
    blocked = bench.run(body)
    assert (blocked.outcome, blocked.reason) == ("blocked", "needs a; needs b")
    assert blocked.needs == ("needs a", "needs b")
    body += "def test_e(): raise ValueError('x')\ndef test_f(): raise ValueError('y')\n"
    error = bench.run(body)
    assert error.outcome == "error"
    assert error.reason == "test_e: ValueError: x (test_0001.py:10 in test_e) (and 1 more)"
    outcomes = [test["outcome"] for test in error.tests]
    assert outcomes == ["passed", "failed", "blocked", "blocked", "error", "error"]


def test_a_failure_that_a_subtest_hides_is_a_failure(bench: Bench) -> None:
    body = """
@pytest.mark.tier("static")
def test_it(subtests):
    with subtests.test("first"):
        assert 1 == 2
"""
    assert bench.run(body).outcome == "failed"


def test_a_megabyte_of_output_is_cut_and_said_so(bench: Bench) -> None:
    result = bench.run(
        "print('the first line')\nfor _ in range(5000):\n    print('x' * 1000)\nassert False, 'end'"
    )
    assert result.outcome == "failed"
    assert "the first line" in result.log
    assert "bytes of output are cut here" in result.log
    assert "test_it" in result.log[-2000:]
    assert len(result.log) < 150_000


def test_many_runs_on_two_jobs_stream_their_results(bench: Bench) -> None:
    text = (
        "import pytest\n\n@pytest.mark.tier('static')\ndef test_it(tree):\n"
        "    assert 'OPEN = True' in tree.text('tiny', 'tiny/gate.py')\n"
    )
    files = [bench.tiny.add_smoke(f"test_{n:04d}.py", text) for n in range(6)]
    runs = [
        Run(file, "static", state, bench.without)
        for file in files
        for state in (bench.patched, bench.without)
    ]
    heard: list[Run] = []
    results = execute(bench.project, runs, jobs=2, on_result=lambda run, _: heard.append(run))
    assert sorted(map(runs.index, heard)) == list(range(12))
    for run in runs:
        assert results[run].outcome == ("passed" if run.state == bench.patched else "failed")


def test_two_upstreams_stand_side_by_side_and_may_not_clash(tmp_path: Path) -> None:
    tiny = make_project(tmp_path, FILES)
    tiny.add_upstream("other", {"other/__init__.py": "import tiny.gate\n", "other/x.py": ""})
    path = tiny.add_smoke(
        "test_0001.py",
        "import pytest\n\n@pytest.mark.tier('static')\ndef test_it(tree):\n"
        "    import other, tiny\n"
        "    assert tree.upstreams == ('other', 'tiny')\n"
        "    assert tree.module('tiny.gate') == ('tiny', 'tiny/gate.py')\n"
        "    assert tree.module('other') == ('other', 'other/__init__.py')\n"
        "    assert tree.module('pytest') is None\n"
        "    assert tree.files('tiny') == ('csrc/a.cu', 'tiny/__init__.py', 'tiny/gate.py')\n",
    )
    project = Project.open(tiny.root)
    base = Chain(project).base()
    run = Run(path, "static", base, base)
    assert execute(project, [run])[run].reason == ""
    tiny.add_upstream(
        "third", {"third/a.py": "", "x": "1"}, layout={"third/": "third/", "x": "tiny/gate.py"}
    )
    project = Project.open(tiny.root)
    base = Chain(project).base()
    with pytest.raises(PatchwrightError, match=r"tiny/gate.py comes from tiny and"):
        execute(project, [Run(path, "static", base, base)])


def test_a_seat_is_for_one_command_at_a_time(tmp_path: Path) -> None:
    first = take_seat(tmp_path / "slots")
    second = take_seat(tmp_path / "slots")
    assert first.folder != second.folder
    first.close()
    again = take_seat(tmp_path / "slots")
    assert again.folder == first.folder
    again.close()
    second.close()


def test_a_seat_is_found_again_by_the_pins_that_it_was_used_for(tmp_path: Path) -> None:
    def taken(pins: str) -> str:
        seat = take_seat(tmp_path, pins)
        seat.close()
        return seat.folder.name

    assert [taken(pins) for pins in ("old", "new", "old", "new")] == ["0", "1", "0", "1"]
    # No more than so many are kept: then the one that waited longest is moved.
    most = max(8, 2 * (os.cpu_count() or 1))
    for n in range(2, most):
        assert taken(f"pins {n}") == str(n)
    for n in range(most):
        os.utime(tmp_path / str(n) / "pins", (n + 1000, n + 1000))
    os.utime(tmp_path / "5" / "pins", (1, 1))
    assert taken("newest") == "5"
    assert taken("old") == "0"


def test_a_write_in_place_is_undone_in_the_folder_that_shares_the_file(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path / "objects.git")
    files = {b"%d" % n: (FILE, store.add("blob", b"%d" % n)) for n in range(200)}
    tree = store.build_tree(files)
    store.flush()
    seat = take_seat(tmp_path / "slots")
    both = [seat.place(store, name, tree, ()).site for name in ("tree", "baseline")]
    assert (both[0] / "7").samefile(both[1] / "7")
    seat.begin()
    assert seat.undo() == []
    # A control is given the one folder only.
    seat.place(store, "tree", tree, ())
    seat.begin()
    with (both[0] / "7").open("r+b") as stream:
        stream.write(b"X")
    assert seat.undo() == ["7"]
    for name in ("tree", "baseline"):
        assert (seat.place(store, name, tree, ()).site / "7").read_bytes() == b"7"
    seat.begin()
    assert seat.undo() == []
    seat.close()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "slots").write_text("in the way")
    with pytest.raises(PatchwrightError, match="the cache cannot be written") as caught:
        take_seat(tmp_path / "slots")
    assert "PATCHWRIGHT_CACHE" in caught.value.next_step


def test_a_worker_that_cannot_start_is_the_tools_failure(
    own_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("patchwright.smoke.seats._START", "raise ImportError('no pytest here')")
    with pytest.raises(PatchwrightError, match=r"did not start: ImportError: no pytest here"):
        own_bench.run("pass")
