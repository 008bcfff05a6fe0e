"""sglang's real HTTP server on the CPU, for tests: an environment, a model, a probe.

No CUDA, no triton, no flashinfer: what sglang imports of them on the CPU and never uses
is stood in for by ``integration/cpu_server``. The model has two layers of random weights;
its layers ask the fusion gate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

STAND_INS = Path(__file__).resolve().parent / "integration" / "cpu_server"
# What sglang 0.5.9 imports when it serves a language model on the CPU.
REQUIREMENTS = STAND_INS / "requirements.txt"
# A virtual environment that has them already. Read here, as no test sees the variables
# of this tool.
READY = os.environ.get("PATCHWRIGHT_SGLANG_CPU")
INSTALL_SECONDS = 1800
MODEL: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 64,
    "intermediate_size": 128, "moe_intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_experts": 4,
    "num_experts_per_tok": 2, "vocab_size": 256, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "decoder_sparse_step": 1,
    "mlp_only_layers": [], "norm_topk_prob": True, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip
SECTION = """
[tool.patchwright.startup]
profile = "sglang"
arguments = ["--model-path", "{root}/model", "--load-format", "dummy", "--skip-tokenizer-init",
  "--device", "cpu", "--max-total-tokens", "1024", "--skip-server-warmup"]
upstreams = ["sglang"]
deadline = 600
cold-deadline = 600
stall = 90
devices = 0

[tool.patchwright.startup.environment]
PYTHONPATH = "STAND_INS"
SGLANG_USE_CPU_ENGINE = "1"
TORCH_COMPILE_DISABLE = "1"
HF_HUB_OFFLINE = "1"
OMP_NUM_THREADS = "2"

[tool.patchwright.startup.answer]
body = { input_ids = [1, 2, 3], sampling_params = { max_new_tokens = 4, temperature = 0, ignore_eos = true } }
"""  # noqa: E501


def environment(folder: Path) -> Path:
    """Return a virtual environment that has REQUIREMENTS, made in ``folder`` where need be."""
    if READY:
        return Path(READY)
    made = folder / "made"
    if made.exists():
        return folder / "venv"
    python = folder / "venv" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", str(folder / "venv")],
        [*install, "-r", str(REQUIREMENTS)],
    ):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    made.touch()
    return folder / "venv"


def write_model(folder: Path) -> None:
    """Write the model's configuration; its weights are random."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL), encoding="ascii")


def section() -> str:
    """Return the startup probe as TOML, to be put behind a pyproject.toml."""
    return SECTION.replace("STAND_INS", str(STAND_INS))
