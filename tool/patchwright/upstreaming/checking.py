"""The upstream repository's own checks on the touched files: its pre-commit configuration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from patchwright.files import temporary_folder
from patchwright.git import Git, scrubbed_environment
from patchwright.materialise import write_tree
from patchwright.quoting import printable
from patchwright.upstreaming.secrecy import redacted

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.upstreaming.mainline import Mainline

_NAME = "pre-commit"
_CONFIGURATION = b".pre-commit-config.yaml"
_DEADLINE = 1800.0  # seconds; the first run builds the hooks' environments
_FAILED = re.compile(r"^- hook id: (.+)$", re.MULTILINE)
# What pre-commit says where it could not even start a hook: no network, no compiler.
_BROKE = re.compile(r"^An (?:unexpected )?error has occurred: (.*)", re.MULTILINE)
_KEPT = ("PRE_COMMIT_HOME", "XDG_CACHE_HOME")


@dataclass(frozen=True)
class Checked:
    """What came of one kind of checks; ``not run`` names the reason."""

    name: str
    outcome: Literal["passed", "failed", "not run"]
    reason: str = ""


def check(
    project: Project, main: Mainline, tree: str, paths: list[bytes], branch: str, wanted: bool
) -> Checked:
    """Run main's pre-commit hooks on ``paths`` of ``tree``, in a folder of their own.

    ``wanted`` is what the profile says. The hooks get no token of this environment.
    """
    there = [os.fsdecode(p) for p in paths if project.store.entry(tree, p) is not None]
    program = shutil.which(_NAME)
    if not wanted:
        why = "not asked for"
    elif project.store.entry(main.tree, _CONFIGURATION) is None:
        why = f"{main.branch} has no {_CONFIGURATION.decode()}"
    elif program is None:
        why = "pre-commit was not found on PATH: install it"
    elif not there:
        why = "no file is left to check"
    else:
        project.progress(f"running {main.branch}'s pre-commit hooks on {len(there)} files")
        with temporary_folder(project.cache_dir / "tmp") as (folder, _):
            work = folder / "tree"
            _check_out(project, main, tree, work, branch)
            return _run(program, work, there)
    return Checked(_NAME, "not run", why)


def _run(program: str, work: Path, files: list[str]) -> Checked:
    environment = scrubbed_environment() | {n: os.environ[n] for n in _KEPT if n in os.environ}
    try:
        done = subprocess.run(
            [program, "run", "--color=never", "--files", *files],
            cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=_DEADLINE, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Checked(_NAME, "not run", f"it had not ended after {_DEADLINE:.0f} s")
    except OSError as error:
        return Checked(_NAME, "not run", f"it cannot be started: {error.strerror}")
    said = redacted(printable((done.stdout + done.stderr).decode("utf-8", "replace")))
    if done.returncode == 0:
        return Checked(_NAME, "passed")
    failed = _FAILED.findall(said)
    if failed:
        return Checked(_NAME, "failed", f"{', '.join(failed)}:\n{_tail(said)}")
    broke = _BROKE.search(said)
    why = broke[1] if broke is not None else said.strip()[-300:]
    return Checked(_NAME, "not run", f"it broke: {why}")


def _check_out(project: Project, main: Mainline, tree: str, work: Path, branch: str) -> None:
    """Make a repository whose HEAD is main and whose index and files are ``tree``."""
    write_tree(project.store, tree, work)
    Git().run("init", "--quiet", f"--initial-branch={branch}", cwd=work)
    git = Git(work / ".git")
    objects = project.store.path / "objects"
    (work / ".git" / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
    commit = git.run("commit-tree", main.tree, "-m", main.branch).stdout.decode().strip()
    git.run("update-ref", "HEAD", commit)
    where = {"GIT_WORK_TREE": str(work)}
    git.run("read-tree", tree, env=where, cwd=work)
    git.run("update-index", "-q", "--refresh", env=where, cwd=work, ok=(0, 1))


def _tail(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.endswith(("Passed", "Skipped"))]
    return "\n".join(lines[-20:])
