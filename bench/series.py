"""Push, pop, refresh and reorder of a 206-patch series on flashinfer, four tools side by side.

    python bench/series.py [--patches 206] [--rounds 3]

Every patch inserts a line into one of twenty files, so that neighbours touch the same files
and later patches have to be carried over. The tasks, each a whole command as a user runs it:

  push     from nothing applied to all of it, as files (ours: edit N, the last one)
  pop      back to the first patch only (ours: edit 1)
  refresh  a line added to the patch in the middle, everything behind it carried over
           (ours: edit N, refresh; quilt: push N, refresh, push -a; StGit: goto N,
           refresh, push --all; git: a fixup commit, rebase --autosquash)
  reorder  one from the third quarter put where the second begins (ours: move; quilt: pop,
           the series file, push -a; StGit: float; git: rebase -i)

The final trees must be equal: what each tool leaves is hashed by git. quilt and StGit take
part where they are installed. Prints ratios of medians, rounds alternate.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tool"), str(ROOT / "bench")]

from apply import SECTION, patchwright  # noqa: E402

from patchwright.materialise import write_tree  # noqa: E402
from patchwright.project import Project  # noqa: E402

ENV = {
    "EMAIL": "bench@example.org", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "bench", "GIT_COMMITTER_NAME": "bench", "LC_ALL": "C", "QUILT_PC": ".pc",
    "GIT_AUTHOR_EMAIL": "bench@example.org", "GIT_COMMITTER_EMAIL": "bench@example.org",
}  # fmt: skip
FILES = 20


class Bench:
    """The series and a copy of it for each tool, all below one folder."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count
        self.middle, self.target, self.moved = count // 2, count // 4, count * 3 // 4
        self.cache, self.work = folder / "cache", folder / "git"
        self.project = folder / "project"
        (self.project / "patches").mkdir(parents=True)
        (self.project / "pyproject.toml").write_text(SECTION, encoding="utf-8")
        os.environ["PATCHWRIGHT_CACHE"] = str(self.cache)
        opened = Project.open(self.project)
        tree = opened.pristine("flashinfer").tree
        write_tree(opened.store, tree, self.work)
        self.run("git", "init", "-q", "-b", "main", ".")
        self.run("git", "config", "core.fsync", "none")
        self.run("git", "add", "-A", "-f")
        self.run("git", "commit", "-q", "-m", "pristine")
        self.run("git", "tag", "pristine")
        names = self.run("git", "ls-files", "flashinfer/*.py").decode().split()
        self.files = [name for name in names if (self.work / name).stat().st_size > 4000][:FILES]
        for number in range(1, count + 1):
            self.insert(self.work, number, f"# change {number}\n")
            self.run("git", "commit", "-q", "-a", "-m", f"change {number}")
        self.run("git", "tag", "all")
        self.run("git", "format-patch", "-q", "--full-index", "--no-signature", "-o",
                 str(self.project / "patches"), "pristine..all")  # fmt: skip
        patchwright(self.project, self.cache, "lock")

    def insert(self, tree: Path, number: int, text: str) -> None:
        """Put a line where patch ``number`` has its own: ten lines apart in one file."""
        path = tree / self.files[number % FILES]
        lines = path.read_text().splitlines(keepends=True)
        lines.insert(10 * (number // FILES) + 5 + number // FILES, text)
        path.write_text("".join(lines))

    def run(self, *args: str, cwd: Path | None = None, **env: str) -> bytes:
        done = subprocess.run(
            args, cwd=cwd or self.work, env=os.environ | ENV | env, capture_output=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{args}: {done.stdout!r} {done.stderr!r}")
        return done.stdout

    def tree(self, folder: Path) -> str:
        """Return git's id of what lies in a folder, without what the tool keeps there."""
        index = self.folder / "index"
        index.unlink(missing_ok=True)
        env = {"GIT_DIR": str(self.work / ".git"), "GIT_WORK_TREE": str(folder),
               "GIT_INDEX_FILE": str(index)}  # fmt: skip
        self.run("git", "add", "-A", "-f", "--", "flashinfer", cwd=folder, **env)
        return self.run("git", "write-tree", cwd=folder, **env).decode()

    # Each contestant returns the folder with its files and one action per task.

    def ours(self) -> tuple[Path, dict[str, Callable[[], None]]]:
        def tool(*args: str) -> None:
            patchwright(self.project, self.cache, *args)

        tree = self.project / ".patchwright/edit/tree"
        shutil.rmtree(self.project / ".patchwright", ignore_errors=True)

        def refresh() -> None:
            tool("edit", str(self.middle))
            self.append(tree)
            tool("refresh")

        return tree, {
            "push": lambda: tool("edit", str(self.count)),
            "pop": lambda: tool("edit", "1"),
            "refresh": refresh,
            "reorder": lambda: tool("move", str(self.moved), "--before", str(self.target)),
        }

    def append(self, tree: Path) -> None:
        path = tree / self.files[self.middle % FILES]
        path.write_text("# more\n" + path.read_text())

    def quilt(self) -> tuple[Path, dict[str, Callable[[], None]]]:
        folder = self.folder / "quilt"
        shutil.rmtree(folder, ignore_errors=True)
        self.run("git", "worktree", "prune")
        self.run("git", "checkout", "-q", "pristine")
        shutil.copytree(self.work, folder, ignore=shutil.ignore_patterns(".git"))
        patches = folder / "patches"
        patches.mkdir()
        names = sorted(path.name for path in (self.folder / "original").iterdir())
        for name in names:
            shutil.copy(self.folder / "original" / name, patches)
        (patches / "series").write_text("\n".join(names) + "\n")

        def tool(*args: str) -> None:
            self.run("quilt", "--quiltrc=-", *args, cwd=folder)

        def refresh() -> None:
            tool("push", "-q", names[self.middle - 1])
            self.append(folder)
            tool("refresh")
            tool("push", "-a", "-q")

        def reorder() -> None:
            tool("pop", "-q", names[self.target - 2])
            order = names.copy()
            order.insert(self.target - 1, order.pop(self.moved - 1))
            (patches / "series").write_text("\n".join(order) + "\n")
            tool("push", "-a", "-q")

        return folder, {
            "push": lambda: tool("push", "-a", "-q"), "pop": lambda: tool("pop", "-q", names[0]),
            "refresh": refresh, "reorder": reorder,
        }  # fmt: skip

    def git(self) -> tuple[Path, dict[str, Callable[[], None]]]:
        self.run("git", "checkout", "-q", "-B", "try", "pristine")
        patches = [str(path) for path in sorted((self.folder / "original").iterdir())]

        def pop() -> None:
            self.run("git", "branch", "-f", "kept")
            self.run("git", "reset", "-q", "--hard", f"try~{self.count - 1}")

        def refresh() -> None:
            self.run("git", "reset", "-q", "--hard", "kept")
            commit = (
                self.run("git", "rev-parse", f"try~{self.count - self.middle}").decode().strip()
            )
            self.append(self.work)
            self.run("git", "commit", "-q", "-a", f"--fixup={commit}")
            self.run("git", "rebase", "-q", "-i", "--autosquash", "pristine",
                     GIT_SEQUENCE_EDITOR="true")  # fmt: skip

        def reorder() -> None:
            script = (
                f"import sys; p=sys.argv[1]; l=open(p).read().splitlines(True); "
                f"l.insert({self.target - 1}, l.pop({self.moved - 1})); open(p,'w').writelines(l)"
            )
            self.run("git", "rebase", "-q", "-i", "pristine",
                     GIT_SEQUENCE_EDITOR=f'{sys.executable} -c "{script}"')  # fmt: skip

        return self.work, {
            "push": lambda: void(self.run("git", "am", "-q", "--keep-cr", *patches)),
            "pop": pop, "refresh": refresh, "reorder": reorder,
        }  # fmt: skip

    def stgit(self) -> tuple[Path, dict[str, Callable[[], None]]]:
        folder = self.folder / "stgit"
        shutil.rmtree(folder, ignore_errors=True)
        self.run("git", "worktree", "prune")
        self.run("git", "clone", "-q", "--local", str(self.work), str(folder))
        patches = [str(path) for path in sorted((self.folder / "original").iterdir())]

        def tool(*args: str) -> None:
            self.run("stg", *args, cwd=folder)

        self.run("git", "checkout", "-q", "-B", "try", "pristine", cwd=folder)
        tool("init")
        mailbox = self.folder / "mailbox"
        mailbox.write_bytes(b"".join(Path(path).read_bytes() for path in patches))
        tool("import", "--mbox", str(mailbox))
        names = self.run("stg", "series", "--noprefix", cwd=folder).decode().split()
        tool("pop", "--all")

        def refresh() -> None:
            tool("goto", names[self.middle - 1])
            self.append(folder)
            tool("refresh")
            tool("push", "--all")

        def reorder() -> None:
            order = names.copy()
            order.insert(self.target - 1, order.pop(self.moved - 1))
            (self.folder / "order").write_text("\n".join(order) + "\n")
            tool("float", "--series", str(self.folder / "order"))

        return folder, {
            "push": lambda: tool("push", "--all"), "pop": lambda: tool("goto", names[0]),
            "refresh": refresh, "reorder": reorder,
        }  # fmt: skip


def _cpu() -> float:
    """Return the CPU time of all commands so far, in seconds: it knows no other load."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def void(_: object) -> None:
    """Let a call be an action."""


def measure(folder: Path, count: int, rounds: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Return medians by task and tool, in seconds that passed and of CPU time.

    AssertionError where trees differ.
    """
    bench = Bench(folder, count)
    shutil.copytree(bench.project / "patches", folder / "original")
    tools = {"patchwright": bench.ours, "git": bench.git}
    if shutil.which("quilt"):
        tools["quilt"] = bench.quilt
    if shutil.which("stg"):
        tools["stgit"] = bench.stgit
    seconds: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for _ in range(rounds):
        trees: dict[str, dict[str, str]] = {}
        for name, start in tools.items():
            shutil.rmtree(bench.project / "patches")
            shutil.copytree(folder / "original", bench.project / "patches")
            patchwright(bench.project, bench.cache, "lock")
            place, tasks = start()
            for task, action in tasks.items():
                began, busy = time.perf_counter(), _cpu()
                action()
                spent = (time.perf_counter() - began, _cpu() - busy)
                seconds.setdefault(task, {}).setdefault(name, []).append(spent)
                print(f"{task} {name} {spent[0]:.2f} s, {spent[1]:.2f} s of CPU time",
                      file=sys.stderr, flush=True)  # fmt: skip
                if name == "patchwright" and task in ("refresh", "reorder"):
                    # The work tree shows one patch; the last one has all of it.
                    patchwright(bench.project, bench.cache, "edit", str(count))
                trees.setdefault(task, {})[name] = bench.tree(place)
        for task, found in trees.items():
            assert len(set(found.values())) == 1, (task, found)
    return {
        task: {
            name: (statistics.median(t[0] for t in times), statistics.median(t[1] for t in times))
            for name, times in found.items()
        }
        for task, found in seconds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--patches", type=int, default=206)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-series-") as folder:
        medians = measure(Path(folder).resolve(), options.patches, options.rounds)
    for task, found in medians.items():
        ours = found["patchwright"]
        for name, (passed, cpu) in found.items():
            print(
                f"{task:8} {name:12} {passed:8.3f} s   ours / {name}: {ours[0] / passed:.3f}"
                f"   of CPU time: {ours[1] / cpu:.3f}"
            )


if __name__ == "__main__":
    main()
