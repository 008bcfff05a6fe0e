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
    """Both archs of one source with its module's flags: preprocessed and compared, and compiled.

    Compiling takes minutes per round: once is enough for a ratio of this size, by processor
    time.
    """
    from patchwright.audit.behind import modules_of
    from patchwright.audit.cuda_guards import placed, spec_for
    from patchwright.project import Project
    from patchwright.series import Selection
    from patchwright.smoke import device_code
    from patchwright.smoke.compiler import find_compiler
    from patchwright.smoke.outcomes import Blocked
    from patchwright.smoke.preprocessed import lines_of_one

    source, archs = "trtllm_allreduce.cu", ("10.0a", "12.0a")
    try:
        compiler = find_compiler()
    except Blocked as blocked:
        print(f"guards: not measured: {blocked}")
        return
    with (
        tempfile.TemporaryDirectory(prefix="bench-guards-") as folder,
        modules_of(Project.open(ROOT), Selection()) as found,
    ):
        (module,) = found.named("gen_trtllm_comm_module")
        specs = {arch: spec_for(found.trees, module, arch, found.knowledge) for arch in archs}

        def guards() -> None:
            texts = [
                device_code.preprocess(spec, source, arch, compiler=compiler)
                for arch, spec in specs.items()
            ]
            lines_of_one(*(placed(text.marked, text.site) for text in texts))

        def objects() -> None:
            device_code.kernels_of(
                [(spec, source, arch) for arch, spec in specs.items()],
                compiler=compiler, cache_dir=Path(folder),
            )  # fmt: skip

        ours, theirs = _spent(guards), _spent(objects)
    yield Row(f"guards of {source}, two archs", "compiling both", ours, theirs, 1 / 25)


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


def _spent(action: Callable[[], None]) -> float:
    """Return the processor time of an action and the programs that it runs, in seconds."""
    before = os.times()
    action()
    return sum(os.times()[:4]) - sum(before[:4])


_BENCHES: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "help": _help, "apply": _apply, "verify": _verify, "guards": _guards,
}  # fmt: skip


if __name__ == "__main__":
    main()
