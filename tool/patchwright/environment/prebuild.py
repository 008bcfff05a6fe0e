"""flashinfer's JIT modules compiled ahead of the first start, each object once by content.

A module lands in the workspace where the environment's flashinfer looks for it, with
flashinfer's own build.ninja. Objects come from the cache or from the compiler; ninja then
has nothing left to do, and neither has the start. Whatever else stands in a module's
folder is removed first: ninja goes by times, which prove nothing about content.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from patchwright.environment import jit_inner
from patchwright.environment.installed import Site
from patchwright.environment.objects import Objects, do_nothing
from patchwright.environment.toolkit import Toolkit
from patchwright.environment.workspace import MANIFEST, Hashes, Manifest
from patchwright.errors import AnswerNo, PatchwrightError
from patchwright.smoke.jit import target

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMORY = 3 << 30  # bytes for one compiler; most of the pins' sources take 1, CUTLASS 4.4 GiB
_ANSWER = 300.0  # seconds for the generators; importing torch takes a few of them
_GENCODE = re.compile(r"-gencode=arch=compute_\w+,code=sm_(\w+)")
_LOGS = (".ninja_log", ".ninja_deps")

Say = Callable[[str], None]


class Job(NamedTuple):
    """One generator: ``path::name``, its import name, function and arguments."""

    entry: str
    module: str
    function: str
    arguments: Mapping[str, object]


@dataclass
class Built:
    """What became of one module. ``seconds`` is what it cost; ``why`` of a failure."""

    entry: str
    name: str = ""
    arch: str = ""
    folder: str = ""
    outcome: str = "refused"  # ready, reused, compiled, refused, failed
    compiled: int = 0
    reused: int = 0
    seconds: float = 0.0
    why: str = ""


@dataclass
class Prebuilder:
    """Builds modules for one environment and one architecture list (``12.0a``).

    ``outer`` are the variables with which the environment's programs start.
    """

    site: Site
    arch: str
    toolkit: Toolkit
    cache: Path
    jobs: int
    outer: Mapping[str, str]
    say: Say = lambda _: None
    hashes: Hashes = field(default_factory=Hashes)

    def build(self, wanted: Sequence[Job], names: Sequence[str] = ()) -> list[Built]:
        """Build the modules of ``wanted``; of those named only where names are given.

        Raises PatchwrightError where the environment's flashinfer cannot be asked.
        """
        self.say(f"asking the generators for {self.arch}")
        asked = self._ask(wanted, names)
        built = [
            Built(a["entry"], arch=self.arch, why=_first_line(a["refused"]))
            for a in asked if "refused" in a
        ]  # fmt: skip
        specs = [a for a in asked if "refused" not in a]
        for spec in specs:
            others = _other_targets(spec, self.arch)
            if others:
                why = f"it is built for {others}, whatever is asked"
                built.append(Built(spec["entry"], spec["name"], self.arch, why=why))
        specs = [s for s in specs if not any(b.entry == s["entry"] for b in built)]
        if not specs:
            return built
        each = max(1, self.jobs // len(specs))
        with ThreadPoolExecutor(min(self.jobs, len(specs))) as pool:
            built += pool.map(lambda spec: self._module(spec, each), specs)
        return built

    def _variables(self) -> dict[str, str]:
        outer = {n: v for n, v in self.outer.items() if n not in ("PYTHONHOME", "MAX_JOBS")}
        own = {"FLASHINFER_CUDA_ARCH_LIST": self.arch, **self.toolkit.variables}
        path = f"{self.site.python.parent}{os.pathsep}{outer.get('PATH', os.defpath)}"
        return outer | own | {"PATH": path}

    def _ask(self, wanted: Sequence[Job], names: Sequence[str]) -> list[dict[str, Any]]:
        code = f"exec(compile(open({jit_inner.__file__!r}).read(), 'jit_inner', 'exec'))"
        text = json.dumps({"jobs": wanted, "names": list(names)})
        try:
            done = subprocess.run(
                [str(self.site.python), "-B", "-c", code], input=text, capture_output=True,
                text=True, timeout=_ANSWER, env=self._variables(), cwd="/", check=True,
            )  # fmt: skip
            answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
        except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
            said = str(getattr(error, "stderr", "") or error).strip().splitlines()
            raise PatchwrightError(
                f"the generators cannot be asked: {said[-1] if said else error}",
                where=str(self.site.python),
                next_step="see that torch and flashinfer's requirements are in the environment",
            ) from error
        return answers

    # One module

    def _module(self, spec: Mapping[str, Any], jobs: int) -> Built:
        start = time.monotonic()
        folder = Path(spec["folder"])
        built = Built(spec["entry"], spec["name"], self.arch, str(folder))
        try:
            with _alone(folder) as handle:
                self._build(spec, folder, built, jobs, handle)
        except OSError as error:
            built.outcome, built.why = "failed", f"{error.filename}: {error.strerror}"
        except (AnswerNo, ValueError, KeyError) as error:
            built.outcome, built.why = "failed", str(error)
        built.seconds = time.monotonic() - start
        self.say(f"{built.name}: {built.outcome} in {built.seconds:.1f} s")
        return built

    def _build(
        self, spec: Mapping[str, Any], folder: Path, built: Built, jobs: int, handle: int
    ) -> None:
        variables = self._variables()
        objects = Objects(
            folder, self.site.packages, self.toolkit.home, self.toolkit.compiler.identity,
            self.cache, variables, self.hashes,
        )  # fmt: skip
        ninja = hashlib.sha256(objects.text).hexdigest()
        if self._is_ready(folder, spec["name"], ninja, objects.hashes):
            built.outcome = "ready"
            return
        for name in (MANIFEST, *_LOGS):
            (folder / name).unlink(missing_ok=True)
        (folder / f"{spec['name']}.so").unlink(missing_ok=True)
        hits = objects.restore()
        if hits:
            self._ninja(folder, hits, jobs, handle, do_nothing(self.cache, variables["PATH"]))
        count = len(objects.parts) - len(hits)
        self.say(f"{built.name}: {len(hits)} objects reused, {count} to compile")
        self._ninja(folder, [], jobs, handle)
        objects.keep(but=hits)
        left = self._ninja(folder, ["-n"], jobs, handle)
        if "no work to do" not in left:
            raise AnswerNo(
                "ninja would compile it again at the start", where=str(folder),
                next_step="see that the clock is right and that no source is from the future",
            )  # fmt: skip
        results = [*(Path(p.output).name for p in objects.parts), f"{spec['name']}.so"]
        fresh = Hashes()
        digests = {name: fresh.of(str(folder / name)) for name in results}
        Manifest(spec["entry"], ninja, objects.hashes, digests).write(folder)
        built.reused, built.compiled = len(hits), count
        built.outcome = "compiled" if built.compiled else "reused"

    def _is_ready(self, folder: Path, name: str, ninja: str, inputs: Mapping[str, str]) -> bool:
        manifest = Manifest.read(folder)
        if manifest is None or manifest.ninja != ninja or manifest.inputs != inputs:
            return False
        fresh = Hashes()
        if any(fresh.of(str(folder / n)) != digest for n, digest in manifest.results.items()):
            return False
        return f"{name}.so" in manifest.results and "no work to do" in self._ninja(
            folder, ["-n"], 1, -1
        )

    def _ninja(
        self, folder: Path, arguments: list[str], jobs: int, handle: int,
        changed: Mapping[str, str] | None = None,
    ) -> str:  # fmt: skip
        """Run the ninja that the start would run; return what it says."""
        variables = self._variables()
        program = shutil.which("ninja", path=variables["PATH"])
        if program is None:
            raise AnswerNo(
                "there is no ninja", where=str(self.site.root),
                next_step="install ninja into the environment",
            )  # fmt: skip
        variables |= changed or {}
        done = subprocess.run(
            [program, "-C", str(folder), "-f", str(folder / "build.ninja"), "-j", str(jobs),
             *arguments],
            capture_output=True, text=True, errors="replace", env=variables, check=False,
            stdin=subprocess.DEVNULL, pass_fds=(handle,) if handle >= 0 else (),
        )  # fmt: skip
        if done.returncode:
            log = folder / "prebuild.log"
            log.write_text(done.stdout + done.stderr, "utf-8")
            telling = [line for line in done.stdout.splitlines() if "error" in line.lower()]
            raise AnswerNo(
                (telling or done.stdout.splitlines() or ["ninja failed"])[0].strip()[:300],
                where=str(folder), next_step=f"all of the output is in {log}",
            )  # fmt: skip
        return done.stdout


def _other_targets(spec: Mapping[str, Any], arch: str) -> str:
    """Return what a module is built for where that is nothing of what is asked, else nothing."""
    targets = dict.fromkeys(_GENCODE.findall(Path(spec["ninja"]).read_text("utf-8")))
    if not targets or any(target(a) in targets for a in arch.split()):
        return ""
    return ", ".join(f"sm_{name}" for name in targets)


@contextmanager
def _alone(folder: Path) -> Iterator[int]:
    """Hold the lock that flashinfer takes to build a module (JitSpec.lock_path)."""
    import fcntl

    place = folder.parent / "tmp" / f"{folder.name}.lock"
    place.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def workers(free: int | None, cpus: int) -> int:
    """Return how many compilers fit into ``free`` bytes of memory on ``cpus`` cores."""
    return max(1, min(cpus, cpus if free is None else free // _MEMORY))


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
