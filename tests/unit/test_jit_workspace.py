"""flashinfer's JIT workspace: what a compiled module was made from, and what is stale."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import pytest

from patchwright.environment.closure import Closure
from patchwright.environment.prebuild import workers
from patchwright.environment.workspace import (
    Hashes,
    Manifest,
    base,
    judge,
    made_before,
    modules,
    read_deps,
)


def deps_log(outputs: dict[str, list[str]]) -> bytes:
    """Write what ninja writes (deps_log.cc, version 4)."""
    numbers: dict[str, int] = {}
    data = b"# ninjadeps\n" + struct.pack("<I", 4)
    for output, inputs in outputs.items():
        for name in (output, *inputs):
            if name not in numbers:
                numbers[name] = len(numbers)
                path = name.encode() + b"\0" * (-len(name.encode()) % 4)
                check = struct.pack("<I", ~numbers[name] & 0xFFFFFFFF)
                data += struct.pack("<I", len(path) + 4) + path + check
        ids = [numbers[output], 0, 0, *(numbers[name] for name in inputs)]
        data += struct.pack("<I", 4 * len(ids) | 1 << 31) + struct.pack(f"<{len(ids)}I", *ids)
    return data


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A module that flashinfer compiled from two installed files a while ago."""
    site = tmp_path / "site"
    (site / "flashinfer" / "jit").mkdir(parents=True)
    for name in ("flashinfer/jit/comm.py", "flashinfer/a.cu", "flashinfer/a.cuh"):
        (site / name).write_text(name)
        os.utime(site / name, (1, 1))
    folder = tmp_path / "0.6.3" / "120a" / "cached_ops" / "m"
    folder.mkdir(parents=True)
    time.sleep(0.02)
    for name in ("build.ninja", "a.o", "m.so"):
        (folder / name).write_text(name)
    log = deps_log({str(folder / "a.o"): [str(site / f"flashinfer/a.{e}") for e in ("cu", "cuh")]})
    (folder / ".ninja_deps").write_bytes(log)
    return folder


def verdict(module: Path) -> tuple[str, str]:
    found = judge(module, module.parents[3] / "site", Hashes())
    return found.verdict, found.why


def put(place: Path, text: str) -> None:
    """Put other content in place as an installer does: with a time of its own."""
    place.unlink()
    place.write_text(text)
    os.utime(place, (1, 1))


def test_a_module_that_was_made_from_what_is_there(module: Path, tmp_path: Path) -> None:
    assert list(modules(tmp_path / "0.6.3")) == [module]
    assert verdict(module) == ("fresh", "")
    assert read_deps(module / ".ninja_deps")[str(module / "a.o")] == [
        str(tmp_path / "site/flashinfer/a.cu"), str(tmp_path / "site/flashinfer/a.cuh"),
    ]  # fmt: skip


def test_ninja_goes_by_times_and_we_do_not(module: Path, tmp_path: Path) -> None:
    header = tmp_path / "site/flashinfer/a.cuh"
    put(header, "patched")
    word, why = verdict(module)
    assert word == "stale"
    assert why == f"compiled before {header} was put in place"
    header.write_text("edited in place")
    assert verdict(module) == ("rebuilt", f"{header} is newer: ninja compiles it again")
    header.unlink()
    assert verdict(module) == ("stale", f"compiled from {header}, which is gone")


def test_flags_that_were_written_before_the_generator(module: Path, tmp_path: Path) -> None:
    generator = tmp_path / "site/flashinfer/jit/comm.py"
    put(generator, "FLAGS = ['-DNEW']")
    assert verdict(module) == ("stale", f"its flags were written before {generator} was put in "
                               "place")  # fmt: skip


def test_a_manifest_goes_by_content(module: Path, tmp_path: Path) -> None:
    hashes, source = Hashes(), tmp_path / "site/flashinfer/a.cu"
    own = {name: hashes.of(str(module / name)) for name in ("build.ninja", "a.o", "m.so")}
    results = {name: own[name] for name in ("a.o", "m.so")}
    Manifest(
        "a.py::gen_m", own["build.ninja"], {str(source): hashes.of(str(source))}, results
    ).write(module)
    text = source.read_text()
    put(source, text)  # installed again: other times, the same content
    assert verdict(module) == ("fresh", "")
    assert made_before(tmp_path, "0.6.3+pw.1a2b3c4d") == {"a.py::gen_m"}
    assert made_before(tmp_path, "0.6.4") == set()
    put(source, "patched")
    assert verdict(module) == ("stale", f"compiled from another {source}")
    put(source, text)
    (module / "m.so").write_text("linked by somebody")
    assert verdict(module)[0] == "stale"  # the manifest no longer tells, and the times speak


@pytest.mark.parametrize("data", [b"", b"# ninjadeps\n\3\0\0\0", b"junk", None])
def test_what_cannot_be_read_is_not_called_fresh(module: Path, data: bytes | None) -> None:
    log = module / ".ninja_deps"
    log.unlink() if data is None else log.write_bytes(data)
    assert verdict(module) == ("stale", "what it was compiled from is not recorded")


def test_a_log_that_a_killed_ninja_cut_short(module: Path) -> None:
    log = module / ".ninja_deps"
    whole = read_deps(log)
    data = log.read_bytes()
    log.write_bytes(data + data[-9:])
    assert read_deps(log) == whole


def test_includes_are_followed_whatever_the_conditions_say(tmp_path: Path) -> None:
    files = {
        "csrc/a.cu": '#include "near.cuh"\n#if 0\n# include <deep/far.cuh>\n#endif\n#include <x>',
        "csrc/near.cuh": '#include "../csrc/a.cu"\n',
        "include/deep/far.cuh": '#include "beside.cuh"\n',
        "include/deep/beside.cuh": "",
        "include/near.cuh": "",
    }
    for name, text in files.items():
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    found = Closure(Hashes()).of(str(tmp_path / "csrc/a.cu"), [str(tmp_path / "include")])
    assert [path.removeprefix(f"{tmp_path}/") for path in found] == [
        "csrc/a.cu", "csrc/near.cuh", "include/deep/beside.cuh", "include/deep/far.cuh",
    ]  # fmt: skip


def test_the_workspace_is_where_a_start_looks() -> None:
    assert base({"HOME": "/h"}) == Path("/h/.cache/flashinfer")
    assert base({"HOME": "/h", "FLASHINFER_WORKSPACE_BASE": "/w"}) == Path("/w/.cache/flashinfer")


def test_compilers_at_once_fit_into_memory() -> None:
    assert workers(1 << 30, 8) == 1
    assert workers(10 << 30, 8) == 3
    assert workers(1 << 40, 8) == 8
    assert workers(None, 2) == 2
