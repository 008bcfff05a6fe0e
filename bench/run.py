"""All benchmarks in one command: ratios beside what is aimed at.

    python bench/run.py [--rounds 3] [--patches 1000] [--only apply,verify,help,guards]

Every ratio is of medians of rounds that alternate between the contestants, on this
machine, with real peers. Seconds are for the curious; only ratios travel.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tool"), str(ROOT / "bench")]

import apply  # noqa: E402
import verify  # noqa: E402


class Row(NamedTuple):
    """``ours`` and ``theirs`` in seconds; ``aim`` is the ratio that is wanted at most."""

    work: str
    beside: str
    ours: float
    theirs: float
    aim: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patches", type=int, default=1000, help="of the apply benchmark")
    parser.add_argument("--only", default=",".join(_BENCHES))
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} before")
    print(f"{'work':44} {'beside':34} {'ours':>9} {'theirs':>9} {'ratio':>8} {'aim':>7}")
    for name in options.only.split(","):
        for row in _BENCHES[name](options):
            ratio = row.ours / row.theirs
            mark = "" if ratio <= row.aim else "  MISSED"
            print(
                f"{row.work:44} {row.beside:34} {row.ours:7.3f} s {row.theirs:7.3f} s "
                f"{ratio:8.4f} {row.aim:7.4f}{mark}",
                flush=True,
            )


def _apply(options: argparse.Namespace) -> Iterator[Row]:
    found = apply.measure(options.patches, options.rounds)
    work = f"status, {options.patches} patches, no tree cached"
    yield Row(work, "git am", found["first"], found["git am"], 0.1)
    if "quilt" in found:
        yield Row(work, "quilt push -a", found["first"], found["quilt"], 0.1)
    yield Row(
        "status again, nothing changed", "the first time", found["again"], found["first"], 0.1
    )


def _verify(options: argparse.Namespace) -> Iterator[Row]:
    found = verify.measure(options.rounds)
    work = f"verify static, {found['patches']:.0f} patches, {found['runs']:.0f} runs"
    yield Row(work, "one interpreter per run", found["verify"], found["peer"], 1 / 3)
    again = "verify again, nothing changed"
    yield Row(again, "an interpreter start", found["again"], found["interpreter"], 20)


def _help(options: argparse.Namespace) -> Iterator[Row]:
    help_, click = _alternating(
        options.rounds * 5,
        [sys.executable, "-m", "patchwright", "--help"],
        [sys.executable, "-c", "import click"],
    )
    yield Row("patchwright --help", "python -c 'import click'", help_, click, 2)


def _guards(options: argparse.Namespace) -> Iterator[Row]:
    """Both archs of one source: the device pass of the preprocessor, and the compiler."""
    from patchwright.smoke.compiler import find_compiler
    from patchwright.smoke.outcomes import Blocked

    try:
        compiler = find_compiler()
    except Blocked as blocked:
        print(f"guards: not measured: {blocked}")
        return
    with tempfile.TemporaryDirectory(prefix="bench-guards-") as name:
        folder = Path(name)
        command = [str(compiler.nvcc), "-std=c++17", *_includes(folder), str(_source(folder))]

        def archs(*rest: str) -> Callable[[], None]:
            def run() -> None:
                for arch in ("100a", "120a"):
                    flag = f"-gencode=arch=compute_{arch},code=sm_{arch}"
                    macro = [f"-D__CUDA_ARCH__={arch[:-1]}0"] if "-E" in rest else [flag]
                    subprocess.run(
                        [*command, *macro, *rest], check=True, cwd=folder, capture_output=True
                    )

            return run

        # Minutes per round: once is enough for a ratio of this size.
        ours, theirs = _timed(archs("-E", "-o", "x.ii")), _timed(archs("-cubin", "-o", "x.cubin"))
    yield Row("guards of trtllm_allreduce.cu, two archs", "compiling both", ours, theirs, 1 / 25)


def _includes(folder: Path) -> list[str]:
    import tvm_ffi.libinfo

    from patchwright.materialise import write_tree
    from patchwright.project import Project

    project = Project.open(ROOT)
    write_tree(project.store, project.pristine("flashinfer").tree, folder / "tree")
    tree = folder / "tree"
    folders = (
        "include", "csrc", "3rdparty/cutlass/include", "3rdparty/cutlass/tools/util/include",
        "3rdparty/spdlog/include",
    )  # fmt: skip
    places = [tree / folder for folder in folders]
    ours = [f"-I{place}" for place in places]
    return [*ours, *(f"-I{place}" for place in tvm_ffi.libinfo.include_paths())]


def _source(folder: Path) -> Path:
    return folder / "tree" / "csrc" / "trtllm_allreduce.cu"


def _alternating(rounds: int, *commands: list[str]) -> list[float]:
    seconds: list[list[float]] = [[] for _ in commands]
    env = os.environ | {"PYTHONPATH": str(ROOT / "tool")}

    def run(command: list[str]) -> None:
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)

    for _ in range(rounds):
        for times, command in zip(seconds, commands, strict=True):
            times.append(_timed(lambda command=command: run(command)))
    return [statistics.median(times) for times in seconds]


def _timed(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


_BENCHES: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "help": _help, "apply": _apply, "verify": _verify, "guards": _guards,
}  # fmt: skip


if __name__ == "__main__":
    main()
