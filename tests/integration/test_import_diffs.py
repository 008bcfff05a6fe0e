"""patchwright import of west metadata and of single diffs that say little about themselves."""

from __future__ import annotations

import hashlib
import io
import re
from pathlib import Path

import pytest

from bringing import gate, mailed, plain, state, step, tiny, trees
from projects import TinyProject, make_project


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    return tiny(tmp_path)


def test_west_metadata(project: TinyProject, tmp_path: Path) -> None:
    folder = tmp_path / "zephyr"
    (folder / "patches" / "tiny").mkdir(parents=True)
    mail = mailed(step(project, gate(3, "x")), "[PATCH] one")
    (folder / "patches" / "tiny" / "one.patch").write_bytes(mail)
    text = (
        f"patches:\n  - path: tiny/one.patch\n    sha256sum: {hashlib.sha256(mail).hexdigest()}\n"
        "    module: tiny\n    author: A\n    date: 2020-04-20\n    upstreamable: true\n"
        "    merge-pr: https://example.org/pull/1\n    issue: https://example.org/issues/2\n"
    )
    (folder / "patches.yml").write_text(text)
    assert project.run("import", str(tmp_path)).code == 0
    shown = project.run("show", "1", "--json").json()
    assert shown["tree"] == project.tree()
    assert shown["upstream_status"] == "Submitted [https://example.org/pull/1]"
    assert shown["bugs"] == ["https://example.org/issues/2"]
    assert project.run("export", "-f", "dir", str(tmp_path / "out")).code == 0
    assert (tmp_path / "out" / "tiny" / "one.patch").read_bytes() == mail
    assert (tmp_path / "out" / "patches.yml").read_text() == text
    (folder / "patches.yml").write_text(text.replace("sha256sum: ", "sha256sum: 0"))
    assert "patches.yml has the sha256 0" in project.run("import", str(tmp_path)).out


@pytest.mark.parametrize(
    ("options", "strip"),
    [(["--no-prefix"], 0), ([], 1), (["--src-prefix=x/y/", "--dst-prefix=x/z/"], 2)],
)
def test_the_strip_level_of_a_single_diff_is_found_out(
    project: TinyProject, tmp_path: Path, options: list[str], strip: int
) -> None:
    (tmp_path / "one.diff").write_bytes(plain(step(project, gate(3, "x"), *options)))
    ran = project.run("import", str(tmp_path / "one.diff"))
    assert ran.code == 0, ran.err
    assert trees(project) == [project.tree()]
    assert (f"-p{strip}" in ran.out) == (strip != 1)
    assert project.run("export", "-f", "dir", str(tmp_path / "out")).code == 0
    assert (tmp_path / "out/one.diff").read_bytes() == (tmp_path / "one.diff").read_bytes()


def test_two_strip_levels_that_fit_are_asked(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"tiny/a.py": "1\n", "tiny/tiny/a.py": "1\n"})
    diff = b"--- tiny/tiny/a.py\n+++ tiny/tiny/a.py\n@@ -1 +1 @@\n-1\n+2\n"
    (tmp_path / "one.diff").write_bytes(diff)
    before = state(project)
    ran = project.run("import", str(tmp_path / "one.diff"))
    assert ran.code == 2
    assert "-p0 (tiny/tiny/a.py) or -p1 (tiny/a.py): say which with --strip" in ran.err
    assert state(project) == before
    assert project.run("import", "--strip", "1", str(tmp_path / "one.diff")).code == 0
    step(project, {"tiny/a.py": "2\n"})
    assert trees(project) == [project.tree()]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_it_is_asked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(tmp_path, {"tiny/a.py": "1\n", "tiny/tiny/a.py": "1\n"})
    project.add_upstream("other", {"other/b.py": "1\n"})
    diff = b"--- tiny/tiny/a.py\n+++ tiny/tiny/a.py\n@@ -1 +1 @@\n-1\n+2\n"
    (tmp_path / "one.diff").write_bytes(diff)
    new = b"--- /dev/null\n+++ b/NEW.py\n@@ -0,0 +1 @@\n+2\n"
    (tmp_path / "two.diff").write_bytes(new)
    monkeypatch.setattr("sys.stdin", _Terminal("1\n"))
    assert project.run("import", str(tmp_path / "one.diff")).code == 0
    shown = project.run("show", "1", "--json").json()
    assert shown["files"][0]["path"] == "tiny/a.py"


def test_two_files_of_one_name_are_kept_apart(project: TinyProject, tmp_path: Path) -> None:
    for name, line in (("a", 3), ("b", 30)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.patch").write_bytes(step(project, gate(line, name)))
    paths = [str(tmp_path / name / "x.patch") for name in "ab"]
    assert project.run("import", *paths).code == 0
    assert trees(project) == project.trees["tiny"][1:]
    assert project.run("export", "-f", "dir", str(tmp_path / "out")).code == 0
    for came, goes in zip(paths, ("x.patch", "x-2.patch"), strict=True):
        assert (tmp_path / "out" / goes).read_bytes() == Path(came).read_bytes()


@pytest.mark.parametrize(
    "stamp", [b"\t1970-01-01 01:00:00.000000000 +0100", b"\tThu Jan  1 00:00:00 1970"]
)
def test_a_time_stamp_of_1970_says_that_there_is_no_file(
    project: TinyProject, tmp_path: Path, stamp: bytes
) -> None:
    diff = step(project, {"csrc/a.cu": None})
    diff = plain(diff).replace(b"/dev/null", b"b/csrc/a.cu" + stamp)
    (tmp_path / "one.diff").write_bytes(diff)
    assert project.run("import", str(tmp_path / "one.diff")).code == 0
    assert trees(project) == [project.tree()]


def test_the_upstream_is_found_by_the_files_or_asked(project: TinyProject, tmp_path: Path) -> None:
    project.add_upstream("other", {"other/b.py": "1\n", "other/gate.py": "1\n"})
    one = tmp_path / "one.diff"
    one.write_bytes(b"--- a/other/b.py\n+++ b/other/b.py\n@@ -1 +1 @@\n-1\n+2\n")
    assert project.run("import", str(one)).code == 0
    assert project.run("show", "1", "--json").json()["upstream"] == "other"
    new = tmp_path / "new.diff"
    new.write_bytes(b"--- /dev/null\n+++ b/NEW\n@@ -0,0 +1 @@\n+2\n")
    ran = project.run("import", str(new), "--upstream", "nonsense")
    assert ran.code == 2
    assert "there is no upstream 'nonsense'" in ran.err


def test_paths_of_an_installed_package_are_mapped(project: TinyProject, tmp_path: Path) -> None:
    project.add_upstream("another", {"another/b.py": "1\n"})
    assert project.run("lock").code == 0
    place = b"/opt/venv/lib/python3.11/site-packages/tiny/"
    diff = plain(step(project, {"csrc/a.cu": "int A;\nint b;\nint c;\n"}))
    diff = re.sub(rb"[ab]/csrc/", place + b"data/csrc/", diff)
    (tmp_path / "one.diff").write_bytes(diff)
    ran = project.run("import", str(tmp_path / "one.diff"))
    assert ran.code == 0, ran.err
    assert "paths of installed files were mapped" in ran.out
    assert trees(project) == [project.tree()]
    assert project.run("show", "1", "--json").json()["files"][0]["path"] == "csrc/a.cu"
    (tmp_path / "two.diff").write_bytes(diff.replace(b"tiny/data", b"other/data"))
    ran = project.run("import", str(tmp_path / "two.diff"))
    assert ran.code == 1
    assert "is no file of another that a patch changes" in ran.err


def test_a_patch_of_another_project_brings_no_needs(project: TinyProject, tmp_path: Path) -> None:
    foreign = {"Depends": "0003 (why)", "Smoke": "tests/a.py", "Arch": "sm_120"}
    path = project.add_patch(7, gate(3, "x"), fields=foreign)
    path.rename(tmp_path / "0007-x.patch")
    ran = project.run("import", str(tmp_path / "0007-x.patch"))
    assert ran.code == 0, ran.err
    shown = project.run("show", "1", "--json").json()
    assert (shown["needs"], shown["smoke"], shown["arch"]) == ([], [], ["sm_120"])
    assert "dropped" in ran.out


def test_nothing_at_the_path(project: TinyProject, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, said in ((tmp_path / "lost", "there is nothing here"),
                       (tmp_path / "empty", "no series, no repository and no patch file"),
                       (Path("/dev/null"), "neither a file nor a folder")):  # fmt: skip
        ran = project.run("import", str(path))
        assert (ran.code, said in ran.err) == (2, True), ran.err
