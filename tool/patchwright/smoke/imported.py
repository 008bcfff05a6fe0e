"""Code of a test with upstream's own packages, under a simulated device.

    def body(model): ...
    found = imported(trees, body, capability="12.0", stubs=("triton",), model=path)

The code runs in the interpreter of the environment, one process per call: upstream
keeps what it once learned of the device. The upstreams come from the tree, whatever
else is installed there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from patchwright.smoke import children
from patchwright.smoke.gpu import Body, environment_python, packages, proven, with_tree
from patchwright.smoke.outcomes import SmokeError

if TYPE_CHECKING:
    from patchwright.smoke.trees import Trees

_DEADLINE = 300.0  # seconds; torch and all of sglang took 20 on a cold disk


def imported(
    trees: Trees,
    /,
    body: Body | str,
    *helpers: Body,
    capability: str,
    cuda: str = "12.8",
    devices: int = 2,
    peers: bool = True,
    env: Mapping[str, str] | None = None,
    stubs: Sequence[str] = (),
    answers: Mapping[str, object] | None = None,
    deadline: float = _DEADLINE,
    **arguments: Any,
) -> Any:
    """Run ``body(**arguments)`` with upstream's packages and return its value, through JSON.

    ``capability`` (``12.0``), ``cuda``, the number of ``devices`` and whether they reach
    each other (``peers``) are what torch says there. ``env`` is added to the run's
    variables. ``stubs`` are the top-level modules that may be replaced where the
    environment lacks them; any other missing one is an error. ``answers`` maps functions
    of upstream that ask the machine to what they shall say. Raises AssertionError
    where the code's own assertion fails, Blocked without an environment, SmokeError
    for everything else.
    """
    major, dot, minor = capability.partition(".")
    if not (dot and major.isdigit() and minor.isdigit()):
        raise SmokeError(f"{capability!r} is not a compute capability such as 12.0")
    python = environment_python()
    job = children.Code.of(body, helpers, arguments).job() | {
        "site": str(trees.site), "packages": packages(trees),
        "capability": [int(major), int(minor)], "cuda": cuda, "devices": devices,
        "peers": peers, "stubs": list(stubs),
        "answers": dict(answers or {}),
    }  # fmt: skip
    environment = with_tree(trees, python, os.environ) | dict(env or {})
    (answer,) = children.run(python, "import_side", [job], environment, deadline)
    return proven(trees, answer)
