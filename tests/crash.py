"""Kills patchwright at random moments, and looks at what the next run makes of it.

    python tests/crash.py --kills 1000 [--seed S] [--keep DIR]

A round starts one command (lock, apply --into, verify, status; on a cold cache or on
what the rounds before left), ends it with SIGKILL at a random moment of its usual
duration, and runs it again. The second run must give what an undisturbed one gives:
exit code, verdicts, tree ids, the lock's bytes, the written files. After it nothing may
be left over: no temporary file in cache, project, TMPDIR or HOME, and no process.

The moment is one in time or, every second round, just before the command's n-th step that
changes anything (a file opened for writing, a rename, a lock, a child), so that short
steps are met as well. Three ways to die, in turn: the command alone (its children must
notice), its process group, and everything that it ever started, all at once.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    ROOT = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tool")]

from crash_scene import Scene

WAYS = ("alone", "group", "everything")


@dataclass
class Report:
    """``wrong`` and ``left`` have one line per trouble, with the round that can repeat it."""

    kills: int = 0
    too_late: int = 0
    by_command: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        spread = ", ".join(f"{name} {count}" for name, count in sorted(self.by_command.items()))
        return (
            f"{self.kills} kills ({spread}; {self.too_late} more came too late): "
            f"{len(self.wrong)} wrong results, {len(self.left)} leftovers"
        )


def crash(
    folder: Path, kills: int, seed: int, say: Callable[[str], None] = lambda _: None
) -> Report:
    """Kill ``kills`` commands in a scene below ``folder`` and report."""
    scene, chance, report = Scene(folder), random.Random(seed), Report()
    scene.learn()
    say(
        ", ".join(
            f"{n}{' cold' * c} {s:.2f} s, {scene.steps[n, c]} steps"
            for (n, c), s in scene.seconds.items()
        )
    )
    while report.kills < kills:
        name = chance.choice(("lock", "lock", "verify", "verify", "apply", "installed", "status"))
        cold = chance.random() < 0.6
        way = WAYS[report.kills % len(WAYS)]
        if cold:
            scene.clear()
        moment: float
        if chance.random() < 0.5:
            moment = chance.randint(1, scene.steps[name, cold])
            when = f"at step {moment}"
        else:
            moment = chance.uniform(0, scene.seconds[name, cold])
            when = f"after {moment:.3f} s"
        where = f"kill {report.kills + 1}: {name}{' cold' * cold}, {way}, {when}"
        if not scene.kill(name, way, moment):
            report.too_late += 1
            continue
        report.kills += 1
        report.by_command[name] += 1
        troubles = _trouble(scene, name)
        if report.kills % 50 == 0 or report.kills == kills:
            troubles += scene.damage()
            say(str(report))
        report.wrong += [f"{where}: {trouble}" for trouble in troubles]
        left = scene.leftovers()
        report.left += [f"{where}: {path}" for path in left]
        for line in (*troubles, *left):
            say(f"{where}: {line}")
        if left or troubles:
            scene.clear()  # or the same one would be counted again in every round
            shutil.rmtree(scene.tmp)
            scene.tmp.mkdir()
    return report


def _trouble(scene: Scene, name: str) -> list[str]:
    try:
        answer = scene.run(name)
    except RuntimeError as error:
        return [str(error)]
    wanted = scene.expected[name]
    return [] if answer == wanted else [f"wrong answer {answer}, expected {wanted}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", type=Path, help="work below this new folder and leave it")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="crash-"))
    folder.mkdir(parents=True, exist_ok=True)
    report = crash(folder.resolve(), options.kills, seed, lambda line: print(line, flush=True))
    print(report)
    if options.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if report.wrong or report.left else 0


if __name__ == "__main__":
    sys.exit(main())
