"""The one place that runs git: scrubbed environment, C locale, bytes in and out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from patchwright.errors import InputError, PatchwrightError

# Settings that would let a user's machine decide what a tree contains. Options
# given by -c win over every configuration file.
_SETTINGS = {
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.eol": "lf",
    "core.excludesFile": os.devnull,
    "core.fileMode": "true",
    "core.hooksPath": os.devnull,
    "core.symlinks": "true",
    "core.fsync": "all",
    # Objects arrive as one pack, all at once: of loose ones a killed fetch leaves a commit
    # without its files.
    "fetch.unpackLimit": "1",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "advice.detachedHead": "false",
    "init.defaultBranch": "main",
    "user.name": "patchwright",
    "user.email": "patchwright@localhost",
}

# What git and its transports need from the outside; everything else, all GIT_*
# variables included, stays out.
_KEPT = ("PATH", "HOME", "TMPDIR", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR")
_KEPT_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

_BARE = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
# In-tree .gitattributes must not decide what a checkout contains; info/attributes
# has the highest precedence of all.
_ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding !merge !diff\n"


MAKE_ROOM = "make room there, or set PATCHWRIGHT_CACHE to a folder on another disk"


def disk_is_full(stderr: bytes) -> bool:
    """Return whether that is why a program failed, by what it said in the C locale."""
    return re.search(rb"No space left|[Oo]ut of diskspace|quota exceeded", stderr) is not None


class Completed(NamedTuple):
    """What one git command left behind."""

    returncode: int
    stdout: bytes
    stderr: bytes


def scrubbed_environment() -> dict[str, str]:
    """Return the environment that every git command runs in."""
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    for name in _KEPT_PROXIES:
        for spelling in (name, name.upper()):
            if spelling in os.environ:
                env[spelling] = os.environ[spelling]
    env.update(
        LC_ALL="C",
        TZ="UTC",
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_CONFIG_SYSTEM=os.devnull,
        GIT_CONFIG_NOSYSTEM="1",
        GIT_ATTR_NOSYSTEM="1",
        GIT_TERMINAL_PROMPT="0",
        GIT_OPTIONAL_LOCKS="0",
        GIT_NO_REPLACE_OBJECTS="1",
    )
    return env


def validated_revision(revision: str) -> str:
    """Return ``revision``; raise InputError for one that git could take as an option."""
    if not revision or revision.startswith("-") or any(c.isspace() or c == "\0" for c in revision):
        raise InputError(
            f"{revision!r} is not a git revision",
            next_step="give a commit id, a tag or a branch",
        )
    return revision


def make_bare(path: Path) -> None:
    """Make an empty bare repository at ``path``, all of it or nothing.

    It is made beside its place; the caller keeps other processes away. Raises OSError.
    """
    new = path.with_name(f"{path.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (new / folder).mkdir(parents=True)
    (new / "config").write_text(_BARE, encoding="ascii")
    (new / "info" / "attributes").write_text(_ATTRIBUTES, encoding="ascii")
    (new / "HEAD").write_text("ref: refs/heads/main\n", encoding="ascii")
    new.rename(path)


class Git:
    """Runs git on one git directory (or on none)."""

    def __init__(self, git_dir: Path | None = None, holds: Collection[int] = ()) -> None:
        """``holds`` are descriptors of locks.

        Each git keeps them locked until it has ended, even where this process is killed.
        """
        self.git_dir = git_dir
        self.holds = tuple(holds)

    def run(
        self,
        *args: str | bytes,
        data: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        ok: Collection[int] = (0,),
        holds: Collection[int] = (),
    ) -> Completed:
        """Run ``git ARGS`` with ``data`` on standard input.

        ``env`` is added to the scrubbed environment. ``holds`` adds to those of this
        object. Raises PatchwrightError when git is missing or its exit status is not in
        ``ok``.
        """
        environment = scrubbed_environment()
        if self.git_dir is not None:
            environment["GIT_DIR"] = str(self.git_dir)
        environment.update(env or {})
        command: list[str | bytes] = ["git"]
        for key, value in _SETTINGS.items():
            command += ["-c", f"{key}={value}"]
        command += args
        try:
            done = subprocess.run(
                command, input=data if data is not None else b"", capture_output=True,
                env=environment, cwd=cwd or self.git_dir, check=False,
                pass_fds=(*self.holds, *holds),
            )  # fmt: skip
        except FileNotFoundError as error:
            if cwd is not None and not cwd.is_dir():
                raise PatchwrightError("the folder does not exist", where=str(cwd)) from error
            raise PatchwrightError(
                "git was not found on PATH",
                next_step="install git 2.39 or newer (Debian, Ubuntu: apt-get install git)",
            ) from error
        except PermissionError as error:
            # Callers take an OSError for one of the cache.
            raise PatchwrightError(
                "git on PATH cannot be run: permission denied",
                next_step="make it executable, or put another git first on PATH",
            ) from error
        if done.returncode not in ok:
            words = " ".join(os.fsdecode(a) for a in args[:3])
            raise PatchwrightError(
                f"git {words} ended with status {done.returncode}: "
                + done.stderr.decode("utf-8", "replace").strip(),
                where=str(self.git_dir or ""),
                next_step=MAKE_ROOM if disk_is_full(done.stderr) else _if_unwritable(done.stderr),
            )
        return Completed(done.returncode, done.stdout, done.stderr)


def _if_unwritable(stderr: bytes) -> str:
    if b"Read-only file system" in stderr or b"Permission denied" in stderr:
        return "make room, make the folder writable, or set PATCHWRIGHT_CACHE to another one"
    return ""
