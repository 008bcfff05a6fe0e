"""rebuild, warm, beside ``uv pip sync`` of the same set.

    python bench/rebuild.py [--project DIR] [--rounds 3]

Both make the whole environment anew in the place of an old one, from uv's cache, without a
network: `patchwright rebuild --offline`, patches in and every file checked, against
`uv venv --clear` and `uv pip sync` of the same packages unpatched, checked by nobody. The
first round of each fills the caches and is not counted. Without --project it is this
repository's own environment: 5 GB to download the first time, 10 GB on disk.

`uv venv --clear` removes the old environment before it answers, `rebuild` leaves that to a
process that outlives it. So there are three ratios: seconds until the command returns,
seconds until the old environment is gone, and processor time of all of it. --folder names
the place of both environments; hard links need uv's cache on the same disk.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h


class Cost(NamedTuple):
    """Seconds until the commands returned, until all their processes had ended, and of CPU."""

    returned: float
    ended: float
    processor: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--project", type=Path, default=ROOT)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = measure(options.project, options.rounds, options.folder)
    print(f"{'':12} {'returned':>10} {'all ended':>10} {'processor':>10}")
    for name, cost in found.items():
        print(f"{name:12} " + " ".join(f"{seconds:8.2f} s" for seconds in cost))
    ours, theirs = found.values()
    ratios = " ".join(f"{a / b:10.2f}" for a, b in zip(ours, theirs, strict=True))
    print(f"{'ratio':12} {ratios}   (aim 1.3)")


def measure(project: Path, rounds: int, folder: Path | None = None) -> dict[str, Cost]:
    """Return the medians."""
    import uv

    # What outlives a command becomes our child, and is waited for.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    env = dict(os.environ) | {"PYTHONPATH": str(ROOT / "tool")}
    tool = [sys.executable, "-m", "patchwright", "-C", str(project)]
    costs: dict[str, list[Cost]] = {"rebuild": [], "uv pip sync": []}
    with tempfile.TemporaryDirectory(dir=folder or project.parent) as scratch:
        ours, theirs, listed = (Path(scratch, name) for name in ("ours", "theirs", "listed.txt"))
        exported = _run([*tool, "lock", "--export", "requirements"], env)
        listed.write_text(exported, "utf-8")
        locked = _python(project)
        binary = uv.find_uv_bin()
        sync = [binary, "pip", "sync", "--quiet", "--require-hashes", "--python",
                str(theirs / "bin" / "python"), str(listed)]  # fmt: skip
        make = [binary, "venv", "--quiet", "--clear", "--python", locked, str(theirs)]
        rebuild = [*tool, "rebuild", "--env", str(ours)]
        _run(rebuild, env)
        _run(make, env)
        _run(sync, env)
        for _ in range(rounds):
            costs["rebuild"].append(_timed([[*rebuild, "--offline"]], env))
            costs["uv pip sync"].append(_timed([make, [*sync, "--offline"]], env))
    return {
        name: Cost(*(statistics.median(column) for column in zip(*rows, strict=True)))
        for name, rows in costs.items()
    }


def _python(project: Path) -> str:
    import tomllib

    lock = tomllib.loads((project / "upstream.lock").read_text("utf-8"))
    return str(lock["environment"]["python"])


def _timed(commands: Sequence[Sequence[str]], env: dict[str, str]) -> Cost:
    before, started = _processor(), time.perf_counter()
    for command in commands:
        _run(command, env)
    returned = time.perf_counter() - started
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    return Cost(returned, time.perf_counter() - started, _processor() - before)


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(command: Sequence[str], env: dict[str, str]) -> str:
    return subprocess.run(
        command, env=env, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ).stdout


if __name__ == "__main__":
    main()
