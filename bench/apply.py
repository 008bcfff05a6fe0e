"""Tree ids after each of N one-file patches on flashinfer, beside git am and quilt.

    python bench/apply.py [--patches 1000] [--rounds 3] [--keep DIR]

Prints ratios, medians of rounds that alternate between the contestants: `first` is
`patchwright status --json` with the pristine tree imported and no tree cached, `again`
the same with nothing changed, both whole processes. The ids are compared with git am's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tool"))
# An installed tool has its bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from patchwright.git import Git, scrubbed_environment  # noqa: E402
from patchwright.materialise import write_tree  # noqa: E402
from patchwright.project import Project  # noqa: E402

SECTION = """
[tool.patchwright.upstreams.flashinfer]
source = "wheel"
distribution = "flashinfer-python"
version = "0.6.3"
outside = ["flashinfer/_build_meta.py", "flashinfer/data/build_backend.py",
           "flashinfer/data/build_utils.py"]
[tool.patchwright.upstreams.flashinfer.layout]
"flashinfer/" = "flashinfer/"
"csrc/" = "flashinfer/data/csrc/"
"include/" = "flashinfer/data/include/"
"3rdparty/cutlass/" = "flashinfer/data/cutlass/"
"3rdparty/spdlog/" = "flashinfer/data/spdlog/"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--patches", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="make everything here and leave it")
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        medians = run(options.keep.resolve(), options.patches, options.rounds)
    else:
        medians = measure(options.patches, options.rounds)
    for name, median in medians.items():
        print(f"{name:12} {median:8.3f} s   {median / medians['git am']:7.4f} of git am")
    print(f"again / first  {medians['again'] / medians['first']:.3f}")


def measure(count: int, rounds: int) -> dict[str, float]:
    """Return medians in seconds: git am, quilt (where it is installed), first, again."""
    with tempfile.TemporaryDirectory(prefix="bench-apply-") as folder:
        return run(Path(folder), count, rounds)


def run(folder: Path, count: int, rounds: int) -> dict[str, float]:
    project, cache, work = folder / "project", folder / "pristine-cache", folder / "work"
    if not (folder / "ready").exists():
        prepare(project, cache, work, count)
        (folder / "ready").touch()
    seconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, trees in one_round(folder, project, cache, work, seconds).items():
            assert trees == (folder / "trees").read_text(encoding="ascii").split(), name
    return {name: statistics.median(times) for name, times in seconds.items()}


def prepare(project: Path, cache: Path, work: Path, count: int) -> None:
    """Import the pristine tree, and let git make the patches."""
    (project / "patches").mkdir(parents=True)
    (project / "pyproject.toml").write_text(SECTION, encoding="utf-8")
    os.environ["PATCHWRIGHT_CACHE"] = str(cache)
    opened = Project.open(project)
    tree = opened.pristine("flashinfer").tree
    write_tree(opened.store, tree, work)
    git = Git(work / ".git")
    place = {"GIT_WORK_TREE": str(work)}
    Git().run("init", "--quiet", "--template=", ".", cwd=work)
    git.run("add", "--all", "--force", cwd=work, env=place)
    git.run("commit", "--quiet", "-m", "pristine", cwd=work, env=place)
    git.run("tag", "pristine", cwd=work)
    names = git.run("ls-files", "-z", "*.py", "*.cu", "*.cuh", "*.h", cwd=work).stdout.split(b"\0")
    files = [work / os.fsdecode(name) for name in sorted(names) if name]
    files = [file for file in files if b"\0" not in file.read_bytes()]
    rng = random.Random(0)
    for number in range(1, count + 1):
        file = rng.choice(files)
        lines = file.read_bytes().split(b"\n")
        lines.insert(rng.randrange(len(lines)), b"// change %d" % number)
        file.write_bytes(b"\n".join(lines))
        git.run("commit", "--quiet", "--all", "-m", f"change {number}", cwd=work, env=place)
    git.run("format-patch", "--quiet", "--full-index", "--no-signature", "-o",
            str(project / "patches"), "pristine..main", cwd=work, env=place)  # fmt: skip
    trees = git.run("log", "--reverse", "--format=%T", "pristine..main", cwd=work).stdout
    (project.parent / "trees").write_bytes(trees)
    # A lock, so that nothing is resolved again; its trees go to a cache of their own.
    scratch = project.parent / "scratch-cache"
    shutil.copytree(cache, scratch)
    patchwright(project, scratch, "lock")


def one_round(
    folder: Path, project: Path, pristine_cache: Path, work: Path, seconds: dict[str, list[float]]
) -> Mapping[str, list[str]]:
    patches = sorted(str(path) for path in (project / "patches").iterdir())
    git, place = Git(work / ".git"), {"GIT_WORK_TREE": str(work)}
    found: dict[str, list[str]] = {}

    def timed(name: str, action: Callable[[], list[str]]) -> None:
        start = time.perf_counter()
        found[name] = action()
        seconds.setdefault(name, []).append(time.perf_counter() - start)

    def git_am() -> list[str]:
        # As a user runs it: patchwright's own git waits for the disk at every object.
        settings = scrubbed_environment() | {"EMAIL": "bench@example.org"}
        subprocess.run(["git", "am", "--quiet", "--keep-cr", *patches], cwd=work, env=settings,
                       check=True)  # fmt: skip
        trees = git.run("log", "--reverse", "--format=%T", "pristine..HEAD", cwd=work, env=place)
        return trees.stdout.decode().split()

    git.run("checkout", "--quiet", "--detach", "pristine", cwd=work, env=place)
    timed("git am", git_am)
    if shutil.which("quilt"):
        plain = folder / "plain"
        shutil.rmtree(plain, ignore_errors=True)
        git.run("checkout", "--quiet", "--detach", "pristine", cwd=work, env=place)
        shutil.copytree(work, plain, ignore=shutil.ignore_patterns(".git"))
        shutil.copytree(project / "patches", plain / "patches")
        names = "\n".join(Path(path).name for path in patches)
        (plain / "patches" / "series").write_text(names + "\n", encoding="utf-8")
        start = time.perf_counter()
        subprocess.run(["quilt", "push", "-a", "-q"], cwd=plain, check=True, capture_output=True)
        seconds.setdefault("quilt", []).append(time.perf_counter() - start)
    cache = folder / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    shutil.copytree(pristine_cache, cache)
    timed("first", lambda: status(project, cache))
    timed("again", lambda: status(project, cache))
    return found


def status(project: Path, cache: Path) -> list[str]:
    answer = json.loads(patchwright(project, cache, "status", "--json"))
    return [patch["tree"] for patch in answer["patches"]]


def patchwright(project: Path, cache: Path, *args: str) -> bytes:
    return subprocess.run(
        [sys.executable, "-m", "patchwright", "-C", str(project), *args],
        env=os.environ | {"PATCHWRIGHT_CACHE": str(cache), "PYTHONPATH": str(ROOT / "tool")},
        stdout=subprocess.PIPE, check=True,
    ).stdout  # fmt: skip


if __name__ == "__main__":
    main()
