"""What a series changes about gates: pairs of before and after, and what they open and close."""

from __future__ import annotations

from patchwright.audit.gates import CAPABILITIES, Change, Gate, changes


def _gate(condition: str, values: str, effect: str = "then returns") -> Gate:
    letters = {"T": True, "F": False, "?": None}
    table = {c: letters[v] for c, v in zip(CAPABILITIES, values, strict=True)}
    return Gate("predicate", "serve", "a.py", 1, 1, "f", condition, table, table, effect)


def test_a_rewritten_condition_is_paired_with_its_old_self() -> None:
    old = _gate("is_sm90() or is_sm100()", "FFTTTFFF")
    new = _gate("is_sm90() or is_sm100() or is_sm120()", "FFTTTFTT")
    (change,) = changes([old], [new])
    assert (change.word, change.opened, change.closed) == ("opens", ("12.0", "12.1"), ())
    (back,) = changes([new], [old])
    assert (back.word, back.closed) == ("closes", ("12.0", "12.1"))


def test_a_condition_to_refuse_by_opens_where_it_becomes_false() -> None:
    old = _gate("not is_blackwell()", "TTTFFFFF", "then raises ValueError: needs Blackwell")
    new = _gate("not is_sm100()", "TTTFFTTT", "then raises ValueError: needs SM100")
    assert Change(old, new).closed == ("11.0", "12.0", "12.1")
    assert Change(new, old).opened == ("11.0", "12.0", "12.1")


def test_an_unchanged_gate_is_no_change_when_lines_move() -> None:
    old = _gate("is_sm90()", "FFTFFFFF")
    moved = Gate(**{**old.to_json(), "line": 40, "end_line": 40})
    assert changes([old], [moved]) == []
