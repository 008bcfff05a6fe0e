"""The chain of trees: git is the oracle, and every outcome is a verdict with a place."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from chains import FILES, edit, opened, verdicts, with_line
from patchwright.applying.chain import Chain, apply_one
from patchwright.applying.files import PatchOnTree
from patchwright.patch import Patch
from patchwright.store import ObjectStore
from projects import TinyProject, make_project
from strategies import Plan, made, plans


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    return make_project(tmp_path, FILES)


# Git is the oracle


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=plans())
def test_tree_ids_are_those_of_git_am(plan: Plan) -> None:
    folder = Path(tempfile.mkdtemp(dir=os.environ["HOME"]))
    result = made(folder / "git", plan)
    store = ObjectStore(folder / "objects.git")
    files = {path: (mode, store.add("blob", data)) for path, (mode, data) in plan.base.items()}
    tree = store.build_tree(files)
    assert tree == result.base
    for number, (raw, after) in enumerate(zip(result.patches, result.trees, strict=True), 1):
        patch = Patch.parse(raw, Path(f"{number:04d}-x.patch"))
        verdict = apply_one(PatchOnTree(store, tree, None), patch, "u")
        assert (verdict.verdict, verdict.tree) == ("clean", after), verdict
        again = apply_one(PatchOnTree(store, after, None), patch, "u")
        assert not again.ok, again
        tree = after
    store.flush()
    shutil.rmtree(folder)


def test_a_series_gives_the_trees_of_git(tiny: TinyProject) -> None:
    tiny.add_patch(1, {"tiny/a.py": with_line(5, "five\n")})
    tiny.add_patch(2, {"csrc/k.cu": "__global__ void k() { return; }\n"})
    tiny.add_patch(3, {"tiny/a.py": with_line(5, "five\n", (20, "")), "tiny/new.py": "new\n"})
    project = opened(tiny)
    state, found = Chain(project).apply(project.series.patches)
    # The wheel has no tests: its trees lack what the layout does not carry.
    git = tiny.git["tiny"]
    for verdict, tree in zip(found, tiny.trees["tiny"][1:], strict=True):
        index = {"GIT_INDEX_FILE": str(git / "index.tmp")}
        run(git, "read-tree", tree, env=index)
        run(git, "rm", "--cached", "-r", "-q", "tests", env=index)
        assert verdict.tree == run(git, "write-tree", env=index)
        assert verdict.verdict == "clean"
    assert state.tree("tiny") == found[-1].tree
    assert all(project.store.has(v.tree or "") for v in found)


def run(folder: Path, *args: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        ["git", *args], cwd=folder, env=os.environ | (env or {}), capture_output=True, check=True
    )
    return done.stdout.decode().strip()


def test_settings_locale_variables_and_attributes_change_nothing(
    tiny: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.add_patch(1, {"tiny/.gitattributes": "*.py text eol=crlf\n*.bin -diff\n"})
    tiny.add_patch(2, {"tiny/a.py": with_line(5, "five\r\n")})
    tiny.add_patch(3, {"tiny/x.bin": b"\0\1\2" * 100})
    tiny.add_patch(4, {"tiny/x.bin": b"\0\1\3" * 100})
    expected = [v.tree for v in verdicts(tiny)]
    assert None not in expected
    home = Path(os.environ["HOME"])
    (home / ".gitconfig").write_text(
        "[core]\n autocrlf = true\n eol = crlf\n attributesFile = ~/attributes\n"
        "[apply]\n whitespace = fix\n ignoreWhitespace = change\n[diff]\n noprefix = true\n"
        "[i18n]\n commitEncoding = latin1\n"
    )
    (home / "attributes").write_text("* text eol=crlf ident filter=x\n")
    for name, value in {
        "GIT_DIR": "/nonexistent", "GIT_INDEX_FILE": "/nonexistent/index",
        "GIT_OBJECT_DIRECTORY": "/nonexistent", "GIT_WORK_TREE": "/nonexistent",
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.autocrlf",
        "GIT_CONFIG_VALUE_0": "true", "LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de",
        "PATCHWRIGHT_CACHE": str(home / "other-cache"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert [v.tree for v in verdicts(tiny)] == expected


# Every outcome is a verdict with a place


def test_an_offset_says_by_how_much(tiny: TinyProject) -> None:
    path = tiny.add_patch(1, {"tiny/a.py": with_line(10, "ten\n")})
    edit(path, "@@ -7,7 +7,7 @@", "@@ -9,7 +9,7 @@")
    [verdict] = verdicts(tiny)
    assert (verdict.verdict, verdict.ok) == ("offset", True)
    assert verdict.files[0].offsets == (-2,)
    assert verdict.reason == "tiny/a.py: hunk 1: -2 lines"


def test_three_way_on_the_recorded_blob(tiny: TinyProject) -> None:
    """0002 was made on the pristine blob; 0001 changed its context."""
    tiny.add_patch(2, {"tiny/a.py": with_line(10, "ten\n")})
    tiny.add_patch(1, {"tiny/a.py": with_line(10, "ten\n", (13, "thirteen\n"))})
    second = tiny.root / "patches" / "0002-tiny-change-2.patch"
    edit(tiny.root / "patches" / "0001-tiny-change-1.patch", " ten\n", " line 10\n")
    one, two = verdicts(tiny)
    assert (one.verdict, two.verdict) == ("clean", "three-way")
    blob = FILES["tiny/a.py"]
    assert isinstance(blob, str)
    assert f"merged on blob {run_hash(blob)}" in two.reason
    project = opened(tiny)
    entry = project.store.entry(two.tree or "", b"tiny/a.py")
    assert entry is not None
    assert project.store.blob(entry.oid).decode() == with_line(10, "ten\n", (13, "thirteen\n"))
    # A short id is as good; an id that names nothing is not.
    edit(second, run_hash(blob), run_hash(blob)[:9])
    assert verdicts(tiny)[1].verdict == "three-way"
    edit(second, run_hash(blob)[:9], "0123456789")
    broken = verdicts(tiny)[1]
    assert broken.verdict == "conflict"
    assert "is not in the store" in broken.reason


def run_hash(text: str) -> str:
    from patchwright.store import object_id

    return object_id("blob", text.encode())


def test_a_conflict_names_file_hunk_line_and_what_stands_there(tiny: TinyProject) -> None:
    tiny.add_patch(1, {"tiny/a.py": with_line(10, "ten\n")})
    second = tiny.add_patch(2, {"tiny/a.py": with_line(10, "TEN\n")})
    tiny.add_patch(3, {"tiny/b.py": "b = 2\n"})
    edit(second, "-ten", "-zehn")
    one, two, three = verdicts(tiny)
    assert (one.verdict, two.verdict, three.verdict) == ("clean", "conflict", "clean")
    assert two.tree is None
    line = second.read_bytes().split(b"\n").index(b"@@ -7,7 +7,7 @@ line 6") + 1
    assert two.reason.startswith(f"tiny/a.py: hunk 1 (line {line} of the patch) fits nowhere")
    assert "at line 7 stands now:\n    line 7\n    line 8\n    line 9\n    ten" in two.reason


def test_already_upstream_wholly_and_partly(tiny: TinyProject) -> None:
    first = tiny.add_patch(1, {"tiny/a.py": with_line(5, "five\n")})
    shutil.copy(first, first.with_name("0002-tiny-again.patch"))
    tiny.add_patch(3, {"tiny/b.py": "b = 2\n"})
    tiny.add_patch(4, {"tiny/b.py": "b = 1\n", "tiny/a.py": with_line(5, "line 5\n")})
    tiny.add_patch(5, {"tiny/a.py": with_line(5, "five\n"), "csrc/k.cu": "k\n"})
    (tiny.root / "patches" / "0004-tiny-change-4.patch").unlink()
    found = verdicts(tiny)
    assert [v.verdict for v in found] == ["clean", "already-upstream", "clean", "partly-upstream"]
    assert [v.ok for v in found] == [True, False, True, False]
    assert found[3].reason == "in the tree already: tiny/a.py"


def test_some_hunks_of_a_file_are_there_already(tiny: TinyProject) -> None:
    tiny.add_patch(1, {"tiny/a.py": with_line(5, "five\n", (25, "25\n"))})
    one = tiny.root / "patches" / "0001-tiny-change-1.patch"
    whole = one.read_bytes()
    head, first, second = whole.partition(b"@@ -2,")[0], *whole.partition(b"@@ -2,")[1:]
    hunk_1, _, _ = (first + second).partition(b"@@ -22,")
    one.write_bytes(head + hunk_1)
    two = one.with_name("0002-tiny-both.patch")
    two.write_bytes(whole.replace(run_hash(str(FILES["tiny/a.py"])).encode(), b"1234567"))
    found = verdicts(tiny)
    assert [v.verdict for v in found] == ["clean", "partly-upstream"]
    assert "hunk 1 is in the tree already, hunk 2 is not" in found[1].reason
    # With the recorded blob at hand the merge knows what to do.
    two.write_bytes(whole)
    merged = verdicts(tiny)[1]
    assert merged.verdict == "three-way"
    assert "hunk 1 is in the tree already" in merged.reason


def test_a_corrupt_patch_does_not_hide_the_others(tiny: TinyProject) -> None:
    path = tiny.add_patch(1, {"tiny/a.py": with_line(5, "five\n")})
    tiny.add_patch(2, {"tiny/b.py": "b = 2\n"})
    edit(path, "@@ -2,7 +2,7 @@", "@@ -2,9 +2,7 @@")
    one, two = verdicts(tiny)
    line = path.read_bytes().split(b"\n").index(b"@@ -2,9 +2,7 @@ line 1") + 1
    assert (one.verdict, two.verdict) == ("corrupt", "clean")
    assert one.reason.startswith(f"line {line}: ")


def test_a_missing_target_with_a_hint(tiny: TinyProject) -> None:
    def rename(work: Path) -> None:
        (work / "tiny" / "b.py").rename(work / "tiny" / "c.py")

    tiny.add_patch(1, {"tiny/b.py": "b = 2\n"})
    moved = tiny.root / "patches" / "0001-tiny-change-1.patch"
    tiny.add_patch(2, {"tiny/b.py": "b = 1\n"})
    (tiny.root / "patches" / "0002-tiny-change-2.patch").unlink()
    tiny.add_patch(2, rename)
    moved.rename(moved.with_name("0003-tiny-change.patch"))
    one, two = verdicts(tiny)
    assert (one.verdict, two.verdict) == ("clean", "target-missing")
    assert two.reason == "tiny/b.py: tiny/b.py is not in the tree: renamed to tiny/c.py?"


def test_outside_the_layout(tiny: TinyProject) -> None:
    tiny.add_patch(1, {"tests/test_a.py": "def test(): pass\n"})
    tiny.add_patch(2, {"docs/new.md": "new\n", "tiny/b.py": "b = 2\n"})
    found = verdicts(tiny)
    assert [v.verdict for v in found] == ["outside", "outside"]
    assert found[0].reason.startswith("tests/test_a.py: the layout does not carry it")
    assert found[1].reason.startswith("docs/new.md: ")


def test_a_patch_that_changes_nothing_is_an_error(tiny: TinyProject) -> None:
    """Inside another repository, `git apply` skips such a patch and returns 0."""
    path = tiny.add_patch(1, {"tiny/a.py": with_line(5, "five\n")})
    edit(path, "+five\n", "+line 5\n")
    inner = tiny.git["tiny"] / "venv" / "site-packages"
    inner.mkdir(parents=True)
    assert subprocess.run(["git", "apply", str(path)], cwd=inner, check=False).returncode == 0
    [verdict] = verdicts(tiny)
    assert (verdict.verdict, verdict.ok, verdict.tree) == ("empty", False, None)


def test_new_over_existing_and_delete_of_other_content(tiny: TinyProject) -> None:
    def delete(work: Path) -> None:
        (work / "tiny" / "b.py").unlink()

    add = tiny.add_patch(1, {"tiny/new.py": "one\n"})
    shutil.copy(add, add.with_name("0002-tiny-same.patch"))
    other = add.with_name("0003-tiny-other.patch")
    other.write_bytes(add.read_bytes().replace(b"+one\n", b"+two\n"))
    gone = tiny.add_patch(4, delete)
    edit(gone, "-b = 1\n", "-b = 0\n")
    found = verdicts(tiny)
    words = ["clean", "already-upstream", "conflict", "conflict"]
    assert [v.verdict for v in found] == words
    assert "is there already: a file with other content" in found[2].reason


def test_a_file_under_a_file_is_a_conflict(tiny: TinyProject) -> None:
    path = tiny.add_patch(1, {"tiny/sub/x.py": "x\n"})
    edit(path, "tiny/sub/x.py", "tiny/b.py/x.py")
    [verdict] = verdicts(tiny)
    assert verdict.verdict == "conflict"
    assert "tiny/b.py is a file, not a folder" in verdict.reason


def test_a_binary_patch_on_other_content(tiny: TinyProject) -> None:
    tiny.add_patch(1, {"tiny/x.bin": b"\0one"})
    second = tiny.add_patch(2, {"tiny/x.bin": b"\0two"})
    tiny.add_patch(3, {"tiny/x.bin": b"\0three"})
    shutil.copy(second, second.with_name("0004-tiny-again.patch"))
    found = verdicts(tiny)
    assert [v.verdict for v in found] == ["clean", "clean", "clean", "conflict"]
    second.unlink()
    found = verdicts(tiny)
    assert [v.verdict for v in found] == ["clean", "conflict", "clean"]
    assert "the binary patch was made on" in found[1].reason
