"""The commands audit guards and audit kernels; a stub stands for the CUDA compiler."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from patchwright.smoke import compiler
from projects import TinyProject, make_project
from tiny_flashinfer import tiny_flashinfer

# Stands for an nvcc that the machine may lack: it plans the host's own preprocessor, with
# the module's search paths and macros and the architecture's number.
NVCC = """\
#!{python} -IS
import re, sys
args, home = sys.argv[1:], "{home}"
if "--version" in args:
    print("Cuda compilation tools, release {release}, V{release}.88")
elif "--dryrun" in args and "-x" in args:
    print(f"#$ _HERE_={{home}}/bin\\n#$ CICC_PATH={{home}}/nvvm/bin", file=sys.stderr)
else:
    with open("{log}", "a") as log:
        log.write("asked\\n")
    arch = next(a for a in args if a.startswith("-gencode=")).partition("code=sm_")[2]
    if arch not in {known}:
        sys.exit(f"nvcc fatal   : Unsupported gpu architecture 'compute_{{arch}}'")
    if "--dryrun" not in args:
        sys.exit("nvcc fatal   : this stub compiles nothing")
    flags = [a for b, a in zip(["", *args], args) if b == "-isystem" or a.startswith(("-D", "-is"))]
    (source,) = [a for a in args if a.endswith(".cu")]
    number = re.sub("[af]", "", arch) + "0"
    print("#$ gcc -E -x c++", *flags, f"-D__CUDA_ARCH__={{number}}", source, "-o", "x.ii",
          file=sys.stderr)
"""
LAYOUT = {
    "flashinfer/": "flashinfer/", "csrc/": "flashinfer/data/csrc/",
    "include/": "flashinfer/data/include/",
}  # fmt: skip
MORE = """

def gen_broken_module():
    raise OSError("no such toolchain")


def gen_odd_module():
    return Spec("odd", [DATA / "csrc" / f for f in ("odd.cu", "even.cu")], archs([9, 10, 12]))


def gen_derived_module():
    return Spec("derived", [DATA / "csrc" / "derived.cu"], archs([9, 10, 12]))
"""
DERIVED = """\
#if __CUDA_ARCH__ == 1000
#define HAS_TENSOR_MEMORY
#endif
#ifdef HAS_TENSOR_MEMORY
int tensor_memory;
#endif
"""


class Machine:
    """A machine without a CUDA compiler, until it is given a stub of one."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.log = folder / "cuda", folder / "asked"
        path = folder / "path"
        path.mkdir()
        for name in ("git", "gcc", "g++", "cc1plus"):
            if found := shutil.which(name):
                (path / name).symlink_to(found)
        if not (path / "g++").exists():
            pytest.skip("needs g++, whose preprocessor the stub plans")
        monkeypatch.setenv("PATH", str(path))
        for name in ("CUDA_HOME", "CUDA_PATH"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(compiler, "SYSTEM_HOME", self.home)
        monkeypatch.setitem(sys.modules, "nvidia", None)

    def compiler(self, release: str = "13.0", known: tuple[str, ...] = ("100a", "120a")) -> None:
        """Install the stub, or another one in its place."""
        for name in ("bin/nvcc", "nvvm/bin/cicc"):
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(NVCC.format(
                python=sys.executable, home=self.home, release=release, log=self.log, known=known,
            ), encoding="utf-8")  # fmt: skip
            path.chmod(0o755)

    @property
    def asked(self) -> int:
        """How often the compiler was called for a source."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def project(machine: Machine, tmp_path: Path) -> TinyProject:
    files = tiny_flashinfer([9, 10, 12], more=MORE) | {
        "flashinfer/jit/unread.py": "def gen_unread_module(:\n",
        "csrc/odd.cu": "#if __CUDA_ARCH__ >= 900\nint x;\n",
        "csrc/even.cu": "int even;\n",
        "csrc/derived.cu": DERIVED,
    }
    return make_project(tmp_path / "project", files, upstream="flashinfer", layout=LAYOUT)


def rows(project: TinyProject, *words: str) -> dict[str, dict[str, Any]]:
    """Run audit guards and return its rows by module and source."""
    ran = project.run("audit", "guards", "--json", *words)
    assert ran.code == 0, ran.err
    return {
        f"{row['module'].rpartition('::')[2]} {row['source']}".strip(): row
        for row in ran.json()["sources"]
    }


def test_what_the_target_loses_is_told_and_what_cannot_be_told_has_its_row(
    project: TinyProject, machine: Machine
) -> None:
    machine.compiler()
    found = rows(project)
    (loss,) = found["gen_comm_module comm.cu"]["losses"]
    assert (loss["path"], loss["line"], loss["function"], loss["loss"], loss["lines"]) == (
        "include/tiny.cuh", 4, "filled", "kernel", 4
    )  # fmt: skip
    why = {name: row["why"] for name, row in found.items() if row["why"]}
    assert "unterminated" in why.pop("gen_odd_module odd.cu")
    assert "no such toolchain" in why.pop("gen_broken_module")
    assert "is not valid Python" in why.pop("flashinfer/jit/unread.py")
    assert why == {"gen_typed_module": "needs the arguments dtype"}
    shown = project.run("audit", "guards").out
    assert "include/tiny.cuh:4 a whole kernel's body in filled, 4 lines: #if" in shown
    assert "gen_typed_module: cannot tell: needs the arguments dtype\n" in shown


def test_nothing_is_asked_again_until_a_file_changes(
    project: TinyProject, machine: Machine
) -> None:
    machine.compiler()
    first = rows(project, "gen_comm_module")
    asked = machine.asked
    assert asked == 2
    assert rows(project, "gen_comm_module") == first
    assert machine.asked == asked
    header = tiny_flashinfer()["include/tiny.cuh"].replace(" && __CUDA_ARCH__ < 1200", "")
    project.add_patch(1, {"include/tiny.cuh": header}, upstream="flashinfer")
    assert rows(project, "gen_comm_module")["gen_comm_module comm.cu"]["lost"] == 0
    assert machine.asked == asked + 2
    assert rows(project, "gen_comm_module", "--to", "0") == first


def test_a_macro_that_is_derived_from_the_architecture(
    project: TinyProject, machine: Machine
) -> None:
    machine.compiler()
    (row,) = rows(project, "derived.cu").values()
    (loss,) = row["losses"]
    assert (loss["line"], loss["condition"], loss["lines"], loss["loss"]) == (
        4, "defined(HAS_TENSOR_MEMORY)", 1, "code"
    )  # fmt: skip


def test_a_source_alone_is_compared(project: TinyProject, machine: Machine) -> None:
    machine.compiler()
    assert list(rows(project, "csrc/even.cu")) == ["gen_odd_module even.cu"]
    assert machine.asked == 2
    both = ["gen_odd_module even.cu", "gen_odd_module odd.cu"]
    assert list(rows(project, "even.cu", "gen_odd_module")) == both
    (last,) = rows(project, "even.cu").values()
    assert (last["lost"], last["why"]) == (0, "")


def test_a_header_of_the_toolkit_that_changes_is_noticed(
    project: TinyProject, machine: Machine
) -> None:
    machine.compiler()
    header = machine.home / "include" / "own.h"
    header.parent.mkdir()
    guarded = "#if __CUDA_ARCH__ < 1200\nint own;\n#endif\n"
    header.write_text(guarded)
    source = "#include <own.h>\n" + tiny_flashinfer()["csrc/comm.cu"]
    project.add_patch(1, {"csrc/comm.cu": source}, upstream="flashinfer")
    name = "gen_comm_module comm.cu"
    assert rows(project, "gen_comm_module")[name]["lost"] == 5
    shown = project.run("audit", "guards", "gen_comm_module").out
    assert "\n  1 lines in 1 headers outside upstream, such as the toolkit's\n" in shown
    project.add_patch(2, {"csrc/even.cu": "#include <own.h>\n"}, upstream="flashinfer")
    assert project.run("audit", "guards", "even.cu").out.endswith("1 sources: 1 outside\n")
    header.write_text("int own;\n")
    assert rows(project, "gen_comm_module")[name]["lost"] == 4


def test_without_a_compiler_every_row_says_so(project: TinyProject) -> None:
    needs = "needs a CUDA compiler of 12.8 or newer; found none"
    why = {name: row["why"] for name, row in rows(project).items()}
    assert why["gen_comm_module"].startswith(needs)
    assert "no such toolchain" in why["gen_broken_module"]
    ran = project.run("audit", "kernels", "csrc/comm.cu")
    assert ran.code == 0, ran.err
    assert f"gen_comm_module: cannot tell: {needs}" in ran.out


def test_a_compiler_that_does_not_know_the_target(project: TinyProject, machine: Machine) -> None:
    machine.compiler("12.4")
    (old,) = rows(project, "gen_comm_module").values()
    assert "needs a CUDA compiler of 12.8 or newer; found 12.4 at" in old["why"]
    machine.compiler("12.8", known=("100a",))
    needs = "needs a CUDA compiler that knows compute_120a; the one found does not"
    (unknown,) = rows(project, "gen_comm_module").values()
    assert unknown["why"] == needs
    ran = project.run("audit", "kernels", "comm.cu")
    assert (ran.code, ran.out) == (0, f"gen_comm_module: cannot tell: {needs}\n")
    # A newer one in its place is asked at once.
    machine.compiler()
    (known,) = rows(project, "gen_comm_module").values()
    assert (known["why"], known["lost"]) == ("", 4)


def test_a_source_that_does_not_compile_is_told_by_the_compilers_sentence(
    project: TinyProject, machine: Machine
) -> None:
    machine.compiler()
    ran = project.run("audit", "kernels", "comm.cu")
    assert ran.code == 0
    assert ran.out == "gen_comm_module: cannot tell: nvcc fatal : this stub compiles nothing\n"
    ran = project.run("audit", "kernels", "odd.cu")
    assert "gen_odd_module: cannot tell: " in ran.out
    assert "unterminated" in ran.out


@pytest.mark.parametrize("words", [["guards"], ["kernels", "comm.cu"]])
def test_an_architecture_that_is_none_is_refused(project: TinyProject, words: list[str]) -> None:
    ran = project.run("audit", *words, "--arch", "blackwell")
    assert ran.code == 2
    assert "'blackwell' is not an architecture" in ran.err
    assert "name one such as 12.0a" in ran.err
