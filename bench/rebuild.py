"""rebuild, warm, beside ``uv pip sync`` of the same set.

    python bench/rebuild.py [--project DIR] [--rounds 3]

Both make the whole environment anew in the place of an old one, from uv's cache, without a
network: `patchwright rebuild --offline`, patches in and every file checked, against
`uv venv --clear` and `uv pip sync` of the same packages unpatched, checked by nobody. The
first round of each fills the caches and is not counted. Without --project it is this
repository's own environment: 5 GB to download the first time, 10 GB on disk.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--project", type=Path, default=ROOT)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = measure(options.project, options.rounds)
    for name, seconds in found.items():
        print(f"{name:12} {seconds:7.2f} s")
    print(f"ratio        {found['rebuild'] / found['uv pip sync']:7.2f}   (aim 1.3)")


def measure(project: Path, rounds: int) -> dict[str, float]:
    """Return the medians in seconds."""
    import uv

    env = dict(os.environ) | {"PYTHONPATH": str(ROOT / "tool")}
    tool = [sys.executable, "-m", "patchwright", "-C", str(project)]
    times: dict[str, list[float]] = {"rebuild": [], "uv pip sync": []}
    with tempfile.TemporaryDirectory(dir=project.parent) as scratch:
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
            times["rebuild"].append(_timed([[*rebuild, "--offline"]], env))
            times["uv pip sync"].append(_timed([make, [*sync, "--offline"]], env))
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def _python(project: Path) -> str:
    import tomllib

    lock = tomllib.loads((project / "upstream.lock").read_text("utf-8"))
    return str(lock["environment"]["python"])


def _timed(commands: Sequence[Sequence[str]], env: dict[str, str]) -> float:
    started = time.perf_counter()
    for command in commands:
        _run(command, env)
    return time.perf_counter() - started


def _run(command: Sequence[str], env: dict[str, str]) -> str:
    return subprocess.run(
        command, env=env, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ).stdout


if __name__ == "__main__":
    main()
