"""Objects and CUDA sources: what counts as hollow, poisoned, lost; what a guard takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from audits import stored
from patchwright.audit.census import _cell
from patchwright.audit.compiled import _is_worth, on_route, with_objects
from patchwright.audit.kernels import (
    Problem,
    compare_counts,
    compare_cubins,
    dynamic_requests,
    instruction_counts,
)
from patchwright.audit.series import Judged
from patchwright.audit.sources import Sources
from patchwright.audit.standing import Finding, behind_module
from patchwright.smoke.elf import Cubin, Kernel


def cubin(*sizes: int, strings: tuple[str, ...] = (), undefined: tuple[str, ...] = ()) -> Cubin:
    kernels = {
        f"k{n}": Kernel(f"k{n}", f"void ns::body<{n}>(int)", size, 0)
        for n, size in enumerate(sizes)
    }
    return Cubin(kernels, undefined, strings)


def test_a_body_that_is_gone_is_hollow_and_an_honest_ratio_is_not() -> None:
    (problem,) = compare_cubins(cubin(10_000, 1_000), cubin(256, 810), major="12")
    assert problem.sentence == "1 of 2 kernels are hollow (256 to 256 bytes)"
    assert problem.kernels == ("ns::body",)
    assert compare_cubins(cubin(1_000), cubin(810), major="12") == []


def test_a_kernel_of_full_size_that_traps_is_poisoned() -> None:
    said = "Attempting to use SM100_MMA without CUTE_ARCH_TCGEN05_MMA_ENABLED"
    own = cubin(9_700, strings=(said,), undefined=("vprintf",))
    kinds = [p.kind for p in compare_cubins(cubin(10_000), own, major="12")]
    assert kinds == ["poisoned", "poisoned"]
    before, after = Counter({"tcgen05.mma": 240}), Counter({"brkpt": 418})
    sentences = [p.sentence for p in compare_counts(before, after, rewrites={})]
    assert sentences == ["418 traps, the reference has 0", "tcgen05: 240 to 0"]


def test_a_known_rewrite_is_no_loss() -> None:
    before, after = Counter({"wgmma.mma_async": 8}), Counter({"mma.sync.aligned": 64})
    assert compare_counts(before, after, rewrites={"wgmma": "mma"}) == []
    assert [p.kind for p in compare_counts(before, Counter(), rewrites={"wgmma": "mma"})] == [
        "lost"
    ]


def test_static_shared_memory_over_the_limit() -> None:
    large = Cubin({"k": Kernel("k", "k", 100, 101_377)}, (), ())
    assert [p.kind for p in compare_cubins(large, large, major="12")] == ["shared"]
    assert compare_cubins(large, large, major="10") == []


def test_dynamic_shared_memory_of_other_gpus_is_placed() -> None:
    texts = {"csrc/a.cu": "int x;\nint bytes = 227 * 1024;\n", "include/b.cuh": "int y = 232448;"}
    (problem,) = dynamic_requests(texts, major="12")
    assert problem.kind == "dynamic"
    assert problem.sentence == (
        "over the 101376 bytes of shared memory of 12.x: csrc/a.cu:2, include/b.cuh:1"
    )
    assert dynamic_requests(texts, major="10") == []
    assert dynamic_requests({"csrc/a.cu": "int x = 1024;\n"}, major="12") == []


def test_instructions_of_inline_assembly_count() -> None:
    ptx = """
    { // begin inline asm
    @elect tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd2;
    tcgen05.st.sync.aligned.32x32b.x32.b32[%r36],{%r2302};
    tcgen05.ld.sync.aligned.32x32b.x32.b32{%r1, %r2},[%r3];
    tcgen05.wait::ld.sync.aligned; tcgen05.fence::after_thread_sync;
    } // tcgen05.alloc is only named here
    """
    counts = instruction_counts(ptx)
    assert sum(n for name, n in counts.items() if name.startswith("tcgen05.")) == 5


CU = """\
#include "kern/body.cuh"
void run_all(int* p) { launcher(p); }
void other(int* p) { small<<<1, 1>>>(p); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run_all, run_all);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(other, other);
"""
CUH = """\
#pragma once
__global__ void filled(int* out) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
  out[0] = 1;
#endif
}
__global__ void small(int* out) {
  out[0] = 2;
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
  cudaGridDependencySynchronize();
#endif
}
void launcher(int* p) {
#define LAUNCH filled<<<1, 1>>>(p)
  LAUNCH;
}
"""
JIT = """
def gen_body_module():
    return gen_jit_spec("body", [CSRC / "body.cu"], flags(supported_major_versions=None))
"""


def sources(tmp_path: Path) -> Sources:
    files = {"kern/jit.py": JIT, "csrc/body.cu": CU, "csrc/kern/body.cuh": CUH}
    return Sources(stored(tmp_path, {"kern": files}), "kern")


def test_a_guard_is_told_by_what_it_takes(tmp_path: Path) -> None:
    found = sources(tmp_path).lost("csrc/kern/body.cuh", "100a", "120a")
    assert [(lost.line, lost.function, lost.loss) for lost in found] == [
        (3, "filled", "kernel"), (9, "small", "barrier")
    ]  # fmt: skip


def test_what_the_route_does_not_come_to_is_told_apart(tmp_path: Path) -> None:
    module = "kern/jit.py::gen_body_module"
    found = behind_module(sources(tmp_path), module, ["12.0"], frozenset({"other"}))
    assert [(f.kind, f.on_route) for f in found] == [
        ("module", None), ("hollow", False), ("barrier", True)
    ]  # fmt: skip
    everyone = behind_module(sources(tmp_path), module, ["12.0"], None)
    assert [f.on_route for f in everyone] == [None, None, None]


def test_a_list_that_is_served_in_part_is_told() -> None:
    answer = {"name": "m", "targets": ["100a"], "sources": []}
    cell = _cell(answer, ["10.0a", "12.0a"])
    assert (cell.word, cell.why) == ("drops", "silently drops 12.0a: built for sm_100a")
    assert _cell(answer, ["10.0a"]).word == "builds"
    assert _cell(answer, ["12.0a"]).word == "other"
    assert _cell({"refused": "No supported CUDA architectures found"}, ["12.0a"]).word == "refused"
    assert _cell({"broken": "ImportError: no cuda"}, ["12.0a"]).word == "cannot-tell"


def judged_with(problem: Problem, *sentences: str) -> Judged:
    """Judge a patch whose route does not come to what the guards' sentences say."""
    off = tuple(Finding("hollow", sentence, on_route=False) for sentence in sentences)
    judged = Judged(4, "whole", "gen_x builds for 12.0", findings=off)
    found = Finding(f"object-{problem.kind}", problem.sentence, on_route=on_route(judged, problem))
    return with_objects(judged, [found])


def test_hollow_objects_decide_unless_the_route_does_not_come_to_them() -> None:
    hollow = Problem("hollow", "2 of 3 kernels are hollow", ("ns::body", "ns::other"))
    body, other = (f"x: the whole body of the kernel {n} is gone" for n in ("body", "other"))
    assert judged_with(hollow, body, other).verdict == "whole"
    for known in ([], [body]):
        judged = judged_with(hollow, *known)
        assert (judged.verdict, judged.why) == ("hollow", "2 of 3 kernels are hollow")
    poisoned = Problem("poisoned", "418 traps, the reference has 0")
    assert judged_with(poisoned, body).verdict == "poisoned"


def test_only_sources_that_may_show_something_are_compiled(tmp_path: Path) -> None:
    export = "TVM_FFI_DLL_EXPORT_TYPED_FUNC({0}, {0});\n"
    files = {
        "csrc/whole.cu": export.format("whole"),
        "csrc/taken.cu": '#include <kern/body.cuh>\n' + export.format("taken"),
        "csrc/silent.cu": "__global__ void k() {}\n",
        "csrc/kern/body.cuh": CUH,
    }  # fmt: skip
    own = Sources(stored(tmp_path, {"kern": files}), "kern")
    archs = ("10.0a", "12.0a")

    def worth(path: str | None, asked: frozenset[str] | None) -> bool:
        return _is_worth(own, path, archs, asked)

    # No route comes to it, and it is the same for both: nothing to be seen.
    assert not worth("csrc/whole.cu", frozenset({"other"}))
    assert worth("csrc/whole.cu", frozenset({"other", "whole"}))
    # Not known: which functions are asked for, by which name, which file it is.
    assert worth("csrc/whole.cu", None)
    assert worth("csrc/silent.cu", frozenset({"other"}))
    assert worth(None, frozenset({"other"}))
    assert worth("csrc/taken.cu", frozenset({"other"}))
