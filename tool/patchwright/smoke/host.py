"""Programs for the host, made of upstream's own C++: what needs no device to be run.

A launcher's arithmetic or a reduction is compiled by the host's compiler, between stand-ins
for the runtime that the test writes, and asked. The binaries are cached by what they were
compiled from.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from patchwright.smoke.compiler import Completed, run
from patchwright.smoke.objects import ObjectCache, cache_folder
from patchwright.smoke.outcomes import Blocked, SmokeError

_COMPILER = "g++"
_STANDARD = ("-std=c++17", "-w")


@dataclass(frozen=True)
class HostProgram:
    """A compiled program; ``file`` lies in the run's temporary folder."""

    file: Path

    def run(self, *arguments: object, data: str | None = None, deadline: float = 60.0) -> Completed:
        """Run it on ``data`` as standard input and return its status and what it said.

        ``deadline`` is in seconds; SmokeError when it does not end by then.
        """
        return run([self.file, *map(str, arguments)], deadline=deadline, data=data)


def host_program(source: str, *flags: str, deadline: float = 120.0) -> HostProgram:
    """Compile a C++17 program. ``deadline`` is in seconds, for the compiler.

    Raises Blocked without a host compiler, SmokeError with the compiler's first error.
    """
    if shutil.which(_COMPILER) is None:
        raise Blocked(f"needs the host compiler {_COMPILER}")
    arguments = (*_STANDARD, *flags)
    version = run([_COMPILER, "--version"], deadline=60).stdout.partition("\n")[0]
    described = "\0".join(("host", version, platform.machine(), *arguments, source))
    key = hashlib.sha256(described.encode("utf-8", "surrogateescape")).hexdigest()
    folder = Path(tempfile.mkdtemp(prefix="patchwright-host-"))

    def compiled() -> bytes:
        (folder / "program.cpp").write_text(source, encoding="utf-8", errors="surrogateescape")
        done = run(
            [_COMPILER, *arguments, "program.cpp", "-o", "compiled"], deadline=deadline, cwd=folder
        )
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error:" in line]
            raise SmokeError(f"the program does not compile for the host: {(errors or ['?'])[0]}")
        return (folder / "compiled").read_bytes()

    file = folder / "program"
    file.write_bytes(ObjectCache(cache_folder() / "objects").get(key, compiled))
    file.chmod(0o700)
    return HostProgram(file)
