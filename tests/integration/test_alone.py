"""A patch alone: with what it declares that it needs, and what it fails to declare."""

from __future__ import annotations

from pathlib import Path

import pytest

from chains import FILES, edit, opened, verdicts, with_line
from patchwright.applying.chain import Chain
from projects import TinyProject, make_project


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    return make_project(tmp_path, FILES)


def test_alone_is_the_closure_only(tiny: TinyProject) -> None:
    tiny.add_patch(1, {"tiny/a.py": with_line(5, "five\n")})
    tiny.add_patch(2, {"tiny/b.py": "b = 2\n"})
    tiny.add_patch(3, {"csrc/k.cu": "k\n"}, fields={"Depends": "0001 (a reason)"})
    project = opened(tiny)
    alone = Chain(project).alone(3)
    assert [p.number for p in alone.patches] == [1, 3]
    assert alone.state is not None
    entry = project.store.entry(alone.state.tree("tiny"), b"tiny/b.py")
    assert entry is not None
    assert project.store.blob(entry.oid) == b"b = 1\n"


def test_an_undeclared_need_is_named_by_the_smallest_set(tiny: TinyProject) -> None:
    tiny.add_patch(1, {"tiny/a.py": with_line(25, "25\n")})
    tiny.add_patch(2, {"tiny/a.py": with_line(25, "25\n", (10, "ten\n"))})
    tiny.add_patch(3, {"tiny/b.py": "b = 2\n"})
    tiny.add_patch(4, {"tiny/a.py": with_line(25, "25\n", (10, "TEN\n"))})
    chain = Chain(opened(tiny))
    assert all(v.ok for v in verdicts(tiny))
    alone = chain.alone(4)
    assert "it was made on top of 0002" in alone.verdicts[0].reason
    assert (alone.state, alone.undeclared) == (None, (2,))
    assert alone.reason == "0004 does not apply without 0002: declare it"


def test_context_that_another_patch_made_is_an_undeclared_need(tiny: TinyProject) -> None:
    """A merge on the blob after 0001 would hide it, on a machine that has the blob."""
    tiny.add_patch(1, {"tiny/a.py": with_line(10, "ten\n")})
    tiny.add_patch(2, {"tiny/a.py": with_line(10, "ten\n", (13, "13\n"))})
    assert all(v.ok for v in verdicts(tiny))
    alone = Chain(opened(tiny)).alone(2)
    assert alone.reason == "0002 does not apply without 0001: declare it"


def test_two_undeclared_needs(tiny: TinyProject) -> None:
    tiny.add_patch(1, {"tiny/a.py": with_line(10, "ten\n")})
    tiny.add_patch(2, {"tiny/a.py": with_line(10, "ten\n", (20, "twenty\n"))})
    tiny.add_patch(3, {"tiny/a.py": with_line(10, "TEN\n", (20, "TWENTY\n"))})
    alone = Chain(opened(tiny)).alone(3)
    assert alone.reason == "0003 does not apply without 0001 and 0002: declare them"


def test_a_patch_that_fits_on_nothing_is_a_plain_conflict(tiny: TinyProject) -> None:
    tiny.add_patch(1, {"tiny/a.py": with_line(10, "ten\n")})
    second = tiny.add_patch(2, {"tiny/a.py": with_line(10, "TEN\n")})
    edit(second, "-ten\n", "-zehn\n")
    alone = Chain(opened(tiny)).alone(2)
    assert alone.undeclared == ()
    assert alone.reason.startswith("0002 does not apply: tiny/a.py: hunk 1")
