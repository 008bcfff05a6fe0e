"""Device code without a device: preprocessed text, kernels and PTX of a module's source.

Everything is made with the flags that the module's own generator emits, for one
architecture. Equal preprocessed text and equal flags prove an unchanged kernel, in a
second; compiling takes a minute, so its results are kept by what they were made from.

In each function ``source`` names one of the module's sources (file name or repository
path) and ``arch`` one that the generator emits code for (``12.0a``); it may be left out
when there is only one. Raised everywhere: UpstreamRefused with the compiler's first
error; Blocked when the machine lacks a compiler, a library's header or memory;
SmokeError for a source or an architecture that the module does not have.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict, Unpack

from patchwright.smoke.compiler import Compiler, find_compiler, run
from patchwright.smoke.elf import Cubin, Kernel, read_cubin
from patchwright.smoke.jit import JitSpec
from patchwright.smoke.nvcc import Job, Kind
from patchwright.smoke.objects import ObjectCache, cache_folder
from patchwright.smoke.preprocessed import Line, Preprocessed, first_difference

__all__ = [
    "Cubin", "Kernel", "Line", "Options", "Preprocessed",
    "cubin", "cubin_and_ptx", "first_difference", "kernels", "kernels_of", "mnemonic_counts",
    "preprocess", "ptx",
]  # fmt: skip

Source = str | Path
_INSTRUCTION = re.compile(r"(?:@!?%\w+\s+)?([a-z]\w*(?:\.[\w:]+)*)(?=[\s;])")


class Options(TypedDict, total=False):
    """What may be said about a compile.

    ``text``: compiled in place of the source, with its flags, as with one explicit
    instantiation. ``compiler``: found when not given. ``cache_dir``: the tool's cache.
    ``memory``: what the compiler may need, in bytes (2 GiB). ``deadline``: in seconds
    (900).
    """

    text: str | None
    compiler: Compiler | None
    cache_dir: Path | None
    memory: int
    deadline: float


def preprocess(
    spec: JitSpec,
    source: Source,
    arch: str | None = None,
    *,
    text: str | None = None,
    compiler: Compiler | None = None,
    deadline: float = 300,
) -> Preprocessed:
    """Return the device text of ``source``, or of ``text`` in its place."""
    job = Job.prepare(spec, source, arch, text=text, compiler=compiler)
    with tempfile.TemporaryDirectory(prefix="patchwright-nvcc-") as folder:
        return job.preprocess(Path(folder), deadline)


def cubin(
    spec: JitSpec, source: Source, arch: str | None = None, **options: Unpack[Options]
) -> Cubin:
    """Compile ``source`` and return what the object holds."""
    known = options.get("compiler") or find_compiler()
    (data,) = _compiled(("cubin",), spec, source, arch, options | {"compiler": known})
    return read_cubin(data, lambda names: _demangled(names, known))


def cubin_and_ptx(
    spec: JitSpec, source: Source, arch: str | None = None, **options: Unpack[Options]
) -> tuple[Cubin, str]:
    """Return both of one compile."""
    known = options.get("compiler") or find_compiler()
    data, text = _compiled(("cubin", "ptx"), spec, source, arch, options | {"compiler": known})
    return (
        read_cubin(data, lambda names: _demangled(names, known)),
        text.decode("utf-8", "replace"),
    )


def kernels(
    spec: JitSpec, source: Source, arch: str | None = None, **options: Unpack[Options]
) -> dict[str, Kernel]:
    """Return the kernels of ``source`` as compiled, by mangled name; sizes in bytes."""
    return dict(cubin(spec, source, arch, **options).kernels)


def kernels_of(
    requests: Sequence[tuple[JitSpec, Source, str | None]], **options: Unpack[Options]
) -> list[dict[str, Kernel]]:
    """Return ``kernels`` of each (spec, source, arch), in order, two compiled at a time."""
    shared = Options(compiler=find_compiler(), memory=2 << 30) | options
    # Two that start together must each leave room for the other.
    shared["memory"] *= min(2, len(requests))
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda request: kernels(*request, **shared), requests))


def ptx(spec: JitSpec, source: Source, arch: str | None = None, **options: Unpack[Options]) -> str:
    """Return the PTX of ``source``."""
    (text,) = _compiled(("ptx",), spec, source, arch, options)
    return text.decode("utf-8", "replace")


def mnemonic_counts(ptx_text: str) -> Counter[str]:
    """Return how often each instruction stands in PTX: ``griddepcontrol.wait``, ``ret``."""
    counts: Counter[str] = Counter()
    for line in ptx_text.splitlines():
        for part in line.partition("//")[0].split(";")[:-1]:
            if match := _INSTRUCTION.match(part.lstrip(" \t{}") + ";"):
                counts[match[1]] += 1
    return counts


def _compiled(
    kinds: Sequence[Kind], spec: JitSpec, source: Source, arch: str | None, options: Options
) -> list[bytes]:
    job = Job.prepare(
        spec, source, arch, text=options.get("text"), compiler=options.get("compiler")
    )
    cache = ObjectCache((options.get("cache_dir") or cache_folder()) / "objects")
    return job.compile(kinds, cache, options.get("memory", 2 << 30), options.get("deadline", 900.0))


def _demangled(names: Sequence[str], compiler: Compiler) -> Mapping[str, str]:
    """Return readable names, by whichever demangler is there; none is no reason to stop."""
    for program in ("c++filt", compiler.home / "bin" / "cu++filt"):
        try:
            done = run([program], deadline=60, data="".join(f"{name}\n" for name in names))
        except OSError:
            continue
        if done.returncode == 0:
            return dict(zip(names, done.stdout.splitlines(), strict=False))
    return {}
