"""Guards: preprocessor branches on the architecture, evaluated per target."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from patchwright.audit.guards import TARGETS, architecture_macros, branches, evaluate, guards


def taken(
    text: str, targets: tuple[str, ...] = ("90a", "100a", "120a"), **kwargs: object
) -> list[tuple[bool | None, ...]]:
    found = guards(text, targets, **kwargs)  # type: ignore[arg-type]
    return [tuple(guard.taken[target] for target in targets) for guard in found]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("__CUDA_ARCH__ >= 900", (True, True, True)),
        ("(__CUDA_ARCH__ >= 900) && (__CUDA_ARCH__ < 1200)", (True, True, False)),
        ("__CUDA_ARCH__ >= 900 and not (__CUDA_ARCH__ >= 1000)", (True, False, False)),
        ("defined(__CUDA_ARCH__) && __CUDA_ARCH__ / 100 == 10", (False, True, False)),
        ("defined __CUDA_ARCH_FEAT_SM90_ALL", (True, False, False)),
        ("!defined(__CUDA_ARCH_FEAT_SM100_ALL)", (True, False, True)),
        ("__CUDA_ARCH_SPECIFIC__ == 1200 || __CUDA_ARCH_FAMILY_SPECIFIC__ == 1000",
         (False, True, True)),
        ("__CUDA_ARCH__ > 1000 ? 1 : 0", (False, False, True)),
        ("__CUDA_ARCH__ == 0x384", (True, False, False)),
        ("__CUDA_ARCH__ >= 1'000", (False, True, True)),
        # Kleene: what is unknown may be decided by the other side.
        ("SOMETHING && __CUDA_ARCH__ >= 1000", (False, None, None)),
        ("defined(SOMETHING) || __CUDA_ARCH__ >= 1000", (None, True, True)),
        ("!(SOMETHING && __CUDA_ARCH__ >= 1000)", (True, None, None)),
        ("SOMETHING + __CUDA_ARCH__ > 0", (None, None, None)),
        ("__has_include(<x.h>) && __CUDA_ARCH__", (None, None, None)),
        ("__CUDACC_VER_MAJOR__ >= 12 && __CUDA_ARCH__ >= 1200", (False, False, True)),
    ],
)  # fmt: skip
def test_a_condition_is_evaluated_per_target(
    condition: str, expected: tuple[bool | None, ...]
) -> None:
    assert taken(f"#if {condition}\n#endif\n") == [expected]


def test_one_branch_of_a_group_is_taken() -> None:
    text = """
#if __CUDA_ARCH__ >= 1200
#elif __CUDA_ARCH__ >= 1000
#elif SOMETHING && __CUDA_ARCH__
#else
#endif
"""
    assert taken(text) == [
        (False, False, True),
        (False, True, False),
        (None, False, False),
        (None, False, False),
    ]


def test_ifdef_forms() -> None:
    text = """
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#else
#endif
#ifndef __CUDA_ARCH_FEAT_SM90_ALL  // only there
#endif
"""
    assert taken(text) == [(True, False, False), (False, True, True), (False, True, True)]
    assert [guard.directive for guard in guards(text)] == ["ifdef", "else", "ifndef"]


def test_an_outer_directive_is_told_apart() -> None:
    text = """
#if __CUDA_ARCH__ < 1200
#ifdef ENABLE
#if __CUDA_ARCH__ >= 900
#endif
#endif
#endif
"""
    inner = guards(text, ("100a", "120a"))[1]
    assert inner.taken == {"100a": True, "120a": True}
    assert inner.reached == {"100a": None, "120a": False}
    inner = guards(text, ("100a", "120a"), macros={"ENABLE": 1})[1]
    assert inner.reached == {"100a": True, "120a": False}
    inner = guards(text, ("100a", "120a"), macros={"ENABLE": None})[1]
    assert inner.reached == {"100a": False, "120a": False}


def test_only_directives_on_the_architecture_count() -> None:
    text = """
// #if __CUDA_ARCH__ >= 100
/* #if __CUDA_ARCH__ >= 200
#if __CUDA_ARCH__ >= 300 */
const char* s = "/*";
#if ENABLE_FP8
#else
#endif
#if defined(__CUDA_ARCH_LIST__)
#endif
# if /* gap */ __CUDA_ARCH__ \\
    >= 900  // new
#endif
const char* t = "*/";
R"(#if __CUDA_ARCH__ >= 400)"
"""
    (guard,) = guards(text)
    assert (guard.line, guard.directive, guard.condition) == (11, "if", "__CUDA_ARCH__ >= 900")


def test_carriage_returns_do_not_hide_a_continuation() -> None:
    text = "#if __CUDA_ARCH__ >= 900 && \\\r\n    __CUDA_ARCH__ < 1200\r\n#endif\r\n"
    (guard,) = guards(text, ("120a",))
    assert guard.taken == {"120a": False}


def test_derived_macros_are_given_by_target() -> None:
    text = "#ifdef CUTLASS_ARCH_MMA_SM90A_ENABLED\n#endif\n"
    assert taken(text) == []
    assert taken(text, also="CUTLASS_ARCH_") == [(None, None, None)]
    derived: dict[str, dict[str, int | None]] = {
        "90a": {"CUTLASS_ARCH_MMA_SM90A_ENABLED": 1},
        "100a": {"CUTLASS_ARCH_MMA_SM90A_ENABLED": None},
    }
    assert taken(text, also="CUTLASS_ARCH_", by_target=derived) == [(True, False, None)]


def test_text_that_is_no_expression_is_unknown() -> None:
    assert evaluate("__CUDA_ARCH__ >=", architecture_macros("90a")) is None
    assert evaluate("__CUDA_ARCH__ / 0", architecture_macros("90a")) is None
    assert taken("#endif\n#else\n#if\n") == []


def test_the_suffix_decides_the_feature_macros() -> None:
    assert architecture_macros("sm_120") == {"__CUDA_ARCH__": 1200}
    assert architecture_macros("120f") == {
        "__CUDA_ARCH__": 1200,
        "__CUDA_ARCH_FAMILY_SPECIFIC__": 1200,
    }
    assert architecture_macros("103a") == {
        "__CUDA_ARCH__": 1030,
        "__CUDA_ARCH_FAMILY_SPECIFIC__": 1030,
        "__CUDA_ARCH_SPECIFIC__": 1030,
        "__CUDA_ARCH_FEAT_SM103_ALL": 1,
    }
    with pytest.raises(ValueError, match="not an architecture"):
        architecture_macros("hopper")


@pytest.mark.parametrize("target", [*TARGETS, "121f", "110a"])
def test_the_macros_are_those_that_nvcc_defines(target: str, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        pytest.skip("needs nvcc")
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True)
    if "release 13." not in version.stdout:
        pytest.skip("needs nvcc 13")
    source = tmp_path / "empty.cu"
    source.write_text("")
    command = [nvcc, f"-arch=sm_{target}", "--dryrun", "-cubin", "-o", "/dev/null", str(source)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    words = {word[2:] for word in ran.stderr.split() if word.startswith("-D__CUDA_ARCH")} - {
        word[2:] for word in ran.stderr.split() if word.startswith("-D__CUDA_ARCH_LIST__")
    }
    expected = {
        name if name.endswith("_ALL") else f"{name}={value}"
        for name, value in architecture_macros(target).items()
    }
    assert words == expected


def test_every_branch_has_its_lines_and_what_decides_it() -> None:
    text = "#ifdef A\n#if B > 1\nx\n#else\ny\n#endif\n#elif C\nz\n#endif\n#endif\n"
    assert branches(text) == [
        (2, 4, "B > 1"), (4, 6, "!(B > 1)"), (1, 7, "defined(A)"), (7, 9, "C")
    ]  # fmt: skip
