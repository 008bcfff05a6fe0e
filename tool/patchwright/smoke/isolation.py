"""What a run sees of the machine: a clean environment and folders of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# Tiers whose runs call a compiler or load what it made.
_COMPILING = ("compile", "gpu", "multi-gpu", "startup")
_COMPILER_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH")
_DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES")

# Where a program keeps what it wants to find again: each run finds nothing.
_FOLDERS = {
    "HOME": "home",
    "TMPDIR": "tmp",
    "XDG_CACHE_HOME": "home/.cache",
    "XDG_CONFIG_HOME": "home/.config",
    "XDG_DATA_HOME": "home/.local/share",
    "XDG_STATE_HOME": "home/.local/state",
    "XDG_RUNTIME_DIR": "runtime",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "TVM_FFI_CACHE_DIR": "tvm-ffi",
    "CUDA_CACHE_PATH": "cuda",
    "PYTHONPYCACHEPREFIX": "bytecode",
}
WORK = "work"  # the folder that a run starts in
PROOF = "proof"  # the folder of sitecustomize
BYTECODE = _FOLDERS["PYTHONPYCACHEPREFIX"]


def run_environment(
    tier: str, folder: Path, cache_dir: Path, site: Path | None, outer: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole environment of a run in ``folder``.

    Only PATH, and where the tier needs them the compiler's and the device's variables,
    come from ``outer``. ``site`` is None while collecting. The compile cache stays
    shared: its keys are contents.
    """
    paths = [str(folder / PROOF), *([str(site)] if site is not None else [])]
    kept = ["PATH"]
    if tier in _COMPILING:
        kept += _COMPILER_VARIABLES
    if tier == "import":
        kept.append("LD_LIBRARY_PATH")  # where there is no driver, a stub of libcuda
    if tier in ("gpu", "multi-gpu", "startup"):
        kept += _DEVICE_VARIABLES
    environment = {name: outer[name] for name in kept if name in outer}
    environment |= {name: str(folder / place) for name, place in _FOLDERS.items()}
    environment |= {
        "PATCHWRIGHT_CACHE": str(cache_dir),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        # For the Python processes that a test starts: the hook of proof.py first, then
        # the tree under test before any installed copy.
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        # An environment that `rebuild` made has flashinfer-cubin with the local version of
        # its own state; the tree under test is another one. What the check is to keep out,
        # a prebuilt flashinfer_jit_cache, is an error of the run that imports it (proof.py).
        "FLASHINFER_DISABLE_VERSION_CHECK": "1",
    }
    return environment


def make_folders(folder: Path) -> None:
    """Make the folders that ``run_environment`` names."""
    for place in (*_FOLDERS.values(), WORK):
        (folder / place).mkdir(parents=True, exist_ok=True)
