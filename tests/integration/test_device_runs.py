"""Runs at the gpu and import tiers on a STUB machine: shared out, labelled, never miscounted.

There is no device here and torch is a stub: what is shown is what the tool makes of
them, and that the code ran in the tree.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from patchwright.evidence import EvidenceStore
from projects import TinyProject, make_project
from smoke_bench import Bench
from stub_machine import StubMachine

BLACKWELL = "12 0 NVIDIA RTX PRO 6000"
HOPPER = "9 0 NVIDIA H200"

SMOKE = """
import pytest

def gate(side):
    import tiny.gate
    return tiny.gate.OPEN

@pytest.mark.tier("gpu")
def test_it(on_device, device):
    assert on_device(gate) is True, device.name
"""


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubMachine:
    machine = StubMachine(tmp_path, monkeypatch)
    machine.devices(BLACKWELL)
    return machine


@pytest.fixture
def bench(stub: StubMachine, tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def gpu(bench: Bench, body: str, tier: str = "gpu", definitions: str = "") -> Any:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    text = f'{definitions}\n@pytest.mark.tier("{tier}")\n' + (
        f"def test_it(tree, baseline, machine, device, on_device, ranks, tmp_path):\n{lines}"
    )
    return bench.run(text, tier=tier)


def opened(folder: Path, smoke: str = SMOKE, **fields: str) -> TinyProject:
    project = make_project(folder, {"tiny/__init__.py": "", "tiny/gate.py": "OPEN = False\n"})
    project.add_smoke("test_0001.py", smoke)
    project.add_patch(
        1, {"tiny/gate.py": "OPEN = True\n"},
        fields={"Smoke": "tests/smoke/test_0001.py", **fields},
    )  # fmt: skip
    return project


def test_code_runs_on_the_device_from_the_tree(bench: Bench) -> None:
    result = gpu(
        bench,
        """\
import os
assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
assert (device.architecture, machine.cuda) == ("sm_120", "13.0")
assert on_device(gate) == [True, "12.0a", str(tree.site)]
assert on_device(gate, trees=baseline)[0] is False
""",
        definitions="""
def gate(side):
    import os
    import tiny.gate
    site = os.path.dirname(os.path.dirname(tiny.gate.__file__))
    return [tiny.gate.OPEN, os.environ["FLASHINFER_CUDA_ARCH_LIST"], site]
""",
    )
    assert (result.outcome, result.reason) == ("passed", "")
    assert result.machine["device"] == "NVIDIA RTX PRO 6000, sm_120"
    assert "gate: seed " in result.log


def test_code_that_imports_another_copy_is_an_error(bench: Bench, stub: StubMachine) -> None:
    copy = stub.packages / "tiny"
    copy.mkdir()
    (copy / "__init__.py").write_text("OPEN = True\n", encoding="ascii")
    result = gpu(
        bench, "on_device(other)",
        definitions="""
def other(side):
    import sys
    sys.path[:] = [p for p in sys.path if "site-packages" in p] + sys.path
    import tiny
""",
    )  # fmt: skip
    assert result.outcome == "error"
    assert "not from the tree under test" in result.reason


def test_code_that_imports_nothing_of_upstream_shows_nothing(bench: Bench) -> None:
    result = gpu(bench, "on_device(idle)", definitions="def idle(side):\n    return 1\n")
    assert (result.outcome, "imported nothing of upstream" in result.reason) == ("error", True)


def test_a_device_that_vanishes_during_a_run_is_named(bench: Bench, stub: StubMachine) -> None:
    file = stub.folder / "stub-devices"
    result = gpu(
        bench, "on_device(vanishing)",
        definitions=f"""
def vanishing(side):
    from pathlib import Path
    Path({str(file)!r}).write_text("0 13000\\n")
    raise RuntimeError("CUDA error: unspecified launch failure")
""",
    )  # fmt: skip
    assert result.outcome == "error"
    assert "a device vanished during the run: NVIDIA RTX PRO 6000" in result.reason


def test_out_of_memory_is_no_failed_assertion(bench: Bench) -> None:
    result = gpu(
        bench, "on_device(greedy)",
        definitions='def greedy(side):\n    raise RuntimeError("CUDA out of memory.")\n',
    )  # fmt: skip
    assert result.outcome == "error"
    assert "the device ran out of memory" in result.reason


def test_ranks_get_all_devices_of_one_kind(bench: Bench, stub: StubMachine) -> None:
    stub.devices(HOPPER, BLACKWELL, BLACKWELL)
    look = """
def look(side):
    import os
    import tiny.gate
    return [side.rank, side.device, os.environ["CUDA_VISIBLE_DEVICES"]]
"""
    result = gpu(
        bench,
        """\
assert ranks(2, look) == [[0, "cuda:0", "1,2"], [1, "cuda:1", "1,2"]]
assert ranks(2, look, share_device=True) == [[0, "cuda:0", "1,2"], [1, "cuda:0", "1,2"]]
ranks(3, look)
""",
        "multi-gpu", look,
    )  # fmt: skip
    assert (result.outcome, result.reason) == ("blocked", "needs 3 devices; this run has 2")
    assert result.machine["device"] == "2 x NVIDIA RTX PRO 6000, sm_120"


def test_one_run_per_device_however_many_jobs(stub: StubMachine, tmp_path: Path) -> None:
    times = tmp_path / "times"
    smoke = (
        SMOKE
        + f"""
    import time
    with open({str(times)!r}, "a") as file:
        print(time.monotonic(), file=file, flush=True)
        time.sleep(0.5)
        print(time.monotonic(), file=file, flush=True)
"""
    )
    smoke = smoke.replace(" is True, device.name", " in (True, False)")
    project = opened(tmp_path, smoke)
    project.run("verify", "--tier", "gpu", "--context", "step", "-j", "2")
    stamps = [float(line) for line in times.read_text().splitlines()]
    assert len(stamps) == 4
    assert stamps == sorted(stamps)


def only(project: TinyProject, *args: str) -> Any:
    ran = project.run("verify", "--tier", "gpu", "--context", "step", "--json", *args)
    (result,) = ran.json()["results"]
    return result


def test_red_without_green_with_on_a_target(stub: StubMachine, tmp_path: Path) -> None:
    project = opened(tmp_path, Arch="sm_120")
    result = only(project)
    assert (result["verdict"], result["control"], result["made"]) == ("passed", "failed", 2)
    assert only(project)["made"] == 0
    records = EvidenceStore(project.root / ".patchwright/evidence").all()
    devices = [record.device for record in records if record.inputs.tier == "gpu"]
    assert devices == ["NVIDIA RTX PRO 6000, sm_120"] * 2
    stub.driver("13010")  # another driver: another question
    assert only(project)["made"] == 2


def test_a_patch_leaves_another_architecture_alone(stub: StubMachine, tmp_path: Path) -> None:
    stub.devices(HOPPER)
    project = opened(tmp_path, SMOKE.replace(" is True", " in (True, False)"), Arch="sm_120")
    result = only(project)
    assert (result["verdict"], result["control"]) == ("passed", "passed")
    assert result["reason"] == "left alone on sm_90 (not a target of 0001)"
    shown = project.run("verify", "--tier", "gpu", "--context", "step")
    assert "left alone on sm_90" in " ".join(shown.out.split())
    # What holds there is no evidence for a target.
    stub.devices(BLACKWELL)
    assert only(project)["verdict"] == "vacuous"


def test_a_patch_that_changes_another_architecture_fails(stub: StubMachine, tmp_path: Path) -> None:
    stub.devices(HOPPER)
    result = only(opened(tmp_path, Arch="sm_120"))
    assert result["verdict"] == "failed"
    assert result["reason"].startswith(
        "0001 changes what sm_90 does, which its field Arch does not name: "
    )


IMPORTED = """
import pytest

def gate(value):
    import torch
    import tiny.gate
    import triton.language as tl
    capability = list(torch.cuda.get_device_capability())
    return [tiny.gate.OPEN, capability, torch.version.cuda, torch.cuda.device_count(), value]

@pytest.mark.tier("import")
def test_it(imported):
    found = imported(gate, capability="12.1", devices=4, stubs=("triton", "json"), value=5)
    assert found == [True, [12, 1], "12.8", 4, 5]
"""


def imported(bench: Bench, text: str) -> Any:
    return bench.run(text, tier="import")


def test_upstream_is_imported_under_a_simulated_device(bench: Bench) -> None:
    result = imported(bench, IMPORTED)
    assert (result.outcome, result.reason) == ("passed", "")
    assert result.stubs == (
        "torch.compile (stub)",
        "torch.cuda (stub: 4 devices of capability 12.1, CUDA 12.8, with peer access)",
        "triton (stub)",  # json is there, so nothing stands in for it
    )
    control = bench.run(IMPORTED, tier="import", state=bench.without)
    assert control.outcome == "failed"


def test_only_what_is_named_is_stubbed_and_never_an_upstream(bench: Bench) -> None:
    result = imported(bench, IMPORTED.replace('"triton", ', ""))
    assert result.outcome == "error"
    assert "ModuleNotFoundError: No module named 'triton'" in result.reason
    result = imported(bench, IMPORTED.replace('"triton", ', '"triton", "tiny", '))
    assert result.outcome == "error"
    assert "tiny is under test: nothing may stand in for it" in result.reason


def test_libraries_are_compiled_once_and_the_tree_every_time(
    bench: Bench, stub: StubMachine
) -> None:
    body = """
def ask():
    import os, torch, tiny.gate
    kept = [bool(module.__spec__.cached) for module in (torch, tiny.gate)]
    beside = os.listdir(os.path.dirname(tiny.gate.__file__))
    return [kept, "__pycache__" in beside, tiny.gate.OPEN]

@pytest.mark.tier("import")
def test_it(imported):
    assert imported(ask, capability="12.0") == [[True, False], False, True]
    assert imported(ask, capability="12.0") == [[True, False], False, True]
"""
    result = imported(bench, body)
    assert (result.outcome, result.reason) == ("passed", "")
    assert list((stub.packages / "torch").glob("__pycache__/__init__.*.pyc"))
    assert bench.run(body, tier="import", state=bench.without).outcome == "failed"


def test_a_function_that_asks_the_machine_can_be_answered(bench: Bench) -> None:
    result = imported(
        bench,
        """
def ask():
    import tiny.gate
    return tiny.gate.check(False)

@pytest.mark.tier("import")
def test_it(imported):
    assert imported(ask, capability="12.0", answers={"tiny.gate.check": 7}) == 7
""",
    )
    assert result.outcome == "passed"
    assert "tiny.gate.check (stub: 7)" in result.stubs


def test_without_an_environment_the_tiers_are_blocked(
    stub: StubMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATCHWRIGHT_ENVIRONMENT", str(tmp_path / "nowhere"))
    project = opened(tmp_path, SMOKE + IMPORTED.replace("test_it", "test_too"))
    for tier in ("gpu", "import"):
        ran = project.run("verify", "--tier", tier, "--json")
        assert {r["verdict"] for r in ran.json()["results"]} == {"blocked"}
        assert "nowhere has no interpreter" in ran.json()["results"][0]["reason"]
