"""verify and status on a small real project: red without, green with, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from projects import TinyProject, make_project

GATE = "MAJORS = [9, 10]\n"
OPENED = "MAJORS = [9, 10, 12]\n"
ROUTE = "ROUTES = {}\n"
ROUTED = "ROUTES = {12: 'comm'}\n"

IMPORTS = "import pytest\nfrom patchwright.smoke.outcomes import Blocked\n"
GATE_TEST = (
    IMPORTS
    + """
@pytest.mark.tier("static")
def test_gate(tree):
    scope = {}
    exec(tree.text("tiny", "tiny/gate.py"), scope)
    assert 12 in scope["MAJORS"], f"No supported CUDA architectures found for {scope['MAJORS']}"

@pytest.mark.tier("static")
def test_others_stay(tree):
    assert "9, 10" in tree.text("tiny", "tiny/gate.py")
"""
)
ROUTE_TEST = (
    IMPORTS
    + """
@pytest.mark.tier("static")
def test_route_leads_somewhere(tree):
    gate, route = {}, {}
    exec(tree.text("tiny", "tiny/gate.py"), gate)
    exec(tree.text("tiny", "tiny/route.py"), route)
    assert 12 in route["ROUTES"]
    assert 12 in gate["MAJORS"], f"No supported CUDA architectures found for {gate['MAJORS']}"
"""
)


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    """Patch 1 opens a module, patch 2 is its own matter, patch 3 routes onto the module."""
    project = make_project(
        tmp_path, {"tiny/gate.py": GATE, "tiny/route.py": ROUTE, "tiny/other.py": "A = 1\n"}
    )
    project.add_patch(1, {"tiny/gate.py": OPENED}, title="gate", fields=smoke("gate"))
    project.add_smoke("test_gate.py", GATE_TEST)
    project.add_patch(2, {"tiny/other.py": "A = 2\n"}, title="other", fields=smoke("other"))
    project.add_smoke("test_other.py", static("assert 'A = 2' in tree.text('tiny', path)"))
    fields = smoke("route") | {"Depends": "0001 (the route ends in the module)"}
    project.add_patch(3, {"tiny/route.py": ROUTED}, title="route", fields=fields)
    project.add_smoke("test_route.py", ROUTE_TEST)
    return project


def smoke(name: str) -> dict[str, str | None]:
    return {"Smoke": f"tests/smoke/test_{name}.py"}


def static(body: str, tier: str = "static") -> str:
    return IMPORTS + (
        f"@pytest.mark.tier({tier!r})\ndef test_it(tree):\n    path = 'tiny/other.py'\n    {body}\n"
    )


def verdicts(project: TinyProject, *args: str) -> dict[tuple[int, str, str], str]:
    results = project.run("verify", "--json", *args).json()["results"]
    return {(r["number"], r["tier"], r["context"]): r["verdict"] for r in results}


def one(project: TinyProject, *args: str) -> dict[str, Any]:
    [found] = project.run("verify", "--json", *args).json()["results"]
    result: dict[str, Any] = found
    return result


def test_every_patch_is_shown_in_its_place_and_alone(project: TinyProject) -> None:
    ran = project.run("verify", "--tier", "static")
    assert ran.code == 0, ran.out + ran.err
    assert verdicts(project, "--tier", "static") == {
        (n, "static", context): "passed" for n in (1, 2, 3) for context in ("step", "alone")
    }


def test_a_repeat_with_nothing_changed_makes_no_run(project: TinyProject) -> None:
    first = project.run("verify", "--json", "--tier", "static").json()["results"]
    assert sum(r["made"] for r in first) > 0
    again = project.run("verify", "--json", "--tier", "static").json()["results"]
    assert [r["made"] for r in again] == [0] * 6
    assert [r["verdict"] for r in again] == [r["verdict"] for r in first]


def test_a_changed_test_is_run_again(project: TinyProject) -> None:
    project.run("verify", "--tier", "static")
    project.add_smoke("test_other.py", static("assert 'A = 3' in tree.text('tiny', path)"))
    assert one(project, "2", "--tier", "static", "--context", "step")["verdict"] == "failed"


def test_the_result_says_what_ran_and_how_to_repeat_it(project: TinyProject) -> None:
    result = one(project, "1", "--tier", "static", "--context", "step")
    assert result["control"] == "failed"
    assert result["trees"] == {"tiny": project.trees["tiny"][1]}
    assert result["control_trees"] == {"tiny": project.trees["tiny"][0]}
    assert result["repeat"] == "patchwright verify 1 --tier static --context step"


def test_a_route_without_the_module_fails_and_names_the_need(project: TinyProject) -> None:
    ran = project.run("verify", "3", "--without", "1", "--tier", "static")
    assert ran.code == 1
    assert "No supported CUDA architectures found for [9, 10]" in ran.out
    assert "0003 needs 0001 (the route ends in the module), which is left out" in ran.out
    assert "repeat: patchwright verify 3 --without 1 --tier static --context step" in ran.out


def test_leaving_each_patch_out_fails_exactly_what_needs_it(project: TinyProject) -> None:
    assert verdicts(project, "--tier", "static", "--context", "without") == {
        (n, "static", "without"): "passed" for n in (1, 2, 3)
    }


def test_an_undeclared_need_is_found_by_leaving_it_out(project: TinyProject) -> None:
    patch = next((project.root / "patches").glob("0003*"))
    lines = patch.read_text().splitlines(keepends=True)
    patch.write_text("".join(line for line in lines if not line.startswith("Depends")))
    result = one(project, "1", "--tier", "static", "--context", "without")
    assert result["verdict"] == "failed"
    assert "0003 fails without 0001 and does not declare the need" in result["reason"]
    alone = one(project, "3", "--tier", "static", "--context", "alone")
    assert alone["verdict"] == "failed"


def test_a_patch_that_only_fits_on_another_must_declare_it(project: TinyProject) -> None:
    project.add_patch(
        7, {"tiny/gate.py": OPENED.replace("12", "12, 13")}, title="more", fields=smoke("other")
    )
    result = one(project, "7", "--tier", "static", "--context", "alone")
    assert result["verdict"] == "error"
    assert result["reason"] == "0007 does not apply without 0001: declare it"


@pytest.mark.parametrize(
    ("body", "verdict", "reason"),
    [
        ("pass", "vacuous", "the smoke test passes without 0002 as well"),
        ("assert 'A = 3' in tree.text('tiny', path)", "failed", "A = 3"),
        ("raise ValueError('boom')", "error", "boom"),
        ("raise Blocked('one sm_120 device')", "blocked", "one sm_120 device"),
        ("pytest.skip('not today')", "blocked", "not today"),
        ("import no_such_module", "error", "no_such_module"),
    ],
)
def test_verdicts(project: TinyProject, body: str, verdict: str, reason: str) -> None:
    project.add_smoke("test_other.py", static(body))
    result = one(project, "2", "--tier", "static", "--context", "step")
    assert result["verdict"] == verdict
    assert reason in result["reason"]


def test_a_control_that_breaks_otherwise_than_by_assertion_is_an_error(
    project: TinyProject,
) -> None:
    project.add_smoke(
        "test_other.py",
        static("assert {'A = 2': 1}[tree.text('tiny', path).strip()]"),
    )
    result = one(project, "2", "--tier", "static", "--context", "step")
    assert (result["verdict"], result["control"]) == ("error", "error")
    assert "the control broke" in result["reason"]
    assert "KeyError" in result["reason"]


def test_a_smoke_file_that_dies_on_import_is_an_error(project: TinyProject) -> None:
    project.add_smoke("test_other.py", "import no_such_module\n")
    ran = project.run("verify", "2", "--tier", "static")
    assert ran.code == 1
    assert "no_such_module" in ran.out


def test_a_missing_smoke_file_is_an_error(project: TinyProject) -> None:
    (project.root / "tests/smoke/test_other.py").unlink()
    result = one(project, "2", "--tier", "static", "--context", "step")
    assert result["verdict"] == "error"
    assert "tests/smoke/test_other.py is missing" in result["reason"]


def test_a_patch_without_a_smoke_test_is_unproven(project: TinyProject) -> None:
    project.add_patch(4, {"tiny/other.py": "A = 4\n"}, title="bare")
    result = one(project, "4", "--tier", "static", "--context", "step")
    assert result["verdict"] == "unproven"


def test_a_tier_that_the_test_does_not_speak_at_is_none(project: TinyProject) -> None:
    assert set(verdicts(project, "--tier", "import").values()) == {"none"}


def test_a_device_that_is_missing_blocks_and_can_be_required(
    project: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("patchwright.tiers.Needs._device", lambda *_: "needs one sm_120 device")
    project.add_smoke("test_other.py", static("assert False", tier="gpu"))
    ran = project.run("verify", "2", "--tier", "gpu")
    assert ran.code == 0
    assert "gpu: blocked: needs one sm_120 device" in ran.out
    assert project.run("verify", "2", "--require", "gpu").code == 1
    assert not list((project.root / ".patchwright/evidence").glob("*gpu*"))


def test_a_patch_that_does_not_apply_is_an_error(project: TinyProject) -> None:
    project.add_patch(5, {"tiny/other.py": "A = 5\n"}, title="five", fields=smoke("other"))
    ran = project.run("verify", "5", "--without", "2", "--tier", "static", "--context", "step")
    assert ran.code == 1
    assert "0005 does not apply: conflict" in ran.out


def test_a_patch_for_another_version_is_refused(project: TinyProject) -> None:
    patch = next((project.root / "patches").glob("0002*"))
    patch.write_text(patch.read_text().replace("Upstream: tiny 1.0", "Upstream: tiny 0.9"))
    ran = project.run("verify")
    assert ran.code == 2
    assert "0002 was made for tiny 0.9, the pin is 1.0" in ran.err


def test_asking_for_a_patch_that_is_left_out_is_refused(project: TinyProject) -> None:
    ran = project.run("verify", "2", "--without", "2")
    assert ran.code == 2
    assert "patch 0002 is asked for, but the selection leaves it out" in ran.err


def test_status_tells_what_is_on_record_and_what_is_stale(project: TinyProject) -> None:
    def evidence() -> dict[int, dict[str, Any]]:
        rows = project.run("status", "--json").json()["patches"]
        return {row["number"]: row["evidence"] for row in rows}

    missing = {"verdict": "missing", "why": "not verified yet", "from": ""}
    assert evidence()[1] == {"static": {"step": missing}}
    project.run("verify", "--tier", "static")
    passed = {"verdict": "passed", "why": "", "from": ""}
    assert evidence()[2] == {"static": {"step": passed, "alone": passed}}
    patch = next((project.root / "patches").glob("0002*"))
    patch.write_text(patch.read_text().replace("+A = 2", "+A = 2  # two"))
    stale = evidence()
    assert stale[2]["static"]["alone"]["verdict"] == "stale"
    assert "the tree changed" in stale[2]["static"]["alone"]["why"]
    assert stale[1] == {"static": {"step": passed, "alone": passed}}


def test_status_gives_the_tree_after_each_patch(project: TinyProject) -> None:
    status = project.run("status", "--json").json()
    assert [row["tree"] for row in status["patches"]] == project.trees["tiny"][1:]
    assert [row["apply"] for row in status["patches"]] == ["clean"] * 3
    assert status["base"] == {"tiny": project.trees["tiny"][0]}


def test_an_edited_record_is_not_evidence(project: TinyProject) -> None:
    project.add_smoke("test_other.py", static("assert False, 'never'"))
    assert one(project, "2", "--tier", "static", "--context", "step")["verdict"] == "failed"
    for path in (project.root / ".patchwright/evidence").glob("*.json"):
        path.write_text(path.read_text().replace('"failed"', '"passed"'))
    assert one(project, "2", "--tier", "static", "--context", "step")["verdict"] == "failed"
