"""Moving a pin: what is written, conflicts, and how it is taken back."""

from __future__ import annotations

import tomllib
from pathlib import Path

from bumping import (
    GATE,
    OURS,
    PATCHED,
    SMOKE,
    obsolete,
    snapshot,
    text,
    wheel,
)
from projects import TinyProject


def test_nothing_is_written_without_accept(tmp_path: Path) -> None:
    project = obsolete(tmp_path, "import os\n" + GATE + text())
    assert project.run("lock").code == 0
    before = snapshot(project)
    assert project.run("bump", "tiny", "1.1").code == 0
    assert snapshot(project) == before


def test_accept_writes_all_of_it_and_undo_takes_it_back(tmp_path: Path) -> None:
    project = wheel(
        tmp_path,
        {"tiny/a.py": text(), "tiny/b.py": "B = 1\n"},
        {"tiny/a.py": text(above=2), "tiny/b.py": "B = 2\n"},
    )
    project.add_smoke("test_0002_b.py", "def test_b(): pass\n")
    project.add_patch(1, {"tiny/a.py": PATCHED})
    project.add_patch(2, {"tiny/b.py": "B = 2\n"}, fields={"Smoke": "tests/smoke/test_0002_b.py"})
    project.add_patch(3, {"tiny/a.py": text({20: "line_20 = 'ours'", 30: "line_30 = 'ours'"})},
                      fields={"Depends": "0001 (lines), 0002 (values)"})  # fmt: skip
    config = project.root / "pyproject.toml"
    config.write_text("# kept\n" + config.read_text(), encoding="utf-8")
    assert project.run("lock").code == 0
    before = snapshot(project)

    ran = project.run("bump", "tiny", "1.1", "--accept", "--no-static")
    assert ran.code == 0, ran.err
    after = snapshot(project)
    names = {
        name.partition("-")[0].removeprefix("patches/") for name in after if "patches/" in name
    }
    assert names == {"0001", "0003"}
    assert "tests/smoke/test_0002_b.py" not in after
    assert config.read_text(encoding="utf-8").startswith("# kept\n")
    table = tomllib.loads(config.read_text(encoding="utf-8"))["tool"]["patchwright"]["upstreams"]
    assert table["tiny"]["version"] == "1.1"
    assert table["tiny"]["path"] == "wheels/tiny-1.1-py3-none-any.whl"
    third = next(data for name, data in after.items() if "/0003-" in name).decode()
    assert "Upstream: tiny 1.1\n" in third
    assert "Depends: 0001 (lines)\n" in third
    assert "@@ -29," in third  # the lines of the new pin
    assert project.run("lock", "--check").code == 0
    rows = project.run("status", "--json").json()["patches"]
    assert [(r["number"], r["apply"]) for r in rows] == [(1, "clean"), (3, "clean")]

    assert project.run("undo").code == 0
    assert snapshot(project) == before


def test_a_bump_that_cannot_be_is_refused_whole(tmp_path: Path) -> None:
    project = wheel(
        tmp_path, {"tiny/a.py": text(), "tiny/b.py": "B = 1\n"},
        {"tiny/a.py": text({20: "line_20 = 'theirs'"}), "tiny/b.py": "B = 1\n"},
    )  # fmt: skip
    project.add_patch(1, {"tiny/a.py": PATCHED})
    project.add_patch(2, {"tiny/b.py": "B = 2\n"}, fields={"Depends": "0001 (why)"})
    before = snapshot(project)
    ran = project.run("bump", "tiny", "1.1", "--accept", "--no-static", "--without", "1")
    assert ran.code == 1
    assert "0002 (needs 0001)" in ran.err
    assert "--without 1,2" in ran.err
    assert snapshot(project) == before
    ran = project.run("bump", "tiny", "1.1", "--accept", "--no-static", "--without", "1,2")
    assert ran.code == 0, ran.err
    assert project.run("lock", "--check").code == 0


def conflict(tmp_path: Path) -> TinyProject:
    project = wheel(
        tmp_path, {"tiny/a.py": text()},
        {"tiny/a.py": text({20: "line_20 = 'theirs'", 30: "line_30 = 'theirs'"})},
    )  # fmt: skip
    project.add_patch(1, {"tiny/a.py": PATCHED}, title="twenty")
    project.add_patch(2, {"tiny/a.py": text({20: "line_20 = 'ours'", 30: "line_30 = 'ours'"})},
                      title="thirty")  # fmt: skip
    assert project.run("lock").code == 0
    return project


def resolve(project: TinyProject, wanted: str) -> None:
    path = project.root / ".patchwright" / "edit" / "tree" / "tiny" / "a.py"
    data = path.read_text(encoding="utf-8")
    start, end = data.index("<<<<<<<"), data.index(">>>>>>>")
    path.write_text(data[:start] + wanted + data[data.index("\n", end) + 1 :], encoding="utf-8")


def test_conflicts_open_one_after_the_other_and_go_on(tmp_path: Path) -> None:
    project = conflict(tmp_path)
    before = snapshot(project)
    ran = project.run("bump", "tiny", "1.1", "--accept", "--no-static")
    assert ran.code == 1
    assert "0001 (twenty) conflicts in tiny/a.py, 1 more after it" in ran.err
    assert snapshot(project) == before
    # Until it is resolved nothing else may change the series, and refresh knows whose it is.
    for command in (("drop", "1"), ("refresh", "--continue"), ("refresh", "--abort")):
        ran = project.run(*command)
        assert ran.code == 1
        assert "patchwright bump --continue" in ran.err
    assert "conflict markers" in project.run("bump", "--continue").err
    resolve(project, "line_20 = 'both'\n")
    ran = project.run("bump", "--continue")
    assert ran.code == 1
    assert "0002 (thirty) conflicts" in ran.err
    assert snapshot(project) == before
    resolve(project, "line_30 = 'both'\n")
    ran = project.run("bump", "--continue")
    assert ran.code == 0, ran.err
    assert not (project.root / ".patchwright" / "edit").exists()
    patches = [p.read_text() for p in sorted((project.root / "patches").iterdir())]
    assert "-line_20 = 'theirs'\n+line_20 = 'both'" in patches[0]
    assert "-line_30 = 'theirs'\n+line_30 = 'both'" in patches[1]
    assert project.run("lock", "--check").code == 0
    assert project.run("undo").code == 0
    assert snapshot(project) == before


def test_a_conflict_is_given_up(tmp_path: Path) -> None:
    project = conflict(tmp_path)
    before = snapshot(project)
    assert project.run("bump", "tiny", "1.1", "--accept", "--no-static").code == 1
    assert project.run("bump", "--abort").code == 0
    assert snapshot(project) == before
    ran = project.run("bump", "--continue")
    assert ran.code == 1
    assert "no bump waits" in ran.err
    assert project.run("drop", "2").code == 0


def test_a_pin_that_is_written_in_an_unknown_way_is_not_touched(tmp_path: Path) -> None:
    project = wheel(tmp_path, {"tiny/a.py": text()}, {"tiny/a.py": text()})
    project.add_patch(1, {"tiny/a.py": PATCHED})
    config = project.root / "pyproject.toml"
    config.write_text(
        '[tool.patchwright]\nupstreams = { tiny = { source = "wheel", distribution = "tiny", '
        'version = "1.0", path = "wheels/tiny-1.0-py3-none-any.whl" } }\n', encoding="utf-8",
    )  # fmt: skip
    before = snapshot(project)
    ran = project.run("bump", "tiny", "1.1", "--accept", "--no-static")
    assert ran.code == 3
    assert "written in a way that is not found" in ran.err
    assert snapshot(project) == before


# What somebody does in another terminal while the static tier runs.
MEANWHILE = """
    from pathlib import Path
    from patchwright.editing.transaction import begin
    from patchwright.project import Project
    with begin(Project.open(Path({root!r})), "off 2") as change:
        change.write(".patchwright/off", b"2\\n")
        change.commit()
"""


def test_a_project_that_changes_meanwhile_is_not_written(tmp_path: Path) -> None:
    """The measuring holds no lock, and what it was measured on must still be there."""
    project = obsolete(tmp_path, "import os\n" + GATE + text())
    project.add_patch(2, {"tiny/a.py": OURS + text({30: "line_30 = 'ours'"})})
    assert project.run("lock").code == 0
    meanwhile = MEANWHILE.format(root=str(project.root))
    project.add_smoke("test_0001_open.py", SMOKE + meanwhile)
    before = snapshot(project)
    ran = project.run("bump", "tiny", "1.1", "--accept")
    assert ran.code == 1, ran.err
    assert "the project was changed while the move was worked out" in ran.err
    assert ".patchwright/off" in ran.err
    assert snapshot(project) == before
