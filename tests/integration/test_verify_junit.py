"""verify --junit: the same results as --json, as a file that CI systems read."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest

from patchwright.tiers import Needs
from projects import TinyProject, make_project

ELEMENTS = {"failed": "failure", "vacuous": "failure", "error": "error", "blocked": "skipped"}


def smoke(line: str, tier: str = "static") -> str:
    return (
        f"import pytest\n@pytest.mark.tier({tier!r})\ndef test_it(tree):\n"
        f"    text = tree.text('tiny', 'tiny/a.py')\n    {line}\n"
    )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyProject:
    need = "needs one device"
    monkeypatch.setattr(Needs, "missing", lambda needs, tier: need if tier == "gpu" else "")
    project = make_project(tmp_path, {"tiny/a.py": "A = 0\n"})
    for number, text in enumerate(
        (
            smoke("assert 'A = ' in text and int(text[4:]) >= 1"),
            smoke("assert False, 'broken \\x1b[0m <text> & more'"),
            smoke("pass"),
            smoke("1 / 0"),
            smoke("pass", "gpu"),
        ),
        1,
    ):
        name = f"test_{number}.py"
        fields: dict[str, str | None] = {"Smoke": f"tests/smoke/{name}"}
        if number > 1:
            fields["Depends"] = f"{number - 1:04d} (the same line)"
        project.add_smoke(name, text)
        project.add_patch(number, {"tiny/a.py": f"A = {number}\n"}, fields=fields)
    return project


def test_the_file_says_what_the_json_says(project: TinyProject, tmp_path: Path) -> None:
    file = tmp_path / "results.xml"
    ran = project.run("verify", "--json", "--junit", str(file))
    assert ran.code == 1
    verdicts = Counter(r["verdict"] for r in ran.json()["results"])
    assert {v for v in verdicts if v != "none"} == {"passed", *ELEMENTS}
    root = ET.fromstring(file.read_bytes())
    told = Counter(ELEMENTS.get(v, "passed") for v in verdicts.elements() if v != "none")
    cases = root.findall(".//testcase")
    assert len(cases) == int(root.attrib["tests"]) == sum(told.values())
    for element, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        found = sum(case.find(element) is not None for case in cases)
        assert found == int(root.attrib[name]) == told[element], element
    messages = [failure.get("message", "") for failure in root.iter("failure")]
    assert any("broken \\x1b[0m <text> & more" in message for message in messages)


def test_a_required_tier_that_is_blocked_fails_the_file_too(
    project: TinyProject, tmp_path: Path
) -> None:
    file = tmp_path / "results.xml"
    arguments = ("verify", "5", "--tier", "gpu", "--junit", str(file))
    assert project.run(*arguments).code == 0
    assert ET.fromstring(file.read_bytes()).attrib["errors"] == "0"
    assert project.run(*arguments, "--require", "gpu").code == 1
    assert ET.fromstring(file.read_bytes()).attrib["errors"] == "2"


def test_a_place_that_cannot_be_written_is_told_before_anything_runs(
    project: TinyProject, tmp_path: Path
) -> None:
    ran = project.run("verify", "--junit", str(tmp_path / "none" / "results.xml"))
    assert ran.code == 2
    assert "there is no folder" in ran.err
    assert not (project.root / ".patchwright" / "evidence").exists()
