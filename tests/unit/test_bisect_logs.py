"""What is read in a log: the innermost error, its class, its signature."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from patchwright.config import Config, Layout, UpstreamConfig
from patchwright.errors import InputError
from patchwright.startup.asking import judged
from patchwright.startup.classes import by_text, classify
from patchwright.startup.judging import judge
from patchwright.startup.settings import Settings, from_command, from_config
from patchwright.startup.signature import normalised, place, signature
from patchwright.startup.tracebacks import Frame, LogReader, Raised

SITE = "/cache/slots/0/tree/tree"
CAPTURE = f"""\
[2026-02-20 10:00:01 TP0] Load weight begin. avail mem=90.0 GB
[2026-02-20 10:00:09 TP0] Capture cuda graph begin. This can take up to several minutes.
[2026-02-20 10:00:12 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "{SITE}/sglang/srt/model_executor/cuda_graph_runner.py", line 370, in __init__
    self.capture()
  File "{SITE}/sglang/srt/layers/communicator.py", line 99, in forward
    fused = comm.fused()
            ^^^^^^^^^^^^
  File "{SITE}/flashinfer/compilation_context.py", line 60, in get_nvcc_flags_list
    raise RuntimeError(
RuntimeError: No supported CUDA architectures found for major versions [9, 10].

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "{SITE}/sglang/srt/managers/scheduler.py", line 3180, in run_scheduler_process
    scheduler = Scheduler(server_args)
Exception: Capture cuda graph failed: No supported CUDA architectures found
Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7) in case of out of memory
2. set --cuda-graph-max-bs to a smaller value (e.g., 16)
Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose

[2026-02-20 10:00:12] Received sigquit from a child process. It usually means the child failed.
Traceback (most recent call last):
  File "{SITE}/sglang/launch_server.py", line 30, in <module>
    run()
EOFError
"""


def read(text: str, **how: Any) -> LogReader:
    reader = LogReader(**how)
    data = textwrap.dedent(text).encode()
    for start in range(0, len(data), 37):  # in pieces, as a pipe gives them
        reader.feed(data[start : start + 37])
    reader.close()
    return reader


def innermost(text: str) -> Raised:
    raised = read(text).innermost()
    assert raised is not None
    return raised


def test_the_inner_error_of_a_failed_capture_and_not_the_advice() -> None:
    reader = read(CAPTURE, stages=("Load weight begin", "Capture cuda graph begin"))
    raised = reader.innermost()
    assert raised is not None
    assert raised.message == "No supported CUDA architectures found for major versions [9, 10]."
    assert raised.frames[-1].function == "get_nvcc_flags_list"
    assert classify(raised, reader.lines, -9) == "jit-no-arch"
    assert reader.stage == "Capture cuda graph begin"
    assert not any("out of memory" in line for line in reader.lines)


def test_the_cause_comes_before_what_was_raised_while_handling_it() -> None:
    raised = innermost("""\
        Traceback (most recent call last):
          File "/a/x.py", line 1, in f
            1 / 0
        ZeroDivisionError: division by zero

        The above exception was the direct cause of the following exception:

        Traceback (most recent call last):
          File "/a/y.py", line 2, in g
            raise ValueError("no") from error
        ValueError: no
        """)
    assert (raised.name, raised.frames) == ("ZeroDivisionError", (Frame("/a/x.py", 1, "f"),))


def test_a_traceback_between_the_lines_of_other_processes() -> None:
    raised = innermost("""\
        Traceback (most recent call last):
          File "/a/x.py", line 1, in f
        [2026-02-20 TP1] still loading
            boom()
          File "/a/z.py", line 9, in boom
        torch.AcceleratorError: CUDA error: no kernel image is available
        """)
    assert raised.name == "AcceleratorError"
    assert [frame.line for frame in raised.frames] == [1, 9]
    assert classify(raised, [], -9) == "no-kernel-image"


def test_a_flood_does_not_hide_the_error() -> None:
    reader = LogReader()
    for _ in range(2000):
        reader.feed(b"noise " * 200 + b"\n")
    reader.feed(CAPTURE.encode())
    for _ in range(2000):
        reader.feed(b"more error noise " * 100 + b"\n")
    raised = reader.innermost()
    assert raised is not None
    assert raised.frames[-1].function == "get_nvcc_flags_list"
    assert len(reader.lines) <= 30


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("port", "[Errno 98] error while attempting to bind on address: address already in use"),
        ("no-device", "RuntimeError: No CUDA GPUs are available"),
        ("disk", "OSError: [Errno 28] No space left on device: 'x'"),
        ("ptxas-fail", "ptxas /tmp/x.ptx, line 3; error : Feature '.block_scale' not supported"),
        ("nvcc-fail", "nvcc fatal   : Unsupported gpu architecture 'compute_120a'"),
        ("no-kernel-image", "CUDA error: no kernel image is available for execution on the device"),
        ("smem", "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required"),
        ("illegal-instruction", "CUDA error: an illegal instruction was encountered"),
        ("oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
        ("unsupported-architecture", "RuntimeError: Unsupported architecture (DeepGEMM)"),
        ("hang", "Scheduler watchdog timeout (self.watchdog_timeout=300)"),
    ],
)
def test_classes_by_text(kind: str, text: str) -> None:
    assert by_text(text) == kind


def test_classes_without_such_words() -> None:
    def raised(name: str, file: str = "/a/b.py") -> Raised:
        return Raised(name, "m", (Frame(file, 1, "f"),))

    assert classify(raised("ImportError"), [], 1) == "import-error"
    assert classify(raised("ValueError", "/s/sglang/srt/server_args.py"), [], 1) == "arg-refused"
    assert classify(raised("KeyError"), [], 1) == "error"
    assert classify(None, ["x: error: unrecognized arguments: --no"], 2) == "arg-refused"
    assert classify(None, [], -11) == "crash"
    assert classify(None, [], 3) == "exit"


def test_one_failure_has_one_signature() -> None:
    def failure(site: str, port: int, address: str) -> str:
        message = f"bind 127.0.0.1:{port} failed at {address} in {site}/x.so, rank 3 of [9, 10]"
        frame = Frame(f"{site}/sglang/srt/a.py", port, "f")
        return signature("error", Raised("m.E", message, (frame,)), "", site)

    first = failure("/cache/slots/0/tree/tree", 31000, "0x7f00aa")
    assert first == failure("/home/me/slots/7/tree/tree", 40021, "0x55ee")
    assert first.startswith("error | E | sglang/srt/a.py:f | bind ")


def test_other_names_are_another_failure() -> None:
    assert normalised("name 'foo' is not defined") != normalised("name 'bar' is not defined")


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/v/lib/python3.11/site-packages/torch/cuda.py", "torch/cuda.py:f"),
        ("/v/lib/python3.11/json/decoder.py", "json/decoder.py:f"),
        ("/somewhere/probe.py", "probe.py:f"),
    ],
)
def test_places_are_those_of_the_package(file: str, shown: str) -> None:
    assert place(Frame(file, 1, "f"), SITE) == shown


# Answers


def test_an_answer_is_sane_or_not() -> None:
    expected = {"path": "/generate", "body": "{}", "match": "", "distinct": 2}
    assert judged(200, '{"output_ids": [152, 3, 152]}', expected) == ""
    assert "repeats" in judged(200, '{"output_ids": [0, 0, 0, 0]}', expected)
    assert "repeats" in judged(200, '{"text": "!!!!!!!!"}', expected)
    assert "empty" in judged(200, '{"text": ""}', expected)
    assert "status 500" in judged(500, "no", expected)
    assert "Paris" in judged(200, '{"text": "London"}', expected | {"match": "Paris"})


# Reports


def report(**how: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "status": 1, "ended_by": "", "seconds": 1.0, "raised": None, "lines": [], "stage": "",
        "stacks": [], "answer": "", "wrong": "", "log": "",
        "violations": [], "imported": ["sglang"],
    }  # fmt: skip
    return plain | how


COMMAND = Settings(("x",), by_shell=True)
SERVER = Settings(("x",), ready_path="/health", proves=True)


@pytest.mark.parametrize(
    ("settings", "how", "outcome", "kind"),
    [
        (COMMAND, {"status": 0}, "started", "ok"),
        (COMMAND, {"status": 1}, "failed", "exit"),
        (COMMAND, {"status": 125}, "untestable", "untestable"),
        (COMMAND, {"status": 127}, "untestable", "missing-command"),
        (COMMAND, {"status": -11}, "failed", "crash"),
        (COMMAND, {"status": None, "ended_by": "deadline"}, "failed", "hang"),
        (COMMAND, {"status": None, "ended_by": "disk"}, "untestable", "disk"),
        (COMMAND, {"status": 0, "violations": ["imported x"]}, "untestable", "not-the-tree"),
        (SERVER, {"status": 0}, "failed", "exit"),
        (SERVER, {"status": None, "ended_by": "answered"}, "started", "ok"),
        (SERVER, {"ended_by": "answered", "imported": []}, "untestable", "not-the-tree"),
        (SERVER, {"ended_by": "answered", "wrong": "no"}, "failed", "garbage-output"),
        (SERVER, {"status": -9, "lines": ["address already in use"]}, "untestable", "port"),
    ],
)
def test_what_a_report_means(
    settings: Settings, how: dict[str, Any], outcome: str, kind: str
) -> None:
    started = judge(settings, report(**how), SITE)
    assert (started.outcome, started.kind) == (outcome, kind)


def test_a_hang_is_known_by_its_stage() -> None:
    def at(stage: str) -> str:
        how = {"status": None, "ended_by": "stall", "stage": stage}
        return judge(SERVER, report(**how), SITE).signature

    assert at("Load weight begin") != at("Load weight end")


def test_a_hang_says_where_it_stood() -> None:
    reader = read(f"""\
        Fatal Python error: Aborted

        Thread 0x00007f11 (most recent call first):
          File "/usr/lib/python3.11/selectors.py", line 468 in select
          File "{SITE}/sglang/srt/server.py", line 9 in serve

        Current thread 0x00007f22 (most recent call first):
          File "{SITE}/sglang/srt/gate.py", line 7 in ask
          File "{SITE}/sglang/srt/model.py", line 8 in forward
        """)
    stacks = [[vars(frame) for frame in stack] for stack in reader.stacks]
    started = judge(SERVER, report(status=None, ended_by="stall", stacks=stacks), SITE)
    assert started.frames[0] == ("sglang/srt/gate.py", 7, "ask")
    assert "it stood in sglang/srt/gate.py:7, ask" in started.detail
    assert started.signature == "hang | | |"


def test_the_files_of_an_error_are_those_of_the_tree() -> None:
    frames = [{"file": f"{SITE}/sglang/a.py", "line": 3, "function": "f"},
              {"file": "/v/site-packages/torch/b.py", "line": 4, "function": "g"}]  # fmt: skip
    # fmt: off
    raised = {"type": "ImportError", "frames": frames, "fatal": False,
              "message": f"cannot import name 'x' from 'sglang.c' ({SITE}/sglang/c.py)"}
    # fmt: on
    started = judge(COMMAND, report(raised=raised), SITE)
    assert started.frames == (("sglang/a.py", 3, "f"),)
    assert "sglang/c.py" in started.files


# Settings


def config(startup: dict[str, Any]) -> Config:
    upstream = UpstreamConfig(
        "tiny", "wheel", "tiny", "1.0", None, None, None, ("tiny",), Layout(())
    )
    return Config(Path("/p"), {"tiny": upstream}, startup=startup)


def test_the_profile_of_sglang() -> None:
    settings = from_config(config({
        "profile": "sglang", "arguments": ["--tp", "8"], "deadline": 90,
        "answer": {"match": "Paris"},
    }))  # fmt: skip
    assert settings.command[1:3] == ("-m", "sglang.launch_server")
    assert settings.command[-2:] == ("--tp", "8")
    assert (settings.deadline, settings.cold_deadline) == (90.0, 3600.0)
    assert settings.ready_path == "/health_generate"
    assert settings.answer is not None
    assert (settings.answer.path, settings.answer.match) == ("/generate", "Paris")
    assert settings.proves


def test_what_changes_a_probe_changes_its_digest() -> None:
    settings = from_command(config({}), "x")
    assert settings.digest() != replace(settings, stall=1.0).digest()
    assert settings.digest() == from_command(config({}), "x").digest()


@pytest.mark.parametrize(
    ("startup", "word"),
    [
        ({}, "declares no startup probe"),
        ({"comand": ["x"]}, "did you mean command"),
        ({"profile": "vllm"}, "is no profile"),
        ({"profile": "sglang", "deadline": -1}, "startup.deadline"),
        ({"command": "x"}, "a list of texts"),
        ({"command": ["x"], "ready": {"url": "/x"}}, "startup.ready.url"),
        ({"command": ["x"], "ready": {"path": "health"}}, "is no path"),
        ({"command": ["x"], "answer": {"path": "/x"}}, "ready.path"),
        ({"command": ["x", "{port}"], "ready": {"path": "/h"}, "answer": {"path": "/x",
          "match": "("}}, "is no pattern"),
        ({"command": ["x"], "ready": {"path": "/h"}}, "{port}"),
        ({"command": ["x"], "upstreams": ["vllm"]}, "no upstream"),
        ({"command": ["x"], "environment": {"A B": "x"}}, "variable's name"),
        ({"command": ["x"], "environment": {"TMPDIR": "x"}}, "is set by"),
        ({}, "--probe"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(startup: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError) as caught:
        from_config(config(startup))
    assert word in str(caught.value)
