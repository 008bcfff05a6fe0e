"""Slicing: a name of an upstream evaluated from its source, and nothing else executed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.bindings import Modules
from patchwright.smoke.outcomes import SmokeError
from patchwright.smoke.simulated_torch import MISSING, simulated_torch
from patchwright.smoke.slicing import Slice
from sources import make_trees

Evaluate = Callable[..., Any]


@pytest.fixture
def evaluate(tmp_path: Path) -> Evaluate:
    """``evaluate({path: source}, name)``: the value of a name of ``python/serve/main.py``."""

    def call(
        files: dict[str, str],
        name: str = "answer",
        *,
        cuda: str | None = "12.8",
        torch: dict[str, object] | None = None,
        **kwargs: Any,
    ) -> Any:
        serve = {path: text for path, text in files.items() if path.startswith("python/")}
        kern = {path: text for path, text in files.items() if path.startswith("kern/")}
        modules = Modules(make_trees(tmp_path, {"serve": serve, "kern": kern}))
        known = simulated_torch((12, 0), cuda=cuda, extra=torch or {})
        piece = Slice(modules, known=known, **kwargs)
        value = piece.value(modules.at("serve", "python/serve/main.py"), name)
        value = value() if callable(value) else value
        if piece.gaps:
            raise piece.gaps[0]
        return value

    return call


def main(source: str, **others: str) -> dict[str, str]:
    """The files of ``serve``: ``main`` and others, ``pack`` and ``pack_deep`` in a package."""
    paths = {"pack": "pack/__init__", "pack_deep": "pack/deep"}
    return {"python/serve/main.py": source} | {
        f"python/serve/{paths.get(name, name)}.py": text for name, text in others.items()
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(main("answer = 1"), 1, id="constant"),
        pytest.param(main("a = b = 2\ndef answer(): return a + b"), 4, id="chained"),
        pytest.param(main("(a, [b, *c]) = 1, [2, 3]\nanswer = (a, b, c)"), (1, 2, [3]), id="tuple"),
        pytest.param(main("answer = 1\nanswer += 2"), 3, id="augmented"),
        pytest.param(main("answer: 'torch.Unknown' = 3"), 3, id="annotated"),
        pytest.param(main("answer = {}\nanswer['a'] = 1\nanswer.update(b=2)"), {"a": 1, "b": 2},
                     id="filled"),
        pytest.param(main("import os.path as p\nanswer = p.join('a', 'b')"), "a/b", id="import-as"),
        pytest.param(main("from .sub import x as answer", sub="x = 4"), 4, id="relative"),
        pytest.param(main("import serve.sub\nanswer = serve.sub.x", sub="x = 5"), 5, id="dotted"),
        pytest.param(main("from .sub import *\nanswer = x", sub="x = 6\n_y = 7"), 6, id="star"),
        pytest.param(main("from .pack import answer", pack="from .deep import answer",
                          pack_deep="answer = 8"), 8, id="re-export"),
        pytest.param(main("from .pack import deep\nanswer = deep.x", pack="",
                          pack_deep="x = 9"), 9, id="submodule"),
        pytest.param(main("try:\n    from .absent import answer\nexcept ImportError:\n"
                          "    answer = 'none'"), "none", id="try-absent-module"),
        pytest.param(main("try:\n    from .sub import absent\nexcept ImportError:\n"
                          "    answer = 'none'", sub="x = 1"), "none", id="try-absent-name"),
        pytest.param(main("if 1 > 2:\n    answer = 1\nelif True:\n    answer = 2\nelse:\n"
                          "    answer = 3"), 2, id="elif"),
        pytest.param(main("from functools import lru_cache, partial\ndef f(a, b): return a * b\n"
                          "answer = lru_cache(maxsize=1)(partial(f, 3, b=4))"), 12, id="partial"),
        pytest.param(main("class C:\n    y = 2\n    z = y + K\nK = 1\ndef answer(): return C.z"),
                     3, id="class-body-reads-a-later-name"),
        pytest.param(main("from dataclasses import dataclass\n@dataclass\nclass C:\n"
                          "    x: 'Nope' = 5\ndef answer(): return C(7).x"), 7, id="dataclass"),
        pytest.param(main("from enum import Enum\nclass E(Enum):\n    A = 1\n"
                          "def answer(): return E.A.value"), 1, id="enum"),
        pytest.param(main("def f(x: unknown.Type = 1) -> other.Type: return x\n"
                          "def answer(): return f()"), 1, id="annotations-are-not-evaluated"),
        pytest.param(main("def answer(): return [type(N).__name__ for _ in range(2)]\nN = 1"),
                     ["int", "int"], id="comprehension"),
        pytest.param(main("def answer():\n    class Local:\n        value = N\n"
                          "    return Local.value\nN = 3"), 3, id="class-in-a-function"),
        pytest.param(main("from .lazy import ab as answer",
                          lazy="def __getattr__(name): return name * 2"), "abab",
                     id="module-getattr"),
        pytest.param(main("_n = None\ndef set_():\n    global _n\n    _n = 1\n"
                          "def answer():\n    set_()\n    return _n"), 1, id="global"),
    ],
)  # fmt: skip
def test_a_name_is_bound_by_its_own_statements(
    evaluate: Evaluate, files: dict[str, str], expected: object
) -> None:
    assert evaluate(files) == expected


def test_a_package_that_imports_its_own_submodule(evaluate: Evaluate) -> None:
    files = {
        "python/serve/main.py": "from .pack import me\nanswer = me.x",
        "python/serve/pack/__init__.py": "from . import me as me",
        "python/serve/pack/me.py": "x = 1",
    }
    assert evaluate(files) == 1


def test_names_are_followed_into_the_other_upstream(evaluate: Evaluate) -> None:
    files = {
        "python/serve/main.py": "try:\n    import kern.comm as c\n    it = c\n"
        "except ImportError:\n    it = None\ndef answer(): return it.fuse()",
        "kern/__init__.py": "raise RuntimeError('not needed')",
        "kern/comm/__init__.py": "from .inner import fuse as fuse",
        "kern/comm/inner.py": "def fuse(): return 'fused'",
    }
    assert evaluate(files) == "fused"


def test_a_folder_without_init_is_a_package(evaluate: Evaluate) -> None:
    files = main("from .bare.deep import x as answer") | {"python/serve/bare/deep.py": "x = 1"}
    assert evaluate(files) == 1


def test_what_is_not_needed_is_not_executed(evaluate: Evaluate) -> None:
    source = """
    import triton
    from absent_library import *
    raise_now = 1 / 0
    def other(): return triton.compile()
    def answer(): return other if False else "fine"
    """
    assert evaluate(main(source)) == "fine"


def test_later_statements_run_after_the_code_that_comes_before_them(evaluate: Evaluate) -> None:
    # As in an import: the class is closed only after the object was made.
    source = """
    class Field:
        open_ = True
        def __set_name__(self, owner, name):
            assert Field.open_
    class Fields:
        A = Field()
    Field.open_ = False
    def answer(): return Fields.A is not None and Field.open_
    """
    assert evaluate(main(source)) is False


def test_upstreams_platform_probes_see_the_simulated_torch(evaluate: Evaluate) -> None:
    source = """
    import torch
    from functools import lru_cache
    @lru_cache(maxsize=1)
    def is_hip(): return torch.version.hip is not None
    def is_cuda(): return torch.cuda.is_available() and torch.version.cuda
    def is_npu(): return hasattr(torch, "npu") and torch.npu.is_available()
    def answer(): return is_hip(), is_cuda(), is_npu(), torch.cuda.get_device_capability(0)
    """
    assert evaluate(main(source)) == (False, "12.8", False, (12, 0))
    assert evaluate(main(source), cuda=None)[1] is False


def test_dtypes_compare_by_name(evaluate: Evaluate) -> None:
    source = "import torch\nanswer = (torch.half == torch.float16, torch.int8 == torch.uint8)"
    assert evaluate(main(source)) == (True, False)


def test_the_environment_is_the_tests(evaluate: Evaluate, monkeypatch: Any) -> None:
    monkeypatch.setenv("SERVE_FLAG", "of the machine")
    source = "import os\nanswer = (os.getenv('SERVE_FLAG'), os.environ.get('SERVE_FLAG', 'no'))"
    assert evaluate(main(source)) == (None, "no")
    assert evaluate(main(source), env={"SERVE_FLAG": "1"}) == ("1", "1")


def test_filling_an_imported_object_is_not_replayed(evaluate: Evaluate) -> None:
    import builtins

    source = "import builtins\nbuiltins.SERVE_MAX = 1\nanswer = builtins.len('ab')"
    assert evaluate(main(source)) == 2
    assert not hasattr(builtins, "SERVE_MAX")


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("import triton\ndef answer(): return triton.x", "the module triton"),
        ("def answer():\n    import deep_gemm", "the module deep_gemm"),
        ("def answer(): return nowhere", "the name nowhere is not bound in python/serve/main.py"),
        ("import torch\ndef answer(): return torch.compiler.x", "touches torch.compiler"),
        ("from torch import nn\ndef answer(): return nn.Linear(1)", "touches torch.nn.Linear"),
        ("from torch.library import Library\ndef answer(): return Library('x')",
         "uses torch.library.Library"),
        ("import torch\ndef answer(): return torch.cuda.can_device_access_peer(0, 1)",
         "touches torch.cuda.can_device_access_peer"),
        ("import os\ndef answer(): return os.path.exists('/')", "touches os.path.exists"),
        ("import subprocess\ndef answer(): return subprocess.run(['x'])", "touches subprocess.run"),
        ("import importlib.metadata\ndef answer(): return importlib.metadata.version('serve')",
         "importlib.metadata.version"),
        ("import importlib.util\ndef answer(): return importlib.util.find_spec('habana')",
         "the module habana"),
        ("def answer(): return open('/etc/passwd')", "calls open()"),
    ],
)  # fmt: skip
def test_what_nobody_gives_is_named(evaluate: Evaluate, source: str, missing: str) -> None:
    with pytest.raises(SmokeError) as caught:
        evaluate(main(source))
    assert missing in str(caught.value)
    assert "python/serve/main.py:" in str(caught.value)
    assert "(answer)" in str(caught.value)


@pytest.mark.parametrize("clause", ["except:", "except Exception:"])
def test_upstreams_own_except_does_not_hide_a_gap(evaluate: Evaluate, clause: str) -> None:
    source = f"try:\n    import sgl_kernel\n    answer = True\n{clause}\n    answer = False"
    with pytest.raises(SmokeError, match="the module sgl_kernel"):
        evaluate(main(source))


def test_a_stub_is_a_module_a_name_or_missing(evaluate: Evaluate) -> None:
    source = """
    from .sub import probe
    def answer():
        try:
            import deep_gemm
        except ImportError:
            return "none", probe()
        return deep_gemm.version, probe()
    """
    files = main(source, sub="def probe(): return 'real'")
    there = SimpleNamespace(version=2)
    assert evaluate(files, stubs={"deep_gemm": MISSING}) == ("none", "real")
    assert evaluate(files, stubs={"deep_gemm": there}) == (2, "real")
    assert evaluate(files, stubs={"deep_gemm.version": 3}) == (3, "real")
    for name in ("probe", "serve.sub.probe", "serve.main.probe"):
        stubs = {"deep_gemm": MISSING, name: lambda: "stub"}
        assert evaluate(files, stubs=stubs) == ("none", "stub")


def test_a_stub_replaces_what_the_module_binds_itself(evaluate: Evaluate) -> None:
    source = (
        "try:\n    a = 1 / 1\n    b = a\nexcept Exception:\n    b = 0\ndef answer(): return a, b"
    )
    assert evaluate(main(source), stubs={"a": 5}) == (5, 1.0)


def test_installed_packages_are_those_of_the_test(evaluate: Evaluate) -> None:
    source = """
    from importlib.util import find_spec
    def answer(): return [find_spec(name) is not None for name in ("kern", "aiter", "pytest")]
    """
    files = main(source) | {"kern/__init__.py": ""}
    stubs = {"aiter": MISSING, "pytest": SimpleNamespace()}
    assert evaluate(files, stubs=stubs) == [True, False, True]
