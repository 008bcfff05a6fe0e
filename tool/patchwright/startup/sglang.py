"""What sglang says and answers while it starts. Read in the sources of 0.5.9."""

from __future__ import annotations

from collections.abc import Mapping

# /model_info and /v1/models answer before the warm-up, /ping always: none of them is
# evidence. /health_generate runs the model; hollow kernels pass it, so a fixed prompt
# is asked as well.
PROFILE: Mapping[str, object] = {
    "command": ["{python}", "-m", "sglang.launch_server", "--host", "127.0.0.1",
                "--port", "{port}"],
    "ready": {"log": "The server is fired up and ready to roll!", "path": "/health_generate"},
    "answer": {
        "path": "/generate",
        "body": {
            "text": "The capital city of France is",
            "sampling_params": {"temperature": 0, "max_new_tokens": 8},
        },
        # A kernel that returns zeros repeats one token.
        "distinct": 2,
    },
    "stages": [
        "Load weight begin", "Load weight end", "KV Cache is allocated", "Memory pool end",
        "Capture cuda graph begin", "Capture cuda graph end", "max_total_num_tokens=",
        "Uvicorn running on", "The server is fired up and ready to roll!",
    ],
    "proves": True,
    # What flashinfer's JIT compiles depends on its sources and on the code that makes the
    # command lines; no other Python file of it changes an object.
    "workspaces": {"FLASHINFER_WORKSPACE_BASE": ("flashinfer/data/", "flashinfer/jit/")},
}  # fmt: skip
