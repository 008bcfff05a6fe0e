"""What the code of an import test runs on: upstream's packages under a simulated device.

torch is the environment's own; what it says of devices is replaced before upstream is
imported, because upstream keeps the answers. Modules that are named by the test and
missing in the environment are replaced by stand-ins that accept everything and compute
nothing. Whatever stands in is named in the answer.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from patchwright.smoke.child_side import STUBS, Broken, run

_MEMORY = 96 << 30  # bytes of a simulated device
_PROCESSORS = 188


def main(file: str) -> None:
    """Run the job in ``file``; does not return."""
    job = json.loads(Path(file).read_text(encoding="utf-8"))

    def call(function: Callable[..., Any]) -> Any:
        finder = StandIns(job["stubs"], job["packages"], job["capability"])
        sys.meta_path.append(finder)
        simulate(importlib.import_module("torch"), job, finder)
        for name, value in job["answers"].items():
            answer(name, value)
        return function(**job["arguments"])

    run(job, call)


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds, last of all finders, the modules that the test names and nobody has.

    Raises Broken for an upstream among them: a stand-in for what is tested would pass
    whatever it is asked.
    """

    def __init__(
        self, names: Sequence[str], packages: Sequence[str], capability: Sequence[int]
    ) -> None:
        if own := sorted(set(names) & set(packages)):
            raise Broken(f"{own[0]} is under test: nothing may stand in for it")
        # Asked before we are on the path: those that are really missing.
        self.missing = {name for name in names if importlib.util.find_spec(name) is None}
        self.capability = capability

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a module of a missing package."""
        top = name.partition(".")[0]
        if top not in self.missing:
            return None
        STUBS.add(f"{top} (stub)")
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return a module that has every attribute."""
        module = _Module(spec.name)
        if spec.name == "triton":
            # Upstream chooses its code by what triton compiles for.
            major, minor = self.capability
            target = SimpleNamespace(backend="cuda", arch=major * 10 + minor, warp_size=32)
            active = SimpleNamespace(get_current_target=lambda: target)
            module.__dict__["runtime"] = SimpleNamespace(driver=SimpleNamespace(active=active))
            module.__dict__["__version__"] = "0"
        return module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _anything(name)


class _AnyClass(type):
    """The class of classes that accept everything: as a base, a decorator, an annotation."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _anything(name)

    def __getitem__(cls, item: object) -> Any:
        return cls

    def __or__(cls, other: object) -> Any:
        return cls

    __ror__ = __or__

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _decorated(args, kwargs) or super().__call__()

    def __iter__(cls) -> Any:
        return iter(())


class _Any:
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _decorated(args, kwargs) or self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _anything(name)


def _anything(name: str) -> Any:
    return _AnyClass(name, (_Any,), {})


def _decorated(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the function where the call looks like a decorator's."""
    return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else None


def simulate(torch: Any, job: Mapping[str, Any], finder: StandIns) -> None:
    """Make torch say that there are devices of a capability, and a CUDA of a version."""
    major, minor = job["capability"]
    count, peers = job["devices"], job["peers"]
    properties = SimpleNamespace(
        major=major, minor=minor, name="simulated", total_memory=_MEMORY,
        multi_processor_count=_PROCESSORS,
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: count,
        "current_device": lambda: 0,
        "get_device_capability": lambda device=None: (major, minor),
        "get_device_name": lambda device=None: "simulated",
        "get_device_properties": lambda device=None: properties,
        "mem_get_info": lambda device=None: (_MEMORY, _MEMORY),
        "can_device_access_peer": lambda device, peer: peers,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    torch.version.cuda = job["cuda"]
    STUBS.add(
        f"torch.cuda (stub: {count} devices of capability {major}.{minor}, CUDA {job['cuda']}, "
        f"{'with' if peers else 'without'} peer access)"
    )
    # Compiling would look for a real triton, and there is nothing to run it on.
    torch.compile = _no_compile
    STUBS.add("torch.compile (stub)")
    torch.library.register_fake = _lenient(torch.library.register_fake, finder)


def answer(name: str, value: object) -> None:
    """Make an upstream's function give one answer: ``sglang.srt.utils.common.get_x``."""
    module, _, function = name.rpartition(".")
    if not callable(getattr(importlib.import_module(module), function, None)):
        raise Broken(f"{module} has no function {function}")
    setattr(sys.modules[module], function, lambda *args, **kwargs: value)
    STUBS.add(f"{name} (stub: {value!r})")


def _no_compile(model: Any = None, **_options: Any) -> Any:
    return model if model is not None else lambda function: function


def _lenient(real: Callable[..., Any], finder: StandIns) -> Callable[..., Any]:
    """An operator of a missing library does not exist: there is nothing to describe."""

    def register(op: Any, func: Any = None, /, **options: Any) -> Any:
        if isinstance(op, str) and op.partition("::")[0] in finder.missing:
            return func if isinstance(func, types.FunctionType) else lambda function: function
        return real(op, func, **options)

    return register
