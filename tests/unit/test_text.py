"""Hunks onto bytes: exact place, the one other place, or a stop that says where."""

from __future__ import annotations

import pytest

from patchwright.applying.text import NotPlaced, Placed, apply_hunks
from patchwright.changes import Hunk
from patchwright.diff import parse_diff


def hunks(body: str) -> tuple[Hunk, ...]:
    diff = f"diff --git a/f b/f\n--- a/f\n+++ b/f\n{body}".encode()
    [change] = parse_diff(diff, 1)
    return change.hunks


def text(*numbers: int) -> bytes:
    return b"".join(b"%d\n" % n for n in numbers)


CHANGE_5 = hunks("@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n")


def placed(content: bytes, these: tuple[Hunk, ...]) -> Placed:
    result = apply_hunks(content, these)
    assert isinstance(result, Placed), result
    return result


def states(content: bytes, these: tuple[Hunk, ...]) -> list[str]:
    result = apply_hunks(content, these)
    assert isinstance(result, NotPlaced), result
    return [place.state for place in result.places]


def test_exact_place() -> None:
    result = placed(text(*range(1, 10)), CHANGE_5)
    assert result.content == text(*range(1, 10)).replace(b"5", b"five")
    assert result.offsets == (0,)


def test_the_one_other_place_is_taken_and_its_offset_said() -> None:
    content = text(77, 78, 79, *range(1, 10))
    result = placed(content, CHANGE_5)
    assert result.content == content.replace(b"5", b"five")
    assert result.offsets == (3,)


def test_two_other_places_stop() -> None:
    content = text(0, *range(1, 10), *range(1, 10))
    result = apply_hunks(content, CHANGE_5)
    assert isinstance(result, NotPlaced)
    assert result.places[0].state == "ambiguous"
    assert result.places[0].candidates == (3, 12)


def test_no_fuzz_one_context_line_differs() -> None:
    result = apply_hunks(text(1, 2, 3, 4, 5, 6, 7, 88, 9), CHANGE_5)
    assert isinstance(result, NotPlaced)
    assert result.standing(1) == (2, [b"2\n", b"3\n", b"4\n", b"5\n", b"6\n"])


def test_after_an_offset_an_exact_place_must_be_the_only_one() -> None:
    two = hunks("@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n@@ -5,3 +5,3 @@\n x\n-y\n+Y\n z\n")
    # Two lines came in above; "x y z" stands at its old place and where it moved to.
    one = hunks("@@ -2,4 +2,4 @@\n a\n-b\n+B\n c\n d\n@@ -7,3 +7,3 @@\n x\n-y\n+Y\n z\n")
    content = b"new\nnew\nfirst\na\nb\nc\nx\ny\nz\nx\ny\nz\n".replace(b"c\nx", b"c\nd\nx", 1)
    assert states(content, one) == ["offset", "ambiguous"]
    assert placed(b"a\nb\nc\nd\nx\ny\nz\nx\ny\nz\n", two).offsets == (0, 0)


def test_a_hunk_on_line_one_matches_only_at_the_beginning() -> None:
    first = hunks("@@ -1,3 +1,4 @@\n+zero\n 1\n 2\n 3\n")
    assert placed(text(1, 2, 3, 4), first).content == b"zero\n" + text(1, 2, 3, 4)
    assert states(text(0, 1, 2, 3, 4), first) == ["missing"]


def test_a_hunk_without_trailing_context_matches_only_at_the_end() -> None:
    last = hunks("@@ -2,3 +2,4 @@\n 2\n 3\n 4\n+5\n")
    assert placed(text(1, 2, 3, 4), last).content == text(1, 2, 3, 4, 5)
    assert placed(text(0, 1, 2, 3, 4), last).offsets == (1,)
    assert states(text(1, 2, 3, 4, 9), last) == ["missing"]


def test_an_empty_file_is_filled_and_emptied() -> None:
    fill = hunks("@@ -0,0 +1,2 @@\n+1\n+2\n")
    empty = hunks("@@ -1,2 +0,0 @@\n-1\n-2\n")
    assert placed(b"", fill).content == text(1, 2)
    assert placed(text(1, 2), empty).content == b""
    assert states(text(9), fill) == ["missing"]


@pytest.mark.parametrize(
    ("before", "body", "after"),
    [
        (b"1\n2", "@@ -1,2 +1,2 @@\n 1\n-2\n\\ No newline at end of file\n+2\n", b"1\n2\n"),
        (b"1\n2\n", "@@ -1,2 +1,2 @@\n 1\n-2\n+2\n\\ No newline at end of file\n", b"1\n2"),
        (b"1\n2", "@@ -1,2 +1,3 @@\n+0\n 1\n 2\n\\ No newline at end of file\n", b"0\n1\n2"),
        (b"a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n", b"a\r\nc\r\n"),
        (b"a\rb\n", "@@ -1 +1 @@\n-a\rb\n+c\n", b"c\n"),
    ],
    ids=["newline-added", "newline-removed", "no-newline-kept", "crlf", "lone-cr"],
)
def test_line_ends_are_bytes_like_others(before: bytes, body: str, after: bytes) -> None:
    assert placed(before, hunks(body)).content == after


def test_a_line_with_its_newline_is_not_one_without() -> None:
    body = "@@ -1,2 +1,3 @@\n+0\n 1\n 2\n\\ No newline at end of file\n"
    assert states(b"1\n2\n", hunks(body)) == ["missing"]


def test_text_that_is_there_already_is_not_applied_to_a_copy_further_down() -> None:
    content = text(*range(1, 10)).replace(b"5", b"five") + text(*range(2, 9))
    assert states(content, CHANGE_5) == ["already"]


def test_moved_text_that_is_there_already() -> None:
    content = text(70, 71, *range(1, 10)).replace(b"5", b"five")
    assert states(content, CHANGE_5) == ["already"]


def test_only_some_hunks_are_there_already() -> None:
    two = CHANGE_5 + hunks("@@ -12,5 +12,4 @@\n 12\n 13\n-14\n 15\n 16\n")
    content = text(*range(1, 20)).replace(b"\n5\n", b"\nfive\n")
    result = apply_hunks(content, two)
    assert isinstance(result, NotPlaced)
    assert [p.state for p in result.places] == ["already", "exact"]
    assert result.already == (1,)
