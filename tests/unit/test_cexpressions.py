"""C expressions and loops: where one source stores a pointer and another reads it."""

from __future__ import annotations

import pytest

from patchwright.c_syntax import CSyntaxError, closing, parse, without_comments, without_literals
from patchwright.smoke.cexpressions import (
    Symbol,
    constants,
    evaluate,
    functions,
    stores,
    subscripts,
    text_of,
)
from patchwright.smoke.outcomes import SmokeError

HEADER = """
#pragma once
#define NUM_BUFFERS 3
constexpr size_t MAX_RANKS = 16;  // per node
static constexpr int kTotal = MAX_RANKS * NUM_BUFFERS;
#define SQUARE(x) ((x) * (x))
constexpr float kScale = 1.5f;
struct Params { void* slots[MAX_RANKS * 3]; };

template <typename T>
__device__ void read(Params& p, int ping) {
  T* a = reinterpret_cast<T*>(p.slots[p.rank + ping * MAX_RANKS]);
  if (p.slots[0] == nullptr) return;
  // p.slots[99] is not there
}
template <> __device__ void read<float>(Params& p, int ping) { p.other[1] = 2; }
"""
HOST = """
void pack(Params& p, int world, Buffers& b) {
  DISPATCH(dtype, [&] {
    const char* s = "} for (";
    int stride = MAX_RANKS;
    for (int i = 0; i < world; ++i) {
      p.barriers[i] = other(i);
    }
    if (b.has_value()) {
      CHECK(world <= 8) << "too many: " << world;
      for (int i = 0; i < world; i += 1) {
        p.slots[i] = reinterpret_cast<void*>(static_cast<int64_t*>(b.value().first())[i]);
        p.slots[stride + i] =
            reinterpret_cast<void*>(
                static_cast<int64_t*>(b.value().second())[i]);
      }
    } else {
      p.slots[0] = nullptr;
    }
  });
}
"""


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("7 / 2", 3), ("-7 / 2", -3), ("-7 % 3", -1),
        ("1 << 4 | 1", 17), ("~0 & 0xff", 255), ("!3", 0), ("3 > 2 && 1 == 1", 1),
        ("n > 2 ? n * 10 : 0", 40), ("010", 8), ("1'000u", 1000), ("0b101", 5), ("2UL", 2),
        ("static_cast<size_t>(n) - 1", 3), ("(int64_t)n * 2", 8), ("(n) * 2", 8),
        ("static_cast<std::vector<int>>(n)", 4), ("p.rank + p->rank", 10), ("a[i + 1]", 7),
        ("f(1, n)", 9), ("n == 5 || n == 4", 1), ("0 && nowhere", 0), ("1 || nowhere", 1),
        ("ns::k", 6), ("n - - 1", 5), ("8 - 4 - 2", 2),
    ],
)  # fmt: skip
def test_expressions(expression: str, value: int) -> None:
    given = {"n": 4, "p.rank": 5, "a[(i + 1)]": 7, "f(1, n)": 9, "ns::k": 6}
    assert evaluate(expression, given) == value


def test_what_is_no_integer_stays_a_symbol() -> None:
    assert evaluate("(void*)buffers.data()", {}) == Symbol("buffers.data()")
    assert evaluate("static_cast<int64_t*>(b.data())[i * 2]", {"i": 3}) == Symbol("b.data()", 6)
    assert evaluate("&x", {}) == Symbol("&x")
    assert evaluate("exit(0)", {}) == Symbol("exit(0)")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("n + 1", "n has no value: give it in variables"),
        ("b[n]", "n has no value"),
        ("f(x) ? 1 : 2", "f(x) has no value"),
        ("1 / 0", "divides by zero"),
        ("1 +", "an operand is missing"),
        ("1 2", "'2' is not expected"),
        ("a = 1", "'=' is not expected"),
        ("1.5f", "is not understood"),
        ("(1", ") is missing"),
    ],
)
def test_what_cannot_be_evaluated_is_named(expression: str, message: str) -> None:
    with pytest.raises(SmokeError) as caught:
        evaluate(expression, {})
    assert message in str(caught.value)


def test_constants_of_a_header() -> None:
    assert constants(HEADER) == {"NUM_BUFFERS": 3, "MAX_RANKS": 16, "kTotal": 48}
    assert constants("constexpr int kTwice = kOnce * 2;", {"kOnce": 4}) == {"kTwice": 8}


def test_functions_are_found_with_their_bodies() -> None:
    first, second = functions(HEADER, "read")
    assert (first.line, second.line) == (11, 16)
    assert first.body.startswith("{")
    assert "slots[0]" in first.body
    assert "99" not in first.body
    assert second.body == "{ p.other[1] = 2; }"
    with pytest.raises(SmokeError, match="defines no function gone"):
        functions(HEADER, "gone")
    with pytest.raises(SmokeError, match="defines no function read"):
        functions("void read(int);\nint x = read(1);\n// void read() {}", "read")


def test_subscripts_leave_out_the_declaration() -> None:
    found = subscripts(HEADER, "slots")
    assert [(item.line, item.index, item.stored) for item in found] == [
        (12, "p.rank + ping * MAX_RANKS", False),
        (13, "0", False),
    ]
    assert [item.stored for item in subscripts(HOST, "slots")] == [True, True, True]
    with pytest.raises(SmokeError, match=r"no gone\[...\]"):
        subscripts(HEADER, "gone")


@pytest.mark.parametrize("world", [1, 2, 8])
def test_a_loop_stores_where_the_index_says(world: int) -> None:
    (pack,) = functions(HOST, "pack")
    given = {**constants(HEADER), "world": world, "b.has_value()": 1}
    assert stores(pack.body, "slots", given) == {
        **{i: Symbol("b.value().first()", i) for i in range(world)},
        **{16 + i: Symbol("b.value().second()", i) for i in range(world)},
    }
    given["b.has_value()"] = 0
    assert stores(pack.body, "slots", given) == {0: Symbol("nullptr")}


def test_a_condition_around_a_store_must_be_decided() -> None:
    (pack,) = functions(HOST, "pack")
    with pytest.raises(SmokeError, match=r"b\.has_value\(\) has no value"):
        stores(pack.body, "slots", {"world": 2, "MAX_RANKS": 16})
    with pytest.raises(SmokeError, match="world has no value"):
        stores(pack.body, "slots", {"b.has_value()": 1, "MAX_RANKS": 16})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("for (int i = 3; i > 0; --i) a[i] = i * i;", {3: 9, 2: 4, 1: 1}),
        ("for (int b = 0; b < 2; b++) for (int i = 0; i < 2; i++) { a[i + b * 2] = b; }",
         {0: 0, 1: 0, 2: 1, 3: 1}),
        ("int k = 2; k += 3; a[k] = 1; k = f(); b[k] = 2;", {5: 1}),
        ("a[0] = 1; a[0] = 2;", {0: 2}),
        ("if (n == 1) a[1] = 1; else if (n == 2) a[2] = 2; else a[3] = 3;", {2: 2}),
        ("if (x) { y(); } a[0] = 1;", {0: 1}),
        ("#pragma unroll\nfor (int i = 0; i != 2; i += 1) { a[i] = 0; }", {0: 0, 1: 0}),
        ("{ a[n == 2 ? 7 : 8] = n >= 2; }", {7: 1}),
    ],
)  # fmt: skip
def test_statements(body: str, expected: dict[int, int]) -> None:
    assert stores(body, "a", {"n": 2}) == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("b[0] = 1;", "nothing is stored"),
        ("a[0] += 1;", "is not a plain store"),
        ("while (n) a[0] = 1;", "which is not run"),
        ("for (auto x : xs) a[x] = 1;", "which is not run"),
        ("for (int i = 0; i < 2; step(i)) a[i] = 1;", "is not run"),
        ("for (int i = 0; i < 2; i += 0) a[i] = 1;", "does not end"),
        ("int k = f(); a[k] = 1;", "k has no value"),
        ("int n = f(); a[n] = 1;", "n has no value"),
    ],
)
def test_a_store_that_cannot_be_run_is_an_error(body: str, message: str) -> None:
    with pytest.raises(SmokeError) as caught:
        stores(body, "a", {"n": 2})
    assert message in str(caught.value)


def test_text_without_casts() -> None:
    assert text_of(parse("static_cast<int*>(a->b(1))[2 + i]")) == "a.b(1)[(2 + i)]"


def test_comments_and_literals_are_told_apart() -> None:
    text = 'a /* { */ "/* \\" */" \'{\' // }\nb R"x(" // )x" 1\'000'
    assert without_comments(text) == 'a         "/* \\" */" \'{\'     \nb R"x(" // )x" 1\'000'
    assert "{" not in without_literals(text)
    assert len(without_literals(text)) == len(text)


def test_brackets_that_do_not_match_are_an_error() -> None:
    assert closing("{ ( [ ] ) } }", 0) == 10
    for text in ("{ ( }", "{", "( ]"):
        with pytest.raises(CSyntaxError):
            closing(text, 0)
