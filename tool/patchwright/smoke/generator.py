"""The forked child that runs one JIT generator of the tree under test.

The parent has imported the libraries that the generators need; the child puts the torch
stub in torch's place, imports upstream's modules from the tree, calls the generator and
writes its answer down a pipe. It never returns into its caller.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn, Protocol

from patchwright.smoke import torch_stub
from patchwright.smoke.outcomes import SmokeError
from patchwright.store import object_id

# Variables by which a user's shell would change what a generator answers.
_PREFIXES = ("FLASHINFER_", "SGLANG_", "TORCH_", "TVM_", "NVSHMEM_", "NVCC_", "CUDA_")
_NAMES = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "MAX_JOBS", "PYTHONPATH")

# Prebuilt companions of flashinfer. An installed one would answer for another version.
_COMPANIONS = ("flashinfer_cubin", "flashinfer_jit_cache")

# Libraries that only reach for what is not here: the network and the driver.
_REFUSED: dict[str, dict[str, object]] = {
    "requests": {"Session": torch_stub.StubSession}, "pynvml": {},
}  # fmt: skip

# Imported for real, before the stub: tvm_ffi probes torch while it is imported.
_LIBRARIES = ("tvm_ffi", "jinja2", "filelock", "packaging.version")
# What they and upstream use of the standard library: a child has no bytecode of its own.
_STANDARD = (
    "concurrent.futures.thread", "encodings.unicode_escape", "heapq", "queue", "shlex", "uuid",
)  # fmt: skip
_CODES = 500  # compiled files that are kept at most; one is some tens of kilobytes


@dataclass(frozen=True)
class Call:
    """One call of one generator: where it is, with what, and in which simulated setting."""

    site: Path
    packages: tuple[str, ...]
    module: str
    function: str
    args: Sequence[object]
    kwargs: Mapping[str, object]
    arch: tuple[str, ...]
    cuda: str
    workspace: Path


# Code by file and blob id, taken for a module whose source is exactly that.
Codes = Mapping[tuple[str, str], CodeType]


class Generators(Protocol):
    """Who asks generators; ``keeps_workspaces`` where somebody else removes them."""

    @property
    def keeps_workspaces(self) -> bool: ...

    def ask(self, call: Call, deadline: float) -> dict[str, object]:
        """Return what ``run`` does, and raise what it raises."""


class Forked:
    """Asks in children of this process; what they import is compiled once."""

    keeps_workspaces = False

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], CodeType] = {}
        self._ran: set[str] = set()

    def ask(self, call: Call, deadline: float, **how: Any) -> dict[str, object]:
        """Return what ``run`` does with the same arguments, and raise what it raises."""
        for file in self._ran:
            self._compile(file)
        self._ran.clear()
        answer = run(call, deadline, codes=self._codes, **how)
        imported = answer["imported"]
        assert isinstance(imported, dict)
        self._ran.update(imported.values())
        return answer

    def _compile(self, file: str) -> None:
        if len(self._codes) > _CODES:
            self._codes.clear()
        with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
            data = Path(file).read_bytes()
            key = file, object_id("blob", data)
            if key not in self._codes:
                self._codes[key] = compile(data, file, "exec", dont_inherit=True)


class Abandoned(Exception):
    """Nobody waits for the answer any more."""


class _Broken(Exception):
    """The test asks for something that a generator is not."""


def preload() -> None:
    """Import the generators' libraries once, so that every forked child has them.

    Raises SmokeError naming the one that is missing.
    """
    for name in (*_LIBRARIES, *_STANDARD):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise SmokeError(f"the JIT generators need the module {name}: {error}") from error
    sysconfig.get_config_vars()  # compiles a module and remembers what it says


def run(
    call: Call, deadline: float, *, codes: Codes | None = None,
    first: Callable[[], None] | None = None, reply: int | None = None,
) -> dict[str, object]:  # fmt: skip
    """Run ``call`` in a child and return what it found.

    ``first`` is what the child does before all else; ``reply`` is a pipe that the answer
    is for: raises Abandoned once nobody can read it.

    The answer has ``imported`` (the upstreams' modules that ran, with their files) and
    either ``refused`` (upstream's own error) or ``name``, ``sources`` and ``ninja``.
    Raises SmokeError when the harness could not ask, or when there is no answer within
    ``deadline`` seconds.
    """
    preload()
    reader, writer = os.pipe()
    log = call.workspace / "generator.log"
    with log.open("wb") as output:
        pid = os.fork()
        if pid == 0:
            _child(call, writer, output.fileno(), codes or {}, first)
    os.close(writer)
    try:
        answer = _read(reader, deadline, reply)
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    where = f"{call.module}.{call.function}"
    if answer is None:
        raise SmokeError(f"{where} gave no answer within {deadline:g} s")
    try:
        result: dict[str, object] = json.loads(answer)
    except ValueError:
        tail = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
        raise SmokeError(f"{where} ended without an answer: {' '.join(tail)}") from None
    if "broken" in result:
        raise SmokeError(str(result["broken"]))
    return result


def _read(reader: int, deadline: float, reply: int | None) -> bytes | None:
    """Return all that the child writes, None when it does not end in time."""
    end = time.monotonic() + deadline
    chunks: list[bytes] = []
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    if reply is not None:
        poll.register(reply, 0)
    while True:
        left = end - time.monotonic()
        ready = dict(poll.poll(max(left, 0) * 1000))
        if reply in ready:
            raise Abandoned
        if reader not in ready:
            return None
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)


def _child(
    call: Call, writer: int, output: int, codes: Codes, first: Callable[[], None] | None
) -> NoReturn:
    try:
        # Short-lived: a collection would only copy the pages that we share with the parent.
        gc.disable()
        os.setpgid(0, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if first is not None:
            first()
        answer = json.dumps(_answer(call, codes)).encode()
        while answer:
            answer = answer[os.write(writer, answer) :]
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _answer(call: Call, codes: Codes) -> dict[str, object]:
    _prepare(call)
    _take_codes(codes)
    before = set(sys.modules)
    where = f"{call.module}.{call.function}"
    try:
        answer = _called(call)
    except (_Broken, torch_stub.StubGap) as error:
        return {"broken": f"{where}: {error}"}
    except OSError as error:
        # A file or a program that is missing here is not upstream's decision.
        return {"broken": f"{where}: {_sentence(error)}"}
    except Exception as error:
        if (missing := _missing_library(error)) and _package(missing) not in call.packages:
            return {"broken": f"{where} imports {missing}, which is not installed"}
        answer = {"refused": _sentence(error)}
    return answer | {"imported": _imported(call, before)}


def _called(call: Call) -> dict[str, object]:
    function = getattr(importlib.import_module(call.module), call.function, None)
    if not callable(function):
        raise _Broken("there is no such function")
    spec = function(
        *[_value(a) for a in call.args], **{k: _value(v) for k, v in call.kwargs.items()}
    )
    if not hasattr(spec, "write_ninja"):
        raise _Broken(f"returns a {type(spec).__name__}, not a JIT spec")
    spec.write_ninja()
    return {
        "name": spec.name,
        "sources": [str(source) for source in spec.sources],
        "ninja": Path(spec.ninja_path).read_text("utf-8"),
    }


def _prepare(call: Call) -> None:
    """Make this process the one in which only the tree, the libraries and the stub exist."""
    for name in list(os.environ):
        if name.startswith(_PREFIXES) or name in _NAMES:
            del os.environ[name]
    # No compiler stands here, so upstream takes the CUDA version from torch, and the
    # answer is the same on a machine with a compiler and on one without.
    os.environ["CUDA_HOME"] = str(call.workspace / "no-cuda")
    os.environ["FLASHINFER_CUDA_ARCH_LIST"] = " ".join(call.arch)
    os.environ["FLASHINFER_WORKSPACE_BASE"] = str(call.workspace)
    os.environ["HOME"] = str(call.workspace)
    os.environ["NVSHMEM_INCLUDE_PATH"] = str(call.workspace / "no-nvshmem" / "include")
    os.environ["NVSHMEM_LIBRARY_PATH"] = str(call.workspace / "no-nvshmem" / "lib")
    # Some generators write to the current folder.
    os.chdir(call.workspace)
    # Bytecode beside the sources would change the tree, and stale bytecode the answer.
    sys.dont_write_bytecode = True
    sys.pycache_prefix = str(call.workspace / "no-bytecode")
    for name in list(sys.modules):
        if _package(name) in call.packages:
            del sys.modules[name]
    for companion in _COMPANIONS:
        sys.modules[companion] = None  # type: ignore[assignment]
    torch_stub.install(cuda=call.cuda, capability=_capability(call.arch))
    for name, values in _REFUSED.items():
        sys.modules[name] = torch_stub.StubModule(name, values)
    sys.addaudithook(torch_stub.refuse_network)
    # An empty package object with the tree's path: upstream's own __init__ imports
    # every operator, and with them all of torch.
    for package in call.packages:
        module = ModuleType(package)
        module.__path__ = [str(call.site / package)]
        sys.modules[package] = module


def _take_codes(codes: Codes) -> None:
    """Let imports find code that was compiled from the same bytes: it is most of their time."""
    own = SourceFileLoader.source_to_code

    def source_to_code(self: SourceFileLoader, data: Any, path: str, **how: Any) -> CodeType:
        code = codes.get((path, object_id("blob", data))) if type(data) is bytes else None
        return code if code is not None else own(self, data, path, **how)

    SourceFileLoader.source_to_code = source_to_code  # type: ignore[assignment, method-assign]


def _capability(arch: Sequence[str]) -> tuple[int, int] | None:
    if len(arch) != 1:
        return None
    major, _, minor = arch[0].partition(".")
    return int(major), int("".join(c for c in minor if c.isdigit()))


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _value(value: object) -> object:
    """Return an argument, a string such as ``torch.bfloat16`` as the stub's data type."""
    if isinstance(value, str) and value.startswith("torch."):
        return torch_stub.lookup(value)
    return value


def _missing_library(error: BaseException | None) -> str | None:
    """Return the module whose absence led to ``error``, where that is the reason."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError):
            return error.name
        error = error.__cause__ or error.__context__
    return None


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _imported(call: Call, before: set[str]) -> dict[str, str]:
    """Return the upstreams' modules that this call imported, and their files."""
    return {
        name: module.__file__
        for name, module in sorted(sys.modules.items())
        if name not in before and _package(name) in call.packages and module.__file__
    }
