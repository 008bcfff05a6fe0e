"""Routes from a gate of one upstream to what refuses the capability in the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from audits import stored
from patchwright.audit.inventory import inventory
from patchwright.audit.knowledge import Knowledge
from patchwright.audit.routes import Route, Router, admitting, describe
from patchwright.audit.uses import Uses
from patchwright.smoke.bindings import Modules

UTILS = """
    import torch
    def is_blackwell():
        return torch.cuda.get_device_capability()[0] in [10, 11, 12]
"""
KERN = {
    "kern/__init__.py": "from .ops import gemm, fused\n",
    "kern/ops.py": """
        from .jit import gen_gemm_module, gen_moe_module

        @supported_compute_capability([100, 103, 120])
        def _cutlass(a): ...

        @supported_compute_capability([100, 103])
        def _trtllm(a): ...

        @backend_requirement({"cutlass": _cutlass, "trtllm": _trtllm})
        def gemm(a, backend="cutlass"):
            return gen_gemm_module().build_and_load().gemm(a)

        def fused(a):
            return gen_moe_module().build_and_load().run(a)
    """,
    "kern/jit.py": """
        def gen_gemm_module():
            return gen_jit_spec("gemm", flags(supported_major_versions=[10, 12]))

        def gen_moe_module():
            return gen_jit_spec("moe", flags(supported_major_versions=[9, 10]))
    """,
}


def route_of(
    tmp_path: Path, text: str, condition: str, kern: dict[str, str] | None = None
) -> Route:
    serve = {"python/serve/utils.py": UTILS, "python/serve/a.py": text}
    trees = stored(tmp_path, {"kern": KERN | (kern or {}), "serve": serve})
    found = inventory(trees, ["kern", "serve"])
    gates = admitting(found.gates, "12.0", "serve")
    (gate,) = [g for g in gates if condition in g.condition and g.path == "python/serve/a.py"]
    uses = Uses(trees, Modules(trees))
    return Router(uses, Knowledge((), {}, {}), "12.0", found.marks(trees)).route(gate)


def test_the_backend_decides_which_list_is_asked(tmp_path: Path) -> None:
    text = """
        from kern import gemm
        from serve.utils import is_blackwell
        def linear(x):
            return gemm(x, backend="{}")
        def choose():
            if is_blackwell():
                return linear
    """
    refused = route_of(tmp_path / "a", text.format("trtllm"), "is_blackwell")
    (chain,) = refused.refused
    assert chain.refusal is not None
    assert chain.refusal.why == "gemm(backend='trtllm') refuses compute capability 12.0"
    assert describe(chain) == [
        "serve: python/serve/a.py:7 choose",
        "serve: python/serve/a.py:4 linear  (called at a.py:8)",
        "kern: kern/ops.py:11 gemm  (called at a.py:5)",
        "gemm(backend='trtllm') refuses compute capability 12.0",
    ]
    open_ = route_of(tmp_path / "b", text.format("cutlass"), "is_blackwell")
    assert open_.refused == ()
    assert open_.modules == ("kern/jit.py::gen_gemm_module",)


def test_an_answer_is_followed_to_where_it_is_asked_for(tmp_path: Path) -> None:
    text = """
        from kern import fused
        from serve.utils import is_blackwell
        class Layer:
            def forward_with_the_fusion(self, x):
                return fused(x)
        def may_fuse(batch):
            return is_blackwell() and batch > 0
        def forward(layer, x):
            if may_fuse(1):
                return layer.forward_with_the_fusion(x)
    """
    (chain,) = route_of(tmp_path, text, "batch > 0").refused
    assert chain.refusal is not None
    assert chain.refusal.why == (
        "opens onto gen_moe_module, which does not build for major version 12 (it lists [9, 10])"
    )


def test_a_configuration_value_is_followed_to_where_it_is_asked_for(tmp_path: Path) -> None:
    text = """
        from enum import Enum
        from kern import fused
        from serve.utils import is_blackwell
        class Backend(Enum):
            FAST = "fast_kernel"
            SLOW = "slow_kernel"
            def is_fast_kernel(self):
                return self == Backend.FAST
        class Args:
            def adjust(self):
                if is_blackwell():
                    self.backend = "fast_kernel"
        class Method:
            def __init__(self):
                self.use_fast = backend().is_fast_kernel()
            def apply(self, x):
                if self.use_fast:
                    return fused(x)
    """
    (chain,) = route_of(tmp_path, text, "is_blackwell").refused
    assert [s.function for s in chain.steps] == ["Method.apply", "fused", "gen_moe_module"]


def test_a_branch_that_the_capability_cannot_take_is_no_route(tmp_path: Path) -> None:
    text = """
        import torch
        from kern import fused
        from serve.utils import is_blackwell
        def run(x):
            if torch.cuda.get_device_capability()[0] >= 11:
                return None
            return fused(x)
        def choose(x):
            if is_blackwell():
                return run(x)
    """
    assert route_of(tmp_path, text, "is_blackwell").chains == ()


def test_a_refusal_lets_through_what_comes_after_it(tmp_path: Path) -> None:
    text = """
        from kern import fused
        from serve.utils import is_blackwell
        def run(x):
            if not is_blackwell():
                raise RuntimeError("needs Blackwell")
            return fused(x)
    """
    (chain,) = route_of(tmp_path, text, "is_blackwell").refused
    assert [s.function for s in chain.steps] == ["run", "fused", "gen_moe_module"]


def test_a_long_function_that_says_no_ends_a_route(tmp_path: Path) -> None:
    filler = "\n".join(f"            log({n})" for n in range(20))
    text = f"""
        from kern import gemm
        from serve.utils import is_blackwell
        def allowed():
            if is_blackwell():
                return {{answer}}
{filler}
            return True
        ALLOWED = allowed()
        def linear(x):
            return gemm(x, backend="trtllm")
        def choose():
            if is_blackwell():
                if ALLOWED:
                    return linear
    """
    condition = "is_blackwell"
    for answer, refused in (("True", 1), ("False", 0)):
        serve = {"python/serve/utils.py": UTILS, "python/serve/a.py": text.format(answer=answer)}
        trees = stored(tmp_path / answer, {"kern": KERN, "serve": serve})
        found = inventory(trees, ["kern", "serve"])
        gates = admitting(found.gates, "12.0", "serve")
        (gate,) = [g for g in gates if g.function == "choose" and condition in g.condition]
        uses = Uses(trees, Modules(trees))
        route = Router(uses, Knowledge((), {}, {}), "12.0", found.marks(trees)).route(gate)
        assert len(route.refused) == refused


@pytest.mark.parametrize(
    ("flags", "refused"),
    [
        ("flags = sm90a_nvcc_flags", True),
        # Another way to build: what upstream's fa2 beside fa3 is.
        ("flags = []\n    if kind == 'fa3':\n        flags += sm90a_nvcc_flags", False),
        ("flags = sm90a_nvcc_flags if kind else sm100a_nvcc_flags", True),
        ("flags = sm90a_nvcc_flags if kind else sm120a_nvcc_flags", False),
        (
            "if kind:\n        flags = sm90a_nvcc_flags\n    else:\n        raise ValueError(kind)",
            True,
        ),
    ],
)
def test_flags_of_one_architecture_count_where_they_are_used_whatever_is_asked(
    tmp_path: Path, flags: str, refused: bool
) -> None:
    jit = f"def gen_moe_module(kind):\n    {flags}\n    return gen_jit_spec('moe', flags)\n"
    ops = """
        from .jit import gen_moe_module
        def fused(a, kind):
            return gen_moe_module(kind).build_and_load().run(a)
    """
    text = """
        from kern.ops import fused
        from serve.utils import is_blackwell
        def run(x, kind):
            if is_blackwell():
                return fused(x, kind)
    """
    kern = {"kern/jit.py": jit, "kern/ops.py": ops, "kern/__init__.py": ""}
    (chain,) = route_of(tmp_path, text, "is_blackwell", kern).chains
    assert (chain.refusal is not None) == refused
    assert chain.module == "kern/jit.py::gen_moe_module"


def test_what_a_flag_of_one_name_leads_to_is_told_once(tmp_path: Path) -> None:
    """One name, handed on by hundreds of functions: each way through them ends the same."""
    handed = "\n".join(
        f"def run_{n}(enable_pdl):\n    enable_pdl = enable_pdl\n    return enable_pdl"
        for n in range(300)
    )
    last = "def launch(enable_pdl):\n    if enable_pdl:\n        return 1\n"
    trees = stored(tmp_path, {"kern": {"kern/__init__.py": f"{handed}\n{last}"}})
    found = Uses(trees, Modules(trees)).of_name("kern", "enable_pdl")
    assert [start.name for start in found] == ["launch"]
