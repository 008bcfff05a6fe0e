"""Routes: from a place in one upstream to the generators that it ends in, by its source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from patchwright.smoke.outcomes import SmokeError
from patchwright.smoke.route import Hop, Routes, route
from sources import make_trees

# A kernel library in flashinfer's manner.
KERN = {
    "kern/__init__.py": "from .ops import quantize as quantize\nfrom . import jit as jit",
    "kern/jit/__init__.py": "from . import core as core\nfrom .core import gen_jit_spec\n"
    "from .comm import gen_comm_module as gen_comm_module",
    "kern/jit/core.py": """
        class Spec:
            def build_and_load(self):
                return load(self)

        def load(spec):
            import tvm
            return tvm.load(spec)

        def gen_jit_spec(name, sources):
            return Spec()
        """,
    "kern/jit/comm.py": """
        from .core import gen_jit_spec

        def gen_comm_module():
            return gen_jit_spec("comm", [])

        def gen_other_module():
            return gen_jit_spec("other", [])

        def gen_any(name):
            spec = gen_jit_spec(name, [])
            return spec

        def gen_sm90_module():
            return gen_any("90")

        def gen_sm120_module():
            return gen_any("120")
        """,
    "kern/comm.py": """
        import functools
        from types import SimpleNamespace
        from .jit import gen_comm_module
        from .jit.comm import gen_other_module

        @functools.cache
        def get_comm_module():
            module = gen_comm_module().build_and_load()

            def fuse(x):
                module.fuse(x)

            return SimpleNamespace(fuse=fuse)

        def fuse(x):
            return get_comm_module().fuse(x)

        def other(x):
            return gen_other_module().build_and_load()
        """,
    "kern/ops.py": """
        from .jit import comm

        def pick(backend):
            if backend == "120":
                return comm.gen_sm120_module().build_and_load()
            return {"90": comm.gen_sm90_module}[backend]().build_and_load()

        def quantize(x, backend):
            return pick(backend).quantize(x)
        """,
}
Find = Callable[..., Routes]


@pytest.fixture
def find(tmp_path: Path) -> Find:
    def call(source: str, name: str = "start", **others: str) -> Routes:
        serve = {f"python/serve/{module}.py": text for module, text in others.items()}
        serve["python/serve/main.py"] = source
        trees = make_trees(tmp_path, {"serve": serve, "kern": KERN})
        return route(trees, "serve", "python/serve/main.py", name)

    return call


def generators(routes: Routes) -> list[str]:
    return [found.entry.partition("::")[2] for found in routes]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("import kern.comm\ndef start(x): kern.comm.fuse(x)", id="import"),
        pytest.param("def start(x):\n    from kern.comm import fuse\n    fuse(x)", id="local"),
        pytest.param("_c = None\ntry:\n    import kern.comm as c\n    _c = c\nexcept ImportError:\n"
                     "    pass\ndef start(x): _c.fuse(x)", id="alias-in-try"),
        pytest.param("import kern.comm as c\nclass M:\n    def go(self): c.fuse(1)\n_m = M()\n"
                     "def start(x): _m.go()", id="module-instance"),
        pytest.param("import kern.comm as c\nclass B:\n    def go(self): c.fuse(1)\nclass M(B):\n"
                     "    def run(self): self.go()\ndef start(x): M().run()", id="base-class"),
        pytest.param("import kern.comm as c\nclass M:\n    def __init__(self): self.f = c.fuse\n"
                     "def start(x): M().f(x)", id="self-attribute"),
        pytest.param("import kern.comm as c\nclass M:\n    def __init__(self): c.fuse(0)\n"
                     "def start(x): M()", id="constructor"),
        pytest.param("import kern.comm as c\nclass M:\n    @property\n    def p(self): c.fuse(0)\n"
                     "def start(x, m: M): return m.p", id="annotated-property"),
        pytest.param("import kern.comm as c, functools\ndef go(a, b): c.fuse(a)\n"
                     "quick = functools.lru_cache(maxsize=1)(functools.partial(go, 1))\n"
                     "def start(x): quick(2)", id="partial"),
        pytest.param("import kern.comm as c\ndef start(x): return later(c.fuse)\n"
                     "def later(f): return f(1)", id="as-an-argument"),
        pytest.param("import kern.comm as c\n_it = None\ndef init():\n    global _it\n    _it = c\n"
                     "def start(x): _it.fuse(x)", id="global"),
        pytest.param("from .sub import *\ndef start(x): go(x)", id="star"),
        pytest.param("import kern.comm as c\ndef start(x):\n    def inner(): c.fuse(x)\n"
                     "    return inner()", id="inner-function"),
        pytest.param("import kern.comm as c\ndef start(x): [c.fuse(y) for y in x]", id="listcomp"),
        pytest.param("import kern.comm as c\ndef start(x): getattr(c, 'fuse')(x)", id="getattr"),
        pytest.param("import kern.comm as c\nTABLE = {'a': c.fuse}\ndef start(x): TABLE[x](1)",
                     id="table"),
    ],
)  # fmt: skip
def test_every_way_of_naming_is_followed_to_the_generator(find: Find, source: str) -> None:
    sub = "from kern import comm\ndef go(x): comm.fuse(x)"
    (found,) = find(source, sub=sub)
    assert found.generator == found.entry == "kern/jit/comm.py::gen_comm_module"
    assert found.generator_upstream == "kern"


def test_a_route_can_be_read(find: Find) -> None:
    (found,) = find("\nfrom kern import comm\ndef start(x):\n    return comm.fuse(x)\n")
    names = ["start", "fuse", "get_comm_module", "gen_comm_module"]
    assert [hop.function for hop in found.hops] == names
    assert found.hops[0] == Hop("serve", "python/serve/main.py", 3, "start")
    assert found.hops[1] == Hop("kern", "kern/comm.py", 16, "fuse", called_at=4)
    assert found.describe().splitlines()[:2] == [
        "serve: python/serve/main.py:3 start",
        "python/serve/main.py:4 -> kern: kern/comm.py:16 fuse",
    ]


def test_what_the_body_does_not_reach_is_not_on_a_route(find: Find) -> None:
    source = """
    from kern.comm import fuse, other
    from kern import quantize
    _elsewhere = other(1)

    def unrelated(): return quantize(1, "90")

    def decorate(function): return other

    def start(x: "other" = None) -> quantize:
        def never(): return other(x)
        return fuse(x)
    """
    assert generators(find(source)) == ["gen_comm_module"]


def test_a_function_that_only_shares_the_name_is_no_generator(find: Find) -> None:
    source = """
    def start(x): return gen_comm_module(x)
    def gen_comm_module(x): return build_jit_spec(x)
    def build_jit_spec(x): return "gen_jit_spec("
    """
    assert find(source) == ()


def test_each_function_that_gives_a_shared_spec_is_an_entry(find: Find) -> None:
    routes = find("from kern import quantize\ndef start(x): quantize(x, '120')")
    assert generators(routes) == ["gen_sm120_module", "gen_sm90_module"]
    assert {found.generator for found in routes} == {"kern/jit/comm.py::gen_any"}
    assert [hop.function for hop in routes[0].hops][-2:] == ["gen_sm120_module", "gen_any"]


def test_the_shortest_comes_first(find: Find) -> None:
    source = """
    from kern.comm import fuse, other
    def far(x): return further(x)
    def further(x): return fuse(x)
    def start(x):
        far(x)
        other(x)
    """
    routes = find(source)
    assert generators(routes) == ["gen_other_module", "gen_comm_module"]
    assert [len(found.hops) for found in routes] == [3, 6]


def test_a_method_can_be_the_start(find: Find) -> None:
    source = """
    from kern import comm
    class Layer:
        def forward(self, x):
            return self.fused(x)
        def fused(self, x):
            return comm.fuse(x)
    """
    assert generators(find(source, "Layer.forward")) == ["gen_comm_module"]


def test_what_is_decided_at_run_time_is_recorded_not_guessed(find: Find) -> None:
    source = """
    import torch
    def start(x, run):
        torch.empty(1)
        run(x)
        x.size()
    """
    routes = find(source)
    assert not routes
    assert [(item.line, item.text) for item in routes.unresolved] == [(5, "run"), (6, "x.size")]


def test_recursion_ends(find: Find) -> None:
    source = """
    from kern import comm
    a = b = None
    def start(x):
        y = x or y
        return again(y)
    def again(x):
        return start(x) or again(x) or comm.fuse(x)
    """
    assert generators(find(source)) == ["gen_comm_module"]


@pytest.mark.parametrize("name", ["gone", "Layer.gone"])
def test_a_start_that_moved_is_an_error(find: Find, name: str) -> None:
    with pytest.raises(SmokeError, match=f"has no {name}: the gate moved"):
        find("class Layer: ...", name)
