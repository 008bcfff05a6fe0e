"""The ids of site trees are remembered, so that a repeat opens no store."""

from __future__ import annotations

from pathlib import Path

from patchwright.applying.chain import Chain
from patchwright.project import Project
from patchwright.smoke.sites import known_site_trees, site_trees
from projects import make_project


def test_known_ids_are_those_of_the_trees_and_need_no_store(tmp_path: Path) -> None:
    tiny = make_project(tmp_path, {"tiny/gate.py": "OPEN = False\n"})
    tiny.add_patch(1, {"tiny/gate.py": "OPEN = True\n"})
    project = Project.open(tiny.root)
    chain = Chain(project)
    states = [chain.base(), chain.apply(project.series.patches)[0]]
    found = [known_site_trees(project, state) for state in states]
    assert found == [site_trees(project, state) for state in states]
    assert found[0] != found[1]
    again = Project.open(tiny.root)
    assert [known_site_trees(again, state) for state in states] == found
    assert "store" not in vars(again)


def test_another_layout_gives_other_ids(tmp_path: Path) -> None:
    tiny = make_project(tmp_path, {"tiny/gate.py": "A = 1\n", "csrc/a.cu": "x\n"})
    project = Project.open(tiny.root)
    state = Chain(project).base()
    before = known_site_trees(project, state)
    tiny.upstreams["tiny"]["outside"] = ["tiny/data/csrc/a.cu"]
    tiny.write_config()
    other = Project.open(tiny.root)
    moved = Chain(other).base()
    assert known_site_trees(other, moved) == site_trees(other, moved)
    assert known_site_trees(project, state) == before
