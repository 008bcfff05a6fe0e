"""Turns what a compiler printed into an answer: upstream's error, or a missing need."""

from __future__ import annotations

import re
from typing import NoReturn

from patchwright.smoke.outcomes import Blocked, UpstreamRefused

# Headers of libraries that stand beside the compiler, and the wheels that have them.
_LIBRARIES = {
    r"curand\w*\.h": "nvidia-curand",
    r"cublas\w*\.h": "nvidia-cublas",
    r"cusparse\w*\.h": "nvidia-cusparse",
    r"cusolver\w*\.h": "nvidia-cusolver",
    r"cufft\w*\.h": "nvidia-cufft",
    r"nvrtc\.h": "nvidia-cuda-nvrtc",
    r"cu(da)?_?profiler\w*\.h": "nvidia-cuda-profiler-api",
    r"nvtx3/.*|nvToolsExt\w*\.h": "nvidia-nvtx",
    r"cudnn\w*\.h": "nvidia-cudnn-cu13",
    r"nccl\w*\.h": "nvidia-nccl-cu13",
    r"nvshmem\w*\.h": "nvidia-nvshmem-cu13",
    r"Python\.h": "the headers of Python",
}
_ERROR = re.compile(r"^(.*\b(?:fatal )?error\b\s*(?:#[\w-]+)?\s*:.*)$", re.MULTILINE)
_HEADER = re.compile(r"fatal error: (\S+): No such file or directory")
_KILLED = re.compile(r"died due to signal 9|Killed signal|annot allocate memory|out of memory")
_UNKNOWN = re.compile(r"Unsupported gpu architecture '(\w+)'")
_FULL = re.compile(r"No space left on device")


def explain(stderr: str, site: str) -> NoReturn:
    """Raise what a failed compile means.

    ``site`` is the tree's folder, left out of the message. Raises Blocked for a library
    header, memory, disk space or a newer compiler that this machine lacks,
    UpstreamRefused with the first error otherwise.
    """
    if _FULL.search(stderr):
        raise Blocked("needs more disk space to compile; the temporary folder is full")
    if _KILLED.search(stderr):
        raise Blocked("needs more memory to compile; the compiler was killed")
    if unknown := _UNKNOWN.search(stderr):
        raise Blocked(f"needs a CUDA compiler that knows {unknown[1]}; the one found does not")
    if missing := _HEADER.search(stderr):
        for pattern, package in _LIBRARIES.items():
            if re.fullmatch(pattern, missing[1]):
                raise Blocked(f"needs the header {missing[1]} ({package}); found none")
    found = _ERROR.search(stderr)
    lines = stderr.strip().splitlines()
    sentence = found[1] if found else lines[0] if lines else "the compiler said nothing"
    raise UpstreamRefused(re.sub(r"\s+", " ", sentence.replace(f"{site}/", "")).strip())
