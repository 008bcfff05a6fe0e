"""This repository's own environment, rebuilt from its lock: 5 GB to fetch, 10 GB on disk.

Runs where PATCHWRIGHT_REAL_ENVIRONMENT is set and 30 GB are free. It may name a folder for
the environment, which is kept; with 1 a temporary one is used. UV_CACHE_DIR may name a
cache that has the packages: nothing is downloaded then. A stub of libcuda stands for the
driver that this machine may lack: each of its functions says "no device".
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Read here: no test sees the variables of this tool.
ASKED = os.environ.get("PATCHWRIGHT_REAL_ENVIRONMENT", "")
CACHE = os.environ.get("PATCHWRIGHT_CACHE", "")
NEEDS = 30e9  # bytes: the environment twice, uv's cache, the download
START_SECONDS = 900
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not ASKED,
        reason="the real environment is not rebuilt: PATCHWRIGHT_REAL_ENVIRONMENT is not set",
    ),
]


def tool(*args: str, seconds: float = 3600, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tool"), **more}
    if CACHE:
        env["PATCHWRIGHT_CACHE"] = CACHE
    return subprocess.run(
        [sys.executable, "-m", "patchwright", "-C", str(ROOT), *args], env=env,
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(ASKED) if Path(ASKED).is_absolute() else tmp_path_factory.mktemp("real") / "env"
    free = shutil.disk_usage(folder.parent).free
    if not folder.exists() and free < NEEDS:
        pytest.skip(f"the real environment is not rebuilt: {free / 1e9:.0f} GB free, needs 30")
    return folder


@pytest.fixture(scope="module")
def rebuilt(place: Path) -> dict[str, Any]:
    done = tool("rebuild", "--env", str(place), "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_is_the_same_again(place: Path, rebuilt: dict[str, Any]) -> None:
    again = tool("rebuild", "--env", str(place), "--json", "--offline", TZ="Asia/Tokyo", LC_ALL="C")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == rebuilt
    assert len(rebuilt["versions"]) > 100


def test_the_patched_wheels_are_the_same_from_another_cache(
    rebuilt: dict[str, Any], tmp_path: Path
) -> None:
    script = (
        "import json, os; from pathlib import Path; from patchwright.project import Project;"
        "from patchwright.applying.chain import Chain;"
        "from patchwright.environment.wheels import patched_wheels;"
        "os.umask(0o077); p = Project.open(Path('.')); s = Chain(p).apply(p.series.patches)[0];"
        "print(json.dumps({w.path.name: w.sha256 for w in patched_wheels(p, s)}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tool"), "TZ": "Asia/Tokyo",
             "PATCHWRIGHT_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert json.loads(done.stdout) == rebuilt["wheels"]


def test_both_upstreams_import_from_it(place: Path, rebuilt: dict[str, Any]) -> None:
    code = (
        "import json, flashinfer, sglang, flashinfer_cubin as c;"
        "print(json.dumps([flashinfer.__file__, sglang.__file__, flashinfer.__version__, "
        "c.__version__]))"
    )
    done = tool("run", "--env", str(place), "--", "python", "-c", code)
    assert done.returncode == 0, done.stderr
    *files, version, companion = json.loads(done.stdout.splitlines()[-1])
    assert all(Path(file).is_relative_to(place) for file in files)
    assert version == companion == rebuilt["versions"]["flashinfer-python"]
    assert version.startswith("0.6.3+pw.")


def test_the_import_tier_passes_in_it(place: Path, rebuilt: dict[str, Any], tmp_path: Path) -> None:
    _stub_driver(place, tmp_path / "stub")
    done = tool(
        "verify", "--tier", "import", "--require", "import", "--json", seconds=4 * 3600,
        PATCHWRIGHT_ENVIRONMENT=str(place), LD_LIBRARY_PATH=str(tmp_path / "stub"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = {row["verdict"] for row in json.loads(done.stdout)["results"]}
    assert "passed" in verdicts
    assert verdicts <= {"passed", "none"}


@pytest.fixture
def server(place: Path, rebuilt: dict[str, Any], tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """sglang's own server on the CPU with two layers of random weights; port and log."""
    model, log = tmp_path / "model", tmp_path / "log"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(MODEL), "ascii")
    _stub_driver(place, tmp_path / "stub")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = os.environ | {
        "PYTHONPATH": str(ROOT / "tool"), "LD_LIBRARY_PATH": str(tmp_path / "stub"),
        "SGLANG_USE_CPU_ENGINE": "1", "TORCH_COMPILE_DISABLE": "1", "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "2",
    }  # fmt: skip
    command = [
        sys.executable, "-m", "patchwright", "-C", str(ROOT), "run", "--env", str(place), "--",
        "python", "-m", "sglang.launch_server", "--model-path", str(model), "--load-format",
        "dummy", "--skip-tokenizer-init", "--device", "cpu", "--max-total-tokens", "1024",
        "--skip-server-warmup", "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, env=env, stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        yield port, log
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # it ignores SIGTERM while requests are open
        process.wait()


def test_its_server_starts_on_the_cpu_and_answers(server: tuple[int, Path]) -> None:
    port, log = server
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10):
                break
        except OSError:
            assert time.monotonic() < deadline, log.read_text("utf-8", "replace")[-3000:]
            time.sleep(2)
    asked = {
        "input_ids": [1, 2, 3],
        "sampling_params": {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True},
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/generate", json.dumps(asked).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=300) as response:
        assert len(json.load(response)["output_ids"]) == 4


def _stub_driver(place: Path, folder: Path) -> None:
    """Make a libcuda whose functions all return 100, CUDA_ERROR_NO_DEVICE."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    names = {"cuInit", "cuDeviceGetCount"}
    for path in place.glob("lib/python3*/site-packages/sgl_kernel/**/*.so"):
        with path.open("rb") as stream:
            symbols = ELFFile(stream).get_section_by_name(".dynsym")
            assert isinstance(symbols, SymbolTableSection)
            names |= {
                s.name
                for s in symbols.iter_symbols()
                if s["st_shndx"] == "SHN_UNDEF" and s.name[:2] == "cu" and s.name[2:3].isupper()
            }
    folder.mkdir()
    source = folder / "stub.c"
    source.write_text("".join(f"int {n}(void) {{ return 100; }}\n" for n in sorted(names)), "ascii")
    library = folder / "libcuda.so.1"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(source)],
        check=True,
    )  # fmt: skip
