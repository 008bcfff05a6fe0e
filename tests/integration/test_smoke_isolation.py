"""What a run may not see, may not import, and may not leave behind."""

from __future__ import annotations

import os
import py_compile
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from smoke_bench import LOOKS, Bench, Shared

pytest_plugins = ("smoke_fixtures",)

FOREIGN = {
    "sys.path": "sys.path.insert(0, other)\nimport tiny.gate",
    "without the tree's site": (
        "sys.path.remove(str(tree.site))\nsys.path.append(other)\nimport tiny"
    ),
    "hidden afterwards": (
        "try:\n    sys.path.insert(0, other)\n    import tiny.gate\n    raise ValueError\n"
        "except ValueError:\n    pass\n"
        "for name in [n for n in sys.modules if n.startswith('tiny')]:\n    del sys.modules[name]\n"
        "sys.path.remove(other)\nimport tiny.gate\nassert str(tree.site) in tiny.gate.__file__"
    ),
    "a file by its path": (
        "spec = importlib.util.spec_from_file_location('gate', other + '/tiny/gate.py')\n"
        "spec.loader.exec_module(importlib.util.module_from_spec(spec))"
    ),
    "runpy": "import runpy\nrunpy.run_path(other + '/tiny/gate.py')",
    "exec of the text": "exec(open(other + '/tiny/gate.py').read())",
    "from bytecode": (
        "import py_compile\n"
        "sys.path.insert(0, other)\n"
        "py_compile.compile(other + '/tiny/gate.py', other + '/tiny/gate.pyc')\n"
        "os.unlink(other + '/tiny/gate.py')\nimport tiny.gate"
    ),
    "from a zip file": (
        "import shutil\nshutil.make_archive(str(tmp_path / 'z'), 'zip', other)\n"
        "sys.path.insert(0, str(tmp_path / 'z.zip'))\nimport tiny.gate"
    ),
    "in a fork": (
        "if os.fork() == 0:\n    sys.path.insert(0, other)\n    import tiny.gate\n    os._exit(0)\n"
        "os.wait()"
    ),
    "in a process": (
        "code = 'import sys; sys.path.insert(0, sys.argv[1]); import tiny.gate'\n"
        "subprocess.run([sys.executable, '-c', code, other], check=True)"
    ),
    "from a copy of its own": (
        "import shutil\nshutil.copytree(tree.site / 'tiny', tmp_path / 'tiny')\n"
        "sys.path.insert(0, str(tmp_path))\nimport tiny.gate"
    ),
}


@pytest.mark.parametrize("way", FOREIGN)
def test_another_copy_of_the_package_is_an_error(
    bench: Bench, shared: Shared, tmp_path: Path, way: str
) -> None:
    if "foreign" not in shared.results:
        bodies = {}
        for number, (name, body) in enumerate(FOREIGN.items()):
            other = tmp_path / f"{number}"
            (other / "tiny").mkdir(parents=True)
            (other / "tiny" / "__init__.py").write_text("")
            (other / "tiny" / "gate.py").write_text("OPEN = True\n")
            start = f"import importlib.util, os, subprocess, sys\nother = {str(other)!r}\n"
            bodies[name] = start + body
        shared.results["foreign"] = bench.run_all(bodies)
    result = shared.results["foreign"][way]
    assert result.outcome == "error", result
    assert "not from the tree under test" in result.reason
    assert "tiny" in result.reason


def test_nothing_of_the_users_environment_reaches_a_run(
    own_bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = own_bench
    other = tmp_path / "other" / "tiny"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise SystemExit(3)")
    monkeypatch.setenv("PYTHONPATH", str(other.parent))
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "12.0a")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    (bench.tiny.root / "tests" / "smoke").mkdir(parents=True)
    (bench.tiny.root / "tests" / "smoke" / "conftest.py").write_text("raise SystemExit(4)")
    (bench.tiny.root / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
    body = """
import os, pathlib, subprocess, sys, tempfile
import tiny.gate
assert tiny.gate.__file__ == str(tree.site / "tiny/gate.py")
code = "import tiny.gate; print(tiny.gate.__file__)"
out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
assert out.stdout.strip() == tiny.gate.__file__
names = [n for n in os.environ if n.startswith(("GIT_", "LD_")) or n == "FLASHINFER_CUDA_ARCH_LIST"]
assert names == []
home = pathlib.Path.home()
assert [path for path in home.rglob("*") if path.is_file()] == []
for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "FLASHINFER_WORKSPACE_BASE"):
    assert os.environ[name].startswith(os.path.dirname(os.getcwd()) + "/")
assert tempfile.gettempdir() == os.environ["TMPDIR"]
assert os.path.dirname(os.getcwd()) == os.path.dirname(os.environ["TMPDIR"])
(home / "left").write_text("x")
"""
    then = "import os\nassert not os.path.exists(os.environ['HOME'] + '/left')"
    results = bench.run_all({"it": body, "the next": then})
    assert [result.reason for result in results.values()] == ["", ""]


def test_the_compilers_variables_reach_the_tiers_that_compile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda")
    body = "pytestmark = pytest.mark.tier('{}')\ndef test_it():\n    import os\n    {}\n"
    compiling = body.format("compile", "assert os.environ['CUDA_HOME'] == '/opt/cuda'")
    assert bench.run(compiling, tier="compile").outcome == "passed"
    static = body.format("static", "assert 'CUDA_HOME' not in os.environ")
    assert bench.run(static).outcome == "passed"


def _running(mark: str) -> list[str]:
    """Return the processes whose command line has this mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if mark in line:
                found.append(f"{entry.name}: {line}")
    return found


STUBBORN = """
import signal, subprocess, sys, time
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", code, "{mark}"])
subprocess.Popen([sys.executable, "-c", code, "{mark}"], start_new_session=True)
shell = f"setsid {{sys.executable}} -c '{{code}}' {mark} & setsid sleep 600.{digits} &"
subprocess.run(["sh", "-c", shell])
{last}
"""


@pytest.mark.parametrize("last", ["time.sleep(600)", "pass", "import os; os._exit(7)"])
def test_a_run_leaves_no_process_behind(own_bench: Bench, last: str) -> None:
    bench = own_bench
    mark, digits = f"patchwright-test-{os.getpid()}", str(time.time_ns())
    bench.deadline(3)
    start = time.monotonic()
    result = bench.run(STUBBORN.format(mark=mark, digits=digits, last=last))
    assert time.monotonic() - start < 30
    assert _running(mark) == []
    assert _running(f"600.{digits}") == []
    if "sleep" in last:
        assert result.outcome == "error"
        assert result.reason == "ran longer than 3 s and was killed"
    else:
        assert result.outcome == ("passed" if last == "pass" else "error")


def test_ctrl_c_ends_everything(bench: Bench) -> None:
    mark = f"patchwright-test-{os.getpid()}-{time.time_ns()}"
    path = bench.smoke(
        textwrap.dedent(f"""
        import subprocess, sys, time
        @pytest.mark.tier("static")
        def test_it(tree):
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "{mark}"],
                             start_new_session=True)
            time.sleep(600)
        """)
    )
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from patchwright.applying.chain import Chain
        from patchwright.project import Project
        from patchwright.smoke.runs import Run, execute
        project = Project.open(Path(sys.argv[1]))
        base = Chain(project).base()
        execute(project, [Run(Path(sys.argv[2]), "static", base, base)])
    """)
    for number in (signal.SIGINT, signal.SIGKILL):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(bench.tiny.root), str(path)],
            env={**os.environ, "PATCHWRIGHT_CACHE": str(bench.project.cache_dir)},
            stderr=subprocess.DEVNULL,
        )
        _until(lambda: len(_running(mark)) == 1)
        process.send_signal(number)
        process.wait(30)
        _until(lambda: _running(mark) == [])
    # The seat is free again, and its folders are in order.
    assert bench.run(LOOKS).outcome == "passed"


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_what_a_stranger_left_in_the_folders_is_gone_before_a_run(own_bench: Bench) -> None:
    assert own_bench.run(LOOKS).outcome == "passed"
    (gate,) = own_bench.project.cache_dir.glob("slots/0/tree/**/gate.py")
    gate.write_text("OPEN = 'by a stranger'\n")
    cache = gate.parent / "__pycache__"
    py_compile.compile(str(gate), str(cache / f"gate.{sys.implementation.cache_tag}.pyc"))
    result = own_bench.run(LOOKS + "\nassert tiny.gate.OPEN is True")
    assert (result.outcome, result.reason) == ("passed", "")
