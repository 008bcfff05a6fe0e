"""What a bisection and a start keep on disk, and which patches a failure points at."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchwright.bisecting.beliefs import Belief, belief
from patchwright.bisecting.journal import Journal, read
from patchwright.bisecting.outcomes import Answer, Outcome, Problem, Run
from patchwright.bisecting.report import lines, named, ranges
from patchwright.bisecting.suspects import Suspects
from patchwright.config import Config, Layout, LayoutRule, UpstreamConfig
from patchwright.errors import InputError
from patchwright.patch import Patch
from patchwright.smoke.trees import format_listing
from patchwright.startup.compiled import Workspaces, digest
from patchwright.startup.judging import Started

RUN = Run(
    frozenset({1, 3}), Outcome("failed", "s", ((3,), (1, 2)), "d", 1.25, "printed"), tree="tree 1"
)


def test_a_log_reads_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path, {"probe": "x"})
    journal.suspected = (4, 2)
    journal.add(RUN)
    (found,) = Journal(tmp_path, {"probe": "x"}).runs
    assert Journal(tmp_path, {"probe": "x"}).suspected == (4, 2)
    assert found == Run(
        RUN.state, Outcome("failed", "s", ((3,), (1, 2)), "d", 1.25), "probe", "tree 1"
    )
    assert journal.log_of(1).read_text() == "printed"
    assert Journal(tmp_path, {"probe": "y"}).runs == []
    journal.clear()
    assert Journal(tmp_path, {"probe": "x"}).runs == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": 9, "runs": []}',
        '{"format": 1, "runs": [{"state": [1]}]}',
        '{"format": 1, "suspected": [{}], "runs": []}',
    ],
)
def test_what_is_no_log(tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(InputError):
        read(tmp_path / "log")


def test_states_in_words() -> None:
    problem = Problem(tuple(range(1, 9)), frozenset(), frozenset(range(1, 9)))
    assert ranges([1, 2, 3, 5]) == "1-3, 5"
    assert named(frozenset(), problem) == "base"
    assert named(problem.top, problem) == "all"
    assert named(problem.top - {4}, problem) == "all but 4"
    assert named(frozenset({4}), problem) == "base + 4"
    assert named(problem.top | {9}, problem) == "all and 9"


def test_a_range_is_told_as_one() -> None:
    problem = Problem(tuple(range(1, 9)), frozenset(), frozenset(range(1, 9)))
    answer = Answer("range", candidates=(3, 4), within=(1, 2, 3, 4), limited=True)
    told = lines(answer, problem, [], lambda n: f"t{n}", {4: ("missing", "no such module")})
    assert told[0] == "range: at least one of 3-4 takes part"
    assert any("all that takes part is in 1-4" in line for line in told)
    assert "audit of 0004: missing: no such module" in told
    assert any("--max-probes" in line for line in told)


def test_luck() -> None:
    assert belief([[False], [True, False, True]]) == Belief(2, 1)
    assert Belief(3, 0).enough(0.01, 1) == 1
    assert Belief(6, 3).enough(0.01, 1) > 3
    assert Belief(6, 3).luck(5) < Belief(6, 3).luck(1) < 0.5
    assert Belief(0, 0).rate is None
    # Though every failure showed so far: more before a name, and most of many choices.
    assert Belief(6, 0).before_naming(1e-4, 128) > Belief(6, 0).before_naming(1e-4, 16) > 6
    assert Belief(3, 3).before_naming(1e-4, 16) > Belief(6, 0).before_naming(1e-4, 16)


def test_workspaces_are_kept_by_what_they_are_compiled_from(tmp_path: Path) -> None:
    def listed(**files: str) -> str:
        path = tmp_path / "listing"
        path.write_bytes(format_listing({
            name.replace("__", "/").encode(): (b"100644", oid * 40) for name, oid in files.items()
        }))  # fmt: skip
        return digest(path, ("f/data/", "f/jit/"), "env")

    key = listed(f__data__a="1", f__jit__b="2", f__other="3")
    assert key == listed(f__data__a="1", f__jit__b="2", f__other="4", s__x="5")
    assert key != listed(f__data__a="9", f__jit__b="2", f__other="3")
    assert listed(f__other="3") == ""

    workspaces = Workspaces(tmp_path / "kept")
    made, fresh = tmp_path / "made", tmp_path / "fresh"
    (made / "cached").mkdir(parents=True)
    fresh.mkdir()
    assert not workspaces.seed(key, fresh)
    workspaces.keep(key, made)
    assert not workspaces.seed(key, fresh)  # nothing was compiled
    (made / "cached" / "k.so").write_text("object")
    (made / "cached" / "k.lock").touch()
    workspaces.keep(key, made)
    assert workspaces.seed(key, fresh)
    assert sorted(p.name for p in fresh.rglob("*") if p.is_file()) == ["k.so"]


PATCH = """\
From: a <a@b>
Date: Fri, 20 Feb 2026 00:00:00 +0000
Subject: [PATCH] x

---
Upstream: tiny 1.0

diff --git a/{path} b/{path}
--- a/{path}
+++ b/{path}
@@ -{line},1 +{line},1 @@
-a
+b
"""


def test_suspects_are_the_patches_of_the_innermost_file_that_one_changes() -> None:
    layout = Layout((LayoutRule(b"python/tiny/", b"tiny/"),))
    upstream = UpstreamConfig("tiny", "wheel", "tiny", "1.0", None, None, None, ("tiny",), layout)
    patches = [
        Patch.parse(PATCH.format(path=path, line=line).encode(), Path(f"{n:04d}-x.patch"))
        for n, (path, line) in enumerate(
            [("python/tiny/a.py", 10), ("python/tiny/b.py", 10), ("python/tiny/b.py", 400)], 1
        )
    ]
    suspects = Suspects(Config(Path("/p"), {"tiny": upstream}), patches)

    def of(*frames: tuple[str, int, str], files: tuple[str, ...] = ()) -> object:
        return suspects.of(Started("failed", "error", frames=frames, files=files))

    assert of(("tiny/none.py", 1, "f"), ("tiny/b.py", 405, "g"), ("tiny/a.py", 9, "h")) == (
        (3,), (1,),
    )  # fmt: skip
    assert of(("tiny/b.py", 200, "g")) == ((2, 3),)
    assert of(files=("tiny/a.py",)) == ((1,),)
    assert of() == ()
