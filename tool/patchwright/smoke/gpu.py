"""Code of a test on a device, and on several ranks, with proof of what it ran.

    def body(side, tokens): ...                # side: device_side.Side
    found = on_device(trees, body, tokens=8)   # what body returns, through JSON
    found = ranks(trees, 2, body, share_device=True)   # a list, by rank

The code runs in the interpreter of the environment, with the tree first on its path and
CUDA_VISIBLE_DEVICES set to what this run was given. Each answer names the modules of
upstream that were imported; they are checked against the tree.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchwright.smoke import children
from patchwright.smoke.compiler import find_compiler
from patchwright.smoke.devices import Machine, leased, vanished
from patchwright.smoke.environments import VARIABLE, program_path
from patchwright.smoke.outcomes import Blocked, SmokeError, UpstreamRefused
from patchwright.smoke.provenance import require_tree_modules

if TYPE_CHECKING:
    from patchwright.smoke.trees import Trees

Body = Callable[..., Any]
_DEADLINE = 600.0  # seconds; the slowest module of the pins took 180 to build on two cores


def on_device(
    trees: Trees, /, body: Body, *helpers: Body, deadline: float = _DEADLINE, **arguments: Any
) -> Any:
    """Run ``body(side, **arguments)`` on the first device and return its value.

    ``helpers`` are the functions that it calls. Raises as ``children.run`` does, and
    SmokeError where a device vanished meanwhile.
    """
    return _run(trees, 1, body, helpers, arguments, deadline, share_device=False)[0]


def ranks(
    trees: Trees,
    /,
    count: int,
    body: Body,
    *helpers: Body,
    share_device: bool = False,
    deadline: float = _DEADLINE,
    **arguments: Any,
) -> list[Any]:
    """Run ``body`` on ``count`` ranks, a device each, and return their values by rank.

    With ``share_device`` all ranks are processes on one device, and reach each other's
    memory over CUDA IPC. Every rank sees all devices, as under torchrun: a peer's memory
    can be opened only by one that sees the peer's device. A rank that dies ends the
    others. Raises Blocked with fewer devices than ranks, else as ``on_device``.
    """
    there = len(leased().devices)
    if not share_device and there < count:
        raise Blocked(f"needs {count} devices; this run has {there}")
    return _run(trees, count, body, helpers, arguments, deadline, share_device=share_device)


def _run(
    trees: Trees, count: int, body: Body, helpers: tuple[Body, ...],
    arguments: Mapping[str, Any], deadline: float, *, share_device: bool,
) -> list[Any]:  # fmt: skip
    machine = leased()
    python = environment_python()
    seed = secrets.randbits(32)
    print(f"{body.__name__}: seed {seed}, {count} rank(s), {arguments}", flush=True)
    code = children.Code.of(body, helpers, arguments)
    with tempfile.TemporaryDirectory(prefix="patchwright-ranks-") as folder:
        common = code.job() | {
            "site": str(trees.site), "packages": packages(trees), "seed": seed,
            "ranks": count, "meeting": str(Path(folder) / "meeting"), "deadline": deadline,
        }  # fmt: skip
        jobs = [
            {**common, "rank": rank, "device": 0 if share_device else rank} for rank in range(count)
        ]
        environment = _environment(trees, python, machine)
        try:
            answers = children.run(python, "device_side", jobs, environment, deadline)
        except (SmokeError, UpstreamRefused) as error:
            if gone := vanished(machine, os.environ):
                raise SmokeError(f"a device vanished during the run: {gone} ({error})") from error
            raise
    return [proven(trees, answer) for answer in answers]


def environment_python() -> Path:
    """Return the interpreter that this run was given. Raises Blocked where there is none."""
    named = os.environ.get(VARIABLE)
    if named is None:
        raise Blocked("needs an environment with torch and upstream's packages (docs/tiers.md)")
    return Path(named)


def packages(trees: Trees) -> list[str]:
    """Return the import names of all upstreams."""
    return sorted({name for upstream in trees.upstreams for name in trees.packages(upstream)})


def with_tree(trees: Trees, python: Path, outer: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which Python finds the tree's modules before any other copy.

    What stands before the tree in PYTHONPATH, the hook of proof.py, stays in front. The
    environment's own bytecode is used, or each process would compile all of torch anew;
    bytecode of the tree's modules would have to lie in the tree, which the hook reports.
    """
    front = outer.get("PYTHONPATH", "").split(os.pathsep)[:1]
    environment = {
        **outer,
        "PYTHONPATH": os.pathsep.join((*filter(None, front), str(trees.site))),
        "PATH": program_path(python, outer.get("PATH", "")),
    }
    environment.pop("PYTHONPYCACHEPREFIX", None)
    return environment


def proven(trees: Trees, answer: children.Answer) -> Any:
    """Return an answer's value once its imports are found to be the tree's.

    Raises SmokeError for another copy of an upstream, and for code that imported none:
    it would say nothing about the patch.
    """
    if not answer.imported:
        raise SmokeError(f"{answer.who} imported nothing of upstream")
    require_tree_modules(trees, answer.imported)
    for stub in answer.stubs:
        trees.announce(stub)
    return answer.value


def _environment(trees: Trees, python: Path, machine: Machine) -> dict[str, str]:
    first = machine.devices[0]
    major, minor = first.capability
    # From 9.0 on the arch-specific variant is what upstream builds for a real device.
    arch = f"{major}.{minor}{'a' if major >= 9 else ''}"
    return with_tree(trees, python, os.environ) | {
        "CUDA_HOME": str(find_compiler().home),
        "FLASHINFER_CUDA_ARCH_LIST": arch,
        # The ranks meet on this machine and nowhere else.
        "GLOO_SOCKET_IFNAME": "lo",
    }
