"""Evaluates one name of an upstream from its own source, without importing the upstream.

Nothing is executed but what the asked name needs: a module-level name is bound when the
evaluated code first reads it, by running the statements of its module that bind it. So a
function may name a whole kernel library in branches that are not taken. What a decision
reads must be upstream's source, the standard library, the simulated torch or a stub that
the test gives; anything else is an error that says what is missing and who needs it, and
that upstream's own ``except`` cannot hide.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

from patchwright.smoke.bindings import STAR, Module, Modules, bound
from patchwright.smoke.namespaces import Namespace, Unbound
from patchwright.smoke.outcomes import SmokeError
from patchwright.smoke.simulated_torch import MISSING
from patchwright.smoke.standins import (
    NOT_GIVEN,
    OF_THE_MACHINE,
    PURE,
    ModuleProxy,
    NotAnAttribute,
    NotImportable,
    StandIn,
    machine_facts,
)


class Slice:
    """One evaluation: the namespaces that it has filled so far.

    ``known`` holds the simulated torch by dotted name, ``stubs`` what the test gives:
    a dotted name (of a module, or of a name in a module) or a bare name, which stands
    for that name in every module. A stub of MISSING is not importable. ``env`` is the
    whole environment that upstream's code sees.
    """

    def __init__(
        self,
        modules: Modules,
        *,
        known: Mapping[str, object],
        stubs: Mapping[str, object] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.modules = modules
        self.stubs = dict(stubs or {})
        self.known: dict[str, object] = {
            **machine_facts(env or {}),
            "importlib.import_module": self.module,
            "importlib.util.find_spec": self._find_spec,
            **known,
            **{name: value for name, value in self.stubs.items() if "." in name},
        }
        self._known_folders = {
            name[:at] for name in self.known for at, sign in enumerate(name) if sign == "."
        }
        self.imported: set[str] = set()
        self.gaps: list[SmokeError] = []
        self._namespaces: dict[str, Namespace] = {}
        self._proxies: dict[str, ModuleProxy] = {}

    def value(self, module: Module, name: str) -> object:
        """Return the value that a module binds to ``name``.

        Raises SmokeError where the module does not bind it, and whatever upstream's
        module-level code raises.
        """
        try:
            return self.namespace(module).get(name)
        except Unbound:
            raise SmokeError(
                f"{module.upstream}: {module.path} has no {name}: the gate moved"
            ) from None

    def expression(self, module: Module, source: str) -> object:
        """Return the value of an expression in a module's terms (``Backend.AUTO``)."""
        return self.namespace(module).evaluate(ast.parse(source, mode="eval").body)

    def member(self, module: Module, owner: ast.ClassDef, name: str) -> Any:
        """Return a class attribute unbound, evaluating only what ``name`` needs.

        The class itself is not made; its bases are, when it lacks the name. Raises
        SmokeError where neither has it.
        """
        wanted = [node for node in owner.body if name in bound(node)]
        namespace = self.namespace(module)
        if not wanted:
            for base in owner.bases:
                value = namespace.evaluate(base)
                if isinstance(value, type) and hasattr(value, name):
                    return inspect.getattr_static(value, name)
            self.refuse(f"{owner.name} has no {name} and the stub does not give it")
        shell = ast.ClassDef(owner.name, bases=[], keywords=[], body=wanted, decorator_list=[])
        if sys.version_info >= (3, 12):
            shell.type_params = []
        made: dict[str, Any] = {}
        code = namespace.compiled((id(owner), name), [ast.copy_location(shell, owner)])
        exec(code, namespace.globals, made)  # noqa: S102
        return inspect.getattr_static(made[owner.name], name)

    def define(self, module: Module, function: ast.FunctionDef) -> Any:
        """Return a function made from a syntax tree, with the module's names around it.

        The tree is one that the module keeps (``Module.found``).
        """
        made: dict[str, Any] = {}
        namespace = self.namespace(module)
        exec(  # noqa: S102
            namespace.compiled((id(function), "define"), [function]), namespace.globals, made
        )
        return made[function.name]

    def instance(self, module: Module, owner: ast.ClassDef, given: object) -> object:
        """Return a ``self`` with the attributes of a SimpleNamespace.

        What it lacks is taken from the class's source. Any other object stays as it is.
        """
        if not isinstance(given, types.SimpleNamespace):
            return given

        def lacking(made: object, name: str) -> object:
            if name.startswith("__") and name.endswith("__"):
                raise AttributeError(name)
            setattr(type(made), name, self.member(module, owner, name))
            return getattr(made, name)

        made = type(owner.name, (), {"__getattr__": lacking})()
        vars(made).update(vars(given))
        return made

    def namespaces(self) -> Iterable[Namespace]:
        """Return the namespaces that this evaluation has touched."""
        return self._namespaces.values()

    def namespace(self, module: Module) -> Namespace:
        """Return the namespace in which a module's statements are executed."""
        if module.dotted not in self._namespaces:
            self._namespaces[module.dotted] = Namespace(self, module)
        return self._namespaces[module.dotted]

    def module(self, dotted: str, package: str | None = None) -> Any:
        """Return what ``import dotted`` gives to upstream's code.

        Raises ImportError for a module that a stub says is missing, SmokeError for one
        that nobody gives.
        """
        parts = dotted.split(".")
        for end in range(len(parts), 0, -1):
            value = self.stubs.get(".".join(parts[:end]), NOT_GIVEN)
            if value is MISSING:
                raise ImportError(f"No module named {dotted!r}", name=dotted)
            if value is not NOT_GIVEN:
                for part in parts[end:]:
                    value = getattr(value, part)
                return value
        top = parts[0]
        if self.modules.owns(dotted):
            if self.modules.get(dotted) is None and not self._is_namespace(dotted):
                raise NotImportable(f"the tree has no module {dotted}{self._needed_by()}")
            return self._proxies.setdefault(dotted, ModuleProxy(self, dotted))
        if top in OF_THE_MACHINE or self.has_known(dotted):
            self.imported.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))
            return StandIn(self, dotted)
        if top in sys.stdlib_module_names or top in PURE:
            return importlib.import_module(dotted)
        return self.refuse(
            f"the module {dotted} is neither upstream's nor in the standard library: "
            f"give it as a stub (MISSING where it is not installed)"
        )

    def attribute(self, dotted: str, name: str) -> object:
        """Return an attribute of an upstream's module: a name that it binds, or a submodule."""
        stub = self.stub(dotted, name)
        if stub is not NOT_GIVEN:
            return stub
        module = self.modules.get(dotted)
        if module is not None:
            try:
                return self.namespace(module).get(name)
            except Unbound:
                pass
        if self.modules.get(f"{dotted}.{name}") is not None or self._is_namespace(
            f"{dotted}.{name}"
        ):
            return self.module(f"{dotted}.{name}")
        if module is not None and "__getattr__" in module.statements:
            lazy: Any = self.namespace(module).get("__getattr__")
            return lazy(name)
        raise NotAnAttribute(f"the tree's {dotted} has no {name}{self._needed_by()}")

    def is_stubbed(self, dotted: str, name: str) -> bool:
        """Return whether a stub stands for a name of a module."""
        return f"{dotted}.{name}" in self.stubs or name in self.stubs

    def stub(self, dotted: str, name: str) -> object:
        """Return the stub for a name of a module, ``NOT_GIVEN`` where there is none."""
        value = self.stubs.get(f"{dotted}.{name}", self.stubs.get(name, NOT_GIVEN))
        if value is MISSING:
            raise NotAnAttribute(f"{dotted}.{name} is missing: a stub says so")
        return value

    def import_hook(
        self, module: Module, name: str, fromlist: Sequence[str] | None, level: int
    ) -> object:
        """Do what ``__import__`` does, for a statement of ``module``."""
        dotted = module.absolute(name, level)
        found = self.module(dotted)
        if not fromlist:
            return self.module(dotted.partition(".")[0])
        for wanted in fromlist:
            if wanted == STAR:
                self.refuse(f"a star import of {dotted} inside a compound statement")
            if isinstance(found, StandIn):
                # Importing a name decides nothing; using it may.
                self.imported.add(f"{dotted}.{wanted}")
                continue
            try:
                getattr(found, wanted)
            except NotAnAttribute as error:
                raise NotImportable(str(error)) from None
        return found

    def refuse(self, message: str) -> NoReturn:
        """Raise SmokeError; kept in ``gaps`` too, as upstream's code may swallow it."""
        error = SmokeError(message + self._needed_by())
        self.gaps.append(error)
        raise error

    def _find_spec(self, name: str, package: str | None = None) -> object:
        try:
            return self.module(name)
        except ImportError:
            return None

    def has_known(self, dotted: str) -> bool:
        return dotted in self._known_folders

    def _is_namespace(self, dotted: str) -> bool:
        """A folder without ``__init__.py`` that holds modules of an upstream."""
        if not self.modules.owns(dotted) or self.modules.get(dotted) is not None:
            return False
        return self.modules.is_folder(dotted)

    def _needed_by(self) -> str:
        """Say which lines of upstream led here, innermost first."""
        paths = {space.module.filename: space.module.path for space in self._namespaces.values()}
        places: list[str] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and len(places) < 3:
            path = paths.get(frame.f_code.co_filename)
            if path is not None:
                name = frame.f_code.co_name
                inside = "" if name == "<module>" else f" ({name})"
                places.append(f"{path}:{frame.f_lineno}{inside}")
            frame = frame.f_back
        return f", needed by {', for '.join(dict.fromkeys(places))}" if places else ""
