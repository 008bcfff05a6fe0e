"""The layout: both directions, what stands outside, and the installed tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchwright.config import Layout, LayoutRule
from patchwright.errors import InputError
from patchwright.store import EMPTY_TREE, FILE, SUBMODULE, ObjectStore
from patchwright.upstreams.layout import (
    File,
    file_and_folder,
    installed_tree,
    path_map,
    split,
    to_installed,
    to_repository,
)


def layout(rules: dict[str, str], *outside: str) -> Layout:
    return Layout(tuple(LayoutRule(r.encode(), i.encode()) for r, i in rules.items()), outside)


FLASHINFER = layout(
    {
        "flashinfer/": "flashinfer/",
        "csrc/": "flashinfer/data/csrc/",
        "include/": "flashinfer/data/include/",
        "3rdparty/cutlass/": "flashinfer/data/cutlass/",
        "3rdparty/spdlog/": "flashinfer/data/spdlog/",
        "build_utils.py": "build_utils.py",
    },
    "flashinfer/_build_meta.py",
    "flashinfer/data/build_*.py",
)
SGLANG = layout({"python/sglang/": "sglang/"}, "sglang/_version.py")


@pytest.mark.parametrize(
    ("rules", "installed", "repository"),
    [
        (FLASHINFER, b"flashinfer/jit/comm.py", b"flashinfer/jit/comm.py"),
        (FLASHINFER, b"flashinfer/data/csrc/a/b.cu", b"csrc/a/b.cu"),
        (FLASHINFER, b"flashinfer/data/cutlass/include/x.h", b"3rdparty/cutlass/include/x.h"),
        (FLASHINFER, b"build_utils.py", b"build_utils.py"),
        (SGLANG, b"sglang/srt/E=1,N=2 [128].json", b"python/sglang/srt/E=1,N=2 [128].json"),
        (SGLANG, b"sglang/\xff.py", b"python/sglang/\xff.py"),
    ],
)
def test_the_longest_prefix_decides(rules: Layout, installed: bytes, repository: bytes) -> None:
    assert to_repository(rules, installed) == repository
    assert to_installed(rules, repository) == installed


@pytest.mark.parametrize(
    "installed",
    [
        b"flashinfer/_build_meta.py",
        b"flashinfer/data/build_utils.py",
        b"flashinfer/ops.so",
        b"flashinfer/lib/libx.so.12",
        b"flashinfer_python-0.6.3.dist-info/METADATA",
        b"other/file.py",
    ],
)
def test_generated_built_and_unnamed_files_stand_outside(installed: bytes) -> None:
    assert to_repository(FLASHINFER, installed) is None


@pytest.mark.parametrize("path", [b"tests/test_a.py", b"build_utils.py.orig", b"csrc", b"README"])
def test_files_that_are_not_in_the_distribution(path: bytes) -> None:
    assert to_installed(FLASHINFER, path) is None


def test_a_path_that_another_rule_claims_has_no_counterpart() -> None:
    # Installed, it would be taken for csrc/a.cu.
    assert to_installed(FLASHINFER, b"flashinfer/data/csrc/a.cu") is None
    nested = layout({"src/": "pkg/", "src/gen/": "pkg/generated/"})
    assert to_repository(nested, b"pkg/gen/a") is None


SEGMENT = st.sampled_from(["a", "b", "data", "src"])
PREFIX = st.lists(SEGMENT, min_size=1, max_size=3).map(lambda parts: "/".join(parts) + "/")


@given(st.dictionaries(PREFIX, PREFIX, min_size=1, max_size=4), PREFIX)
def test_the_two_directions_undo_each_other(rules: dict[str, str], folder: str) -> None:
    if len(set(rules.values())) < len(rules):
        return
    made = layout(rules)
    path = folder.encode() + b"file"
    repository = to_repository(made, path)
    assert repository is None or to_installed(made, repository) == path
    installed = to_installed(made, path)
    assert installed is None or to_repository(made, installed) == path


def test_two_rules_for_one_place_are_refused() -> None:
    with pytest.raises(InputError, match="one place"):
        path_map(layout({"a/": "pkg/", "b/": "pkg/"}))
    with pytest.raises(InputError, match="folder to a file"):
        path_map(layout({"a/": "pkg"}))


def test_split() -> None:
    files = {
        path: File(FILE, path)
        for path in (b"sglang/a.py", b"sglang/_version.py", b"sglang-0.5.9.dist-info/WHEEL", b"x")
    }
    inside, outside = split(SGLANG, files)
    assert inside == {b"python/sglang/a.py": File(FILE, b"sglang/a.py")}
    assert sorted(outside) == [b"sglang-0.5.9.dist-info/WHEEL", b"sglang/_version.py", b"x"]


def test_split_refuses_a_file_where_the_layout_makes_a_folder() -> None:
    rules = layout({"csrc/": "pkg/csrc/", "csrc": "pkg/one"})
    with pytest.raises(InputError, match="csrc both a file and a folder"):
        split(rules, {b"pkg/csrc/a": File(FILE, b""), b"pkg/one": File(FILE, b"")})


def test_file_and_folder() -> None:
    assert file_and_folder([b"a/b/c", b"a/b2", b"a.b"]) is None
    assert file_and_folder([b"a/b/c", b"a/d", b"a/b"]) == b"a/b"


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects.git")


def build(store: ObjectStore, *paths: bytes) -> str:
    return store.build_tree({path: (FILE, store.add("blob", path)) for path in paths})


def test_the_installed_tree_is_what_the_path_map_says(store: ObjectStore) -> None:
    repository = [
        b"flashinfer/jit/comm.py", b"flashinfer/data/csrc/shadow.cu", b"csrc/a/b.cu", b"csrc/c.cu",
        b"include/x.h", b"3rdparty/cutlass/include/y.h", b"3rdparty/other/z.h", b"build_utils.py",
        b"tests/test_a.py", b"README.md",
    ]  # fmt: skip
    outside = [b"flashinfer/_build_meta.py", b"flashinfer_python-0.6.3.dist-info/METADATA"]
    tree = installed_tree(store, FLASHINFER, build(store, *repository), build(store, *outside))
    expected = {
        installed: path
        for path in repository
        if (installed := to_installed(FLASHINFER, path)) is not None
    } | {path: path for path in outside}
    assert {path: store.blob(entry.oid) for path, entry in store.files(tree)} == expected
    assert len(expected) == 8


def test_what_a_longer_rule_takes_leaves_the_shorter_ones_place(store: ObjectStore) -> None:
    rules = layout({"src/": "pkg/", "src/gen/": "gen/", "one": "pkg/one"})
    tree = build(store, b"src/a", b"src/gen/b", b"src/one", b"one")
    installed = installed_tree(store, rules, tree, EMPTY_TREE)
    assert {path: store.blob(entry.oid) for path, entry in store.files(installed)} == {
        b"pkg/a": b"src/a",
        b"gen/b": b"src/gen/b",
        b"pkg/one": b"one",
    }


def test_a_generated_file_stands_over_the_repositorys_own(store: ObjectStore) -> None:
    outside = store.build_tree({b"sglang/a.py": (FILE, store.add("blob", b"generated"))})
    tree = installed_tree(store, SGLANG, build(store, b"python/sglang/a.py"), outside)
    entry = store.entry(tree, b"sglang/a.py")
    assert entry is not None
    assert store.blob(entry.oid) == b"generated"


def test_a_file_where_the_distribution_has_a_folder_is_refused(store: ObjectStore) -> None:
    with pytest.raises(InputError, match="sglang/x is both a file and a folder"):
        installed_tree(store, SGLANG, build(store, b"python/sglang/x"), build(store, b"sglang/x/y"))


def test_submodules_and_missing_folders_are_left_out(store: ObjectStore) -> None:
    tree = store.build_tree({
        b"3rdparty/cutlass": (SUBMODULE, "1" * 40),
        b"flashinfer/a.py": (FILE, store.add("blob", b"")),
    })  # fmt: skip
    installed = installed_tree(store, FLASHINFER, tree, EMPTY_TREE)
    assert [path for path, _ in store.files(installed)] == [b"flashinfer/a.py"]
