"""The whole series applied: its trees import, and sglang's server starts and answers.

On the CPU, with a two-layer model of random weights whose layers ask the fusion gate. What
only a GPU runs (kernels, graphs, several ranks) is not seen here; a name that a patch
misspells in the start or in the request path is.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from patchwright.project import Project
from sglang_cpu import MODEL, STAND_INS, environment, write_model

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 300
ANSWER_SECONDS = 60


@dataclass(frozen=True)
class Applied:
    """The series applied: ``site`` holds both upstreams, ``serving`` sglang alone.

    Next to a CPU build of torch flashinfer.comm cannot be imported, and sglang imports
    it where it is there.
    """

    site: Path
    serving: Path
    home: Path

    def environment(self, path: Path) -> dict[str, str]:
        """The whole environment of a process that runs what lies in ``path``."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join((str(STAND_INS), str(path))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SGLANG_USE_CPU_ENGINE": "1",
            "TORCH_COMPILE_DISABLE": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "2",
        }


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has what sglang imports on the CPU."""
    return environment(tmp_path_factory.getbasetemp() / "sglang-cpu") / "bin" / "python"


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Applied:
    """The whole series of this repository in a folder, as ``patchwright apply`` writes it."""
    folder = tmp_path_factory.mktemp("applied")
    site, serving, home = folder / "site", folder / "serving", folder / "home"
    command = [sys.executable, "-m", "patchwright", "-C", str(ROOT), "apply",
               "--into", str(site), "--installed-layout"]  # fmt: skip
    tool = os.pathsep.join((str(ROOT / "tool"), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": tool},
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for path in (serving, home):
        path.mkdir()
    for name in ("sglang", "sglang-0.5.9.dist-info"):
        (serving / name).symlink_to(site / name)
    return Applied(site, serving, home)


def modules(upstream: str) -> list[str]:
    """The modules of an upstream that the series changes."""
    series = Project.open(ROOT).series
    paths = {
        (change.new_path or b"").decode()
        for patch in series.patches
        if patch.upstream == upstream
        for change in patch.changes
    }
    return sorted(
        path.removeprefix("python/").removesuffix(".py").replace("/", ".")
        for path in paths
        if path.endswith(".py")
    )


@pytest.mark.parametrize("upstream", ["sglang", "flashinfer"])
def test_every_module_that_the_series_changes_imports(
    python: Path, applied: Applied, upstream: str
) -> None:
    path = applied.serving if upstream == "sglang" else applied.site
    names = modules(upstream)
    assert names
    script = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    print(importlib.import_module(name).__file__)\n"
    )
    done = subprocess.run(
        [str(python), "-c", script, *names],
        env=applied.environment(path),
        cwd=applied.home,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = [line for line in done.stdout.splitlines() if line.endswith(".py")]
    assert len(files) == len(names)
    assert all(Path(file).resolve().is_relative_to(applied.site) for file in files), files


@dataclass(frozen=True)
class Server:
    """A server that has said that it is ready."""

    address: str
    log: Path

    def ask(self, path: str, body: object = None, *, timeout: float = ANSWER_SECONDS) -> bytes:
        """Return the answer; raises OSError without one."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.address + path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            found: bytes = answer.read()
        return found


@pytest.fixture(scope="module")
def server(
    python: Path, applied: Applied, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """sglang's own server in a process group of its own, killed whole at the end."""
    folder = tmp_path_factory.mktemp("server")
    write_model(folder / "model")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = Server(f"http://127.0.0.1:{port}", folder / "log")
    # Not `--device cpu` alone: without the limit the cache takes most of the memory, and
    # warming up without a tokenizer is not possible.
    command = [str(python), "-m", "sglang.launch_server", "--model-path", str(folder / "model"),
               "--load-format", "dummy", "--skip-tokenizer-init", "--device", "cpu",
               "--max-total-tokens", "1024", "--skip-server-warmup",
               "--host", "127.0.0.1", "--port", str(port)]  # fmt: skip
    with started.log.open("wb") as log:
        process = subprocess.Popen(
            command,
            env=applied.environment(applied.serving),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(process, started)
        yield started
    finally:
        # It does not always end on SIGTERM, and its children outlive it.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(process: subprocess.Popen[bytes], server: Server) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        said = server.log.read_text(encoding="utf-8", errors="replace")
        assert process.poll() is None, f"the server died, exit {process.returncode}\n{said}"
        try:
            server.ask("/health", timeout=20)
        except (OSError, urllib.error.URLError):
            time.sleep(0.5)
        else:
            return
    pytest.fail(f"the server is not ready after {START_SECONDS} s\n{said}")


def test_the_server_answers(server: Server) -> None:
    body = {
        "input_ids": [1, 2, 3],
        "sampling_params": {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True},
    }
    answers = [json.loads(server.ask("/generate", body)) for _ in range(2)]
    for answer in answers:
        assert len(answer["output_ids"]) == 4
        assert all(0 <= token < MODEL["vocab_size"] for token in answer["output_ids"])
        assert answer["meta_info"]["completion_tokens"] == 4
    assert answers[0]["output_ids"] == answers[1]["output_ids"]


def test_it_served_the_model_and_is_well(server: Server) -> None:
    server.ask("/health_generate")
    said = server.log.read_text(encoding="utf-8", errors="replace")
    assert "type=Qwen3MoeForCausalLM" in said
    assert "The server is fired up and ready to roll!" in said
    assert "Traceback" not in said
