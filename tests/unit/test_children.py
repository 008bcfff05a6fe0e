"""Code in another process, and ranks: what their ends mean. torch is a STUB here."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from patchwright.smoke import children
from patchwright.smoke.child_side import Broken, Missing, Refused, classify
from patchwright.smoke.children import Answer, Code
from patchwright.smoke.device_side import mismatch
from patchwright.smoke.outcomes import Blocked, SmokeError, UpstreamRefused
from stub_machine import STUB_TORCH

NAN = float("nan")


def run(
    body: Any, *helpers: Any, ranks: int = 1, deadline: float = 30, packages: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None, **arguments: Any,
) -> list[Answer]:  # fmt: skip
    common = Code.of(body, helpers, arguments).job() | {
        "site": "/nowhere", "packages": packages, "seed": 1, "ranks": ranks, "device": 0,
        "meeting": "/nowhere", "deadline": deadline,
    }  # fmt: skip
    jobs = [{**common, "rank": rank} for rank in range(ranks)]
    environment = {"PYTHONPATH": str(STUB_TORCH), "PATH": os.defpath, **(env or {})}
    return children.run(Path(sys.executable), "device_side", jobs, environment, deadline)


def double(value: int) -> int:
    return 2 * value


def returns(side: Any, value: int) -> list[Any]:
    return [double(value), side.rank, side.torch.__version__]


def test_a_value_comes_back_from_every_rank() -> None:
    assert run(returns, double, value=4)[0].value == [8, 0, "0+stub"]
    assert [a.value for a in run(returns, double, ranks=2, value=1)] == [
        [2, 0, "0+stub"], [2, 1, "0+stub"],
    ]  # fmt: skip


def test_a_text_is_code_too() -> None:
    assert (
        run("def one(side):\n    return 1\n\ndef two(side):\n    return one(side) + 1")[0].value
        == 2
    )
    with pytest.raises(SmokeError, match="defines no function"):
        run("x = 1")


def test_what_json_does_not_know_is_refused() -> None:
    with pytest.raises(SmokeError, match="handed over as JSON"):
        run(returns, double, value=object())


def names_modules(side: Any) -> None:
    import json.decoder

    assert json.decoder


def test_the_modules_of_the_packages_are_named() -> None:
    imported = run(names_modules, packages=("json",))[0].imported
    assert imported is not None
    assert set(imported) >= {"json", "json.decoder"}


def search_path(side: Any) -> list[str]:
    import sys

    return sys.path


def test_the_tools_own_packages_are_not_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    # As where the tool is installed elsewhere: its folder holds its libraries, too.
    monkeypatch.setattr(children, "_ROOT", f"{children._ROOT}/.")
    assert f"{children._ROOT}" not in run(search_path)[0].value


def asserts(side: Any) -> None:
    assert side.rank == 7


def asserts_in_words(side: Any) -> None:
    assert side.rank == 7, "this is not rank 7"


def refuses(side: Any) -> None:
    with side.upstream_may_refuse():
        raise RuntimeError("No supported CUDA architectures found for major versions [9, 10].")


def lacks_a_library(side: Any) -> None:
    with side.upstream_may_refuse():
        import no_such_library  # type: ignore[import-not-found]  # noqa: F401


def raises(side: Any) -> None:
    raise KeyError("lost")


def returns_no_json(side: Any) -> object:
    return object()


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (asserts, AssertionError, r"^assert side.rank == 7 does not hold \(line \d+ of asserts\)$"),
        (asserts_in_words, AssertionError, "^this is not rank 7$"),
        (refuses, UpstreamRefused, r"^RuntimeError: No supported CUDA architectures"),
        (lacks_a_library, SmokeError, "No module named 'no_such_library'"),
        (raises, SmokeError, r"^KeyError: 'lost' \(test_children.py:\d+ in raises\)$"),
        (returns_no_json, SmokeError, "not JSON serializable"),
    ],
)
def test_how_code_ends(body: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        run(body)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("said", "outcome", "words"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", "broken", "ran out of memory"),
        ("CUDA driver version is insufficient for CUDA runtime version", "blocked", "newer driver"),
        ("The NVIDIA driver on your system is too old (found version 11040)", "blocked", "newer"),
        ("CUDA error: uncorrectable ECC error encountered", "broken", "the device failed"),
        ("CUDA error: no CUDA-capable device is detected", "broken", "the device failed"),
        ("GPU is lost.  Reboot the system", "broken", "the device failed"),
        ("CUDA error: an illegal memory access was encountered", "refused", "a kernel died"),
        ("CUDA error: no kernel image is available for execution", "refused", "a kernel died"),
        ("something else", "broken", "RuntimeError: something else"),
    ],
)
def test_what_cuda_says_is_told_apart(said: str, outcome: str, words: str) -> None:
    found, text = classify(RuntimeError(said), "/site")
    assert (found, words in text) == (outcome, True)
    # Also where it is said inside upstream: out of memory is never upstream's refusal.
    if outcome in ("broken", "blocked") and "else" not in said:
        assert classify(Refused(f"RuntimeError: {said}"), "/site")[0] == outcome


def test_our_own_errors_are_what_they_say() -> None:
    assert classify(Broken("the test is wrong"), "/")[0] == "broken"
    assert classify(Missing("needs a moon"), "/") == ("blocked", "needs a moon")
    assert classify(Refused("no"), "/") == ("refused", "no")


def test_a_driver_that_is_too_old_blocks() -> None:
    says = "CUDA driver version is insufficient for CUDA runtime version"
    with pytest.raises(Blocked, match="needs a newer driver"):
        run(asserts, env={"STUB_DRIVER_SAYS": says})


def test_a_kernel_that_never_ends_is_an_assertion() -> None:
    with pytest.raises(AssertionError, match=r"a kernel did not end within 0\.1 s"):
        run("def body(side):\n    side.wait(0.1)", env={"STUB_KERNEL_HANGS": "1"})


def one_dies(side: Any) -> None:
    import os
    import signal
    import time

    if side.rank == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(600)


def one_fails_and_the_other_notices(side: Any) -> None:
    import time

    if side.rank == 1:
        assert False, "the sum is off"  # noqa: B011, PT015
    time.sleep(0.5)
    raise ConnectionError("connection closed by peer")


def waits(side: Any, pid_file: str) -> None:
    import subprocess
    import time

    with open(f"{pid_file}.{side.rank}", "w") as file:  # noqa: PTH123
        file.write(str(subprocess.Popen(["sleep", "600"]).pid))
    time.sleep(600)


def test_a_rank_that_dies_ends_the_others() -> None:
    start = time.monotonic()
    with pytest.raises(SmokeError, match="rank 1 was killed by SIGSEGV before it answered"):
        run(one_dies, ranks=3, deadline=60)
    assert time.monotonic() - start < 30


def test_the_first_rank_that_fails_is_the_reason() -> None:
    with pytest.raises(AssertionError, match="rank 1: the sum is off"):
        run(one_fails_and_the_other_notices, ranks=2)


def test_ranks_that_hang_are_killed_with_what_they_started(tmp_path: Path) -> None:
    with pytest.raises(SmokeError, match="rank 0 and rank 1 did not end within 3 s"):
        run(waits, ranks=2, deadline=3, pid_file=str(tmp_path / "pid"))
    for rank in range(2):
        pid = int((tmp_path / f"pid.{rank}").read_text())
        # Killed, but on a busy machine perhaps not gone yet.
        wait_until(lambda pid=pid: state(pid) in ("", "Z"))  # type: ignore[misc]


def state(pid: int) -> str:
    """A process's state letter; empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def compared(actual: list[float], expected: list[float]) -> str:
    return mismatch(actual, expected, (2, len(actual) // 2), rtol=0.01, atol=0.1)


def test_close_values_pass_and_others_are_placed() -> None:
    assert compared([1.0, 2.0, 3.0, 100.0], [1.05, 2.0, 3.0, 101.0]) == ""
    text = compared([1.0, 2.0, 4.0, 100.0], [1.0, 2.0, 3.0, 100.0])
    assert text == "1 of 4 values are off, the first at [1, 0]: 4 instead of 3"


@pytest.mark.parametrize("bad", [NAN, float("inf"), -float("inf")])
def test_nan_and_infinity_never_pass(bad: float) -> None:
    assert compared([1.0, bad], [1.0, 1.0]).startswith("1 of 2 values are off, the first at [1, 0]")
    with pytest.raises(Broken, match="the reference is not finite"):
        compared([1.0, bad], [1.0, bad])


def test_an_output_that_nobody_wrote_is_called_so() -> None:
    assert "(2 are NaN: never written, or computed from NaN)" in compared([NAN, NAN], [0.0, 0.0])
