"""Starting a patched tree, one state at a time per seat, and saying what came of it.

    with Starts(project, settings) as starts:
        started = starts.run(state)                # one, waited for
        attempt = starts.begin(state)              # several at a time:
        ...                                        # select on attempt, then
        started = attempt.finish()

Whatever ends the ``with`` ends every start that is under way, and all its processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import patchwright
from patchwright.applying.chain import State
from patchwright.errors import InputError, PatchwrightError
from patchwright.smoke import isolation
from patchwright.smoke.devices import Lease
from patchwright.smoke.environments import describe, interpreter, program_path
from patchwright.smoke.outcomes import Blocked
from patchwright.smoke.seats import Seat, take_seat
from patchwright.smoke.shares import Shares
from patchwright.smoke.sites import site_tree
from patchwright.startup import compiled, hook
from patchwright.startup.judging import Started, judge
from patchwright.startup.settings import Settings, filled
from patchwright.startup.supervisor import Order

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.smoke.protocol import Place

_LEAVING = 30.0  # seconds that a supervisor gets to kill a start and leave
_PORTS = 3  # tries with another port
_WAIT = 0.5  # seconds between two looks whether the devices are free
_LONG = 60  # characters; a socket's path in TMPDIR may have 107
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from patchwright.startup.supervisor import main; main()"
)


@dataclass
class Attempt:
    """One start under way; readable at ``fileno`` when it is over."""

    state: State
    seat: Seat
    place: Place
    process: subprocess.Popen[bytes]
    port: int
    lease: Lease
    keys: Mapping[str, str] = field(default_factory=dict)  # variable to workspace key
    tries: int = 1

    def fileno(self) -> int:
        """Return the descriptor of the outcome."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()


class Starts:
    """Makes starts of one project with one probe."""

    def __init__(self, project: Project, settings: Settings, directory: Path | None = None) -> None:
        """``directory``: where a shell command is run; else in a folder of the start's own."""
        self.project = project
        self.settings = settings
        self.directory = directory
        self._workspaces = compiled.Workspaces(project.cache_dir / "startup")
        self._free: list[Seat] = []
        self._under_way: list[Attempt] = []
        self._shares = Shares(project)
        self._stack = ExitStack()
        self._links: Path | None = None

    def __enter__(self) -> Starts:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            for attempt in self._under_way:
                assert attempt.process.stdin is not None
                attempt.process.stdin.close()
            for attempt in list(self._under_way):
                self._end(attempt)
        finally:
            self._shares.close()
            self._stack.close()

    def run(self, state: State) -> Started:
        """Start ``state`` and wait for the outcome."""
        attempt = self.begin(state)
        assert attempt is not None, "nothing else of ours is under way"
        while (started := self.finish(attempt)) is None:
            pass
        return started

    def begin(self, state: State) -> Attempt | None:
        """Begin a start of ``state``; None where another one of these has the devices.

        Waits for what other commands have. Raises PatchwrightError where the cache is not
        writable.
        """
        lease = self._lease()
        if lease is None:
            return None
        seat = self._free.pop() if self._free else self._seat()
        trees = tuple((n, t) for n, t in state.trees if n in self.settings.upstreams)
        shown = State(trees)
        place = seat.place(self.project.store, "tree", site_tree(self.project, shown), trees)
        seat.begin()
        port = _free_port()
        process, keys = self._launch(seat, place, port, lease)
        attempt = Attempt(state, seat, place, process, port, lease, keys)
        self._under_way.append(attempt)
        return attempt

    def finish(self, attempt: Attempt) -> Started | None:
        """Wait for the outcome; None where the port was taken and it was begun anew."""
        assert attempt.process.stdout is not None
        data = attempt.process.stdout.read()
        self._wait(attempt)
        folder = attempt.seat.run_folder
        report: dict[str, Any] = json.loads(data) if data else {}
        if not report:
            raise PatchwrightError(
                f"the process that watches the start died: {attempt.seat.last_words()}",
                next_step="start it again; report this if it happens again",
            )
        if "not_run" in report:
            raise InputError(
                f"the probe cannot be run: {report['not_run']}",
                next_step="correct the command; nothing was started",
            )
        site = str(attempt.place.site)
        report["violations"] = hook.violations(folder, site)
        report["imported"] = list(hook.imported(folder))
        started = judge(self.settings, report, site)
        if started.kind == "port" and attempt.tries < _PORTS and self._names_port:
            attempt.tries += 1
            attempt.port = _free_port()
            attempt.process, attempt.keys = self._launch(
                attempt.seat, attempt.place, attempt.port, attempt.lease
            )
            return None
        if started.kind == "missing-command":
            raise InputError(
                f"the probe cannot be run: {started.detail}",
                next_step="correct the command; 126 and 127 are what a shell says of one that "
                "it cannot run",
            )
        if started.outcome == "started":
            for variable, key in attempt.keys.items():
                self._workspaces.keep(key, _workspace(folder, variable))
        self._end(attempt)
        return started

    # One start

    def _launch(
        self, seat: Seat, place: Place, port: int, lease: Lease
    ) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
        settings, folder = self.settings, seat.run_folder
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
            isolation.make_folders(folder)
        except OSError as error:
            raise PatchwrightError(
                f"the start's folder cannot be made: {error.strerror}", where=str(folder),
                next_step="make the cache writable, or set PATCHWRIGHT_CACHE to another folder",
            ) from error  # fmt: skip
        packages = tuple(sorted(
            package for name in settings.upstreams
            for package in self.project.config.upstreams[name].packages
        ))  # fmt: skip
        hook.install(folder, folder / isolation.PROOF, packages, place.site, place.listing)
        words = {"port": str(port), "site": str(place.site), "folder": str(folder),
                 "root": str(self.project.root)}  # fmt: skip
        if any("{python}" in word for word in settings.command):
            words["python"] = str(self._python)
        environment = self._environment(folder, place.site, words) | lease.environment
        keys, warm = self._seed(place, folder)
        command = tuple(filled(word, words) for word in settings.command)
        order = Order(
            ("sh", "-c", *settings.command) if settings.by_shell else command,
            environment,
            folder=str(folder),
            cwd=str(self.directory or folder / isolation.WORK),
            deadline=settings.deadline if warm else settings.cold_deadline,
            stall=settings.stall,
            disk_limit=settings.disk_limit,
            port=port,
            ready_log=settings.ready_log,
            ready_path=settings.ready_path,
            answer=asdict(settings.answer) if settings.answer is not None else None,
            stages=settings.stages,
        )
        return _supervised(order, seat), keys

    def _environment(self, folder: Path, site: Path, words: Mapping[str, str]) -> dict[str, str]:
        settings, outer = self.settings, os.environ
        own = isolation.run_environment("startup", folder, self.project.cache_dir, site, outer)
        # The libraries' own bytecode may be used: compiling them takes longer than the rest
        # of a start. The tree has none, or it was written by this start from this tree.
        del own["PYTHONPYCACHEPREFIX"]
        if len(own["TMPDIR"]) > _LONG:
            own["TMPDIR"] = self._short(Path(own["TMPDIR"]), words["port"])
        more = {name: outer[name] for name in settings.passed if name in outer}
        more |= {name: filled(value, words) for name, value in settings.environment.items()}
        behind = [more["PYTHONPATH"]] if more.get("PYTHONPATH") else []
        more["PYTHONPATH"] = os.pathsep.join([own["PYTHONPATH"], *behind])
        if "python" in words and "PATH" not in settings.environment:
            more["PATH"] = program_path(Path(words["python"]), own.get("PATH", ""))
        return own | more | {
            "PATCHWRIGHT_SITE": str(site), "PATCHWRIGHT_ROOT": words["root"],
            "PATCHWRIGHT_PORT": words["port"], "PYTHONFAULTHANDLER": "1",
        }  # fmt: skip

    def _seed(self, place: Place, folder: Path) -> tuple[dict[str, str], bool]:
        """Fill the workspaces with what is kept; tell their keys, and whether all were warm."""
        keys, warm = {}, True
        for variable, prefixes in self.settings.workspaces.items():
            key = compiled.digest(place.listing, prefixes, self.identity)
            if key:
                keys[variable] = key
                warm &= self._workspaces.seed(key, _workspace(folder, variable))
        return keys, warm

    @cached_property
    def identity(self) -> str:
        """What the environment is, for the keys of evidence and of compiled objects."""
        if not any("{python}" in word for word in self.settings.command):
            return ""
        return describe(self._python).identity

    @cached_property
    def _python(self) -> Path:
        return interpreter(self.project.config, os.environ)

    def _short(self, folder: Path, name: str) -> str:
        """Return a short path to a folder, which leaves room for a socket's name."""
        if self._links is None:
            made = tempfile.TemporaryDirectory(prefix="pw-")
            self._links = Path(self._stack.enter_context(made))
        link = self._links / name
        link.symlink_to(folder)
        return str(link)

    @property
    def _names_port(self) -> bool:
        return any("{port}" in word for word in self.settings.command) or self.settings.by_shell

    # Seats and supervisors

    def _seat(self) -> Seat:
        seat = take_seat(self.project.cache_dir / "slots", self.project.pins_key)
        self._stack.callback(seat.close)
        return seat

    def _lease(self) -> Lease | None:
        told = False
        while (lease := self._shares.take_devices(self.settings.devices)) is None:
            if self._under_way:
                return None
            if not told:
                self.project.progress("waiting for the devices: another command has them")
                told = True
            time.sleep(_WAIT)
        return lease

    def _wait(self, attempt: Attempt) -> None:
        process = attempt.process
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_LEAVING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _end(self, attempt: Attempt) -> None:
        self._wait(attempt)
        self._under_way.remove(attempt)
        self._shares.give_back(attempt.lease)
        shutil.rmtree(attempt.seat.run_folder, ignore_errors=True)
        attempt.seat.undo()
        self._free.append(attempt.seat)


def blocked(project: Project, settings: Settings) -> str:
    """Return what this machine lacks for a start, or nothing."""
    if not any("{python}" in word for word in settings.command):
        return ""
    try:
        interpreter(project.config, os.environ)
    except Blocked as need:
        return str(need)
    return ""


def _workspace(folder: Path, variable: str) -> Path:
    return folder / isolation.run_environment("", folder, folder, None, {})[variable]


def _supervised(order: Order, seat: Seat) -> subprocess.Popen[bytes]:
    source = str(Path(patchwright.__file__).parent.parent)
    with (seat.folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", "-c", _START, source],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=seat.folder,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(order.to_line())
    process.stdin.flush()
    return process


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def finished(attempts: list[Attempt]) -> Iterator[Attempt]:
    """Yield those of the attempts that are over, after waiting for one of them."""
    with selectors.DefaultSelector() as selector:
        for attempt in attempts:
            selector.register(attempt, selectors.EVENT_READ)
        ready = {key.fd for key, _ in selector.select()}
    yield from (attempt for attempt in attempts if attempt.fileno() in ready)
