"""What upstream's code sees in place of modules: of the upstreams, of torch, of the machine."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from patchwright.smoke.outcomes import SmokeError
from patchwright.smoke.simulated_torch import MISSING, dtype

if TYPE_CHECKING:
    from patchwright.smoke.slicing import Slice

# Modules whose answers depend on the machine that runs the test: only what is known of
# them is given, the rest must be stubbed.
OF_THE_MACHINE = frozenset(
    {
        "torch",
        "os",
        "posix",
        "platform",
        "subprocess",
        "socket",
        "shutil",
        "ctypes",
        "importlib",
        "glob",
        "tempfile",
        "getpass",
        "multiprocessing",
        "resource",
        "urllib",
        "http",
    }
)  # fmt: skip
# Third-party modules that only compute; the tool itself requires them.
PURE = frozenset({"packaging"})
_PATH_FUNCTIONS = ("join", "dirname", "basename", "split", "splitext", "normpath", "isabs", "sep")
NOT_GIVEN = object()
REFUSED = frozenset({"globals", "open", "input", "exec", "eval", "compile", "breakpoint"})


class NotImportable(SmokeError, ImportError):
    """The tree's upstream has no such module or name; upstream may catch it as ImportError."""


class NotAnAttribute(SmokeError, AttributeError):
    """The same for an attribute read; upstream may probe for it with ``hasattr``."""


def machine_facts(env: Mapping[str, str]) -> dict[str, object]:
    """Return what is known of the modules in OF_THE_MACHINE, by dotted name.

    ``env`` is the whole environment; the machine is an x86_64 Linux.
    """
    environ = dict(env)
    return {
        "os.environ": environ,
        "os.getenv": lambda key, default=None: environ.get(key, default),
        "os.sep": "/",
        "os.PathLike": os.PathLike,
        "os.path.expanduser": lambda path: str(path).replace("~", "/home/simulated", 1),
        **{f"os.path.{name}": getattr(posixpath, name) for name in _PATH_FUNCTIONS},
        "platform.machine": lambda: "x86_64",
        "platform.system": lambda: "Linux",
    }


class ModuleProxy:
    """A module of an upstream as upstream's code sees it."""

    def __init__(self, owner: Slice, dotted: str) -> None:
        self.__name__ = dotted
        self._slice = owner

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._slice.attribute(self.__name__, name)


class StandIn:
    """A module, or a name imported from one, of which only some attributes are known."""

    def __init__(self, owner: Slice, dotted: str) -> None:
        self._slice = owner
        self._dotted = dotted

    def __getattr__(self, name: str) -> object:
        owner, dotted = self._slice, f"{self._dotted}.{name}"
        if name.startswith("__") and name.endswith("__") and dotted not in owner.known:
            raise AttributeError(name)
        value = owner.known.get(dotted, NOT_GIVEN)
        if value is MISSING:
            raise AttributeError(f"{self._dotted} has no {name}: it is simulated as missing")
        if value is not NOT_GIVEN:
            return value
        if dotted in owner.imported or owner.has_known(dotted):
            return StandIn(owner, dotted)
        if self._dotted == "torch" and (data_type := dtype(name)) is not None:
            return data_type
        if self._dotted.startswith(("torch", "os", "importlib")):
            return owner.refuse(f"the decision touches {dotted}: give it")
        return owner.refuse(f"the decision touches {dotted}, which the machine decides: give it")

    def _used(self, *args: object, **kwargs: object) -> NoReturn:
        self._slice.refuse(f"the decision uses {self._dotted}: give it")

    __call__ = __bool__ = __iter__ = __len__ = __getitem__ = __mro_entries__ = _used
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __or__ = _used

    def __eq__(self, other: object) -> bool:
        if self is not other:
            self._used()
        return True

    def __hash__(self) -> int:
        return hash(self._dotted)
