"""The commands gates, audit and explain on small real projects."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from patchwright.audit import series
from patchwright.smoke.compiler import Compiler, find_compiler
from patchwright.smoke.outcomes import Blocked
from projects import TinyProject, make_project
from tiny_flashinfer import tiny_flashinfer

SERVE = {
    "serve/__init__.py": "",
    "serve/utils.py": """\
import torch


def is_sm100_supported():
    return torch.cuda.get_device_capability()[0] == 10


def is_sm120_supported():
    return torch.cuda.get_device_capability()[0] == 12
""",
    "serve/gate.py": """\
from flashinfer.ops import fused
from serve.utils import is_sm100_supported, is_sm120_supported


def may_fuse():
    return is_sm100_supported()


def forward(x):
    if may_fuse():
        return fused(x)
""",
}
OPS = """\
from .jit.made import gen_made_module


def fused(x):
    return gen_made_module().build_and_load().run(x)
"""
MADE = """\
from .core import DATA, Spec, archs


def gen_jit_spec(name, sources, flags):
    return Spec(name, sources, flags)


def gen_made_module():
    return gen_jit_spec("made", [DATA / "csrc" / "comm.cu"], archs(supported_major_versions={}))
"""


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    """A kernel library whose module lists 9 and 10, and a server whose gate knows 10."""
    made = MADE.format("[9, 10]")
    core = tiny_flashinfer()["flashinfer/jit/core.py"]
    files = tiny_flashinfer() | {
        "flashinfer/ops.py": OPS,
        "flashinfer/jit/made.py": made,
        "flashinfer/jit/core.py": core.replace(
            "def archs(majors):", "def archs(supported_major_versions):\n"
            "    majors = supported_major_versions",
        ).replace("archs(MAJORS)", "archs(MAJORS)"),
    }  # fmt: skip
    layout = {
        "flashinfer/": "flashinfer/", "csrc/": "flashinfer/data/csrc/",
        "include/": "flashinfer/data/include/",
    }  # fmt: skip
    found = make_project(tmp_path, files, upstream="flashinfer", layout=layout)
    found.add_upstream("serve", SERVE)
    found.add_patch(1, {"flashinfer/jit/made.py": MADE.format("[9, 10, 12]")},
                    upstream="flashinfer", title="jit: build for SM12x")  # fmt: skip
    opened = SERVE["serve/gate.py"].replace(
        "return is_sm100_supported()", "return is_sm100_supported() or is_sm120_supported()"
    )
    found.add_patch(2, {"serve/gate.py": opened}, upstream="serve", title="gate: accept SM12x",
                    fields={"Depends": "0001 (the module)"})  # fmt: skip
    return found


def test_gates_are_listed_and_evaluated(project: TinyProject) -> None:
    ran = project.run("gates", "--to", "0", "--json")
    assert ran.code == 0, ran.err
    gates = ran.json()["gates"]
    (gate,) = [g for g in gates if g["function"] == "may_fuse" and g["kind"] == "predicate"]
    assert [c for c, v in gate["values"].items() if v] == ["10.0", "10.3"]
    (majors,) = [g for g in gates if g["kind"] == "jit-list"]
    assert (majors["path"], majors["values"]["12.0"]) == ("flashinfer/jit/made.py", False)
    shown = project.run("gates", "--to", "0", "--arch", "sm_120")
    assert "serve/gate.py" in shown.out


def test_what_the_series_changes_is_shown_before_and_after(project: TinyProject) -> None:
    ran = project.run("gates", "--changed", "--json")
    found = {c["after"]["function"]: c for c in ran.json() if c["change"] == "opens"}
    assert found["may_fuse"]["opened"] == ["12.0", "12.1"]
    assert found["gen_made_module"]["opened"] == ["12.0", "12.1"]


def test_a_gate_leads_to_the_same_however_few_syntax_trees_are_kept(
    project: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = "\n\ndef also(x):\n    if is_sm120_supported():\n        return fused(x)\n"
    project.add_patch(3, {"serve/gate.py": SERVE["serve/gate.py"].replace(
        "return is_sm100_supported()", "return is_sm100_supported() or is_sm120_supported()"
    ) + asking}, upstream="serve", title="gate: ask twice",
        fields={"Depends": "0002 (the same file)"})  # fmt: skip
    monkeypatch.setattr(series, "_LARGEST", 0)
    ran = project.run("audit", "--without", "1", "--json")
    shutil.rmtree(Path(os.environ["PATCHWRIGHT_CACHE"]) / "audit")
    monkeypatch.undo()
    again = project.run("audit", "--without", "1", "--json")
    assert ran.json() == again.json()
    functions = {r["gate"]["function"] for r in again.json()["routes"]}
    assert functions == {"may_fuse", "forward", "is_sm120_supported", "also"}


def test_a_gate_that_leads_to_a_refusal_is_told_with_its_chain(project: TinyProject) -> None:
    ran = project.run("audit", "--only", "2")
    assert ran.code == 1, ran.err
    assert "leads to code that does not exist on the target: opens onto gen_made_module, which " \
        "does not build for major version 12 (it lists [9, 10])" in ran.out  # fmt: skip
    assert "serve: serve/gate.py:10 forward" in ran.out
    assert "flashinfer: flashinfer/jit/made.py:8 gen_made_module" in ran.out


def test_an_empty_kernel_behind_an_opened_gate_is_named(project: TinyProject) -> None:
    ran = project.run("audit", "--json", "--no-routes")
    judged = {p["number"]: p for p in ran.json()["patches"]}
    assert judged[1]["verdict"] == "hollow"
    (hollow,) = [f for f in judged[1]["findings"] if f["kind"] == "hollow"]
    assert "the whole body of the kernel filled is gone on sm_120a" in hollow["sentence"]
    assert hollow["where"] == "include/tiny.cuh:4"


def test_without_a_compiler_the_objects_are_not_told(
    project: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Compiler:
        raise Blocked("needs a CUDA compiler of 12.8 or newer; found none")

    monkeypatch.setattr("patchwright.smoke.device_code.find_compiler", missing)
    ran = project.run("audit", "1", "--kernels")
    assert ran.code == 1
    assert "- comm.cu: needs a CUDA compiler of 12.8 or newer; found none" in ran.out
    # Each object that is asked for, as it is done.
    assert "compiling 2 objects, " in ran.err
    assert "2 of 2 compiled: comm.cu for 10.0a (" in ran.err or \
        "2 of 2 compiled: comm.cu for 12.0a (" in ran.err  # fmt: skip


@pytest.mark.slow
def test_an_empty_kernel_is_found_in_the_object(project: TinyProject) -> None:
    try:
        find_compiler()
    except Blocked as blocked:
        pytest.skip(str(blocked))
    ran = project.run("audit", "1", "--kernels", "--json")
    assert ran.code == 1
    (judged,) = ran.json()["patches"]
    assert judged["verdict"] == "hollow"
    (found,) = [f for f in judged["findings"] if f["kind"] == "object-hollow"]
    assert found["sentence"].startswith("comm.cu: 1 of ")
    assert found["sentence"].endswith(": filled")


def test_a_patch_that_does_not_apply_is_no_end(project: TinyProject) -> None:
    path = next((project.root / "patches").glob("0001-*"))
    path.write_bytes(path.read_bytes().replace(b"-    return gen_jit", b"-    return gone_jit"))
    ran = project.run("audit", "--json", "--no-routes")
    first, second = ran.json()["patches"]
    assert first["verdict"] == "cannot-tell"
    assert second["verdict"] == "missing"


def test_a_log_is_explained_down_to_the_patch(project: TinyProject) -> None:
    log = project.root / "server.log"
    log.write_text(
        "Traceback (most recent call last):\n"
        '  File "/v/site-packages/serve/gate.py", line 11, in forward\n    return fused(x)\n'
        '  File "/v/site-packages/flashinfer/jit/made.py", line 9, in gen_made_module\n    x\n'
        "RuntimeError: No supported CUDA architectures found for major versions [9, 10].\n"
    )
    ran = project.run("explain", str(log), "--only", "2")
    assert ran.code == 0, ran.err
    assert "module: flashinfer/jit/made.py::gen_made_module" in ran.out
    assert "opened by: 0002, serve/gate.py:" in ran.out
    assert "needs: gen_made_module must build for major version 12 (it lists 9, 10)" in ran.out
    assert "needs: 0001 changes flashinfer/jit/made.py: jit: build for SM12x" in ran.out


def test_a_text_that_is_no_log_is_said_so(project: TinyProject) -> None:
    log = project.root / "notes.txt"
    log.write_text("nothing went wrong\n")
    ran = project.run("explain", str(log))
    assert (ran.code, ran.out.startswith("cannot tell:")) == (1, True)
    assert project.run("explain", str(project.root / "absent")).code == 2


def test_the_matrix_shows_what_the_series_changes(project: TinyProject) -> None:
    page = project.root / "matrix.html"
    ran = project.run("audit", "matrix", "--json", "--html", str(page), "--arch-list", "12.0a",
                      "--arch-list", "10.0a 12.0a", "--to", "1")  # fmt: skip
    assert ran.code == 0, ran.err
    rows = {row["module"].rpartition("::")[2]: row for row in ran.json()}
    made = rows["gen_made_module"]
    assert made["before"] == {"12.0a": "refused", "10.0a 12.0a": "drops"}
    assert made["after"] == {"12.0a": "builds", "10.0a 12.0a": "builds"}
    assert "gen_made_module" in page.read_text()


def test_verify_shows_what_the_audit_found(project: TinyProject) -> None:
    project.add_smoke("test_0002.py", "def test_nothing(): pass\n")
    before = project.run("verify", "--only", "2", "--tier", "static")
    assert (before.code, "audit" in before.out) == (0, False), before.err
    project.run("audit", "--only", "2", "--no-routes")
    after = project.run("verify", "--only", "2", "--tier", "static")
    assert "audit" in after.out
    assert "missing" in after.out


BARE = "RuntimeError: No supported CUDA architectures found for major versions [9, 10].\n"


def test_the_error_line_alone_leads_to_the_gate_and_the_patch(project: TinyProject) -> None:
    log = project.root / "server.log"
    log.write_text(BARE)
    ran = project.run("explain", str(log), "--without", "1")
    assert ran.code == 0, ran.err
    assert "module: flashinfer/jit/made.py::gen_made_module" in ran.out
    assert "flashinfer/ops.py" in ran.out  # the way from the gate
    assert "opened by: 0002, serve/gate.py:" in ran.out
    assert "needs: 0002 declares a need of 0001: the module" in ran.out
    assert "not this series" not in ran.out


def test_a_log_that_the_selected_series_cannot_write_is_said_so(project: TinyProject) -> None:
    log = project.root / "server.log"
    log.write_text(BARE)
    ran = project.run("explain", str(log))
    assert ran.code == 0, ran.err
    assert "opened by: 0002, serve/gate.py:" in ran.out
    assert "not this series: in the series as selected gen_made_module lists [9, 10, 12]" in ran.out
    assert "something older ran" in ran.out
