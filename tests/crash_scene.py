"""A project that crash.py kills commands in, and what must hold of it afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from projects import TinyProject, make_project

ROOT = Path(__file__).resolve().parent.parent
LINES = "".join(f"line {n} = {n}\n" for n in range(60))
FILES: dict[str, str | bytes] = {
    "tiny/__init__.py": "", "tiny/gate.py": "MAJORS = [9, 10]\n", "tiny/lines.py": LINES,
    "tiny/data.bin": bytes(range(256)) * 8, "csrc/a.cu": "__global__ void f() {}\n" * 50,
    **{f"tiny/more/m{n}.py": f"N = {n}\n" * 40 for n in range(40)},
}  # fmt: skip
SMOKE = """
import subprocess
import pytest

@pytest.mark.tier("static")
def test_it(tree, tmp_path):
    (tmp_path / "made").write_text("x" * 5000)
    subprocess.run(["sleep", "0.05"], check=True)
    assert {wanted!r} in tree.read({upstream!r}, {path!r})
"""
HOOK = """
import os, signal, sys
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.utime",
           "subprocess.Popen", "fcntl.flock", "sqlite3.connect", "os.chmod", "os.putenv"}
left = [int(os.environ.pop("CRASH_AT"))]
report = os.environ.pop("CRASH_REPORT", "")
def hook(event, args):
    if event in CHANGES or event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
def count():
    with open(report, "w") as out:
        out.write(str(-left[0]))
sys.addaudithook(hook)
if report:
    import atexit
    atexit.register(count)
"""
_PACK = re.compile(r"objects\.git/objects/pack/pack-([0-9a-f]{40})\.(pack|idx|rev)")
# All that may be in a cache; whatever else is there was left behind.
_CACHE = re.compile(
    r"objects\.git\.lock|objects\.git/(HEAD|config|info/attributes|objects/[0-9a-f]{2}/[0-9a-f]{38})"
    rf"|{_PACK.pattern}|pristine/[0-9a-f]{{40}}\.(json|lock)|applied\.sqlite"
    r"|git/[0-9a-f]{32}\.(lock|git/(HEAD|config|shallow|info/attributes|objects/.*|refs/.*))"
    r"|slots/\d/(lock|worker\.log|pins|(tree|baseline)(-ahead)?/(lock|record|tree/.*))"
)
_PROJECT = re.compile(
    r"pyproject\.toml|patches/\d{4}-[^/]*\.patch|tests/smoke/test_\d{4}\.py|wheels/[^/]*\.whl"
    r"|upstream\.lock|\.patchwright/(\.gitignore|evidence/[0-9a-f]{64}\.json|operations/\d{6}\.zip)"
    r"|out/.*"
)


@dataclass(frozen=True)
class Answer:
    """What can be told from outside about a command that ended."""

    code: int
    said: object
    lock: bytes | None
    written: str


@dataclass
class Scene:
    """A project with a cache of its own, and what each command says there undisturbed."""

    folder: Path
    expected: dict[str, Answer] = field(default_factory=dict)
    seconds: dict[tuple[str, bool], float] = field(default_factory=dict)
    steps: dict[tuple[str, bool], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cache, self.tmp, self.home = (self.folder / n for n in ("cache", "tmp", "home"))
        for folder in (self.tmp, self.home):
            folder.mkdir(parents=True)
        hook = self.folder / "hook" / "sitecustomize.py"
        hook.parent.mkdir()
        hook.write_text(HOOK, encoding="ascii")
        self.project = _project(self.folder)
        self.root = self.project.root
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.tmp),
            "PATCHWRIGHT_CACHE": str(self.cache), "PYTHONPATH": str(ROOT / "tool"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip

    @property
    def commands(self) -> dict[str, tuple[str, ...]]:
        return {
            "lock": ("lock", "--json"),
            "verify": ("verify", "--tier", "static", "--json"),
            "apply": ("apply", "--into", "out", "--json"),
            "installed": ("apply", "--into", "out", "--installed-layout", "--json"),
            "status": ("status", "--json"),
        }

    def clear(self) -> None:
        """Forget everything: no cache, no lock, no evidence."""
        for folder in (self.cache, self.root / ".patchwright"):
            shutil.rmtree(folder, ignore_errors=True)
        (self.root / "upstream.lock").unlink(missing_ok=True)

    def start(self, name: str, **crash: str) -> subprocess.Popen[bytes]:
        shutil.rmtree(self.root / "out", ignore_errors=True)
        hooked = {"PYTHONPATH": f"{self.folder / 'hook'}:{self.env['PYTHONPATH']}"} | crash
        return subprocess.Popen(
            [sys.executable, "-m", "patchwright", *self.commands[name]], cwd=self.root,
            env=self.env | (hooked if crash else {}), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, process_group=0,
        )  # fmt: skip

    def run(self, name: str, **crash: str) -> Answer:
        """Run a command to its end; RuntimeError where it does not end in two minutes."""
        process = self.start(name, **crash)
        try:
            out, err = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            raise RuntimeError(f"{name} waits for ever") from None
        lock = self.root / "upstream.lock"
        return Answer(
            process.returncode, _settled(name, out) if out else err.decode(),
            lock.read_bytes() if lock.exists() and name == "lock" else None,
            _digest(self.root / "out"),
        )  # fmt: skip

    def learn(self) -> None:
        """Run every command undisturbed, cold and warm; the answers must be the same."""
        for name in self.commands:
            answers = []
            for cold in (True, False):
                if cold:
                    self.clear()
                start = time.monotonic()
                report = self.folder / "steps"
                answers.append(self.run(name, CRASH_AT="0", CRASH_REPORT=str(report)))
                self.seconds[name, cold] = time.monotonic() - start
                self.steps[name, cold] = int(report.read_text())
            if answers[0] != answers[1] or answers[0].code:
                raise RuntimeError(f"{name} is not the same twice: {answers}")
            self.expected[name] = answers[0]

    def kill(self, name: str, way: str, moment: float) -> bool:
        """Start a command and kill it; False where it had ended by then.

        ``moment`` is in seconds, or (an int) the number of a step.
        """
        if isinstance(moment, int):
            process = self.start(name, CRASH_AT=str(moment))
            stopped = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert stopped is not None
            alive = stopped.si_code == os.CLD_STOPPED
        else:
            process = self.start(name)
            time.sleep(moment)
            alive = process.poll() is None
        if alive and way == "alone":
            process.kill()
        elif alive and way == "group":
            os.killpg(process.pid, signal.SIGKILL)
        elif alive:
            # Stopped first, so that nobody sees another one die.
            found = {process.pid, *self.processes()}
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in found:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
        return alive

    def processes(self) -> dict[int, str]:
        """Return the processes that belong to this scene, and their command lines."""
        mark, found = os.fsencode(self.folder), {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes()
                place = os.fsencode((entry / "cwd").readlink())
                seen = line + (entry / "environ").read_bytes() + place
                # A zombie has neither: it is dead, and its parent's business.
                if mark in seen:
                    found[int(entry.name)] = line.replace(b"\0", b" ").decode(errors="replace")
        return found

    def leftovers(self) -> list[str]:
        """Return everything that should not be there; processes get two seconds to leave."""
        end = time.monotonic() + 2
        while (alive := self.processes()) and time.monotonic() < end:
            time.sleep(0.02)
        found = [f"process {pid}: {line}" for pid, line in alive.items()]
        for folder, allowed in ((self.cache, _CACHE), (self.root, _PROJECT)):
            found += [
                f"{folder.name}/{path}" for path in _files(folder) if not allowed.fullmatch(path)
            ]
        for folder in (self.tmp, self.home):
            found += [f"{folder.name}/{path}" for path in _files(folder)]
        names = [m for m in map(_PACK.fullmatch, _files(self.cache)) if m]
        for number, count in Counter(m[1] for m in names).items():
            if count < 2 or not any(m[1] == number and m[2] == "idx" for m in names):
                found.append(f"half of pack {number}")
        return found

    def damage(self) -> list[str]:
        """Return what is wrong with database and store."""
        found = []
        database = self.cache / "applied.sqlite"
        if database.exists():
            with contextlib.closing(sqlite3.connect(database)) as connection:
                said = connection.execute("PRAGMA integrity_check").fetchone()[0]
            if said != "ok":
                found.append(f"applied.sqlite: {said}")
        if (self.cache / "objects.git").exists():
            done = subprocess.run(
                ["git", "fsck", "--full", "--no-dangling"], capture_output=True, text=True,
                env=self.env | {"GIT_DIR": str(self.cache / "objects.git")}, check=False,
            )  # fmt: skip
            if done.returncode:
                found.append(f"git fsck: {done.stdout} {done.stderr}")
        return found


def _project(folder: Path) -> TinyProject:
    """A wheel and a git revision as upstreams; every means of applying takes part."""
    project = make_project(folder, FILES)
    # Patch 4 is made on the pristine file: on top of 3 only the recorded blob fits it in.
    project.add_patch(4, {"tiny/lines.py": LINES.replace("line 6 = 6", "line 6 = six")})
    subprocess.run(
        ["git", "reset", "--quiet", "--hard", "HEAD^"], cwd=project.git["tiny"], check=True
    )
    project.add_patch(1, {"tiny/gate.py": "MAJORS = [9, 10, 12]\n"}, fields=_smoke(1))
    project.add_patch(2, {"tiny/data.bin": b"\0" * 3000})
    edited = LINES.replace("line 3 = 3\n", "line 3 = three\n")
    project.add_patch(3, {"tiny/lines.py": edited}, fields=_smoke(3))
    project.add_upstream("other", {"other/__init__.py": "A = 1\n", "README": "not installed\n"})
    config = project.upstreams["other"]
    for key in ("distribution", "path"):
        del config[key]
    config |= {"source": "git", "path": str(project.git["other"]), "revision": "main"}
    project.write_config()
    for number, path, wanted in ((1, "tiny/gate.py", b"12"), (3, "tiny/lines.py", b"three")):
        text = SMOKE.format(upstream="tiny", path=path, wanted=wanted)
        project.add_smoke(f"test_{number:04d}.py", text)
    return project


def _smoke(number: int) -> dict[str, str | None]:
    return {"Smoke": f"tests/smoke/test_{number:04d}.py"}


def _settled(name: str, out: bytes) -> object:
    """Return what a command printed, without what may differ from run to run."""
    said: dict[str, Any] = json.loads(out)
    if name == "lock":
        del said["written"]  # the killed run may have come that far
    for result in said.get("results", ()):
        for key in ("seconds", "made"):
            del result[key]
    if name == "status":
        for patch in said["patches"]:
            del patch["evidence"]  # says what the rounds before came to
        del said["stale"]
    return said


def _files(folder: Path) -> Iterator[str]:
    """Yield the paths of the files below ``folder``, and of the empty folders of a run."""
    for place, folders, files in os.walk(folder):
        base = Path(place).relative_to(folder)
        for name in files:
            yield (base / name).as_posix()
        for name in folders:
            if name.startswith((".", "patchwright-")) and name != ".patchwright":
                yield (base / name).as_posix()


def _digest(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(_files(folder)):
        file = folder / path
        if file.is_file():
            found.update(f"{path}\0{file.stat().st_mode:o}\0".encode() + file.read_bytes())
    return found.hexdigest()
