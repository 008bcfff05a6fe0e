"""Kills `apply --env` and `unapply` before each step that changes anything in an environment.

    python tests/crash_installed.py [--every N] [--keep DIR]

A step is a file opened for writing, a rename, a link, a removal, a folder made or removed,
counted below the environment only. After each kill the next command must be right: what it
leaves is the pristine environment or the patched one, byte for byte, and the installer's
cache is as it was.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tool")]

from patchwright.environment.transaction import FOLDER  # noqa: E402
from projects import Content, TinyProject, make_project, make_wheel  # noqa: E402
from venvs import Env, make_env  # noqa: E402

FILES: dict[str, Content] = {
    "tiny/__init__.py": "from .gate import OPEN\nfrom ._version import V\n",
    "tiny/gate.py": "OPEN = 0\n",
    "csrc/k.cu": "__global__ void k() {}\n",
}
COMPANION = {"tiny_extra/__init__.py": "V = '1.0'\n"}
_KILLED = """
import os, signal, sys
left = [int(sys.argv.pop(1))]
def count(event, args):
    if event in ("os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir") or (
        event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR)):
        if any(isinstance(a, str) and "env/lib" in a for a in args):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
from patchwright.main import main
main()
"""


def make_tiny(folder: Path) -> TinyProject:
    """A project with a companion, a second upstream, and a patch that adds a folder."""
    tiny = make_project(
        folder, FILES, built={"tiny/_version.py": "V = '1.0'\n"}, outside=("tiny/_version.py",)
    )
    tiny.wheels["tiny-extra"] = make_wheel(
        tiny.root / "wheels", COMPANION, distribution="tiny-extra"
    )
    config = tiny.upstreams["tiny"]
    config["version-files"] = ["tiny/_version.py"]
    config["companions"] = {"tiny-extra": ["tiny_extra/__init__.py"]}
    tiny.add_upstream("other", {"other/__init__.py": "x = 1\n"})
    tiny.add_patch(1, {"tiny/gate.py": "OPEN = 1\n"}, title="gate: open")
    tiny.add_patch(2, {"other/__init__.py": "x = 2\n"}, upstream="other")
    tiny.add_patch(3, {"csrc/k.cu": "k\n", "tiny/new/__init__.py": "NEW = 1\n"})
    return tiny


def patched(files: dict[str, bytes]) -> dict[str, bytes]:
    """Leave out what stands in the record's folder."""
    return {path: data for path, data in files.items() if not path.startswith(FOLDER)}


def killed(tiny: TinyProject, at: int, *args: str) -> bool:
    """Run a command and kill it before its ``at``-th step; False where it had ended by then."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(at), *args], cwd=tiny.root, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def kill_once(tiny: TinyProject, env: Env, at: int) -> bool:
    """Kill both commands at a step and look at what the next ones leave; False: too late."""
    where, pristine, cached = ("--env", str(env.root)), env.files(), env.cached()
    early = killed(tiny, at, "apply", *where)
    assert tiny.run("unapply", *where).code in (0, 1)
    assert env.files() == pristine, at
    assert tiny.run("apply", *where).code == 0
    whole = patched(env.files())
    early = killed(tiny, at, "unapply", *where) or early
    assert tiny.run("apply", *where).code == 0
    assert patched(env.files()) == whole, at
    assert tiny.run("unapply", *where).code == 0
    assert env.files() == pristine, at
    assert env.cached() == cached, at
    return early


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="every N-th step")
    parser.add_argument("--keep", type=Path, help="work here, and leave it there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = (args.keep or Path(name)).resolve()
        os.environ |= {"PATCHWRIGHT_CACHE": str(folder / "cache"), "HOME": str(folder)}
        os.environ |= {f"GIT_{who}_{what}": "tester" for who in ("AUTHOR", "COMMITTER")
                       for what in ("NAME", "EMAIL")}  # fmt: skip
        os.environ["PYTHONPATH"] = str(ROOT / "tool")
        tiny = make_tiny(folder)
        env = make_env(folder, tiny.wheels.values())
        at = 1
        while kill_once(tiny, env, at):
            at += args.every
            if at // args.every % 20 == 0:
                print(f"killed at step {at}: nothing wrong", flush=True)
        print(f"{2 * (at // args.every)} kills: nothing wrong")


if __name__ == "__main__":
    main()
