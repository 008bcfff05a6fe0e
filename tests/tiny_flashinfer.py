"""A few files shaped like flashinfer's JIT, written for the tests, and Trees made of files.

from tiny_flashinfer import make_trees, tiny_flashinfer

trees = make_trees(tmp_path / "site", tiny_flashinfer(majors=[9, 10]))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from patchwright.config import Layout, LayoutRule
from patchwright.smoke.trees import Source, Trees
from patchwright.store import FILE, object_id
from patchwright.upstreams.layout import to_installed

LAYOUT = Layout(
    (
        LayoutRule(b"flashinfer/", b"flashinfer/"),
        LayoutRule(b"csrc/", b"flashinfer/data/csrc/"),
        LayoutRule(b"include/", b"flashinfer/data/include/"),
    )
)

GENERATOR = "flashinfer/jit/comm.py::gen_comm_module"

_CORE = """
import os
from pathlib import Path

import torch
import tvm_ffi

DATA = Path(__file__).resolve().parents[1] / "data"
WORKSPACE = Path(os.environ["FLASHINFER_WORKSPACE_BASE"]) / ".cache" / "flashinfer"


def archs(majors):
    wanted = [a.split(".") for a in os.environ["FLASHINFER_CUDA_ARCH_LIST"].split(" ")]
    found = ["".join(a) for a in wanted if int(a[0]) in majors]
    if not found:
        raise RuntimeError(f"No supported CUDA architectures found for major versions {majors}.")
    return [f"-gencode=arch=compute_{a},code=sm_{a}" for a in found]


class Spec:
    def __init__(self, name, sources, flags):
        self.name = name
        self.sources = [Path(s) for s in sources]
        self.flags = flags
        self.ninja_path = WORKSPACE / name / "build.ninja"

    def write_ninja(self):
        self.ninja_path.parent.mkdir(parents=True)
        lines = [
            "ninja_required_version = 1.3",
            "cuda_home = " + os.environ["CUDA_HOME"],
            "nvcc = $cuda_home/bin/nvcc",
            "common = -isystem $cuda_home/include $\\n    -isystem " + str(DATA / "include"),
            "cflags = $common -O2",
            "cuda_cflags = $common $\\n    -std=c++17 $\\n    " + " ".join(self.flags),
            "ldflags = -shared -L$cuda_home/lib64",
            "",
            "rule cuda_compile",
            "  command = $nvcc $cuda_cflags -c $in -o $out",
            "rule link",
            "  command = c++ $in $ldflags -o $out",
            "",
        ]
        objects = [str(self.ninja_path.with_name(s.stem + ".o")) for s in self.sources]
        for source, out in zip(self.sources, objects):
            lines.append(f"build {out}: cuda_compile {source}")
        lines += [f"build {self.name}.so: link " + " ".join(objects), f"default {self.name}.so", ""]
        self.ninja_path.write_text("\\n".join(lines))
"""

_COMM = """
import torch

from .core import DATA, WORKSPACE, Spec, archs


def gen_comm_module():
    return Spec("comm", [DATA / "csrc" / "comm.cu"], [*archs(MAJORS), "-DNDEBUG"])


def gen_typed_module(dtype: torch.dtype, out: "torch.Tensor | None" = None):
    name = {torch.float16: "half", torch.bfloat16: "bf16"}[dtype]
    flags = ["-DHALF"] if torch.cuda.get_device_capability() >= (9, 0) else []
    source = WORKSPACE / "generated" / f"{name}.cu"
    source.parent.mkdir(parents=True)
    source.write_text("__global__ void made() {}")
    return Spec("typed_" + name, [source], [*archs([9, 10, 12]), *flags])


def gen_cuda_module():
    return Spec("cuda" + torch.version.cuda, [DATA / "csrc" / "comm.cu"], archs([9, 10, 12]))
"""

_SOURCE = """\
#include "tiny.cuh"

namespace {
__global__ void hidden(int* out) { *out = 1; }
}

void launch(int* out) {
  filled<<<1, 32>>>(out);
  hidden<<<1, 32>>>(out);
}
"""

_HEADER = """\
#pragma once

__global__ void filled(int* out) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
  __shared__ int row[64];
  for (int i = 0; i < 64; ++i) row[i] = out[i] * i + out[threadIdx.x];
  __syncthreads();
  for (int i = 0; i < 64; ++i) out[i] += row[(i * 7) % 64];
#endif
}
"""


def tiny_flashinfer(majors: Sequence[int] = (9, 10), **files: str) -> dict[str, str]:
    """Return the repository files; ``files`` add functions to the generators' module."""
    return {
        # Upstream's own __init__ imports every operator: no test may get there.
        "flashinfer/__init__.py": "raise RuntimeError('the package itself was imported')\n",
        "flashinfer/jit/__init__.py": "",
        "flashinfer/jit/core.py": _CORE,
        "flashinfer/jit/comm.py": f"MAJORS = {list(majors)}\n{_COMM}" + files.pop("more", ""),
        "csrc/comm.cu": _SOURCE,
        "include/tiny.cuh": _HEADER,
    } | files


def make_trees(site: Path, files: Mapping[str, str]) -> Trees:
    """Write ``files`` (repository path to text) below ``site`` and return them as Trees."""
    listing = {}
    for path, text in files.items():
        installed = to_installed(LAYOUT, path.encode())
        assert installed is not None, path
        place = site / installed.decode()
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        listing[installed] = (FILE, object_id("blob", text.encode()))
    source = Source("flashinfer", ("flashinfer",), LAYOUT)
    return Trees(site, (("flashinfer", "0" * 40),), [source], listing)
