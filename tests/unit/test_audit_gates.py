"""The gates of a file: which shapes are found, and what each is for every capability."""

from __future__ import annotations

from pathlib import Path

import pytest

from audits import UTILS, stored
from patchwright.audit.gates import CAPABILITIES, Gate
from patchwright.audit.inventory import inventory

WORDS = {True: "T", False: "F", None: "?"}


def gates_of(tmp_path: Path, text: str, **files: str) -> list[Gate]:
    named = {f"python/serve/{name}.py": body for name, body in files.items()}
    trees = stored(
        tmp_path,
        {"serve": {"python/serve/utils.py": UTILS, "python/serve/a.py": text, **named}},
    )
    found = inventory(trees, ["serve"])
    assert found.unread == []
    return [gate for gate in found.gates if gate.path == "python/serve/a.py"]


def row(gate: Gate) -> str:
    assert tuple(gate.values) == CAPABILITIES
    return "".join(WORDS[value] for value in gate.values.values())


def only(gates: list[Gate], kind: str) -> Gate:
    (found,) = [gate for gate in gates if gate.kind == kind]
    return found


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        pytest.param(
            """
            from serve.utils import is_blackwell
            def f(x):
                if is_blackwell() and x:
                    return g()
            """,
            "predicate", "FFF?????", id="one name of a chained assignment",
        ),
        pytest.param(
            """
            from serve import utils
            _device_sm = utils.get_device_sm()
            def f():
                if 90 <= _device_sm < 120:
                    return g()
            """,
            "comparison", "FFTTTTFF", id="a chained comparison of a module-level name",
        ),
        pytest.param(
            """
            import torch
            def f(device):
                if torch.cuda.get_device_capability(device)[0] not in [9, 10, 12]:
                    raise RuntimeError("XQA is not there")
            """,
            "comparison", "TTFFFTFF", id="a subscript that is not in a list",
        ),
        pytest.param(
            """
            import torch
            class A:
                def __init__(self, device):
                    self.device_sm_major = torch.cuda.get_device_capability()[0]
                def f(self):
                    if self.device_sm_major >= 10:
                        return g()
            """,
            "comparison", "FFFTTTTT", id="an attribute that another method sets",
        ),
        pytest.param(
            """
            def module(backend):
                if backend in ("120", "121"):
                    return g()
            """,
            "parameter", "FFFFFFTT", id="an argument that holds an architecture as text",
        ),
        pytest.param(
            """
            import torch
            def _match(device, versions):
                major, minor = torch.cuda.get_device_capability(device)
                return f"{major}{minor}" in versions
            def f(device):
                if _match(device, ["120"]):
                    raise ValueError("121 is forgotten")
            """,
            "predicate", "FFFFFFTF", id="the capability as text in a list that is handed over",
        ),
        pytest.param(
            """
            import torch
            SIZES = {9: 1, 10: 2}
            def f():
                return SIZES[torch.cuda.get_device_capability()[0]]
            """,
            "table", "FFTTTFFF", id="a dictionary keyed by the major version",
        ),
        pytest.param(
            """
            import torch
            def f():
                major = torch.cuda.get_device_capability()[0]
                if major == 8:
                    return 1
                elif major == 9:
                    return 2
                else:
                    raise ValueError("Unsupported")
            """,
            "otherwise", "FFFTTTTT", id="the else that raises",
        ),
        pytest.param(
            """
            from serve.utils import is_sm120a_supported
            if is_sm120a_supported(0):
                from flash import quantize
            """,
            "import", "FFFFFFTF", id="an import that the architecture decides",
        ),
        pytest.param(
            """
            def gen(target_archs):
                return any(major == 9 for major, minor in target_archs)
            """,
            "parameter", "FFTFFFFF", id="a condition on each of several",
        ),
        pytest.param(
            """
            import torch
            def name():
                capability = torch.cuda.get_device_capability()
                return f"9.0{'a' if capability[0] >= 9 else ''}"
            """,
            "comparison", "FFTTTTTT", id="a condition in a text",
        ),
        pytest.param(
            """
            def gen():
                return context.flags(
                    supported_major_versions=[
                        12,
                    ]
                )
            """,
            "jit-list", "FFFFFFTT", id="a list over several lines",
        ),
        pytest.param(
            """
            @supported_compute_capability([100, 103])
            def check(a):
                return True
            """,
            "decorator", "FFFTTFFF", id="a capability decorator",
        ),
        pytest.param(
            """
            def gen(use_sm_100f):
                return spec(
                    flags=["-DGDC=1"] + sm100f_nvcc_flags if use_sm_100f else sm100a_nvcc_flags
                )
            """,
            "parameter", "", id="a flag that one branch loses",
        ),
        pytest.param(
            """
            def build(specs, has_sm100):
                if has_sm100:
                    specs.append(gen_a())
            """,
            "aot", "FFFTFFFF", id="a condition of the ahead-of-time build",
        ),
        pytest.param(
            """
            def choose(major):
                if major >= 10:
                    return g()
            """,
            "parameter", "FFFTTTTT", id="a major version that was handed in",
        ),
        pytest.param(
            """
            def kernel(sm, head_size):
                if sm == 90 and head_size < 256:
                    return g()
            """,
            "parameter", "FF?FFFFF", id="an SM number that was handed in",
        ),
    ],
)  # fmt: skip
def test_the_shapes_that_count(tmp_path: Path, text: str, kind: str, values: str) -> None:
    gates = gates_of(tmp_path, text)
    if not values:
        flags = [g for g in gates if "loses" in g.effect]
        assert [g.effect.partition(",")[0] for g in flags] == ["then also -DGDC=1"]
        return
    assert row(only(gates, kind)) == values


def test_a_name_derived_in_another_module_is_followed(tmp_path: Path) -> None:
    config = """
        from serve.utils import get_device_sm, is_blackwell
        def _enabled():
            if get_device_sm() < 90:
                return False
            try:
                import vendor
            except ImportError:
                return False
            return True
        ENABLE_VENDOR = _enabled()
        VENDOR_BLACKWELL = ENABLE_VENDOR and is_blackwell()
    """
    text = """
        from serve.config import VENDOR_BLACKWELL
        def f():
            if VENDOR_BLACKWELL:
                return g()
    """
    assert row(only(gates_of(tmp_path, text, config=config), "alias")) == "FFF?????"


def test_a_requirement_asks_what_its_check_accepts(tmp_path: Path) -> None:
    checks = """
        @supported_compute_capability([100, 103])
        def agrees(x):
            return True
    """
    text = """
        from serve.checks import agrees
        @backend_requirement({}, common_check=agrees)
        def op(x):
            return x
    """
    assert row(only(gates_of(tmp_path, text, checks=checks), "backend")) == "FFFTTFFF"


def test_another_platforms_look_alikes_do_not_count(tmp_path: Path) -> None:
    text = """
        import torch
        from serve.utils import is_hip
        _is_hip = is_hip()
        def f():
            if _is_hip and torch.cuda.get_device_capability() >= (9, 4):
                return g()
            if _is_hip:
                if torch.cuda.get_device_capability()[0] == 9:
                    return h()
    """
    assert [g for g in gates_of(tmp_path, text) if g.kind != "read"] == []


def test_what_is_around_a_condition_is_taken_in(tmp_path: Path) -> None:
    text = """
        import torch
        def f():
            major = torch.cuda.get_device_capability()[0]
            if major < 9:
                raise ValueError("old")
            if major < 11:
                return g()
            if major >= 10:
                return h()
    """
    last = next(g for g in gates_of(tmp_path, text) if g.condition == "major >= 10")
    assert "".join(WORDS[v] for v in last.values.values()) == "FFFTTTTT"
    assert "".join(WORDS[v] for v in last.reached.values()) == "FFFFFTTT"


def test_effects_are_told(tmp_path: Path) -> None:
    text = """
        from serve.utils import is_blackwell
        class A:
            def f(self):
                if is_blackwell():
                    self.backend = "fast"
                else:
                    raise ValueError(f"needs {self}")
    """
    effect = only(gates_of(tmp_path, text), "predicate").effect
    assert effect == "then sets self.backend = 'fast'; else raises ValueError: needs {...}"


def test_a_file_that_does_not_parse_is_told_and_ends_nothing(tmp_path: Path) -> None:
    files = {
        "python/serve/utils.py": UTILS,
        "python/serve/broken.py": "if is_blackwell(:\n",
    }
    found = inventory(stored(tmp_path, {"serve": files}), ["serve"])
    ((upstream, path, why),) = found.unread
    assert (upstream, path) == ("serve", "python/serve/broken.py")
    assert "not valid Python" in why
    assert any(g.kind == "definition" for g in found.gates)


def test_the_record_is_used_until_something_it_depends_on_changes(tmp_path: Path) -> None:
    text = """
        from serve.utils import is_blackwell
        def f():
            if is_blackwell():
                return g()
    """
    files = {"python/serve/utils.py": UTILS, "python/serve/a.py": text}
    cache = tmp_path / "cache"
    first = inventory(stored(tmp_path, {"serve": files}), ["serve"], cache)
    again = inventory(stored(tmp_path, {"serve": files}), ["serve"], cache)
    assert (first.scanned > 0, again.scanned) == (True, 0)
    assert again.gates == first.gates
    files["python/serve/utils.py"] = UTILS.replace("[10, 11, 12]", "[10]")
    (changed,) = [
        g
        for g in inventory(stored(tmp_path, {"serve": files}), ["serve"], cache).gates
        if g.path == "python/serve/a.py"
    ]
    assert row(changed) == "FFFTTFFF"


def test_what_a_function_sets_later_is_not_taken_for_its_first_value(tmp_path: Path) -> None:
    backend = """
        BACKEND = None
        def initialize(args):
            global BACKEND
            BACKEND = args.backend
        def get_backend():
            global BACKEND
            if BACKEND is None:
                BACKEND = "triton"
            return BACKEND
        _known = None
        def capability():
            global _known
            if _known is None:
                import torch
                _known = torch.cuda.get_device_capability()
            return _known
    """
    text = """
        from serve.backend import capability, get_backend
        from serve.utils import is_blackwell
        def f():
            if get_backend() == "cutlass":
                assert is_blackwell()
            # Nobody else sets what is only computed once.
            assert capability()[0] < 12
    """
    found = {gate.condition: row(gate) for gate in gates_of(tmp_path, text, backend=backend)}
    assert found == {"is_blackwell()": "FFFTTTTT", "capability()[0] < 12": "TTTTTTFF"}


def test_a_default_of_a_field_is_not_what_it_holds(tmp_path: Path) -> None:
    fields = """
        from dataclasses import dataclass
        from serve.utils import is_blackwell, is_sm90_supported
        {decorator}
        class Args:
            backend: str = "a"
            fast: bool = False
            def adjust(self):
                if self.backend == "b":
                    if is_blackwell():
                        self.backend = "c"
                if self.offload():
                    self.fast = True
                if not self.fast and is_sm90_supported():
                    self.fast = True
        """
    whole = gates_of(tmp_path, fields.format(decorator="@dataclass(frozen=False)"))
    assert [(g.condition, row(g)) for g in whole if g.kind == "predicate"] == [
        ("is_blackwell()", "FFFTTTTT"),
        ("not self.fast and is_sm90_supported()", "FF?FFFFF"),
    ]
    # A plain class's attribute is what it says.
    plain = gates_of(tmp_path, fields.format(decorator=""))
    assert "is_blackwell()" not in [g.condition for g in plain]
