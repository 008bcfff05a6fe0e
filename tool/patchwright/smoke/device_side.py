"""What the code of a gpu test gets on the other side: the device, its rank, and helpers.

    def body(side, tokens):
        with side.upstream_may_refuse():
            spec = comm.gen_trtllm_comm_module()
        x = side.random(tokens, 4096)
        out = side.poisoned(tokens, 4096)
        ...
        side.wait()
        side.close(out, x.float() * 2, rtol=2e-2, atol=1e-2)

Inputs are drawn from the run's seed, the same on every rank. Outputs begin as NaN, so
that a kernel that writes nothing is seen, and NaN never passes.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from patchwright.smoke.child_side import Broken, Refused, run

# An installed one would be loaded in place of what is built from the patched sources.
_PREBUILT = ("flashinfer_jit_cache",)


def main(file: str) -> None:
    """Run the job in ``file`` on its device; does not return."""
    job = json.loads(Path(file).read_text(encoding="utf-8"))
    for name in _PREBUILT:
        sys.modules[name] = None  # type: ignore[assignment]

    def call(function: Callable[..., Any]) -> Any:
        side = Side(job)
        value = function(side, **job["arguments"])
        side.wait()
        return value

    run(job, call)


class Side:
    """One rank's view. ``rank`` is 0 and ``ranks`` 1 in code that runs alone."""

    def __init__(self, job: Any) -> None:
        torch = importlib.import_module("torch")
        self.torch: Any = torch
        self.rank: int = job["rank"]
        self.ranks: int = job["ranks"]
        self.seed: int = job["seed"]
        self.device: Any = torch.device("cuda", job["device"])
        torch.cuda.set_device(self.device)  # initialises CUDA: its own error is the reason
        self._random: Any = torch.Generator().manual_seed(self.seed)
        if self.ranks > 1:
            # A file, not a port: nothing that another process could take first.
            torch.distributed.init_process_group(
                "gloo", init_method=f"file://{job['meeting']}", rank=self.rank,
                world_size=self.ranks, timeout=timedelta(seconds=job["deadline"]),
            )  # fmt: skip

    def random(self, *shape: int, dtype: str = "bfloat16") -> Any:
        """Return normally distributed values on the device, the same on every rank."""
        values = self.torch.randn(shape, generator=self._random)
        return values.to(getattr(self.torch, dtype)).to(self.device)

    def poisoned(self, *shape: int, dtype: str = "bfloat16") -> Any:
        """Return a tensor full of NaN, for a kernel to write."""
        kind = getattr(self.torch, dtype)
        return self.torch.full(shape, math.nan, dtype=kind, device=self.device)

    @contextlib.contextmanager
    def upstream_may_refuse(self) -> Iterator[None]:
        """What upstream raises in here is its own refusal: the patch fails by it."""
        try:
            yield
        except (ImportError, OSError):
            raise  # a library or a file that is missing here is not upstream's decision
        except Exception as error:
            raise Refused(f"{type(error).__name__}: {error}") from error

    def barrier(self) -> None:
        """Wait for the other ranks."""
        if self.ranks > 1:
            self.torch.distributed.barrier()

    def wait(self, seconds: float = 60.0) -> None:
        """Wait for the device. A kernel that never ends is an assertion that fails."""
        done = self.torch.cuda.Event()
        done.record()
        end = time.monotonic() + seconds
        while not done.query():
            if time.monotonic() > end:
                raise AssertionError(f"a kernel did not end within {seconds:g} s")
            time.sleep(0.001)

    def close(
        self, actual: Any, expected: Any, *, rtol: float, atol: float, what: str = "the result"
    ) -> None:
        """Assert that a tensor is close to its reference, element by element.

        Raises AssertionError naming the place of the first and the number of those that
        are not, Broken for a reference that is itself not finite.
        """
        if tuple(actual.shape) != tuple(expected.shape):
            raise AssertionError(f"{what} is {tuple(actual.shape)}, not {tuple(expected.shape)}")
        values, wanted = (t.detach().float().flatten().tolist() for t in (actual, expected))
        difference = mismatch(values, wanted, tuple(actual.shape), rtol=rtol, atol=atol)
        if difference:
            raise AssertionError(f"{what}: {difference}")


def mismatch(
    actual: Sequence[float],
    expected: Sequence[float],
    shape: Sequence[int],
    *,
    rtol: float,
    atol: float,
) -> str:
    """Return in words where two flat sequences differ; an empty text where they do not.

    Close is ``abs(a - e) <= atol + rtol * abs(e)``; NaN and infinity are close to
    nothing. Raises Broken for a reference that is not finite.
    """
    if not all(map(math.isfinite, expected)):
        raise Broken("the reference is not finite: the test is wrong")
    # Written so that a comparison with NaN, which is always false, counts as far.
    far = [
        i
        for i, (a, e) in enumerate(zip(actual, expected, strict=True))
        if not abs(a - e) <= atol + rtol * abs(e)
    ]
    if not far:
        return ""
    nans = sum(map(math.isnan, actual))
    first = far[0]
    text = (
        f"{len(far):,} of {len(actual):,} values are off, the first at {_place(first, shape)}: "
        f"{actual[first]:g} instead of {expected[first]:g}"
    )
    return f"{text} ({nans:,} are NaN: never written, or computed from NaN)" if nans else text


def _place(index: int, shape: Sequence[int]) -> str:
    place: list[int] = []
    for size in reversed(shape):
        index, rest = divmod(index, size)
        place.insert(0, rest)
    return str(place)
