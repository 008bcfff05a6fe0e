"""The fixtures of smoke tests: thin wrappers that put the tree under test in front.

Those that look at files take ``trees=`` for another tree, such as ``baseline``.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest

from patchwright.audit import guards as cuda_guards
from patchwright.smoke import (
    cexpressions,
    decisions,
    device_code,
    devices,
    gpu,
    host,
    imported,
    jit,
)
from patchwright.smoke import route as routes
from patchwright.smoke.outcomes import UpstreamRefused
from patchwright.smoke.trees import Trees

_P = ParamSpec("_P")
_R = TypeVar("_R")


class TreePair:
    """Brings the trees of one run into the session."""

    def __init__(self, tree: Trees, baseline: Trees) -> None:
        self.tree = tree
        self.baseline = baseline

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[_PAIR] = self


_PAIR = pytest.StashKey[TreePair]()


@pytest.fixture(scope="session")
def tree(request: pytest.FixtureRequest) -> Trees:
    """The upstreams with the patch; in the control, without it."""
    return request.config.stash[_PAIR].tree


@pytest.fixture(scope="session")
def baseline(request: pytest.FixtureRequest) -> Trees:
    """The same upstreams without the patch."""
    return request.config.stash[_PAIR].baseline


def _on(tree: Trees, function: Callable[Concatenate[Trees, _P], _R]) -> Callable[..., _R]:
    def call(*args: Any, trees: Trees | None = None, **kwargs: Any) -> _R:
        return function(trees if trees is not None else tree, *args, **kwargs)

    return call


@pytest.fixture
def decision_table(tree: Trees) -> Callable[..., dict[str, object]]:
    """``decisions.decision_table(gate, *args, trees=tree, ...)``."""
    return _on(tree, decisions.decision_table)


@pytest.fixture
def route(tree: Trees) -> Callable[..., routes.Routes]:
    """``route.route(upstream, path, function, trees=tree)``."""
    return _on(tree, routes.route)


@pytest.fixture(scope="session")
def jit_spec(tree: Trees) -> Callable[..., jit.JitSpec]:
    """``jit.jit_spec(generator, arch=..., trees=tree)``; asked twice, answered once."""
    known: dict[str, jit.JitSpec | UpstreamRefused] = {}

    def ask(trees: Trees, /, generator: str, **how: Any) -> jit.JitSpec:
        key = repr((id(trees), generator, sorted(how.items())))
        if key not in known:
            try:
                known[key] = jit.jit_spec(trees, generator, **how)
            except UpstreamRefused as refused:
                known[key] = refused
        found = known[key]
        if isinstance(found, UpstreamRefused):
            raise UpstreamRefused(str(found))
        return found

    return _on(tree, ask)


@pytest.fixture
def guards(tree: Trees) -> Callable[..., tuple[cuda_guards.Guard, ...]]:
    """``guards.guards`` of a file: ``guards(upstream, path, targets, trees=tree)``."""

    def of_file(
        trees: Trees, upstream: str, path: str, *args: Any, **kwargs: Any
    ) -> tuple[cuda_guards.Guard, ...]:
        return cuda_guards.guards(trees.text(upstream, path), *args, **kwargs)

    return _on(tree, of_file)


@pytest.fixture
def c_functions(tree: Trees) -> Callable[..., tuple[cexpressions.CFunction, ...]]:
    """``cexpressions.functions`` of a file: ``c_functions(upstream, path, name, trees=tree)``."""

    def of_file(
        trees: Trees, upstream: str, path: str, name: str
    ) -> tuple[cexpressions.CFunction, ...]:
        return cexpressions.functions(trees.text(upstream, path), name)

    return _on(tree, of_file)


@pytest.fixture(scope="session")
def host_program() -> Callable[..., host.HostProgram]:
    """``host.host_program(source, *flags)``; the same program is made once."""
    return functools.cache(host.host_program)


# What follows runs code in the environment with upstream's packages.


@pytest.fixture(name="imported")
def _imported(tree: Trees) -> Callable[..., Any]:
    """``imported.imported(body, capability=..., stubs=..., trees=tree)``."""
    return _on(tree, imported.imported)


@pytest.fixture
def machine() -> devices.Machine:
    """The devices that this run was given, with driver and CUDA; Blocked without any."""
    return devices.leased()


@pytest.fixture
def device(machine: devices.Machine) -> devices.Device:
    """The first device: name, architecture, capability, memory in bytes."""
    return machine.devices[0]


@pytest.fixture
def on_device(tree: Trees) -> Callable[..., Any]:
    """``gpu.on_device(body, *helpers, trees=tree, **arguments)``."""
    return _on(tree, gpu.on_device)


@pytest.fixture
def ranks(tree: Trees) -> Callable[..., list[Any]]:
    """``gpu.ranks(count, body, *helpers, share_device=False, trees=tree, **arguments)``."""
    return _on(tree, gpu.ranks)


# What follows looks at a JIT spec, which knows its tree.


@pytest.fixture
def preprocess() -> Callable[..., device_code.Preprocessed]:
    """``device_code.preprocess(spec, source)``."""
    return device_code.preprocess


@pytest.fixture
def kernels() -> Callable[..., dict[str, device_code.Kernel]]:
    """``device_code.kernels(spec, source)``."""
    return device_code.kernels


@pytest.fixture
def kernels_of() -> Callable[..., list[dict[str, device_code.Kernel]]]:
    """``device_code.kernels_of([(spec, source, arch), ...])``."""
    return device_code.kernels_of


@pytest.fixture
def cubin() -> Callable[..., device_code.Cubin]:
    """``device_code.cubin(spec, source)``."""
    return device_code.cubin


@pytest.fixture
def ptx() -> Callable[..., str]:
    """``device_code.ptx(spec, source)``."""
    return device_code.ptx


@pytest.fixture
def mnemonic_counts() -> Callable[[str], Counter[str]]:
    """``device_code.mnemonic_counts(ptx_text)``."""
    return device_code.mnemonic_counts
