"""What the audit's evaluation answers does not depend on what it was asked before."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from audits import UTILS, stored
from patchwright.audit.findings import GateScanner
from patchwright.audit.inventory import inventory
from patchwright.audit.trees import StoredTrees
from patchwright.smoke.bindings import Modules

CIRCLE = {
    "a.py": """
        from serve.b import B
        from serve.utils import is_blackwell
        A = B or is_blackwell()
        """,
    "b.py": """
        from serve.a import A
        from serve.utils import is_sm90_supported
        B = A or is_sm90_supported()
        C = B
        """,
}
CHAIN = {
    "chain.py": "from serve.utils import is_blackwell\n"
    + "".join(f"def f{n}():\n    return f{n + 1}()\n" for n in range(12))
    + "def f12():\n    return is_blackwell()\n"
}
CLASSES = {
    "c.py": """
        from serve.utils import is_blackwell
        class One:
            def __init__(self):
                self.fast = Two().fast or is_blackwell()
        class Two:
            def __init__(self):
                self.fast = One().fast or is_blackwell()
        X = One().fast
        Y = Two().fast
        """
}
ASSUMED = {
    "d.py": """
        from serve.utils import helper
        def _fits(arch):
            return arch in ("80", "86")
        def _plain():
            return helper.limit == 3
        X = not _fits(helper.arch)
        Y = _plain() or X
        Z = helper.has_sm120 or helper.has_sm80
        """
}


ASKED = [
    pytest.param(CIRCLE, ("a.A", "b.B", "b.C"), id="names"),
    pytest.param(CHAIN, ("chain.f0", "chain.f5", "chain.f9"), id="calls"),
    pytest.param(CLASSES, ("c.X", "c.Y"), id="attributes"),
    pytest.param(ASSUMED, ("d.X", "d.Y", "d.Z"), id="by a name"),
]


def _trees(tmp_path: Path, files: dict[str, str]) -> StoredTrees:
    every = {"utils.py": UTILS, **files}
    return stored(tmp_path, {"serve": {f"python/serve/{n}": t for n, t in every.items()}})


def _fresh(modules: Modules, capability: tuple[int, int] = (12, 0)) -> GateScanner:
    scanner = GateScanner(modules, capability)
    scanner.lines = range(1, 1000)
    return scanner


def _ask(scanner: GateScanner, name: str) -> object:
    part, _, name = name.partition(".")
    module = scanner.modules.get(f"serve.{part}")
    assert module is not None
    found = scanner.module_name(module, name)
    if name.startswith("f"):
        found = scanner.invoke(found.known, [], {}, arch=False)
    return found.known, found.arch


@pytest.mark.parametrize(("files", "names"), ASKED)
def test_whatever_is_asked_first(
    tmp_path: Path, files: dict[str, str], names: tuple[str, ...]
) -> None:
    modules = Modules(_trees(tmp_path, files))
    alone = {name: _ask(_fresh(modules), name) for name in names}
    for order in permutations(names):
        scanner = _fresh(modules)
        assert {name: _ask(scanner, name) for name in order} == alone, order
    assert (True, True) in alone.values()


@pytest.mark.parametrize(("files", "names"), ASKED)
def test_capabilities_share_only_what_does_not_depend_on_them(
    tmp_path: Path, files: dict[str, str], names: tuple[str, ...]
) -> None:
    modules = Modules(_trees(tmp_path, files))
    both = ((8, 0), (12, 0))
    alone = {(c, name): _ask(_fresh(modules, c), name) for c in both for name in names}
    assert any(alone[both[0], name] != alone[both[1], name] for name in names)
    for order in permutations(alone):
        scanners = {c: _fresh(modules, c) for c in both}
        scanners[12, 0].common = scanners[8, 0].common
        assert {(c, name): _ask(scanners[c], name) for c, name in order} == alone, order


def test_a_record_counts_only_as_long_as_the_names_mean_the_same(tmp_path: Path) -> None:
    """What makes a long function worth evaluating may be decided in a file it does not touch."""
    idle = "".join(f"                x{n} = {n}\n" for n in range(14))
    files = {
        "python/serve/utils.py": UTILS,
        "python/serve/flags.py": "from serve.utils import is_blackwell\nFAST_PATH = True\n",
        "python/serve/thing.py": f"""
        from serve.flags import FAST_PATH
        class Thing:
            def fits(self):
{idle}
                return FAST_PATH
        """,
        "python/serve/a.py": """
        from serve.thing import Thing
        from serve.utils import is_blackwell
        def f():
            if is_blackwell() and Thing().fits():
                return g()
        """,
    }

    def places(cache: Path | None) -> list[tuple[str, str]]:
        found = inventory(stored(tmp_path, {"serve": files}), ["serve"], cache)
        return [(g.condition, str(g.values)) for g in found.gates if g.path.endswith("/a.py")]

    before = places(tmp_path / "cache")
    files["python/serve/flags.py"] = (
        "from serve.utils import is_blackwell\nFAST_PATH = is_blackwell()\n"
    )
    after = places(tmp_path / "cache")
    assert after == places(None)
    assert after != before
