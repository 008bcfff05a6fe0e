"""A day's work on a series, at random, beside a model that says what must come of it.

    python tests/days.py --days 20 --steps 200 [--kills] [--seed S]

The model: every patch owns some lines of some files (or whole new files), no two the
same ones, with two lines of upstream between any two. So every order of the patches has
one right tree after each of them, and it can be told without applying anything. After
each step the trees of the whole series are the model's, every file is read and written
back byte for byte, and the lock agrees. In the end, all of it is undone: the first state,
bit for bit.

With --kills every other command is killed at a random step of its work (before it opens,
renames, removes... the n-th file) in a process of its own: what the next command finds
must be the state before or after it.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tool")]

from day_model import FILES, Model, Owner, Place, upstream_lines  # noqa: E402
from deaths import killed_at_step  # noqa: E402
from patchwright.applying.chain import Chain  # noqa: E402
from patchwright.patch import Patch  # noqa: E402
from patchwright.project import Project  # noqa: E402
from projects import TinyProject, make_project  # noqa: E402


class Wrong(AssertionError):
    """What is there is not what the model says."""


class Day:
    """A project, its model, and the states that undo and redo lead to."""

    def __init__(self, folder: Path, chance: random.Random, *, kills: bool = False) -> None:
        files = {name: "".join(upstream_lines(name)) for name in FILES}
        self.project: TinyProject = make_project(folder, files)
        self.root = self.project.root
        self.chance = chance
        self.kills = kills
        self.killed = [0, 0]  # before and after the change
        self.model = Model()
        self.count = 0
        self.run("lock")
        self.first = self.files()
        self.past: list[Model] = []
        self.future: list[Model] = []
        self.log: list[str] = []

    # What is there

    def files(self) -> dict[str, tuple[bytes, int]]:
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if path.is_file() and (".patchwright" not in path.parts or name == ".patchwright/off"):
                found[name] = (path.read_bytes(), path.stat().st_mode)
        return found

    def run(self, *args: str) -> str:
        ran = self.project.run(*args)
        if ran.code:
            raise Wrong(f"patchwright {' '.join(args)}: {ran.err}")
        return ran.out

    def check(self) -> None:
        """Raise Wrong unless everything is as the model says."""
        project = Project.open(self.root)
        series = project.series
        titles = [patch.title for patch in series.patches]
        if titles != [patch.title for patch in self.model.patches]:
            raise Wrong(f"the order is {titles}")
        off = {series.get(n).title for n in series.off}
        if off != self.model.off:
            raise Wrong(f"off are {off}, not {self.model.off}")
        for patch, owner in zip(series.patches, self.model.patches, strict=True):
            if {series.get(need.number).title for need in patch.depends} != owner.needs:
                raise Wrong(f"{patch.path.name} does not need {owner.needs}")
            if Patch.parse(patch.raw, patch.path).format() != patch.path.read_bytes():
                raise Wrong(f"{patch.path.name} does not come back")
            for name in patch.smoke:
                if not (self.root / name).is_file() or f"{patch.number:04d}" not in name:
                    raise Wrong(f"{patch.path.name} names {name}")
        _, verdicts = Chain(project).apply(series.patches)
        store = project.store
        for count, verdict in enumerate(verdicts, 1):
            if verdict.tree is None or verdict.verdict != "clean":
                raise Wrong(f"{verdict.patch_number:04d}: {verdict.verdict} {verdict.reason}")
            there = {path.decode(): e.oid for path, e in store.files(verdict.tree)}
            wanted = {name: _blob(data) for name, data in self.model.content(count).items()}
            if there != wanted:
                raise Wrong(f"the tree after {verdict.patch_number:04d} is another one")
        if project.stale():
            raise Wrong(f"the lock is stale: {project.stale()}")

    def check_undone(self) -> None:
        """Undo everything, and raise Wrong unless that is the first state, bit for bit."""
        while self.past:
            self.run("undo")
            self.past.pop()
        if self.files() != self.first:
            raise Wrong("undoing everything does not lead back")

    # One step

    def step(self) -> None:
        """Do one thing at random; some need patches, and nothing happens without."""
        names = ["new", "new", "refresh", "refresh", "move", "move", "drop", "split", "fold",
                 "renumber", "number", "message", "off", "on", "undo", "redo"]  # fmt: skip
        getattr(self, self.chance.choice(names))()

    def change(self, after: Model, *args: str, close: bool = False) -> None:
        """Run a command that leads to the model ``after``, perhaps with a kill in it."""
        self.log.append(" ".join(args))
        if not after.sound():
            before, ran = self.files(), self.project.run(*args)
            if ran.code != 1 or " needs " not in ran.err or self.files() != before:
                raise Wrong(f"{args} breaks a need: {ran}")
            return
        if self.kills and self.chance.random() < 0.5:
            before, model = self.files(), copy.deepcopy(self.model)
            self._kill(args)
            Project.open(self.root)  # the next command, whichever it is
            now = self.files()
            self.killed[now != before] += 1
            if now == before:
                with contextlib.suppress(Wrong):
                    self.run("edit", "--close", "--discard")
                self.check()
                return  # nothing has happened, and so it stays
            self.past.append(model)
            self.future.clear()
            self.model = after
            self.check()
            with contextlib.suppress(Wrong):
                self.run("edit", "--close", "--discard")
            return
        self.run(*args)
        self.past.append(self.model)
        self.future.clear()
        self.model = after
        if close:
            self.run("edit", "--close")
        self.check()

    def _kill(self, args: tuple[str, ...]) -> None:
        killed_at_step(self.chance.randint(1, 60), lambda: self.project.run(*args))

    def _number(self, at: int) -> int:
        return Project.open(self.root).series.patches[at].number

    def _one(self) -> int | None:
        patches = self.model.patches
        return self.chance.randrange(len(patches)) if patches else None

    def _owned(self, most: int = 3) -> dict[Place, str]:
        free = self.model.free()
        chosen = self.chance.sample(free, min(len(free), self.chance.randint(1, most)))
        return {place: self._text(place) for place in chosen}

    def _text(self, place: Place) -> str:
        self.count += 1
        # Lines more or less, so that what comes behind moves.
        lines = self.chance.choice((0, 1, 1, 2, 7)) if place[1] >= 0 else 2
        return "".join(f"text {self.count}.{n}\n" for n in range(lines))

    def _write(self, files: dict[str, bytes]) -> None:
        tree = self.root / ".patchwright/edit/tree"
        for path in sorted(tree.glob("tiny/new*.py")):
            path.unlink()
        for name, data in files.items():
            (tree / name).write_bytes(data)

    def new(self) -> None:
        if not self.model.free() or len(self.model.patches) > 12:
            return
        owned = self._owned()
        self.count += 1
        title = f"patch {self.count}"
        at = self.chance.randint(0, len(self.model.patches))
        place = ["--number", str(self._number(at))] if at < len(self.model.patches) else []
        smoke = self.chance.choice(("--smoke", "--no-smoke"))
        self.run("new", title, "-m", "Why.", smoke, *place)
        self._write(self.model.content(at, owned))
        after = copy.deepcopy(self.model)
        after.patches.insert(at, Owner(title, owned))
        self.change(after, "refresh", close=True)

    def refresh(self) -> None:
        at = self._one()
        if at is None:
            return
        after = copy.deepcopy(self.model)
        patch = after.patches[at]
        place = self.chance.choice(list(patch.owns))
        if len(patch.owns) > 1 and self.chance.random() < 0.3:
            del patch.owns[place]
        else:
            patch.owns[place] = self._text(place)
        if self.model.free() and self.chance.random() < 0.4:
            patch.owns |= self._owned(1)
        files = after.content(at + 1)
        if files == self.model.content(at + 1):
            return
        self.run("edit", str(self._number(at)))
        self._write(files)
        self.change(after, "refresh", close=True)

    def move(self) -> None:
        if len(self.model.patches) < 2:
            return
        at, target = self.chance.sample(range(len(self.model.patches)), 2)
        where = self.chance.choice(("--before", "--after"))
        after = copy.deepcopy(self.model)
        other = after.patches[target]
        moved = after.patches.pop(at)
        after.patches.insert(after.patches.index(other) + (where == "--after"), moved)
        if [p.title for p in after.patches] == [p.title for p in self.model.patches]:
            return
        self.change(after, "move", str(self._number(at)), where, str(self._number(target)))

    def drop(self) -> None:
        at = self._one()
        if at is None or self.chance.random() < 0.4:
            return
        after = copy.deepcopy(self.model)
        after.off.discard(after.patches.pop(at).title)
        self.change(after, "drop", str(self._number(at)))

    def split(self) -> None:
        at = self._one()
        if at is None:
            return
        after = copy.deepcopy(self.model)
        patch = after.patches[at]
        names = sorted({name for name, _ in patch.owns}, key=str.encode)
        if len(names) < 2:
            return
        self.count += 1
        titles = [f"part {self.count}.{n}" for n in range(len(names))]
        parts = [
            Owner(title, {place: text for place, text in patch.owns.items() if place[0] == name})
            for title, name in zip(titles, names, strict=True)
        ]
        after.patches[at : at + 1] = parts
        for part in parts:
            part.needs = set(patch.needs)
        after.become(patch.title, titles)
        given = [word for title in titles for word in ("--title", title)]
        self.change(after, "split", str(self._number(at)), "--by", "file", *given)

    def fold(self) -> None:
        if len(self.model.patches) < 2:
            return
        into, other = self.chance.sample(range(len(self.model.patches)), 2)
        after = copy.deepcopy(self.model)
        one, two = after.patches[into], after.patches[other]
        folded = Owner(one.title, one.owns | two.owns, one.needs | two.needs)
        after.patches[min(into, other)] = folded
        del after.patches[max(into, other)]
        after.become(two.title, [one.title])
        folded.needs -= {one.title, two.title}
        self.change(after, "fold", str(self._number(into)), str(self._number(other)))

    def renumber(self) -> None:
        start, step = self.chance.randint(1, 5), self.chance.randint(1, 3)
        numbers = [p.number for p in Project.open(self.root).series.patches]
        if numbers == [start + step * at for at in range(len(numbers))]:
            return
        self.change(self.model, "renumber", "--start", str(start), "--step", str(step))

    def number(self) -> None:
        at = self._one()
        numbers = [p.number for p in Project.open(self.root).series.patches]
        if at is None or numbers[at] + 1 in numbers:
            return
        self.change(self.model, "renumber", str(numbers[at]), str(numbers[at] + 1))

    def message(self) -> None:
        at = self._one()
        if at is None:
            return
        after = copy.deepcopy(self.model)
        self.count += 1
        patch = after.patches[at]
        old, patch.title = patch.title, f"größer {self.count}"
        after.become(old, [patch.title])
        chosen = self.chance.sample(range(at), min(at, self.chance.randint(0, 2)))
        patch.needs = {after.patches[n].title for n in chosen}
        needs = ", ".join(f"{self._number(n):04d} (so, it is)" for n in chosen)
        self.change(after, "message", str(self._number(at)), "--title", patch.title,
                    "--field", f"Depends={needs}")  # fmt: skip

    def off(self) -> None:
        at = self._one()
        if at is None or self.model.patches[at].title in self.model.off:
            return
        after = copy.deepcopy(self.model)
        after.off.add(after.patches[at].title)
        self.change(after, "off", str(self._number(at)))

    def on(self) -> None:
        titles = [p.title for p in self.model.patches]
        if not self.model.off:
            return
        after = copy.deepcopy(self.model)
        title = self.chance.choice(sorted(after.off))
        after.off.remove(title)
        self.change(after, "on", str(self._number(titles.index(title))))

    def undo(self) -> None:
        if not self.past:
            return
        self.log.append("undo")
        self.run("undo")
        self.future.append(self.model)
        self.model = self.past.pop()
        self.check()

    def redo(self) -> None:
        if not self.future:
            return
        self.log.append("redo")
        self.run("redo")
        self.past.append(self.model)
        self.model = self.future.pop()
        self.check()


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def day(
    folder: Path, chance: random.Random, steps: int, *, kills: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Day:  # fmt: skip
    """Do ``steps`` things in a project below ``folder``, and undo it all. Raises Wrong."""
    work = Day(folder, chance, kills=kills)
    for _ in range(steps):
        count = len(work.log)
        try:
            work.step()
        except Wrong as error:
            raise Wrong(f"{error}\nafter: {'; '.join(work.log[-12:])}") from error
        for line in work.log[count:]:
            say(line)
    work.check_undone()
    return work


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--days", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    first = options.seed if options.seed is not None else random.randrange(1 << 32)
    os.environ |= {"GIT_AUTHOR_NAME": "A Tester", "GIT_AUTHOR_EMAIL": "tester@example.org",
                   "GIT_COMMITTER_NAME": "A Tester", "GIT_COMMITTER_EMAIL": "tester@example.org",
                   "PYTHONPATH": str(ROOT / "tool")}  # fmt: skip
    for seed in range(first, first + options.days):
        folder = Path(tempfile.mkdtemp(prefix="day-")).resolve()
        os.environ["PATCHWRIGHT_CACHE"] = str(folder / "cache")
        try:
            done = day(folder, random.Random(seed), options.steps, kills=options.kills,
                       say=print if options.verbose else lambda _: None)  # fmt: skip
        except Wrong as error:
            print(f"seed {seed}: {error}", flush=True)
            return 1
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        words = [re.split(r" ", line)[0] for line in done.log]
        spread = ", ".join(f"{words.count(w)} {w}" for w in sorted(set(words)))
        killed = f"; killed {done.killed[0]} before, {done.killed[1]} after" * options.kills
        print(f"seed {seed}: {len(words)} commands ({spread}){killed}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
