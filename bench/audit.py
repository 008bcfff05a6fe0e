"""Guards of one CUDA source for two architectures, beside compiling both; gates, cold and again.

    python bench/audit.py [--source csrc/trtllm_allreduce.cu] [--rounds 3]

Prints ratios, medians of rounds. Needs a CUDA compiler, and minutes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--source", default="csrc/trtllm_allreduce.cu")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    times: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as cache:
            # The pins are imported beforehand: they are no part of what is measured.
            run(cache, "status", "--json")
            for name, words in {
                "gates": ["gates"],
                "gates again": ["gates"],
                "guards": ["audit", "guards", options.source],
                "guards again": ["audit", "guards", options.source],
                "kernels": ["audit", "kernels", options.source],
            }.items():
                times.setdefault(name, []).append(run(cache, *words))
    whole = statistics.median(times["kernels"])
    for name, found in times.items():
        median = statistics.median(found)
        print(f"{name:14} {median:8.2f} s   {median / whole:7.4f} of compiling both")


def run(cache: str, *words: str) -> float:
    """Run one command of the tool and return its seconds."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tool"), "PATCHWRIGHT_CACHE": cache}
    start = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "patchwright", "-C", str(ROOT), *words],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return time.monotonic() - start


if __name__ == "__main__":
    main()
