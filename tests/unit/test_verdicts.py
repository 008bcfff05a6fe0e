"""What the verdicts on a patch's files make of the patch."""

from __future__ import annotations

import pytest

from patchwright.applying.verdicts import (
    ApplyVerdict,
    FileVerdict,
    Verdict,
    combine,
    decode,
    encode,
    shown,
)


def files(*words: Verdict) -> list[FileVerdict]:
    return [FileVerdict(f"f{n}", word, f"why {n}") for n, word in enumerate(words)]


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        (("clean", "clean"), "clean"),
        (("clean", "offset"), "offset"),
        (("offset", "three-way", "clean"), "three-way"),
        (("already-upstream", "already-upstream"), "already-upstream"),
        (("already-upstream", "clean"), "partly-upstream"),
        (("partly-upstream", "clean"), "partly-upstream"),
        (("already-upstream", "conflict"), "conflict"),
        (("conflict", "target-missing"), "target-missing"),
        (("target-missing", "outside"), "outside"),
        ((), "empty"),
    ],
)
def test_the_files_decide(words: tuple[Verdict, ...], verdict: Verdict) -> None:
    assert combine(files(*words))[0] == verdict


def test_the_reason_names_the_files() -> None:
    assert combine(files("clean", "conflict", "conflict"))[1] == "f1: why 1 (and 1 more)"
    assert combine(files("already-upstream", "clean"))[1] == "in the tree already: f0"
    assert combine(files("clean", "offset"))[1] == "f1: why 1"


@pytest.mark.parametrize(
    "verdict",
    [
        ApplyVerdict(3, "u", "clean", True, "0" * 40, (FileVerdict("a", "clean"),)),
        ApplyVerdict(
            3, "u", "offset", True, "0" * 40,
            (FileVerdict("a", "offset", "hunk 1: +2 lines", (2,)),), "a: hunk 1: +2 lines",
        ),
        ApplyVerdict(3, "u", "corrupt", False, None, (), "line 7: torn"),
    ],
    ids=["clean", "offset", "corrupt"],
)  # fmt: skip
def test_a_stored_verdict_is_the_same(verdict: ApplyVerdict) -> None:
    assert decode(encode(verdict), 3, "u") == verdict


@pytest.mark.parametrize("text", ["[]", "{}", '["clean", 1, []]', "not json"])
def test_what_is_no_verdict_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode(text, 1, "u")


def test_a_path_that_is_not_utf8_can_be_shown() -> None:
    assert shown(b"a/\xff.py") == "a/\ufffd.py"
