"""[tool.patchwright.environment]: what is read, and what is refused by its key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from patchwright.config import Config
from patchwright.environment.wanted import Wanted, read_wanted
from patchwright.errors import InputError


def wanted(**values: object) -> Wanted:
    return read_wanted(Config(Path("/p"), {}, environment=values))


def test_an_interpreter_alone_asks_for_no_environment() -> None:
    assert not wanted(interpreter="~/venv")
    assert not wanted()


def test_a_python_version_asks_for_one_on_two_machines() -> None:
    found = wanted(python="3.11", requirements=["b", "A>=1"], settings={"X": "1"})
    assert [(p.machine, p.glibc) for p in found.platforms] == [
        ("x86_64", (2, 28)),
        ("aarch64", (2, 28)),
    ]
    assert found.requirements == ("A>=1", "b")
    assert found.settings == {"X": "1"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"pyton": "3.11"},
            r"\.pyton: this key is not known\nNext: did you mean python",
        ),
        ({"python": 3.11}, r"environment\.python: 3\.11 cannot stand here"),
        ({"python": "2.7"}, r"environment\.python: '2\.7' cannot stand here"),
        ({"requirements": ["a"]}, r"environment\.python: requirements need a Python version"),
        ({"python": "3.11", "platforms": ["win32"]}, r"platforms: 'win32' is not a platform"),
        ({"python": "3.11", "cuda": 12}, r"environment\.cuda: 12 cannot stand here"),
        ({"python": "3.11", "requirements": ["a b"]}, r"requirements: 'a b'"),
        (
            {"python": "3.11", "requirements": ["a @ https://x.example/a.whl"]},
            r"names an address, and a lock names none",
        ),
        ({"settings": {"PATH": "/x"}}, r"settings\.PATH: this variable cannot be set"),
        ({"settings": {"A": 1}}, r"settings: a table of texts is expected"),
        ({"settings": {"A": "\x1b[1m"}}, r"settings\.A: .* cannot be printed"),
        ({"workspaces": {"A": "x"}}, r"workspaces\.A: installed prefixes are expected"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_key(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as refused:
        wanted(**values)
    assert re.search(message, str(refused.value))
