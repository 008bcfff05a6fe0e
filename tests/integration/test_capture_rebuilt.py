"""capture on an environment that rebuild made: edit, capture, rebuild, and check is clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from environments import small_environment


def test_after_a_capture_the_environment_is_that_series_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = small_environment(tmp_path, monkeypatch)
    project = small.project
    project.add_upstream("other", {"other/__init__.py": "O = 1\n", "other/o.py": "P = 1\n"})
    small.configure()
    project.add_patch(2, {"other/o.py": "P = 2\n"}, upstream="other", title="two")
    for command in ("lock", "rebuild"):
        ran = project.run(command)
        assert ran.code == 0, ran.err
    monkeypatch.delenv("PYTHONPATH")  # the suite's own: check would call it a shadow
    assert project.run("check").code == 0
    site = next((project.root / ".patchwright/env/lib").glob("python3*/site-packages"))
    texts = {
        "tiny/gate.py": "OPEN = 'by hand'\n",  # a line that 0001 owns
        "tiny/data/csrc/a.cu": "__global__ void a() { /* by hand */ }\n",
        "other/__init__.py": "O = 'by hand'\n",
    }
    for name, text in texts.items():
        (site / name).unlink()
        (site / name).write_text(text)
    assert project.run("check").code == 1
    ran = project.run("capture", "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["next"] == "patchwright rebuild"
    assert [(p["number"], p["new"], p["files"]) for p in ran.json()["patches"]] == [
        (1, False, ["tiny/gate.py"]), (3, True, ["csrc/a.cu"]), (4, True, ["other/__init__.py"]),
    ]  # fmt: skip
    ran = project.run("rebuild")
    assert ran.code == 0, ran.err
    assert project.run("check", "--json").json()["differences"] == []
    assert {name: (site / name).read_text() for name in texts} == texts
    assert project.run("capture").code == 1  # nothing is edited by hand any more
