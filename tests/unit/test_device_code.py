"""Device code without a compiler: reading what compilers print and what they make."""

from __future__ import annotations

import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from patchwright.smoke.compile_errors import explain
from patchwright.smoke.compiler import Compiler
from patchwright.smoke.device_code import Preprocessed, first_difference, mnemonic_counts
from patchwright.smoke.elf import Kernel, read_cubin, stable_name
from patchwright.smoke.jit import JitSpec, jit_spec
from patchwright.smoke.nvcc import Job
from patchwright.smoke.objects import ObjectCache
from patchwright.smoke.outcomes import Blocked, SmokeError, UpstreamRefused
from patchwright.smoke.preprocessed import device_preprocessor
from tiny_flashinfer import GENERATOR, make_trees, tiny_flashinfer

COMPILER = Compiler(Path("/cuda"), Path("/cuda/bin/nvcc"), (13, 0), "nvcc 13.0.88 0")


@pytest.fixture
def spec(tmp_path: Path) -> JitSpec:
    return jit_spec(make_trees(tmp_path / "site", tiny_flashinfer()), GENERATOR, arch="9.0a 10.0a")


# What `nvcc --dryrun -cubin` printed, shortened.
DRYRUN = """\
#$ _NVVM_BRANCH_=nvvm
#$ _SPACE_=
#$ TOP=/cuda/bin/..
#$ LD_LIBRARY_PATH=/cuda/bin/../lib:
#$ PATH=/cuda/bin/../nvvm/bin:/cuda/bin:/usr/bin
#$ INCLUDES="-I/cuda/bin/../include"
#$ gcc -std=c++17 -D__CUDA_ARCH__=1200 -D__CUDA_ARCH_FEAT_SM120_ALL -E -x c++ "-I/cuda/include" \
-D "TEXT=\\"a b\\"" -include "cuda_runtime.h" -m64 "one.cu" -o "/tmp/tmpxft_1_one.cpp1.ii"
#$ "$CICC_PATH/cicc" --c++17 -arch compute_120a "/tmp/tmpxft_1_one.cpp1.ii" -o "/tmp/one.ptx"
#$ ptxas -arch=sm_120a -m64 "/tmp/one.ptx" -o "x.cubin"
"""


def test_the_device_pass_is_read_from_the_dry_run() -> None:
    argv, env = device_preprocessor(DRYRUN)
    assert argv == [
        "gcc", "-std=c++17", "-D__CUDA_ARCH__=1200", "-D__CUDA_ARCH_FEAT_SM120_ALL", "-E", "-x",
        "c++", "-I/cuda/include", "-D", 'TEXT="a b"', "-include", "cuda_runtime.h", "-m64",
        "one.cu",
    ]  # fmt: skip
    assert env == {
        "PATH": "/cuda/bin/../nvvm/bin:/cuda/bin:/usr/bin",
        "LD_LIBRARY_PATH": "/cuda/bin/../lib:",
    }
    with pytest.raises(SmokeError, match="no preprocessor of the device pass"):
        device_preprocessor("#$ gcc -E -x c++ host.cu\n")


def text_of(marked: str, *flags: str, site: str = "/site") -> Preprocessed:
    return Preprocessed.of(marked, flags, Path(site))


def test_markers_blank_lines_and_places_do_not_count() -> None:
    one = text_of('# 1 "/a/x.cu"\n# 1 "<built-in>"\n# 1 "/a/x.cuh" 1\nint x;\n\n', site="/a")
    two = text_of('# 7 "/b/x.cu"\n\n# 9 "/b/x.cuh" 1 3\nint x;\n', site="/b")
    assert one == two
    assert one.digest == two.digest
    assert first_difference(one, two) == ""
    assert one.files == {"/a/x.cu", "/a/x.cuh"}


def test_flags_count() -> None:
    one, two = text_of("int x;", "-O3"), text_of("int x;", "-O3", "-DGDC")
    assert one != two
    assert one.digest != two.digest
    assert first_difference(one, two) == "flags differ: none against -DGDC"


def test_a_difference_is_shown_with_its_place() -> None:
    one = text_of('# 4 "/site/k.cuh" 1\nint a;\n\nwait();\nint b;\n')
    two = text_of('# 4 "/site/k.cuh" 1\nint a;\n\n\nint b;\n')
    assert [line[:2] for line in one.lines] == [("k.cuh", 4), ("k.cuh", 6), ("k.cuh", 7)]
    assert first_difference(one, two) == "k.cuh:6: wait(); against k.cuh:7: int b;"
    shorter = text_of('# 4 "/site/k.cuh" 1\nint a;\n\nwait();\n')
    assert first_difference(shorter, one) == "only one has k.cuh:7: int b;"


def section_name(names: bytes, name: str) -> int:
    return names.index(b"\0" + name.encode() + b"\0") + 1


def tiny_cubin() -> bytes:
    """Make an ELF object with two kernels, a device function and an undefined symbol."""
    parts: list[tuple[str, int, bytes, int]] = [  # name, type, content, size
        (".text.filled", 1, b"\0" * 512, 512),
        (".text._ZN3_GLOBAL__N__0a1b2c3d_4_x_cu_6hiddenEv", 1, b"\0" * 256, 256),
        (".text.helper", 1, b"\0" * 128, 128),
        (".nv.shared.filled", 8, b"", 1280),
        (".nv.global.init", 1, b"\0\1Unsupported atom\0\2", 19),
    ]
    strings = b"\0filled\0_ZN3_GLOBAL__N__0a1b2c3d_4_x_cu_6hiddenEv\0helper\0vprintf\0"
    symbol = struct.Struct("<IBBHQQ")
    symbols = symbol.pack(0, 0, 0, 0, 0, 0) + b"".join(
        symbol.pack(section_name(strings, name), 0x12, other, section, 0, 0)
        for name, other, section in (
            ("filled", 0x10, 1),
            ("_ZN3_GLOBAL__N__0a1b2c3d_4_x_cu_6hiddenEv", 0x10, 2),
            ("helper", 0, 3),
            ("vprintf", 0x10, 0),
        )
    )
    parts += [(".symtab", 2, symbols, len(symbols)), (".strtab", 3, strings, len(strings))]
    names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in parts) + b".shstrtab\0"
    parts.append((".shstrtab", 3, names, len(names)))
    body, headers = b"", struct.pack("<IIQQQQIIQQ", *[0] * 10)
    for name, kind, content, size in parts:
        at = section_name(names, name)
        link, entry = (7, 24) if name == ".symtab" else (0, 0)
        headers += struct.pack(
            "<IIQQQQIIQQ", at, kind, 0, 0, 64 + len(body), size, link, 0, 1, entry
        )
        body += content
    start = 64 + len(body)
    ident = b"\x7fELF\2\1\1" + b"\0" * 9
    fields = (2, 190, 1, 0, 0, start, 0, 64, 0, 0, 64, len(parts) + 1, len(parts))
    return ident + struct.pack("<HHIQQQIHHHHHH", *fields) + body + headers


def test_kernels_are_read_from_the_object() -> None:
    cubin = read_cubin(tiny_cubin(), lambda names: {"filled": "filled(int*)"})
    hidden = "_ZN3_GLOBAL__N__00000000_4_x_cu_6hiddenEv"
    assert cubin.kernels == {
        hidden: Kernel(hidden, hidden, 256, 0),
        "filled": Kernel("filled", "filled(int*)", 512, 1280),
    }
    assert cubin.undefined == ("vprintf",)
    assert cubin.strings == ("Unsupported atom",)


@pytest.mark.parametrize("data", [b"", b"not an object", tiny_cubin()[:700]])
def test_a_damaged_object_is_an_error(data: bytes) -> None:
    with pytest.raises(SmokeError, match="the compiled object cannot be read"):
        read_cubin(data)


def test_names_do_not_depend_on_the_sources_path() -> None:
    name = "_ZN37_GLOBAL__N__{}_7_anon_cu__Z1fPi3hidEPi"
    assert stable_name(name.format("d7efe9ae")) == stable_name(name.format("ee62d56b"))
    assert stable_name("_ZN4wrap6kernelEv") == "_ZN4wrap6kernelEv"
    assert stable_name("_INTERNAL_0a1b2c3d_6_one_cu_9f8e7d6c_12") == (
        "_INTERNAL_00000000_6_one_cu_00000000_12"
    )


def test_instructions_are_counted() -> None:
    counts = mnemonic_counts(
        """\
.version 9.0
.visible .entry k(.param .u64 p) // ret;
{
 .reg .pred %p<2>;
 ld.param.u64 %rd1, [p];
 griddepcontrol.wait;
 @%p1 bra $L__BB0_2;
 @!%p1 bra $L__BB0_3;
 { cvt.f32.bf16 %f1, %rs1;}
$L__BB0_2:
 mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f1}, {%r1}, {%r2}, {%f2};
 griddepcontrol.wait; brkpt;
 ret;
}
"""
    )
    assert counts == {
        "ld.param.u64": 1, "griddepcontrol.wait": 2, "bra": 2, "cvt.f32.bf16": 1,
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32": 1, "brkpt": 1, "ret": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (
            "/site/a.cuh(12): warning #1: x\n"
            '/site/a.cuh(14): error: identifier "y" is undefined\n/site/a.cuh(15): error: z\n',
            'a.cuh(14): error: identifier "y" is undefined',
        ),
        (
            "ptxas /tmp/x.ptx, line 34; error   : Instruction 'tcgen05.wait' not supported on "
            ".target 'sm_120a'\nptxas fatal   : Ptx assembly aborted due to errors\n",
            "Instruction 'tcgen05.wait' not supported on .target 'sm_120a'",
        ),
        ("/site/x.cu:3:10: fatal error: own.cuh: No such file or directory\n", "own.cuh: No such"),
        ("", "the compiler said nothing"),
    ],
)
def test_a_compile_error_is_upstreams_answer(stderr: str, message: str) -> None:
    with pytest.raises(UpstreamRefused) as refused:
        explain(stderr, "/site")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "/site" not in str(refused.value)


@pytest.mark.parametrize(
    ("stderr", "need"),
    [
        (
            "nvcc fatal   : Unsupported gpu architecture 'compute_200a'\n",
            "needs a CUDA compiler that knows compute_200a; the one found does not",
        ),
        (
            "x.cuh:3:10: fatal error: curand_kernel.h: No such file or directory\n",
            "needs the header curand_kernel.h (nvidia-curand)",
        ),
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n", "needs more memory"),
        ("fatal error: error writing to /tmp/x: No space left on device\n", "more disk space"),
    ],
)
def test_what_the_machine_lacks_is_a_need(stderr: str, need: str) -> None:
    with pytest.raises(Blocked, match="needs") as blocked:
        explain(stderr, "/site")
    assert need in blocked.value.need


def test_only_what_the_module_has_is_compiled(spec: JitSpec) -> None:
    job = Job.prepare(spec, "csrc/comm.cu", "10.0a", compiler=COMPILER)
    assert job.gencode == "arch=compute_100a,code=sm_100a"
    for arch, reason in (("12.0a", "built for 90a, 100a, asked for 12.0a"), (None, "for one")):
        with pytest.raises(SmokeError, match=reason):
            Job.prepare(spec, "comm.cu", arch, compiler=COMPILER)


def test_objects_are_made_once_and_again_when_damaged(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> bytes:
        made.append(1)
        return b"object"

    cache = ObjectCache(tmp_path / "objects")
    assert cache.get("abcd", make) == cache.get("abcd", make) == b"object"
    assert len(made) == 1
    entry = tmp_path / "objects/ab/abcd"
    entry.write_bytes(entry.read_bytes()[:-1])
    assert cache.get("abcd", make) == b"object"
    assert len(made) == 2
    assert cache.get("abcd", make) == b"object"
    assert len(made) == 2


def test_two_that_want_the_same_object_make_it_once(tmp_path: Path) -> None:
    made: list[int] = []
    start = Barrier(2)

    def make() -> bytes:
        made.append(1)
        time.sleep(0.2)
        return b"object"

    def get(_: int) -> bytes:
        start.wait()
        return ObjectCache(tmp_path / "objects").get("abcd", make)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(get, range(2))) == [b"object", b"object"]
    assert len(made) == 1


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    # A file where the folder should be: nobody can write below it, not even root.
    (tmp_path / "objects").write_text("")
    assert ObjectCache(tmp_path / "objects").get("abcd", lambda: b"object") == b"object"


def test_a_failed_compile_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> bytes:
        raise UpstreamRefused("no")

    cache = ObjectCache(tmp_path / "objects")
    with pytest.raises(UpstreamRefused):
        cache.get("abcd", fail)
    assert cache.get("abcd", lambda: b"object") == b"object"
