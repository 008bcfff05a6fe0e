"""Decision tables: gates found by what they say, evaluated for each capability."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.smoke.decisions import (
    CAPABILITIES,
    CAPABILITY,
    MISSING,
    ConditionGate,
    Dtype,
    Expression,
    FunctionGate,
    PerCapability,
    Raised,
    Tensor,
    ValueGate,
    decision_table,
)
from patchwright.smoke.outcomes import SmokeError
from sources import make_trees

UTILS = """
import torch
from functools import lru_cache, partial

def _check(majors, cuda):
    return (torch.cuda.get_device_capability()[0] in majors
            and tuple(map(int, torch.version.cuda.split("."))) >= cuda)

is_blackwell = is_blackwell_supported = lru_cache(maxsize=1)(
    partial(_check, majors=[10, 11, 12], cuda=(12, 8)))
is_sm90 = lru_cache(maxsize=1)(partial(_check, majors=[9], cuda=(12, 3)))
"""
GATES = """
import enum
import torch
from .utils import is_blackwell, is_sm90

_open = is_sm90() or is_blackwell()

class Backend(enum.Enum):
    AUTO = "auto"
    FAST = "fast"

def gate(batch):
    return _open and batch <= 128

def backend(wanted=Backend.AUTO):
    if wanted is not Backend.AUTO:
        return wanted
    return Backend.FAST if is_blackwell() else fallback

def fallback():
    import kernels

def constraints(capability):
    major, minor = capability
    if major == 9:
        return 8, 8
    raise ValueError(f"unsupported: {major}.{minor}")

def supported(ccs):
    def decorate(function):
        function.is_supported = lambda cc: cc in ccs
        return function
    return decorate

@supported([100, 120])
def requirement(a): ...

class Args:
    limit = 10

    def adjust(self, model):
        name = torch.cuda.get_device_name()
        is_old = "A100" in name
        for part in model:
            size = part
        if self.flag:
            from .utils import is_sm90 as sm90
            if model == "moe" and not is_old:
                if is_blackwell():
                    self.fast = True
                elif sm90():
                    self.fast = "sm90"
                else:
                    self.fast = False
            if size > 1:
                self.big = True
        assert True, "x"
        if self.checked() and any(name for name in [model]):
            raise RuntimeError("no " + model)
        self.kind = "new" if is_blackwell() else "old"
        return self.kind

    def checked(self):
        return self.limit > 5
"""
Table = Callable[..., dict[str, object]]
PATH = "python/serve/gates.py"
BLACKWELL = dict.fromkeys(CAPABILITIES, False) | dict.fromkeys(
    ("10.0", "10.3", "11.0", "12.0", "12.1"), True
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    trees = make_trees(
        tmp_path, {"serve": {PATH: GATES, "python/serve/utils.py": UTILS}, "kern": {}}
    )

    def call(gate: Any, *args: object, **kwargs: Any) -> dict[str, object]:
        return decision_table(trees, gate, *args, **kwargs)

    return call


def function(name: str, **kwargs: Any) -> FunctionGate:
    return FunctionGate("serve", PATH, name, **kwargs)


def condition(assigns: str, **kwargs: Any) -> ConditionGate:
    return ConditionGate("serve", PATH, "Args.adjust", assigns, **kwargs)


def test_a_function_is_evaluated_for_each_capability_from_nothing(table: Table) -> None:
    # The predicates cache their answer: a leak would repeat the first row's.
    assert table(function("gate"), 128) == BLACKWELL | {"9.0": True}
    assert table(function("gate"), 129) == dict.fromkeys(CAPABILITIES, False)


def test_an_old_cuda_closes_the_gate(table: Table) -> None:
    found = table(function("gate"), 1, cuda="12.4", capabilities=("9.0", "12.0"))
    assert found == {"9.0": True, "12.0": False}


def test_constants_functions_and_enumerations_compare(table: Table) -> None:
    assert table(function("_open")) == BLACKWELL | {"9.0": True}
    found = table(function("backend"), capabilities=("8.0", "12.0"))
    assert found == {"8.0": "fallback", "12.0": "Backend.FAST"}
    found = table(function("backend"), Expression("Backend.FAST"), capabilities=("8.0",))
    assert found == {"8.0": "Backend.FAST"}


def test_an_exception_of_upstream_is_a_value(table: Table) -> None:
    found = table(function("constraints"), CAPABILITY, capabilities=("9.0", "12.1"))
    assert found == {"9.0": (8, 8), "12.1": Raised("ValueError", "unsupported: 12.1")}


def test_what_a_decorator_attached_is_a_gate(table: Table) -> None:
    number = PerCapability(lambda capability: capability[0] * 10 + capability[1])
    found = table(function("requirement.is_supported"), number)
    assert [name for name, value in found.items() if value] == ["10.0", "12.0"]


def test_a_method_runs_on_what_the_test_gives_and_the_class_for_the_rest(table: Table) -> None:
    closed = SimpleNamespace(flag=False, limit=1)
    found = table(function("Args.adjust"), closed, "m", capabilities=("8.0", "12.0"))
    assert found == {"8.0": "old", "12.0": "new"}
    # With the class's own `limit`, `checked()` passes; the message is upstream's.
    found = table(function("Args.adjust"), SimpleNamespace(flag=False), "m", capabilities=("8.0",))
    assert found == {"8.0": Raised("RuntimeError", "no m")}


def test_what_a_method_leaves_in_self_is_a_gate(table: Table) -> None:
    stub = SimpleNamespace(flag=False, limit=1)
    found = table(function("Args.adjust", reads="kind"), stub, "m", capabilities=("8.0", "12.0"))
    assert found == {"8.0": "old", "12.0": "new"}
    assert vars(stub) == {"flag": False, "limit": 1}


def test_a_condition_is_found_by_the_statement_in_its_branch(table: Table) -> None:
    assert table(condition("self.fast = True")) == BLACKWELL
    sm90 = table(condition("self.fast = 'sm90'"))
    assert [name for name, value in sm90.items() if value] == ["9.0"]


def test_the_else_branch_is_the_negated_condition(table: Table) -> None:
    found = table(condition("self.fast = False"))
    assert [name for name, value in found.items() if not value] == ["9.0"]


def test_enclosing_ifs_hold_as_well_when_asked_for(table: Table) -> None:
    both = condition("self.fast = True", enclosing=1)
    # `is_old` is evaluated from upstream's own assignment before the `if`.
    assert table(both, names={"model": "moe"}) == BLACKWELL
    assert not any(table(both, names={"model": "dense"}).values())
    every = condition("self.fast = 'sm90'", enclosing=-1)
    names = {"model": "moe", "self": SimpleNamespace(flag=True)}
    assert [name for name, value in table(every, names=names).items() if value] == ["9.0"]
    names["self"] = SimpleNamespace(flag=False)
    assert not any(table(every, names=names).values())


def test_dots_match_anything(table: Table) -> None:
    found = table(
        condition("raise RuntimeError(...)"), names={"self": SimpleNamespace(), "model": "m"}
    )
    assert found == dict.fromkeys(CAPABILITIES, True)


def test_an_ambiguous_condition_is_told_apart_by_what_it_mentions(table: Table) -> None:
    with pytest.raises(SmokeError, match=r"more than one .*lines 50, 52, 54.*say what it mentions"):
        table(condition("self.fast = ..."))
    with pytest.raises(SmokeError, match="more than one"):
        table(condition("self.fast = ...", mentions="sm90"))
    with pytest.raises(SmokeError, match="the gate moved"):
        table(condition("self.fast = True", mentions="sm90"))


def test_the_value_of_an_assignment_is_a_gate(table: Table) -> None:
    found = table(ValueGate("serve", PATH, "Args.adjust", "self.kind"))
    assert found == {c: "new" if BLACKWELL[c] else "old" for c in CAPABILITIES}
    with pytest.raises(SmokeError, match=r"no assignment to 'self\.other'"):
        table(ValueGate("serve", PATH, "Args.adjust", "self.other"))


@pytest.mark.parametrize("names", [{}, {"self": SimpleNamespace()}])
def test_a_local_that_is_not_plain_must_be_given(table: Table, names: dict[str, object]) -> None:
    with pytest.raises(SmokeError, match=r"gates\.py:\d+: .* reads the local size: give it"):
        table(condition("self.big = True"), names=names)
    found = table(condition("self.big = True"), names={"size": 2}, capabilities=("8.0",))
    assert found == {"8.0": True}


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        (FunctionGate("serve", "python/serve/gone.py", "gate"), "serve: python/serve/gone.py"),
        (function("gone"), "serve: python/serve/gates.py has no gone: the gate moved"),
        (function("Args.gone"), "Args has no gone"),
        (function("requirement.gone"), "requirement has no gone: the gate moved"),
        (condition("self.gone = True"), "has no `if` around 'self.gone = True': the gate moved"),
        (ConditionGate("serve", PATH, "Args.gone", "x = 1"), "has no Args.gone: the gate moved"),
        (condition("x = = 1"), "is not one Python statement"),
    ],
)  # fmt: skip
def test_a_gate_that_moved_is_an_error_that_names_it(table: Table, gate: Any, message: str) -> None:
    with pytest.raises(SmokeError) as caught:
        table(gate, SimpleNamespace())
    assert message in str(caught.value)


def test_a_wrong_call_and_a_poor_stub_are_the_tests_fault(table: Table) -> None:
    with pytest.raises(SmokeError, match="cannot be called like this"):
        table(function("gate"))
    with pytest.raises(SmokeError, match="has no flag and the stub does not give it"):
        table(function("Args.adjust"), SimpleNamespace(), "m")
    poor = SimpleNamespace(device=SimpleNamespace())
    with pytest.raises(SmokeError, match="stub lacks the attribute type"):
        table(
            function("gate"), 1,
            stubs={"is_blackwell": lambda: poor.device.type, "is_sm90": lambda: False},
        )  # fmt: skip


def test_torch_attributes_are_given_by_dotted_name(tmp_path: Path) -> None:
    source = """
    import torch
    def peers(): return torch.cuda.can_device_access_peer(0, 1)
    def kind(x): return isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16 and x.device.type
    """
    trees = make_trees(tmp_path, {"kern": {"kern/a.py": source}})
    gate = FunctionGate("kern", "kern/a.py", "peers")
    for key in ("cuda.can_device_access_peer", "torch.cuda.can_device_access_peer"):
        found = decision_table(trees, gate, torch={key: lambda a, b: a < b}, capabilities=("12.0",))
        assert found == {"12.0": True}
    with pytest.raises(SmokeError, match=r"touches torch\.cuda\.can_device_access_peer"):
        decision_table(trees, gate)
    tensor = Tensor((2, 3), Dtype("bfloat16"))
    kind = FunctionGate("kern", "kern/a.py", "kind")
    assert decision_table(trees, kind, tensor, capabilities=("8.0",)) == {"8.0": "cuda"}


def test_importable_or_not_is_said_by_the_test(tmp_path: Path) -> None:
    source = """
    def enabled():
        try:
            import deep_gemm
        except ImportError:
            return False
        return True
    ENABLED = enabled()
    """
    trees = make_trees(tmp_path, {"kern": {"kern/a.py": source}})
    gate = FunctionGate("kern", "kern/a.py", "ENABLED")
    for stub, expected in ((MISSING, False), (SimpleNamespace(), True)):
        found = decision_table(trees, gate, stubs={"deep_gemm": stub}, capabilities=("8.0",))
        assert found == {"8.0": expected}
