"""Each trap twice: the naive way falls into it and says passed, verify does not.

The naive way is plain python or pytest with what the user's machine has around it. The
traps of flashinfer's JIT use upstream's own code at the pin.
"""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from patchwright.errors import PatchwrightError
from patchwright.materialise import write_tree
from patchwright.project import Project
from projects import TinyProject, make_project

ROOT = Path(__file__).resolve().parents[2]
GATE = {"tiny/__init__.py": "", "tiny/gate.py": "OPEN = False\n"}
ASKS_GATE = "import tiny.gate\nassert tiny.gate.OPEN is True"


def _test(body: str, before: str = "") -> str:
    lines = textwrap.indent(body, "    ")
    return f'import pytest\n{before}\n@pytest.mark.tier("static")\ndef test_it(tree):\n{lines}\n'


def _site(project: TinyProject, upstream: str, folder: Path, after: int = -1) -> Path:
    """Write a tree as hand-edited site-packages would be: no isolation, no proof."""
    opened = Project.open(project.root)
    project.run("apply")
    write_tree(opened.store, project.trees[upstream][after], folder)
    return folder


def _naive(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def _verdict(project: TinyProject, python: str = sys.executable, **env: str) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-m", "patchwright", "verify", "1", "--context", "step", "--tier", "static",
         "--json"],
        cwd=project.root, env=os.environ | env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    [result] = json.loads(done.stdout)["results"]
    found: dict[str, Any] = result
    return found


@pytest.fixture
def closed(tmp_path: Path) -> TinyProject:
    """A patch that says it opens the gate and does not; its test asks upstream's module."""
    project = make_project(tmp_path, GATE)
    project.add_patch(
        1, {"tiny/gate.py": "OPEN = False  # SM12x\n"}, fields={"Smoke": "tests/smoke/test_1.py"}
    )
    project.add_smoke("test_1.py", _test(ASKS_GATE))
    return project


def test_a_foreign_copy_on_the_path(closed: TinyProject, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign" / "tiny"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").touch()
    (foreign / "gate.py").write_text("OPEN = True\n")
    site = _site(closed, "tiny", tmp_path / "site")
    path = f"{foreign.parent}:{site}"
    assert _naive(ASKS_GATE, PYTHONPATH=path).returncode == 0
    ours = os.environ["PYTHONPATH"]
    assert _verdict(closed, PYTHONPATH=f"{foreign.parent}:{ours}")["verdict"] == "failed"


def test_bytecode_of_the_same_size_and_second(closed: TinyProject, tmp_path: Path) -> None:
    site = _site(closed, "tiny", tmp_path / "site")
    _stale_bytecode(site / "tiny" / "gate.py")
    assert _naive(ASKS_GATE, PYTHONPATH=str(site)).returncode == 0
    # The same beside the file that verify runs on, and where PYTHONPYCACHEPREFIX points.
    closed.add_smoke("test_1.py", _test("assert tree.site"))
    assert _verdict(closed)["verdict"] == "vacuous"
    slot = Path(os.environ["PATCHWRIGHT_CACHE"]) / "slots" / "0"
    gates = list(slot.glob("*/tree/tiny/gate.py"))
    assert gates
    for gate in gates:
        _stale_bytecode(gate)
        _stale_bytecode(gate, tmp_path / "prefix")
    closed.add_smoke("test_1.py", _test(ASKS_GATE))
    result = _verdict(closed, PYTHONPYCACHEPREFIX=str(tmp_path / "prefix"))
    assert (result["verdict"], result["control"]) == ("failed", "failed")


def _stale_bytecode(source: Path, prefix: Path | None = None) -> None:
    """Leave bytecode that says OPEN is True beside a source that says False."""
    text, status = source.read_bytes(), source.stat()
    source.write_bytes(b"OPEN = True ".ljust(len(text) - 1) + b"\n")
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    cache = source.parent / "__pycache__"
    if prefix is not None:
        cache = Path(f"{prefix}{source.parent}")
    py_compile.compile(str(source), str(cache / f"gate.{sys.implementation.cache_tag}.pyc"))
    source.write_bytes(text)
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_settings_and_plugins_that_make_pytest_pass(closed: TinyProject, tmp_path: Path) -> None:
    site = _site(closed, "tiny", tmp_path / "site")
    path = {"PYTHONPATH": f"{site}:{tmp_path}:{os.environ['PYTHONPATH']}"}
    opens = "import pytest, tiny.gate\ntiny.gate.OPEN = True\n"
    fixture = "@pytest.fixture\ndef tree():\n    pass\n"
    (tmp_path / "opens.py").write_text(opens + fixture)
    conftest, settings = closed.root / "tests" / "conftest.py", closed.root / "pytest.ini"

    def naive(**env: str) -> int:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "tests/smoke"], cwd=closed.root,
            env=os.environ | path | env, capture_output=True, check=False,
        ).returncode  # fmt: skip

    assert naive() == 1
    assert naive(PYTEST_ADDOPTS="--collect-only") == 0
    assert naive(PYTEST_PLUGINS="opens") == 0
    settings.write_text("[pytest]\naddopts = --collect-only\n")
    assert naive() == 0
    settings.unlink()
    conftest.write_text(opens + fixture)
    assert naive() == 0
    settings.write_text("[pytest]\naddopts = --collect-only\n")
    all_of_them = path | {"PYTEST_ADDOPTS": "--collect-only", "PYTEST_PLUGINS": "opens"}
    assert _verdict(closed, **all_of_them)["verdict"] == "failed"


def test_git_variables_do_not_decide_what_is_verified(closed: TinyProject, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["git", "init", "--quiet", "--bare", str(other)], check=True)
    stray = {"GIT_DIR": str(other), "GIT_OBJECT_DIRECTORY": str(other / "objects")}
    asked = subprocess.run(
        ["git", "rev-parse", "--git-dir"], cwd=closed.git["tiny"], env=os.environ | stray,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert asked.stdout.strip() == str(other)  # plain git looks into the wrong repository
    result = _verdict(closed, **stray)
    assert result["trees"] == {"tiny": closed.tree()}
    assert not list(other.glob("objects/pack/*"))


# flashinfer's own code


JIT = """
import os, sys, types
import filelock, jinja2, packaging.version, tvm_ffi
from patchwright.smoke import torch_stub

FLAG = "-DPATCHED=1"

def spec_of(site):
    os.environ.update(FLASHINFER_CUDA_ARCH_LIST="12.0a", CUDA_HOME="/nonexistent")
    torch_stub.install(cuda="12.8", capability=(12, 0))
    for name in ("flashinfer", "flashinfer.jit"):
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = [os.path.join(site, *name.split("."))]
    from flashinfer.jit.comm import gen_vllm_comm_module
    spec = gen_vllm_comm_module()
    if not spec.is_aot:
        spec.build(verbose=False)
    return spec
"""
NAMES = (
    "version.py", "compilation_context.py", "jit/env.py", "jit/core.py", "jit/cpp_ext.py",
    "jit/utils.py", "jit/comm.py",
)  # fmt: skip
HAS_FLAG = "assert FLAG in spec_of({site}).ninja_path.read_text()"


@pytest.fixture(scope="module")
def flashinfer() -> Mapping[str, bytes]:
    """The files of the pin that write and build a JIT module."""
    project = Project.open(ROOT)
    try:
        pristine = project.pristine("flashinfer")
    except PatchwrightError as error:
        pytest.skip(f"needs the pins: {error}")
    found = {"flashinfer/__init__.py": b""}
    places = [(pristine.tree, f"flashinfer/{name}") for name in NAMES]
    for tree, path in [*places, (pristine.outside, "flashinfer/_build_meta.py")]:
        entry = project.store.entry(tree, path.encode())
        assert entry is not None, path
        found[path] = project.store.blob(entry.oid)
    return found


@pytest.fixture
def ninja(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ninja that builds nothing and is content: what it is told is the question."""
    path = tmp_path / "bin" / "ninja"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


def _flag_project(tmp_path: Path, files: Mapping[str, bytes], *, effective: bool) -> TinyProject:
    """A patch that gives one module a flag, or only says so."""
    project = make_project(tmp_path, files, upstream="flashinfer", version="0.6.3")
    call = b"def gen_vllm_comm_module() -> JitSpec:\n    return gen_jit_spec("
    comm = files["flashinfer/jit/comm.py"]
    assert comm.count(call) == 1
    flag = b'\n        extra_cuda_cflags=["-DPATCHED=1"],\n        name='
    new = call + flag if effective else call + b"  # now with a flag\n        name="
    changed = comm.replace(call + b"\n        ", new).replace(
        b'name="vllm_comm",\n        [', b'name="vllm_comm",\n        sources=['
    )
    project.add_patch(
        1, {"flashinfer/jit/comm.py": changed}, upstream="flashinfer",
        fields={"Smoke": "tests/smoke/test_1.py"},
    )  # fmt: skip
    project.add_smoke("test_1.py", _test(HAS_FLAG.format(site="str(tree.site)"), JIT))
    return project


@pytest.mark.usefixtures("ninja")
@pytest.mark.parametrize("effective", [True, False])
def test_a_stale_jit_workspace(
    flashinfer: Mapping[str, bytes], tmp_path: Path, effective: bool
) -> None:
    # What stands in the workspace says the opposite of what the patch does.
    other = _flag_project(tmp_path / "before", flashinfer, effective=not effective)
    stale = _site(other, "flashinfer", tmp_path / "stale")
    project = _flag_project(tmp_path / "now", flashinfer, effective=effective)
    site = _site(project, "flashinfer", tmp_path / "site")

    def naive(place: Path) -> bool:
        done = _naive(JIT + HAS_FLAG.format(site=repr(str(place))))
        assert done.returncode == 0 or "AssertionError" in done.stderr, done.stderr
        return done.returncode == 0

    assert naive(stale) is not effective
    assert (Path.home() / ".cache" / "flashinfer").is_dir()
    # The patch took its effect away, or has none, and the naive test cannot tell.
    assert naive(site) is not effective
    assert _verdict(project)["verdict"] == ("passed" if effective else "failed")


@pytest.mark.usefixtures("ninja")
def test_a_prebuilt_kernel_package(flashinfer: Mapping[str, bytes], tmp_path: Path) -> None:
    project = _flag_project(tmp_path, flashinfer, effective=False)
    compiled = "assert spec_of({site}).is_compiled"
    project.add_smoke("test_1.py", _test(compiled.format(site="str(tree.site)"), JIT))
    site = _site(project, "flashinfer", tmp_path / "site")
    python = _environment_with_prebuilt(tmp_path / "venv")
    naive = subprocess.run(
        [python, "-c", JIT + compiled.format(site=repr(str(site)))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    # Nothing was compiled of the patched tree, and it says passed.
    assert naive.returncode == 0, naive.stderr
    result = _verdict(project, python)
    assert result["verdict"] == "error"
    assert "imported flashinfer_jit_cache" in result["reason"]
    assert "prebuilt kernels would win over the patched sources" in result["reason"]


def _environment_with_prebuilt(folder: Path) -> str:
    """Make an environment like this one that also has flashinfer-jit-cache."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "ours.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    package = site / "flashinfer_jit_cache"
    kernel = package / "aot" / "vllm_comm" / "vllm_comm.so"
    kernel.parent.mkdir(parents=True)
    kernel.write_bytes(b"prebuilt")
    (package / "__init__.py").write_text(
        "import os\n__version__ = '0.6.3+cu129'\n"
        "def get_jit_cache_dir():\n    return os.path.join(os.path.dirname(__file__), 'aot')\n"
    )
    return str(folder / "bin" / "python")
