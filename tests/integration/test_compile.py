"""The compile tier with a real compiler, on sources of a few lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchwright.smoke.compiler import Compiler, find_compiler
from patchwright.smoke.device_code import (
    cubin,
    cubin_and_ptx,
    first_difference,
    kernels,
    kernels_of,
    mnemonic_counts,
    preprocess,
    ptx,
)
from patchwright.smoke.jit import JitSpec, jit_spec
from patchwright.smoke.outcomes import Blocked, SmokeError, UpstreamRefused
from patchwright.smoke.trees import Trees
from tiny_flashinfer import GENERATOR, make_trees, tiny_flashinfer

pytestmark = pytest.mark.slow

HEADER = "include/tiny.cuh"
EVERYWHERE = [9, 10, 12]
NO_MEMORY = 1 << 60  # with this, whatever is compiled anew is blocked


@pytest.fixture(scope="module")
def nvcc() -> Compiler:
    try:
        return find_compiler()
    except Blocked as blocked:
        pytest.skip(str(blocked))


@pytest.fixture(autouse=True)
def temporary(nvcc: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, which is empty again after each test."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield folder
    assert [p.name for p in folder.iterdir() if "jit" not in p.name] == []


@pytest.fixture
def tree(tmp_path: Path) -> Trees:
    return make_trees(tmp_path / "one", tiny_flashinfer(EVERYWHERE))


@pytest.fixture
def patched(tmp_path: Path) -> Trees:
    """The same with the upper bound removed, in another folder."""
    files = tiny_flashinfer(EVERYWHERE)
    files[HEADER] = files[HEADER].replace(" && __CUDA_ARCH__ < 1200", "")
    return make_trees(tmp_path / "another", files)


def spec_of(trees: Trees, arch: str) -> JitSpec:
    return jit_spec(trees, GENERATOR, arch=arch)


def test_preprocessed_text_is_that_of_the_arch(tree: Trees, patched: Trees) -> None:
    text = {
        (name, arch): preprocess(spec_of(trees, arch), "csrc/comm.cu")
        for name, trees in (("before", tree), ("after", patched))
        for arch in ("9.0a", "10.0a", "12.0a")
    }
    for arch in ("9.0a", "10.0a"):
        assert first_difference(text["before", arch], text["after", arch]) == ""
    assert text["before", "12.0a"] != text["before", "10.0a"]
    assert text["after", "12.0a"] == text["after", "10.0a"]
    assert "tiny.cuh:5" in first_difference(text["before", "10.0a"], text["before", "12.0a"])


def test_kernels_and_their_sizes(tree: Trees, patched: Trees) -> None:
    requests = [(spec_of(trees, "12.0a"), "comm.cu", None) for trees in (tree, patched)]
    hollow, filled = kernels_of(requests)
    # Internal names carry a hash of the source's path; here they can be compared.
    assert list(hollow) == list(filled)
    by_name = {kernel.demangled.partition("(int")[0]: kernel for kernel in filled.values()}
    assert sorted(by_name) == ["(anonymous namespace)::hidden", "filled"]
    big = by_name["filled"]
    assert hollow[big.name].code_size < big.code_size / 2
    assert big.shared_size >= 64 * 4 > hollow[big.name].shared_size


def test_equal_text_is_compiled_once(tree: Trees, tmp_path: Path) -> None:
    first = kernels(spec_of(tree, "10.0a"), "comm.cu")
    moved = make_trees(tmp_path / "elsewhere", tiny_flashinfer(EVERYWHERE))
    assert kernels(spec_of(moved, "10.0a"), "comm.cu", memory=NO_MEMORY) == first
    with pytest.raises(Blocked, match="of free memory to compile"):
        kernels(spec_of(tree, "12.0a"), "comm.cu", memory=NO_MEMORY)


def test_one_compile_gives_object_and_ptx(tree: Trees) -> None:
    spec = spec_of(tree, "10.0a")
    both = cubin_and_ptx(spec, "comm.cu")
    assert cubin(spec, "comm.cu", memory=NO_MEMORY) == both[0]
    assert ptx(spec, "comm.cu", memory=NO_MEMORY) == both[1]
    assert ".target sm_100a" in both[1]


def test_flags_are_part_of_what_was_compiled(tree: Trees, tmp_path: Path) -> None:
    kernels(spec_of(tree, "10.0a"), "comm.cu")
    files = tiny_flashinfer(EVERYWHERE)
    comm = "flashinfer/jit/comm.py"
    files[comm] = files[comm].replace('"-DNDEBUG"', '"-DNDEBUG", "-use_fast_math"')
    flagged = make_trees(tmp_path / "flagged", files)
    with pytest.raises(Blocked):
        kernels(spec_of(flagged, "10.0a"), "comm.cu", memory=NO_MEMORY)


def test_a_text_in_place_of_the_source(tree: Trees) -> None:
    text = (
        '#include "tiny.cuh"\n#include <cstdio>\n'
        "template <class T> __global__ void only(T* p) {\n"
        '  asm volatile("griddepcontrol.wait;"); printf("%s", __FILE__); filled(p);\n}\n'
    ).replace("filled(p);", "*p = 1;") + "template __global__ void only<int>(int*);\n"
    spec = spec_of(tree, "12.0a")
    compiled = cubin(spec, "comm.cu", text=text)
    assert "void only<int>(int*)" in {k.demangled for k in compiled.kernels.values()}
    assert compiled.undefined == ("vprintf",)
    # No folder of this run in the object.
    assert "/text/comm.text.cu" in compiled.strings
    assert not any(os.environ["TMPDIR"] in s for s in compiled.strings)
    counts = mnemonic_counts(ptx(spec, "comm.cu", text=text))
    assert counts["griddepcontrol.wait"] == 1
    assert counts["ret"] >= 1


def test_a_compile_error_is_quoted(tree: Trees) -> None:
    spec = spec_of(tree, "12.0a")
    with pytest.raises(UpstreamRefused, match='error: identifier "nothing" is undefined'):
        kernels(spec, "comm.cu", text="__global__ void k(int* p) { *p = nothing; }")
    with pytest.raises(UpstreamRefused, match=r"tcgen05\.wait.* not supported on .*sm_120a"):
        kernels(
            spec,
            "comm.cu",
            text='__global__ void k() { asm volatile("tcgen05.wait::ld.sync.aligned;"); }',
        )
    with pytest.raises(UpstreamRefused, match="#error not here"):
        preprocess(spec, "comm.cu", text="#error not here\n")


def test_a_library_header_is_a_need(tree: Trees) -> None:
    with pytest.raises(Blocked, match=r"needs the header cudnn_v99\.h"):
        preprocess(spec_of(tree, "12.0a"), "comm.cu", text='#include "cudnn_v99.h"\n')


def test_a_header_that_is_not_the_trees_is_an_error(tree: Trees) -> None:
    spec = spec_of(tree, "12.0a")
    header = tree.path("flashinfer", HEADER)
    header.write_text(header.read_text() + "// edited\n")
    with pytest.raises(SmokeError, match=r"tiny\.cuh"):
        preprocess(spec, "comm.cu")
    (header.parent / "new.cuh").write_text("")
    with pytest.raises(SmokeError, match=r"new\.cuh is not a file of the tree"):
        preprocess(spec, "comm.cu", text='#include "new.cuh"\n')


def test_a_compiler_that_does_not_end_is_stopped(tree: Trees) -> None:
    with pytest.raises(SmokeError, match=r"did not end within 0\.01 s"):
        kernels(spec_of(tree, "12.0a"), "comm.cu", deadline=0.01)
