"""JIT specs from a tiny upstream: what a generator answers, and what counts as no answer."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from deaths import is_dead
from patchwright.smoke.jit import JitSpec, jit_spec, target
from patchwright.smoke.outcomes import SmokeError, UpstreamRefused
from patchwright.smoke.trees import Trees
from tiny_flashinfer import GENERATOR, make_trees, tiny_flashinfer

COMM = "flashinfer/jit/comm.py::"


@pytest.fixture
def tiny(tmp_path: Path) -> Trees:
    return make_trees(tmp_path / "site", tiny_flashinfer())


def with_more(tmp_path: Path, code: str) -> Trees:
    return make_trees(tmp_path / "more", tiny_flashinfer(more=code))


def leftovers() -> list[Path]:
    return list(Path(os.environ["TMPDIR"]).glob("patchwright-jit-*"))


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)


def test_the_spec_says_what_upstream_emits(tiny: Trees) -> None:
    spec = jit_spec(tiny, GENERATOR, arch="10.0a")
    assert spec.name == "comm"
    assert spec.gencode == ("arch=compute_100a,code=sm_100a",)
    assert spec.targets == ("100a",)
    assert spec.dropped == ()
    assert spec.nvcc_flags == (
        "-isystem", "$cuda_home/include", "-isystem", "$site/flashinfer/data/include",
        "-std=c++17", "-gencode=arch=compute_100a,code=sm_100a", "-DNDEBUG",
    )  # fmt: skip
    assert spec.host_flags[-1] == "-O2"
    assert spec.link_flags == ("-shared", "-L$cuda_home/lib64")
    assert spec.sources == (tiny.path("flashinfer", "csrc/comm.cu"),)
    assert spec.include_dirs == (tiny.site / "flashinfer/data/include",)
    line = spec.compile_lines["comm.cu"]
    assert line[0] == "$cuda_home/bin/nvcc"
    assert line[line.index("-c") + 1] == "$site/flashinfer/data/csrc/comm.cu"


def test_upstreams_refusal_is_quoted(tiny: Trees) -> None:
    with pytest.raises(UpstreamRefused) as refusal:
        jit_spec(tiny, GENERATOR, arch="12.0a")
    assert str(refusal.value) == (
        "RuntimeError: No supported CUDA architectures found for major versions [9, 10]."
    )


def test_a_mixed_list_shows_the_arch_that_was_dropped(tiny: Trees) -> None:
    spec = jit_spec(tiny, GENERATOR, arch="10.0a 12.0a")
    assert spec.gencode == ("arch=compute_100a,code=sm_100a",)
    assert spec.dropped == ("12.0a",)


def test_specs_of_two_trees_are_equal_when_upstream_says_the_same(
    tiny: Trees, tmp_path: Path
) -> None:
    patched = make_trees(tmp_path / "patched", tiny_flashinfer(majors=[9, 10, 12]))
    assert jit_spec(tiny, GENERATOR, arch="9.0a") == jit_spec(patched, GENERATOR, arch="9.0a")
    flagged = make_trees(
        tmp_path / "flagged",
        tiny_flashinfer()
        | {"flashinfer/jit/comm.py": "MAJORS = [9]\n" + _comm().replace("-DNDEBUG", "-DGDC")},
    )
    assert jit_spec(tiny, GENERATOR, arch="9.0a") != jit_spec(flagged, GENERATOR, arch="9.0a")


def _comm() -> str:
    return tiny_flashinfer()["flashinfer/jit/comm.py"].partition("\n")[2]


def test_arguments_and_the_simulated_device(tiny: Trees) -> None:
    name = COMM + "gen_typed_module"
    spec = jit_spec(tiny, name, arch="12.0a", args=("torch.bfloat16",), kwargs={"out": None})
    assert spec.name == "typed_bf16"
    assert "-DHALF" in spec.nvcc_flags
    # A generated source lives as long as its spec.
    assert spec.sources[0].read_text() == "__global__ void made() {}"
    del spec
    assert leftovers() == []


def test_a_device_question_has_no_answer_for_several_archs(tiny: Trees) -> None:
    with pytest.raises(SmokeError, match="several architectures"):
        jit_spec(tiny, COMM + "gen_typed_module", arch="9.0a 12.0a", args=("torch.float16",))


def test_the_cuda_version_is_simulated(tiny: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", "/somewhere/cuda-12.1")
    assert jit_spec(tiny, COMM + "gen_cuda_module").name == "cuda12.8"
    assert jit_spec(tiny, COMM + "gen_cuda_module", cuda="13.0").name == "cuda13.0"


def test_it_needs_no_compiler_and_no_variable_of_the_user(
    tiny: Trees, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = jit_spec(tiny, GENERATOR, arch="10.0a")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "8.0")
    monkeypatch.setenv("FLASHINFER_WORKSPACE_BASE", "/nonexistent")
    assert jit_spec(tiny, GENERATOR, arch="10.0a") == known


def test_the_caller_stays_clean(tiny: Trees) -> None:
    before = dict(os.environ)
    jit_spec(tiny, GENERATOR, arch="10.0a")
    assert not [n for n in sys.modules if n.partition(".")[0] in {"flashinfer", "torch"}]
    assert dict(os.environ) == before
    assert not list(tiny.site.rglob("*.pyc"))
    assert leftovers() == []


def test_what_was_imported_is_reported(tiny: Trees) -> None:
    spec = jit_spec(tiny, GENERATOR, arch="10.0a")
    names = [str(Path(f).relative_to(tiny.site)) for f in spec.imported]
    assert "flashinfer/jit/comm.py" in names
    assert "flashinfer/jit/core.py" in names


def test_a_file_that_is_not_the_trees_is_an_error(tiny: Trees) -> None:
    core = tiny.path("flashinfer", "flashinfer/jit/core.py")
    core.write_text(core.read_text() + "# edited\n")
    with pytest.raises(SmokeError, match=r"core\.py"):
        jit_spec(tiny, GENERATOR, arch="10.0a")
    # A refusal proves nothing either when it comes from other code.
    with pytest.raises(SmokeError, match=r"core\.py"):
        jit_spec(tiny, GENERATOR, arch="12.0a")


def test_another_copy_of_the_package_is_an_error(tiny: Trees, tmp_path: Path) -> None:
    elsewhere = tmp_path / "copy" / "jit"
    elsewhere.mkdir(parents=True)
    (elsewhere / "extra.py").write_text("X = 1\n")
    trees = with_more(
        tmp_path,
        f"import flashinfer.jit\nflashinfer.jit.__path__.append({str(elsewhere)!r})\n"
        "import flashinfer.jit.extra\n",
    )
    with pytest.raises(SmokeError, match="not from the tree under test"):
        jit_spec(trees, GENERATOR, arch="10.0a")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("torch.backends.cudnn.enabled", "torch.backends is not simulated"),
        ("hasattr(torch, 'compile')", "torch.compile is not simulated"),
        ("torch.Tensor()", "no tensors"),
        ("__import__('requests').get('http://example.org')", "requests.get is not simulated"),
        ("__import__('socket').create_connection(('localhost', 9))", "reaches for the network"),
        ("__import__('no_such_library')", "imports no_such_library, which is not installed"),
        ("open('missing.json')", "missing.json"),
        ("__import__('os')._exit(3)", "ended without an answer"),
        ("1", "returns a int, not a JIT spec"),
    ],
)
def test_what_the_harness_cannot_answer_is_its_own_error(
    tmp_path: Path, body: str, reason: str
) -> None:
    code = (
        f"def gen_odd():\n    try:\n        return {body}\n    except ValueError:\n        pass\n"
    )
    with pytest.raises(SmokeError, match=reason):
        jit_spec(with_more(tmp_path, code), COMM + "gen_odd", arch="10.0a")


def test_upstreams_own_except_does_not_swallow_a_gap(tmp_path: Path) -> None:
    code = "def gen_odd():\n    try:\n        torch.magic\n    except Exception:\n        pass\n"
    with pytest.raises(SmokeError, match=r"torch\.magic is not simulated"):
        jit_spec(with_more(tmp_path, code), COMM + "gen_odd", arch="10.0a")


def test_an_error_while_importing_upstream_is_upstreams(tmp_path: Path) -> None:
    with pytest.raises(UpstreamRefused, match="NameError: name 'undefined' is not defined"):
        jit_spec(with_more(tmp_path, "undefined\n"), GENERATOR, arch="10.0a")


def test_a_generator_that_hangs_is_stopped_with_what_it_started(tmp_path: Path) -> None:
    code = (
        "def gen_slow():\n    import subprocess, sys, time\n"
        f"    p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"    open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid))\n    time.sleep(60)\n"
    )
    trees = with_more(tmp_path, code)
    with pytest.raises(SmokeError, match="no answer within 1 s"):
        jit_spec(trees, COMM + "gen_slow", arch="10.0a", deadline=1)
    pid = int((tmp_path / "pid").read_text())
    assert is_dead(pid)
    assert leftovers() == []


@pytest.mark.parametrize(
    ("generator", "arch", "reason"),
    [
        (COMM + "gen_nothing", "10.0a", "no such function"),
        ("flashinfer/jit/none.py::gen", "10.0a", "no upstream has a file flashinfer/jit/none.py"),
        ("gen_comm_module", "10.0a", "not of the form"),
        (GENERATOR, "", "not a list of architectures"),
        (GENERATOR, "sm_120", "not a list of architectures"),
    ],
)
def test_a_wrong_question_is_an_error(tiny: Trees, generator: str, arch: str, reason: str) -> None:
    with pytest.raises(SmokeError, match=reason):
        jit_spec(tiny, generator, arch=arch)


def test_a_missing_library_is_named(tiny: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm_ffi", None)
    with pytest.raises(SmokeError, match="tvm_ffi"):
        jit_spec(tiny, GENERATOR, arch="10.0a")


def test_sources_are_found_by_name_or_repository_path(tiny: Trees) -> None:
    spec: JitSpec = jit_spec(tiny, GENERATOR, arch="10.0a")
    assert spec.source("comm.cu") == spec.source("csrc/comm.cu") == spec.sources[0]
    with pytest.raises(SmokeError, match=r"it has comm\.cu"):
        spec.source("other.cu")


def test_architecture_names() -> None:
    assert target("12.0a") == target("120a") == "120a"
    assert target("8.9") == "89"
    with pytest.raises(SmokeError, match="sm_120"):
        target("sm_120")
