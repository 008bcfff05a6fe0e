"""The other side of children.py: runs the code of a test and answers with a file.

Runs in the interpreter that the user named, which need not have anything of ours: it
imports nothing but the standard library, and torch where a subclass of the job does.
"""

from __future__ import annotations
import __future__ as future

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_TEXT = 2000  # characters of an error that are handed on

# What CUDA and torch say, by what it means. Texts: cudaGetErrorString, torch 2.9.
_OUT_OF_MEMORY = ("out of memory", "cublas_status_alloc_failed")
_OLD_DRIVER = (
    "driver version is insufficient",
    "driver on your system is too old",
    "unsupported display driver",
    "compiled with an unsupported toolchain",
    "forward compatibility was attempted",
)
_DEVICE = (
    "no cuda-capable device is detected",
    "device(s) is/are busy or unavailable",
    "invalid device ordinal",
    "uncorrectable ecc error",
    "uncorrectable nvlink error",
    "gpu is lost",
    "has fallen off the bus",
    "system not yet initialized",
    "operation not supported on this os",
    "cuda error: unknown error",
)
_KERNEL = (
    "an illegal memory access",
    "an illegal instruction",
    "misaligned address",
    "unspecified launch failure",
    "device-side assert",
    "invalid device function",
    "no kernel image is available",
    "invalid program counter",
    "the launch timed out",
)


class Refused(Exception):
    """Upstream's own code refused; the text is its own."""


class Broken(Exception):
    """The test or the machine is at fault: nothing is shown about the patch."""


class Missing(Exception):
    """A need that shows only here: a driver that is too old."""


def run(job: Mapping[str, Any], call: Callable[[Callable[..., Any]], Any]) -> None:
    """Make ``call`` with the job's function, write the answer and end the process."""
    keep_bytecode(job["site"])
    answer = _answer(job, call)
    file = Path(job["answer"])
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(answer), encoding="utf-8")
    temporary.replace(file)
    sys.stdout.flush()
    sys.stderr.flush()
    # Libraries that wait for a dead peer when they are taken down must not keep us.
    os._exit(0)


def keep_bytecode(site: str) -> None:
    """Let Python keep the bytecode of the environment's libraries, and none of ``site``.

    An environment that `rebuild` made has none, and a run may not write any: each process
    compiled all of torch and transformers anew, 14 s of processor time beside 5.
    """
    loaders: Any = importlib._bootstrap_external
    outside = loaders.cache_from_source
    real = os.path.realpath(site)

    def cache_from_source(path: str, *args: Any, **options: Any) -> str:
        if f"{path}/".startswith((f"{site}/", f"{real}/")) or not os.path.isabs(path):  # noqa: PTH117
            raise NotImplementedError  # what importlib takes for "there is none"
        return str(outside(path, *args, **options))

    loaders.cache_from_source = cache_from_source
    sys.dont_write_bytecode = False


def _answer(job: Mapping[str, Any], call: Callable[[Callable[..., Any]], Any]) -> dict[str, Any]:
    value: Any = None
    try:
        value = call(_function(job))
        json.dumps(value)
        outcome, text = "returned", ""
    except BaseException as error:
        traceback.print_exc()
        value = None
        outcome, text = classify(error, job["site"])
    packages = set(job["packages"])
    imported = {
        name: module.__file__
        for name, module in sorted(sys.modules.items())
        if name.partition(".")[0] in packages and getattr(module, "__file__", None)
    }
    return {
        "outcome": outcome, "text": text[:_TEXT], "value": value, "imported": imported,
        "stubs": sorted(STUBS), "ended": time.monotonic(),
    }  # fmt: skip


STUBS: set[str] = set()  # what stood in for something real, for the answer


def _function(job: Mapping[str, Any]) -> Callable[..., Any]:
    # Annotations of the test's file need not mean anything here.
    flags = future.annotations.compiler_flag
    namespace: dict[str, Any] = {"__name__": "patchwright_code"}
    for source, line in job["sources"]:
        text = "\n" * (line - 1) + source
        exec(compile(text, job["file"], "exec", flags, dont_inherit=True), namespace)  # noqa: S102
    function: Callable[..., Any] = namespace[job["entry"]]
    return function


def classify(error: BaseException, site: str) -> tuple[str, str]:
    """Return (outcome, text) of an exception; ``site`` is the folder of upstream's code.

    Only the code's own assertions are ``failed``. Upstream's refusal, and a kernel that
    died, are ``refused``. A device's trouble is ``broken``, a driver that is too old is
    ``blocked``: neither is counted for or against a patch.
    """
    text = str(error).strip() or type(error).__name__
    first, low = text.splitlines()[0], text.lower()
    if isinstance(error, (Missing, Broken)):
        found = ("blocked" if isinstance(error, Missing) else "broken"), text
    elif type(error).__name__ == "OutOfMemoryError" or _says(low, _OUT_OF_MEMORY):
        found = "broken", f"the device ran out of memory: {first}"
    elif _says(low, _OLD_DRIVER):
        found = "blocked", f"needs a newer driver: {first}"
    elif _says(low, _DEVICE):
        found = "broken", f"the device failed: {first}"
    elif isinstance(error, Refused):
        found = "refused", text
    elif _says(low, _KERNEL):
        found = "refused", f"a kernel died: {first}"
    elif not isinstance(error, AssertionError):
        found = "broken", f"{type(error).__name__}: {text}{_place(error)}"
    elif _last_frame(error).filename.startswith(site + os.sep):
        found = "broken", f"upstream's own assertion: {text}{_place(error)}"
    else:
        found = "failed", text if str(error) else _bare(error)
    return found


def _says(text: str, signs: tuple[str, ...]) -> bool:
    return any(sign in text for sign in signs)


def _last_frame(error: BaseException) -> traceback.FrameSummary:
    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1] if frames else traceback.FrameSummary("?", 0, "?")


def _place(error: BaseException) -> str:
    frame = _last_frame(error)
    return f" ({Path(frame.filename).name}:{frame.lineno} in {frame.name})"


def _bare(error: BaseException) -> str:
    frame = _last_frame(error)
    return f"{frame.line or 'an assertion'} does not hold (line {frame.lineno} of {frame.name})"
