"""The series: order, needs, pins, selections, and what is refused with its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from patchwright.errors import InputError
from patchwright.patch import Need
from patchwright.series import Selection, Series

UPSTREAMS = ("flashinfer", "sglang")


def write(folder: Path, name: str, fields: str = "Upstream: flashinfer 0.6.3\n") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(
        f"From: A <a@example.com>\nSubject: [PATCH] {path.stem}\n\n---\n{fields}\n"
        "diff --git a/f.c b/f.c\n--- a/f.c\n+++ b/f.c\n@@ -1 +1 @@\n-one\n+two\n"
    )
    return path


def chain(folder: Path, needs: dict[int, str]) -> Series:
    for number, depends in needs.items():
        fields = f"Upstream: flashinfer 0.6.3\nDepends: {depends}\n"
        write(folder, f"{number:04d}-x.patch", fields)
    return Series.load(folder, UPSTREAMS)


def refused(folder: Path) -> InputError:
    with pytest.raises(InputError) as raised:
        Series.load(folder, UPSTREAMS)
    assert raised.value.exit_code == 2
    assert raised.value.where
    assert raised.value.next_step
    return raised.value


def test_patches_stand_in_number_order_and_gaps_are_fine(tmp_path: Path) -> None:
    for name in ("0010-b.patch", "0002-z.patch", "10001-c.patch"):
        write(tmp_path, name)
    for name in ("README.md", "0003-x.patch~", "series", "0004-x.patch.orig"):
        (tmp_path / name).write_text("not a patch")
    series = Series.load(tmp_path, UPSTREAMS)
    assert [patch.number for patch in series.patches] == [2, 10, 10001]
    assert series.get(10).title == "0010-b"
    assert series.numbers() == "2, 10, 10001"


def test_a_missing_folder_is_an_empty_series(tmp_path: Path) -> None:
    series = Series.load(tmp_path / "patches", UPSTREAMS)
    assert series.patches == ()
    with pytest.raises(InputError, match="there is no patch 1") as raised:
        series.get(1)
    assert raised.value.next_step == "the series has no patches"


def test_two_files_with_one_number_are_both_named(tmp_path: Path) -> None:
    write(tmp_path, "0001-a.patch")
    write(tmp_path, "0001-b.patch")
    error = refused(tmp_path)
    assert error.what == "two patches have the number 0001"
    assert "0001-a.patch" in error.where
    assert "0001-b.patch" in error.where


def test_a_folder_with_a_patch_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0001-a.patch").mkdir()
    assert refused(tmp_path).what == "this is not a regular file"


def test_a_link_that_leads_out_is_refused_and_one_inside_is_read(tmp_path: Path) -> None:
    outside = write(tmp_path, "outside.txt")
    patches = tmp_path / "patches"
    write(patches, "kept.txt")
    (patches / "0001-a.patch").symlink_to("kept.txt")
    assert len(Series.load(patches, UPSTREAMS).patches) == 1
    (patches / "0002-b.patch").symlink_to(outside)
    assert "this link does not lead to a file" in refused(patches).what
    (patches / "0002-b.patch").unlink()
    for target, why in (("gone", "No such file"), ("0002-b.patch", "Too many levels")):
        (patches / "0002-b.patch").symlink_to(target)
        assert f"cannot be read: {why}" in refused(patches).what
        (patches / "0002-b.patch").unlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, "0001-a.patch").chmod(0)
    assert refused(tmp_path).what == "the patch cannot be read: Permission denied"


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "0001-a.patch")
    assert refused(tmp_path).what == "this is not a regular file"


def test_an_unknown_upstream_lists_the_known_ones(tmp_path: Path) -> None:
    write(tmp_path, "0001-a.patch", "Arch: sm_120\nUpstream: vllm 1\n")
    error = refused(tmp_path)
    assert error.what == "vllm is not an upstream of this project"
    assert error.where.endswith("0001-a.patch:6")
    assert "flashinfer, sglang" in error.next_step


def test_the_upstream_may_be_left_out_where_there_is_one(tmp_path: Path) -> None:
    write(tmp_path, "0001-a.patch", "Arch: sm_120\n")
    assert Series.load(tmp_path, ("sglang",)).get(1).upstream == "sglang"
    assert "does not say which upstream" in refused(tmp_path).what


@pytest.mark.parametrize(
    ("depends", "what", "step"),
    [
        ("0009 (why)", "0002 needs 0009, which is not in the series", "the series has 1-3"),
        ("0003", "0002 needs a later patch, 0003", "renumber"),
        ("0002", "0002 names itself as a need", "remove"),
    ],
)
def test_a_need_that_cannot_be_met_is_refused(
    tmp_path: Path, depends: str, what: str, step: str
) -> None:
    write(tmp_path, "0001-x.patch")
    write(tmp_path, "0003-x.patch", "Upstream: flashinfer\nDepends: 0002\n")
    write(tmp_path, "0002-x.patch", f"Upstream: flashinfer\nDepends: {depends}\n")
    error = refused(tmp_path)
    assert error.what == what
    assert error.where.endswith("0002-x.patch:6")
    assert step in error.next_step


def test_closure_and_dependants_are_transitive(tmp_path: Path) -> None:
    series = chain(tmp_path, {1: "", 2: "1", 3: "", 4: "2 (why), 3", 5: "4"})
    assert series.closure(1) == (1,)
    assert series.closure(5) == (1, 2, 3, 4, 5)
    assert series.closure(2) == (1, 2)
    assert series.dependants(1) == (2, 4, 5)
    assert series.dependants(5) == ()
    with pytest.raises(InputError, match="there is no patch 7"):
        series.closure(7)


def test_a_patch_for_another_version_than_the_pin_is_named_with_both(tmp_path: Path) -> None:
    write(tmp_path, "0001-a.patch", "Upstream: flashinfer 0.6.2\n")
    write(tmp_path, "0002-a.patch", "Upstream: flashinfer 0.6.3\n")
    write(tmp_path, "0003-a.patch", "Upstream: sglang v0.5.9\n")
    write(tmp_path, "0004-a.patch", "Upstream: flashinfer\n")
    series = Series.load(tmp_path, UPSTREAMS)
    (problem,) = series.check_pins({"flashinfer": "0.6.3", "sglang": "0.5.9"})
    assert problem.what == "0001 was made for flashinfer 0.6.2, the pin is 0.6.3"
    assert problem.where.endswith("0001-a.patch:5")
    assert "0.6.3" in problem.next_step
    assert isinstance(problem, InputError)


def test_a_missing_smoke_test_is_named(tmp_path: Path) -> None:
    fields = "Upstream: flashinfer\nSmoke: tests/smoke/a.py, tests/smoke/b.py::test_one\n"
    path = write(tmp_path / "patches", "0001-a.patch", fields)
    series = Series.load(path.parent, UPSTREAMS)
    (tmp_path / "tests" / "smoke").mkdir(parents=True)
    (tmp_path / "tests" / "smoke" / "b.py").write_text("")
    (problem,) = series.missing_smoke(tmp_path)
    assert problem.what == "the smoke test tests/smoke/a.py of 0001 is missing"


@pytest.mark.parametrize(
    ("selection", "picked"),
    [
        (Selection(), [1, 2, 3, 5]),
        (Selection(to=3), [1, 2, 3]),
        (Selection(to=0), []),
        (Selection(only=frozenset((5, 1))), [1, 5]),
        (Selection(without=frozenset((2,))), [1, 3, 5]),
        (Selection(to=3, without=frozenset((1, 5))), [2, 3]),
        (Selection(to=2, only=frozenset((1, 5))), [1]),
    ],
)
def test_a_selection_picks(tmp_path: Path, selection: Selection, picked: list[int]) -> None:
    series = chain(tmp_path, {1: "", 2: "", 3: "", 5: ""})
    assert [patch.number for patch in selection.pick(series)] == picked


@pytest.mark.parametrize(
    "selection",
    [Selection(to=4), Selection(only=frozenset((1, 4))), Selection(without=frozenset((4,)))],
)
def test_a_selection_of_an_unknown_number_lists_the_known(
    tmp_path: Path, selection: Selection
) -> None:
    series = chain(tmp_path, {1: "", 2: "", 3: "", 5: ""})
    with pytest.raises(InputError) as raised:
        selection.pick(series)
    assert raised.value.what == "there is no patch 4"
    assert raised.value.next_step == "the series has 1-3, 5"


def test_needs_that_a_selection_leaves_out_are_told(tmp_path: Path) -> None:
    series = chain(tmp_path, {1: "", 2: "1 (why)", 3: "2"})
    assert Selection().unmet(series) == ()
    ((patch, need),) = Selection(without=frozenset((1,))).unmet(series)
    assert (patch.number, need) == (2, Need(1, "why"))


def test_one_corrupt_diff_does_not_hide_the_series(tmp_path: Path) -> None:
    write(tmp_path, "0001-a.patch")
    path = write(tmp_path, "0002-b.patch")
    path.write_bytes(path.read_bytes() + b"+too much\n")
    series = Series.load(tmp_path, UPSTREAMS)
    assert series.get(1).changes
    with pytest.raises(InputError, match="says 1 old and 1 new lines"):
        _ = series.get(2).changes
