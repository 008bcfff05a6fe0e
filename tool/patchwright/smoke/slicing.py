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
import builtins
import importlib
import inspect
import os
import posixpath
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, NoReturn

from patchwright.smoke.bindings import STAR, Module, Modules, blocks, bound, bound_by
from patchwright.smoke.outcomes import SmokeError
from patchwright.smoke.simulated_torch import MISSING, dtype
from patchwright.smoke.stripping import without_annotations

# Modules whose answers depend on the machine that runs the test: only what is known of
# them is given, the rest must be stubbed.
_OF_THE_MACHINE = frozenset(
    "torch os posix platform subprocess socket shutil ctypes importlib glob tempfile getpass "
    "multiprocessing resource urllib http".split()
)
# Third-party modules that only compute; the tool itself requires them.
_PURE = frozenset({"packaging"})
_PATH_FUNCTIONS = ("join", "dirname", "basename", "split", "splitext", "normpath", "isabs", "sep")
_NOT_GIVEN = object()
_REFUSED = frozenset({"globals", "open", "input", "exec", "eval", "compile", "breakpoint"})


class NotImportable(SmokeError, ImportError):
    """The tree's upstream has no such module or name; upstream may catch it as ImportError."""


class NotAnAttribute(SmokeError, AttributeError):
    """The same for an attribute read; upstream may probe for it with ``hasattr``."""


class _Unbound(Exception):
    """A module does not bind the name."""


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
        environ = dict(env or {})
        self.known: dict[str, object] = {
            "os.environ": environ,
            "os.getenv": lambda key, default=None: environ.get(key, default),
            "os.sep": "/",
            "os.PathLike": os.PathLike,
            **{f"os.path.{name}": getattr(posixpath, name) for name in _PATH_FUNCTIONS},
            "os.path.expanduser": lambda path: str(path).replace("~", "/home/simulated", 1),
            "platform.machine": lambda: "x86_64",
            "platform.system": lambda: "Linux",
            "importlib.import_module": self.module,
            "importlib.util.find_spec": self._find_spec,
            **known,
            **{name: value for name, value in self.stubs.items() if "." in name},
        }
        self.imported: set[str] = set()
        self.gaps: list[SmokeError] = []
        self._namespaces: dict[str, _Namespace] = {}
        self._proxies: dict[str, _ModuleProxy] = {}

    def value(self, module: Module, name: str) -> object:
        """Return the value that a module binds to ``name``.

        Raises SmokeError where the module does not bind it, and whatever upstream's
        module-level code raises.
        """
        try:
            return self.namespace(module).get(name)
        except _Unbound:
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
        code = _compile([ast.copy_location(shell, owner)], module.filename)
        exec(code, namespace.globals, made)  # noqa: S102
        return inspect.getattr_static(made[owner.name], name)

    def define(self, module: Module, function: ast.FunctionDef) -> Any:
        """Return a function made from a syntax tree, with the module's names around it."""
        made: dict[str, Any] = {}
        exec(  # noqa: S102
            _compile([function], module.filename), self.namespace(module).globals, made
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

    def namespaces(self) -> Iterable[_Namespace]:
        """Return the namespaces that this evaluation has touched."""
        return self._namespaces.values()

    def namespace(self, module: Module) -> _Namespace:
        """Return the namespace in which a module's statements are executed."""
        if module.dotted not in self._namespaces:
            self._namespaces[module.dotted] = _Namespace(self, module)
        return self._namespaces[module.dotted]

    def module(self, dotted: str, package: str | None = None) -> Any:
        """Return what ``import dotted`` gives to upstream's code.

        Raises ImportError for a module that a stub says is missing, SmokeError for one
        that nobody gives.
        """
        parts = dotted.split(".")
        for end in range(len(parts), 0, -1):
            value = self.stubs.get(".".join(parts[:end]), _NOT_GIVEN)
            if value is MISSING:
                raise ImportError(f"No module named {dotted!r}", name=dotted)
            if value is not _NOT_GIVEN:
                for part in parts[end:]:
                    value = getattr(value, part)
                return value
        top = parts[0]
        if self.modules.owns(dotted):
            if self.modules.get(dotted) is None and not self._is_namespace(dotted):
                raise NotImportable(f"the tree has no module {dotted}{self._needed_by()}")
            return self._proxies.setdefault(dotted, _ModuleProxy(self, dotted))
        if top in _OF_THE_MACHINE or self._has_known(dotted):
            self.imported.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))
            return StandIn(self, dotted)
        if top in sys.stdlib_module_names or top in _PURE:
            return importlib.import_module(dotted)
        return self.refuse(
            f"the module {dotted} is neither upstream's nor in the standard library: "
            f"give it as a stub (MISSING where it is not installed)"
        )

    def attribute(self, dotted: str, name: str) -> object:
        """Return an attribute of an upstream's module: a name that it binds, or a submodule."""
        stub = self.stub(dotted, name)
        if stub is not _NOT_GIVEN:
            return stub
        module = self.modules.get(dotted)
        if module is not None:
            try:
                return self.namespace(module).get(name)
            except _Unbound:
                pass
        if self.modules.get(f"{dotted}.{name}") is not None or self._is_namespace(f"{dotted}.{name}"):
            return self.module(f"{dotted}.{name}")
        if module is not None and "__getattr__" in module.statements:
            lazy: Any = self.namespace(module).get("__getattr__")
            return lazy(name)
        raise NotAnAttribute(f"the tree's {dotted} has no {name}{self._needed_by()}")

    def stub(self, dotted: str, name: str) -> object:
        """Return the stub for a name of a module, ``_NOT_GIVEN`` where there is none."""
        value = self.stubs.get(f"{dotted}.{name}", self.stubs.get(name, _NOT_GIVEN))
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

    def _has_known(self, dotted: str) -> bool:
        return any(name.startswith(dotted + ".") for name in self.known)

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


class _Names(dict[str, object]):
    """The builtins of a namespace: asked for every name that is not bound yet."""

    def __init__(self, namespace: _Namespace) -> None:
        super().__init__(__build_class__=builtins.__build_class__, __import__=namespace.do_import)
        self.namespace = namespace

    def __missing__(self, name: str) -> object:
        return self.namespace.read(name)


class _Namespace:
    """The globals of one upstream module, bound on demand."""

    def __init__(self, owner: Slice, module: Module) -> None:
        self.slice = owner
        self.module = module
        self.globals: dict[str, Any] = {
            "__builtins__": _Names(self),
            "__name__": module.dotted,
            "__file__": module.filename,
            "__package__": module.absolute(None, 1),
            "__doc__": None,
        }
        self._done: set[int] = set()
        self._tests: dict[int, bool] = {}
        self._binding: set[str] = set()

    def do_import(
        self,
        name: str,
        globals: object = None,
        locals: object = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> object:
        """Stand in for ``__import__``."""
        return self.slice.import_hook(self.module, name, fromlist, level)

    def read(self, name: str) -> object:
        """Return the value of a name for code of this module, builtins included."""
        try:
            return self.get(name)
        except _Unbound:
            pass
        if name in _REFUSED:
            self.slice.refuse(f"the decision calls {name}()")
        if hasattr(builtins, name):
            return getattr(builtins, name)
        return self.slice.refuse(f"the name {name} is not bound in {self.module.path}")

    def get(self, name: str) -> object:
        """Return the value that the module binds to ``name``; _Unbound where it does not."""
        stub = self.slice.stub(self.module.dotted, name)
        if stub is not _NOT_GIVEN:
            return stub
        if name not in self.globals and name not in self._binding:
            self._binding.add(name)
            try:
                self._bind(self.module.statements.get(name, ()), name)
            finally:
                self._binding.discard(name)
        if name in self.globals:
            return self.globals[name]
        return self._from_star(self.module.statements.get(STAR, ()), name)

    def evaluate(self, expression: ast.expr) -> Any:
        """Return the value of a module-level expression."""
        code = compile(ast.Expression(expression), self.module.filename, "eval", dont_inherit=True)
        return eval(code, self.globals)  # noqa: S307

    def _bind(self, statements: Sequence[ast.stmt], name: str) -> None:
        for statement in statements:
            if isinstance(statement, ast.If):
                taken = statement.body if self._test(statement) else statement.orelse
                self._bind([node for node in taken if name in bound(node)], name)
            elif isinstance(statement, ast.Import | ast.ImportFrom):
                aliases = [a for a in statement.names if bound_by(statement, a) == name]
                self._execute(_with_aliases(statement, aliases))
            elif id(statement) not in self._done:
                self._done.add(id(statement))
                self._execute(statement)

    def _test(self, statement: ast.If) -> bool:
        if id(statement) not in self._tests:
            self._tests[id(statement)] = bool(self.evaluate(statement.test))
        return self._tests[id(statement)]

    def _execute(self, statement: ast.stmt) -> None:
        exec(_compile([statement], self.module.filename), self.globals)  # noqa: S102
        # Code that was just executed reads what it bound, not what the test gave for it.
        for name in bound(statement):
            if name in self.globals and name in self.slice.stubs:
                self.globals[name] = self.slice.stubs[name]

    def _from_star(self, statements: Sequence[ast.stmt], name: str) -> object:
        for statement in statements:
            if isinstance(statement, ast.ImportFrom) and not name.startswith("_"):
                dotted = self.module.absolute(statement.module, statement.level)
                found = self.slice.module(dotted)
                if isinstance(found, StandIn):
                    continue
                try:
                    return getattr(found, name)
                except AttributeError:
                    continue
            inner: list[ast.stmt] = []
            if isinstance(statement, ast.If):
                inner = statement.body if self._test(statement) else statement.orelse
            elif not isinstance(statement, ast.ImportFrom):
                inner = [node for block in blocks(statement) for node in block]
            for node in inner:
                if STAR in bound(node):
                    return self._from_star([node], name)
        raise _Unbound(name)


class _ModuleProxy:
    """A module of an upstream as upstream's code sees it."""

    def __init__(self, owner: Slice, dotted: str) -> None:
        self.__dict__.update(__name__=dotted, _slice=owner)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._slice.attribute(self.__name__, name)


class StandIn:
    """A module, or a name imported from one, of which only some attributes are known."""

    def __init__(self, owner: Slice, dotted: str) -> None:
        self.__dict__.update(_slice=owner, _dotted=dotted)

    def __getattr__(self, name: str) -> object:
        owner, dotted = self._slice, f"{self._dotted}.{name}"
        if name.startswith("__") and name.endswith("__") and dotted not in owner.known:
            raise AttributeError(name)
        value = owner.known.get(dotted, _NOT_GIVEN)
        if value is MISSING:
            raise AttributeError(f"{self._dotted} has no {name}: it is simulated as missing")
        if value is not _NOT_GIVEN:
            return value
        if dotted in owner.imported or owner._has_known(dotted):
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
        return True if self is other else self._used()

    def __hash__(self) -> int:
        return hash(self._dotted)


def _with_aliases(node: ast.Import | ast.ImportFrom, aliases: list[ast.alias]) -> ast.stmt:
    made: ast.stmt
    if isinstance(node, ast.Import):
        made = ast.Import(aliases)
    else:
        made = ast.ImportFrom(node.module, aliases, node.level)
    return ast.copy_location(made, node)


def _compile(statements: list[ast.stmt], filename: str) -> CodeType:
    tree = ast.Module([without_annotations(node) for node in statements], type_ignores=[])
    return compile(ast.fix_missing_locations(tree), filename, "exec", dont_inherit=True)
