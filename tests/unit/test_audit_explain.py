"""Logs and tracebacks: the innermost error, its class, its frames."""

from __future__ import annotations

import pytest

from patchwright.audit.explain import Frame, installed_path, read_failure

LOG = """\
[2026-02-20 10:00:01] Load weight end.
[2026-02-20 10:00:09 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/v/lib/python3.11/site-packages/sglang/srt/layers/communicator.py", line 438, in prepare
    self.norm.forward_with_allreduce_fusion(
  File "/v/lib/python3.11/site-packages/flashinfer/jit/comm.py", line 60, in gen_trtllm_comm_module
    flags = context.get_nvcc_flags_list(
RuntimeError: No supported CUDA architectures found for major versions [9, 10].

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/v/lib/python3.11/site-packages/sglang/srt/managers/scheduler.py", line 29, in run
    scheduler = Scheduler(
Exception: Capture cuda graph failed: No supported CUDA architectures found for major versions [9].

Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
"""


def test_the_inner_error_counts_not_the_advice_around_it() -> None:
    failure = read_failure(LOG)
    assert failure is not None
    assert (failure.type, failure.kind, failure.majors) == ("RuntimeError", "jit-no-arch", (9, 10))
    assert failure.wrapped
    assert failure.frames[-1] == Frame(
        "/v/lib/python3.11/site-packages/flashinfer/jit/comm.py", 60, "gen_trtllm_comm_module"
    )


def test_a_line_without_a_traceback_is_read_too() -> None:
    failure = read_failure("Capture cuda graph failed: CUDA error: no kernel image is available\n")
    assert failure is not None
    assert (failure.kind, failure.wrapped) == ("no-kernel-image", True)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456",
         "smem"),
        ("RuntimeError: Unsupported architecture", "unsupported-architecture"),
        ("ptxas error   : Instruction 'tcgen05.wait' not supported on .target 'sm_120a'",
         "ptxas-fail"),
        ("torch.OutOfMemoryError: CUDA out of memory", "oom"),
    ],
)  # fmt: skip
def test_classes_of_errors(line: str, kind: str) -> None:
    failure = read_failure(line)
    assert failure is not None
    assert failure.kind == kind


@pytest.mark.parametrize("text", ["", "all is well\n", "\0\1\2", "Load weight end.\n" * 5])
def test_a_text_that_is_no_log_of_a_failure(text: str) -> None:
    assert read_failure(text) is None


def test_the_path_within_the_installation() -> None:
    path = "/opt/flashinfer/lib/python3.11/site-packages/flashinfer/jit/comm.py"
    assert installed_path(path, ("flashinfer",)) == "flashinfer/jit/comm.py"
    assert installed_path("/usr/lib/python3.11/asyncio/base.py", ("flashinfer",)) is None
