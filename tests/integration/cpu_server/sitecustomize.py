"""Stands in for packages that a server on the CPU imports and never uses.

Python imports this at start because its folder is on PYTHONPATH, in the server's child
processes too. Every name of these packages exists; a call gives back the decorated
function, or nothing of use.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

PACKAGES = frozenset(
    ("triton", "sgl_kernel", "torchvision", "compressed_tensors", "gguf", "jsonschema",
     "openai_harmony")
)  # fmt: skip


class Members(type):
    """Gives the stand-in classes members: an enumeration's, for example."""

    def __getattr__(cls, name: str) -> Any:
        return _member(name)


class Anything(metaclass=Members):
    """A stand-in for a class, and its instances for everything else."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: object) -> Any:
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else self

    def __getattr__(self, name: str) -> Any:
        return _member(name)

    def __getitem__(self, key: object) -> Anything:
        return self


class Module(types.ModuleType):
    """A stand-in for a module, each of whose names is a class or an instance."""

    def __getattr__(self, name: str) -> Any:
        return type(name, (Anything,), {}) if name[:1].isupper() else _member(name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the stand-ins before anything that may be installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Module:
        module = Module(spec.name)
        module.__dict__.update(__path__=[], __version__="3.5.1")
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _member(name: str) -> Any:
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
    # The backend of triton's current target, by which upstream finds torch's device module.
    return "cpu" if name == "backend" else Anything()


sys.meta_path.insert(0, Finder())
