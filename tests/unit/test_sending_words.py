"""What upstream reads: titles, messages, a template filled in, secrets left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchwright.patch import Patch
from patchwright.upstreaming.description import Template, evidence_table, fill
from patchwright.upstreaming.fitting import own_fields
from patchwright.upstreaming.profiles import Profile
from patchwright.upstreaming.proving import Row
from patchwright.upstreaming.secrecy import held_in, redacted
from patchwright.upstreaming.wording import commit_message, name_and_address, title_for


def patch(title: str, message: str = "Why.\n") -> Patch:
    raw = f"From: A <a@b.org>\nSubject: [PATCH] {title}\n\n{message}---\nUpstream: tiny 1.0\n\n"
    return Patch.parse(raw.encode(), Path("0001-tiny-x.patch"))


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("comm: build it", "feat(comm): build it"),
        ("build it", "feat: build it"),
        ("fix(jit): build it", "fix(jit): build it"),
        ("perf!: build it", "perf!: build it"),
        ("jit, comm: build it", "feat(jit, comm): build it"),
        ("[SM120] build it", "feat: [SM120] build it"),
    ],
)
def test_titles_are_made_conventional(title: str, expected: str) -> None:
    assert title_for(patch(title), Profile(title="conventional"), "feat") == expected


def test_other_projects_get_the_title_as_it_is() -> None:
    assert title_for(patch("[SM120] comm: x"), Profile(), "fix") == "[SM120] comm: x"


@pytest.mark.parametrize(
    ("person", "expected"),
    [
        ("A B <a@b.org>", ("A B", "a@b.org")),
        ("Zoë <z@b.org>", ("Zoë", "z@b.org")),
        ("a@b.org", ("a@b.org", "a@b.org")),
        ("A B", None), ("A B <>", None), ("A <a@localhost>", None), ("", None),
    ],
)  # fmt: skip
def test_who_can_be_written_to(person: str, expected: tuple[str, str] | None) -> None:
    assert name_and_address(person) == expected


def test_the_sign_off_joins_the_trailers_once() -> None:
    signed = patch("x", "Why.\n\nReviewed-by: R <r@b.org>\n")
    text = "x\n\nWhy.\n\nReviewed-by: R <r@b.org>\nSigned-off-by: A <a@b.org>\n"
    assert commit_message(signed, "x", "A <a@b.org>") == text
    again = patch("x", text.partition("\n\n")[2])
    assert commit_message(again, "x", "A <a@b.org>") == text
    assert commit_message(patch("x", ""), "x", None) == "x\n"


def test_own_fields_are_found_with_their_line() -> None:
    [found] = own_fields(patch("x", "Why: because.\ndepends: 0001\n"))
    assert "our own field Depends (line 5)" in found
    assert not own_fields(patch("x", "This Depends: on nothing.\n"))


def test_headings_in_comments_and_code_are_no_sections() -> None:
    text = "<!--\n## Description\n-->\n## Motivation\n\n```sh\n## Tests\n```\n\n## Notes\n"
    filled, added = fill(Template("t.md", text), {"purpose": "Why.", "tests": "Ran."})
    assert filled.count("Why.") == 1
    assert "## Motivation\n\nWhy.\n\n```sh\n## Tests\n```" in filled
    assert added == ("Tests",)
    assert filled.endswith("## Tests\n\nRan.\n")


def test_the_table_says_what_was_not_verified() -> None:
    rows = (
        Row(1, "tiny 1.0", "static", "passed", "failed"),
        Row(1, "tiny 1.0", "compile", "none"),
        Row(1, "tiny 1.0", "gpu", "blocked", reason="found none"),
    )
    table = evidence_table(rows)
    assert "| tiny 1.0 | static | passed | failed |" in table
    assert "Not verified:\n\n- gpu on tiny 1.0: found none" in table
    assert "No test of this change speaks at: compile." in table


def test_secrets_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "abcdefgh")
    monkeypatch.setenv("SHORT_TOKEN", "on")
    assert redacted("on abcdefgh at https://me:pw@host/x") == "on [MY_API_KEY] at https://host/x"
    assert held_in(b"..abcdefgh..") == ["MY_API_KEY"]
