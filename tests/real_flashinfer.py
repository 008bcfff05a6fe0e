"""An environment with the real flashinfer and a project that patches it, for slow tests.

torch is a stub there, named as such: the generators read a few of its names, and the
CUDA build of torch is 4 GB. Nothing is run on a device.
"""

from __future__ import annotations

import difflib
import os
import sys
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from patchwright.environment.toolkit import Toolkit
from patchwright.smoke import torch_stub
from patchwright.store import object_id
from projects import Ran, TinyProject
from venvs import Env, make_venv

ROOT = Path(__file__).resolve().parent.parent
COMM = "flashinfer/jit/comm.py"
GENERATOR = '            jit_env.FLASHINFER_CSRC_DIR / "vllm_custom_all_reduce.cu",\n        ],\n'
FLAG = f'{GENERATOR}        extra_cuda_cflags=["-DPATCHED=1"],\n'
PACKAGES = ("apache-tvm-ffi<0.2,>=0.1.6,!=0.1.8,!=0.1.8.post0", "filelock", "jinja2", "packaging",
            "requests", "nvidia-ml-py", "ninja")  # fmt: skip
TORCH = """\
# STUB: stands for torch where flashinfer's generators ask for its names.
import importlib.util, sys
if getattr(getattr(sys.modules.get("tvm_ffi"), "__spec__", None), "_initializing", False):
    raise ImportError("tvm_ffi probes torch for more than its names")
spec = importlib.util.spec_from_file_location("torch_stub", {place!r})
stub = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stub)
stub.install(cuda="13.0", capability=None)
"""
START = """\
import importlib, importlib.machinery, sys, types
import tvm_ffi, torch
package = types.ModuleType("flashinfer")
package.__path__ = list(
    importlib.machinery.PathFinder.find_spec("flashinfer").submodule_search_locations)
sys.modules["flashinfer"] = package
from flashinfer.jit import comm
spec = comm.gen_vllm_comm_module()
spec.build(verbose=False)
print(spec.build_dir)
"""


@dataclass(frozen=True)
class Scene:
    """A project and an environment; ``start`` is what a server's start does with a module."""

    project: TinyProject
    env: Env
    workspace: Path
    variables: dict[str, str]

    def run(self, *args: str) -> Ran:
        return self.project.run(*args)

    def start(self) -> Path:
        """Build vllm_comm as flashinfer does; return the module's folder."""
        return Path(self.env.python("-c", START, **self.variables).splitlines()[-1])

    def edit(self, path: str, old: str, new: str) -> str:
        """Edit an installed file by hand, as people do; return the text before."""
        place = self.env.site / path
        text = place.read_text()
        assert old in text
        place.unlink()
        place.write_text(text.replace(old, new))
        return text

    def add_patch(self, number: int, path: str, old: str, new: str) -> None:
        """Write a patch of one file; ``path`` is the same in repository and installation."""
        before = (self.env.site / path).read_text()
        assert old in before
        after = before.replace(old, new)
        ids = [object_id("blob", text.encode()) for text in (before, after)]
        lines = difflib.unified_diff(
            before.splitlines(True), after.splitlines(True), f"a/{path}", f"b/{path}"
        )
        text = textwrap.dedent(f"""\
            From: A Tester <tester@example.org>
            Date: Wed, 1 Jan 2020 00:00:00 +0000
            Subject: [PATCH] change {number}

            Why, in prose.
            ---
            Upstream: flashinfer 0.6.3

            diff --git a/{path} b/{path}
            index {ids[0]}..{ids[1]} 100644
            """)
        folder = self.project.root / "patches"
        folder.mkdir(exist_ok=True)
        (folder / f"{number:04d}-flashinfer-change.patch").write_text(text + "".join(lines))


def make_scene(folder: Path, monkeypatch: Any, kit: Toolkit) -> Scene:
    """Return the scene in ``folder``; what it needs comes from the index in use, or its cache."""
    env = make_venv(folder)
    env.install_online("--no-deps", "flashinfer-python==0.6.3")
    env.install_online(*PACKAGES)
    place = str(Path(torch_stub.__file__))
    (env.site / "torch.py").write_text(TORCH.format(place=place), encoding="ascii")
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["patchwright"]
    config = {"arch": ["sm_120"], "upstreams": {"flashinfer": config["upstreams"]["flashinfer"]}}
    project = TinyProject(folder / "project")
    (project.root / "patches").mkdir(parents=True)
    (project.root / "pyproject.toml").write_text(tomli_w.dumps({"tool": {"patchwright": config}}))
    workspace = folder / "workspace"
    variables = {
        "FLASHINFER_WORKSPACE_BASE": str(workspace), "FLASHINFER_CUDA_ARCH_LIST": "12.0a",
        "CUDA_HOME": str(kit.home),
        "PATH": os.pathsep.join((str(env.root / "bin"), os.environ["PATH"])),
    }  # fmt: skip
    for name in ("FLASHINFER_WORKSPACE_BASE", "FLASHINFER_CUDA_ARCH_LIST", "CUDA_HOME"):
        monkeypatch.setenv(name, variables[name])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.syspath_prepend(str(Path(sys.modules["projects"].__file__ or "").parent))
    # A start that links needs a libcuda, which a machine without a driver lacks.
    return Scene(project, env, workspace, variables | dict(kit.variables))
