"""Objects of a JIT module: found by the content of what they are compiled from, or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchwright.environment.objects import Objects
from patchwright.environment.workspace import Hashes

NINJA = """\
cuda_home = {home}
cxx = c++
nvcc = $cuda_home/bin/nvcc
cuda_cflags = -isystem $cuda_home/include $
    -I{site}/flashinfer/data/include -DFLAG={flag}
rule cuda_compile
  command = $nvcc $cuda_cflags -c $in -o $out
rule link
  command = $cxx $in -o $out
build {module}/a.cuda.o: cuda_compile {site}/flashinfer/data/csrc/a.cu
build {module}/b.cuda.o: cuda_compile {generated}/b.cu
build {module}/m.so: link {module}/a.cuda.o {module}/b.cuda.o
default {module}/m.so
"""


class Place:
    """An environment and a workspace of flashinfer, with one module that is compiled."""

    def __init__(self, root: Path, cache: Path, version: str = "0.6.3", flag: str = "1") -> None:
        self.site, self.cache = root / "site", cache
        workspace = root / ".cache" / "flashinfer" / version / "120a"
        self.module = workspace / "cached_ops" / "m"
        generated = workspace / "generated" / "m"
        data = self.site / "flashinfer" / "data"
        self.header, self.source = data / "include" / "h.cuh", data / "csrc" / "a.cu"
        for path, text in (
            (self.header, "one\n"), (self.source, '#include "h.cuh"\n'), (generated / "b.cu", "\n"),
            (self.module / "build.ninja", NINJA.format(
                home=root / "cuda", site=self.site, module=self.module, generated=generated,
                flag=flag)),
        ):  # fmt: skip
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def objects(self, compiler: str = "nvcc 13", **variables: str) -> Objects:
        home = self.site.parent / "cuda"
        return Objects(self.module, self.site, home, compiler, self.cache, variables, Hashes())

    def compile(self) -> None:
        objects = self.objects()
        for part in objects.parts:
            Path(part.output).write_text(f"object of {Path(part.source).name}")
        objects.keep()

    def restored(self, compiler: str = "nvcc 13", **variables: str) -> list[str]:
        return [Path(p).name for p in self.objects(compiler, **variables).restore()]


BOTH = ["a.cuda.o", "b.cuda.o"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "one", tmp_path / "cache")
    place.compile()
    return place


def test_the_same_elsewhere_and_for_another_version(tmp_path: Path, place: Place) -> None:
    other = Place(tmp_path / "two", place.cache, version="0.6.3+pw.12345678")
    assert other.restored() == BOTH
    assert (other.module / "a.cuda.o").read_text() == "object of a.cu"
    assert str(other.header) in (other.module / "a.cuda.o.d").read_text()


def test_only_what_includes_a_changed_header_is_compiled(place: Place) -> None:
    place.header.write_text("two\n")
    assert place.restored() == ["b.cuda.o"]
    assert not (place.module / "a.cuda.o").exists()


def test_another_flag_compiler_or_variable_is_another_object(tmp_path: Path, place: Place) -> None:
    assert Place(tmp_path / "two", place.cache, flag="2").restored() == []
    assert place.restored(compiler="nvcc 12") == []
    assert place.restored(NVCC_APPEND_FLAGS="-G") == []
    assert place.restored(HOME="/elsewhere") == BOTH


def test_what_changed_while_it_was_compiled_is_not_kept(tmp_path: Path) -> None:
    place = Place(tmp_path / "one", tmp_path / "cache")
    objects = place.objects()
    for part in objects.parts:
        Path(part.output).write_text("object")
    place.header.write_text("edited meanwhile\n")
    with pytest.raises(ValueError, match="changed while"):
        objects.keep()
    assert place.restored() == []
