"""patchwright import and export of quilt series: every oddity, nothing lost, nothing half."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from bringing import DOS, gate, plain, renamed, series, state, step, tiny, trees
from projects import TinyProject


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    return tiny(tmp_path)


def exported(project: TinyProject, form: str = "quilt", *options: str) -> Path:
    target = project.root.parent / f"out-{form}"
    ran = project.run("export", "--format", form, str(target), *options)
    assert ran.code == 0, ran.err
    return target


def same_folder(one: Path, other: Path) -> None:
    names = sorted(p.relative_to(one) for p in one.rglob("*") if p.is_file())
    assert names == sorted(p.relative_to(other) for p in other.rglob("*") if p.is_file())
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes()


def test_a_series_with_every_oddity(project: TinyProject, tmp_path: Path) -> None:
    old = gate(3, "THREE")
    patches = {
        "p1.patch": step(project, old),
        "sub/p0.diff": plain(step(project, {"csrc/a.cu": "int A;\nint b;\nint c;\n"},
                                  "--no-prefix")),
        "p2.patch": plain(step(project, {"tiny/new.py": "x = 1\n"}, "--src-prefix=o/x/",
                               "--dst-prefix=n/x/")),
        "back.patch": step(project, {"tiny/new.py": "x = 2\n"}, "-R"),
        "index.patch": b"Index: tiny/tiny/new.py\n" + b"=" * 67 + b"\n"
        + plain(step(project, {"tiny/new.py": "x = 3\n"}, "--src-prefix=tiny.orig/",
                     "--dst-prefix=tiny/")),
        "gone.patch": step(project, {"tiny/new.py": None}),
        "dos.patch": step(project, {"tiny/dos.py": DOS.replace("line 5", "five")}),
        "latin.patch": "caf\xe9, by somebody\n\n".encode("latin-1") + step(
            project, {"tiny/latin.py": "name = 'th\xe9'\nother = 1\n".encode("latin-1")}, "--text"),
        "packed.patch.gz": gzip.compress(step(project, gate(30, "THIRTY")), mtime=0),
    }  # fmt: skip
    listed = (
        b"\xef\xbb\xbf# a comment\r\n\r\np1.patch   # why\r\nsub/p0.diff -p0\r\np2.patch -p 2\r\n"
        b"  back.patch -R -p1\r\nindex.patch\r\ngone.patch -pab\r\ndos.patch\r\nlatin.patch\r\n"
        b"#off.patch\r\npacked.patch.gz"
    )
    folder = series(tmp_path / "debian" / "patches", patches, listed)
    ran = project.run("import", str(folder))
    assert (ran.code, ran.err.partition("error")[2]) == (0, "")
    assert trees(project) == project.trees["tiny"][1:]
    assert project.run("lock", "--check").code == 0
    same_folder(folder, exported(project))


def test_the_patches_are_unproven_and_undo_takes_all_of_it_back(
    project: TinyProject, tmp_path: Path
) -> None:
    before = state(project)
    folder = series(tmp_path / "q", {"a.patch": step(project, gate(3, "x")),
                                     "b.patch": step(project, gate(9, "y"))})  # fmt: skip
    assert project.run("import", str(folder)).code == 0
    rows = project.run("status", "--json").json()["patches"]
    assert [row["evidence"]["static"]["step"]["verdict"] for row in rows] == ["unproven"] * 2
    assert project.run("undo").code == 0
    assert state(project) == before


def test_dry_run_writes_nothing(project: TinyProject, tmp_path: Path) -> None:
    before = state(project)
    folder = series(tmp_path / "q", {"a.patch": step(project, gate(3, "x"))})
    ran = project.run("import", "--dry-run", "--json", str(folder))
    assert ran.code == 0
    assert ran.json()["imported"] is False
    assert ran.json()["patches"][0]["tree"] == project.tree()
    assert state(project) == before


DEP3 = """\
Description: Open the gate
 A reason, over
 .
 two paragraphs.
Author: J\xfcrgen <j@example.org>
Origin: upstream, https://example.org/commit/1
Bug: https://example.org/bugs/7
Bug-Debian: https://bugs.debian.org/9
Last-Update: 2013-05-06
---
This patch header follows DEP-3
"""


@pytest.mark.parametrize("charset", ["utf-8", "latin-1"])
def test_dep3_headers(project: TinyProject, tmp_path: Path, charset: str) -> None:
    head = DEP3.encode(charset)
    folder = series(tmp_path / "q", {"a.patch": head + step(project, gate(3, "x"))})
    assert project.run("import", str(folder)).code == 0
    shown = project.run("show", "1", "--json").json()
    assert shown["title"] == "Open the gate"
    assert shown["author"] == "J\xfcrgen <j@example.org>"
    assert shown["date"] == "6 May 2013 00:00:00 +0000"
    assert shown["message"].startswith("A reason, over\n\ntwo paragraphs.\n")
    assert "Bug-Debian: https://bugs.debian.org/9" in shown["message"]
    assert shown["upstream_status"] == "Backport [upstream, https://example.org/commit/1]"
    assert shown["bugs"] == ["https://example.org/bugs/7", "https://bugs.debian.org/9"]
    same_folder(folder, exported(project))


@pytest.mark.parametrize(
    ("author", "shown"),
    [
        ("J. Random", "J. Random <unknown@invalid>"),
        ("j@example.org", "j@example.org <j@example.org>"),
        ("A B <a@b.c>, C D <c@d.e>", "A B <a@b.c>"),
        ("", "unknown author <unknown@invalid>"),
    ],
)
def test_git_am_takes_every_author(
    project: TinyProject, tmp_path: Path, author: str, shown: str
) -> None:
    head = f"Description: x\nAuthor: {author}\n\n".encode()
    folder = series(tmp_path / "q", {"a.patch": head + step(project, gate(3, "x"))})
    assert project.run("import", str(folder)).code == 0
    assert project.run("show", "1", "--json").json()["author"] == shown
    assert project.run("export", "-f", "mbox", str(tmp_path / "box")).code == 0
    work = project.git["tiny"]
    subprocess.run(["git", "reset", "--quiet", "--hard", "HEAD~1"], cwd=work, check=True)
    subprocess.run(["git", "am", "--quiet", "--keep-cr", str(tmp_path / "box")], cwd=work,
                   check=True)  # fmt: skip


@pytest.mark.parametrize(
    ("head", "title"),
    [
        (b"", "fix it now"),
        (b"A title of its own\n\nand prose.\n", "A title of its own"),
        (b"#! /bin/sh /usr/share/dpatch/dpatch-run\n## 01.dpatch by A B <a@b.c>\n"
         b"## DP: What it does.\n\n@DPATCH@\n", "01.dpatch by A B <a@b.c>"),
        (b"the title\n\nFrom: A B <a@b.c>\n\nStGit's own form.\n---\n a.py | 2 +-\n", "the title"),
        (b"From: A B <a@b.c>\nSubject: [PATCH 3/4] =?UTF-8?q?caf=C3=A9?=\n\nprose\n", "caf\xe9"),
    ],
)  # fmt: skip
def test_heads_without_a_format(
    project: TinyProject, tmp_path: Path, head: bytes, title: str
) -> None:
    folder = series(tmp_path / "q", {"03-fix_it-now.patch": head + step(project, gate(3, "x"))})
    assert project.run("import", str(folder)).code == 0
    shown = project.run("show", "1", "--json").json()
    assert shown["title"] == title
    assert shown["tree"] == project.tree()
    same_folder(folder, exported(project))


def test_a_moved_hunk_goes_where_gnu_patch_puts_it(project: TinyProject, tmp_path: Path) -> None:
    """Where it fits twice and not at its line, the nearest place counts."""
    step(project, {"tiny/gate.py": "a\nb\nc\nX\n" * 6})
    first = project.root.parent / "git" / "tiny" / "tiny" / "gate.py"
    diff = subprocess.run(
        ["git", "diff", "HEAD~1", "HEAD"], cwd=first.parent, capture_output=True, check=True
    ).stdout
    moved = b"--- a/tiny/gate.py\n+++ b/tiny/gate.py\n@@ -6,3 +6,3 @@\n a\n-b\n+B\n c\n"
    folder = series(tmp_path / "q", {"a.patch": diff, "b.patch": moved})
    ran = project.run("import", str(folder))
    assert ran.code == 0
    expected = "a\nb\nc\nX\n" + "a\nB\nc\nX\n" + "a\nb\nc\nX\n" * 4
    step(project, {"tiny/gate.py": expected})
    assert trees(project) == project.trees["tiny"][1:]
    assert "written anew" in ran.out
    same_folder(folder, exported(project))


@pytest.mark.skipif(not shutil.which("quilt"), reason="quilt is not installed")
def test_quilt_pushes_what_is_exported_to_the_same_trees(
    project: TinyProject, tmp_path: Path
) -> None:
    project.add_patch(1, {"tiny/gate.py": "a\nb\n"})
    project.add_patch(2, renamed)
    project.add_patch(3, {"tiny/empty.py": "", "tiny/x.sh": "#!/bin/sh\n"})
    project.add_patch(4, lambda w: (w / "tiny/x.sh").chmod(0o755))
    project.add_patch(5, {"tiny/x.sh": None}, message="As in\n\n --- a/x\n +++ b/x\n @@ -1 +1 @@\n"
                      " -a\n +b\n")  # fmt: skip
    assert project.run("lock").code == 0
    folder = exported(project)
    work = tmp_path / "work"
    git = project.git["tiny"]
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(work), "HEAD~5"], cwd=git,
                   check=True)  # fmt: skip
    seen = []
    for _ in range(5):
        done = subprocess.run(
            ["quilt", "push", "--fuzz=0"], cwd=work, capture_output=True, text=True, check=False,
            env={"PATH": "/usr/bin:/bin", "QUILT_PATCHES": str(folder), "HOME": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "offset" not in done.stdout
        subprocess.run(["git", "add", "-A", "-f", "--", ".", ":!.pc"], cwd=work, check=True)
        tree = subprocess.run(["git", "write-tree"], cwd=work, capture_output=True, check=True)
        seen.append(tree.stdout.decode().strip())
    assert seen == project.trees["tiny"][1:]


def test_a_quilt_series_carries_no_binary_file(project: TinyProject, tmp_path: Path) -> None:
    project.add_patch(1, {"tiny/data.bin": b"\0\1\2"})
    assert project.run("lock").code == 0
    ran = project.run("export", "--format", "quilt", str(tmp_path / "out"))
    assert ran.code == 1
    assert "0001 changes a binary file" in ran.err
    assert not (tmp_path / "out").exists()


def test_a_changed_patch_goes_out_as_it_is_now_the_others_as_they_came(
    project: TinyProject, tmp_path: Path
) -> None:
    folder = series(tmp_path / "q", {"a.patch": b"one\n\n" + step(project, gate(3, "x")),
                                     "b.patch": step(project, gate(9, "y"))})  # fmt: skip
    assert project.run("import", str(folder)).code == 0
    first, second = sorted((project.root / "patches").glob("*.patch"))
    first.write_bytes(first.read_bytes().replace(b"Subject: [PATCH] one", b"Subject: [PATCH] two"))
    # Our own fields are no change to others.
    second.write_bytes(
        second.read_bytes().replace(b"\nImported: ", b"\nDepends: 1 (w)\nImported: ")
    )
    out = exported(project)
    names = (out / "series").read_text().split()
    assert names == [first.name, "b.patch"]
    assert b"Subject: [PATCH] two" in (out / first.name).read_bytes()
    assert b"Upstream:" not in (out / first.name).read_bytes()
    assert (out / "b.patch").read_bytes() == (folder / "b.patch").read_bytes()


def test_a_part_of_the_series_is_exported_with_its_options(
    project: TinyProject, tmp_path: Path
) -> None:
    folder = series(tmp_path / "q", {
        "a.patch": step(project, gate(3, "x")),
        "b.patch": plain(step(project, {"csrc/a.cu": "int z;\n"}, "--no-prefix")),
    }, b"a.patch\nb.patch -p0 # zero\n")  # fmt: skip
    assert project.run("import", str(folder)).code == 0
    out = exported(project, "quilt", "--without", "1")
    assert (out / "series").read_bytes() == b"b.patch -p0 # zero\n"
    assert not (out / "a.patch").exists()


def test_after_moving_and_renumbering_the_originals_still_go_out(
    project: TinyProject, tmp_path: Path
) -> None:
    folder = series(tmp_path / "q", {
        "a.patch": plain(step(project, gate(3, "x"), "--no-prefix")),
        "b.patch": b"prose\n\n" + step(project, {"csrc/a.cu": "int z;\n"}),
    }, b"a.patch -p0\nb.patch\n")  # fmt: skip
    assert project.run("import", str(folder)).code == 0
    assert project.run("move", "2", "--first").code == 0
    assert project.run("renumber", "--start", "10").code == 0
    assert project.run("message", "10", "--field", "Arch=sm_120").code == 0
    out = exported(project)
    assert (out / "series").read_bytes() == b"b.patch\na.patch -p0\n"
    for name in ("a.patch", "b.patch"):
        assert (out / name).read_bytes() == (folder / name).read_bytes()
    assert project.run("message", "10", "--title", "another").code == 0
    out = project.root.parent / "again"
    assert project.run("export", "-f", "quilt", str(out)).code == 0
    assert sorted(path.name for path in out.iterdir())[1:] == ["a.patch", "series"]
    for _ in range(5):
        assert project.run("undo").code == 0
    assert project.run("status").out == "no patches\n"
    assert not list((project.root / "patches").rglob("*.patch"))


def _refused(project: TinyProject, path: Path, *said: str) -> None:
    before = state(project)
    ran = project.run("import", str(path))
    assert ran.code == 1, ran.out + ran.err
    for text in said:
        assert text in ran.out + ran.err
    assert "nothing was imported" in ran.err
    assert state(project) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"a.patch\nlost.patch\n", "series:2: the file is missing"),
        (b"a.patch\na.patch -p0\n", "the series lists it at line 1 already"),
        (b"../a.patch\n", "leads out of the folder"),
        (b"/etc/passwd\n", "is absolute"),
        (b"a.patch --fuzz=3\n", "--fuzz=3 is an option of patch that is not taken here"),
        (b"a.patch -p\n", "-p lacks its number"),
        (b"a.patch\nempty.patch\n", "an empty patch: the file is empty"),
        (b"out.patch\n", "this link leads out of the folder of patches"),
        (b"# nothing\n", "the series lists no patch"),
    ],
)
def test_a_series_that_cannot_be_taken_whole_is_not_taken(
    project: TinyProject, tmp_path: Path, text: bytes, said: str
) -> None:
    folder = series(
        tmp_path / "q", {"a.patch": step(project, gate(3, "x")), "empty.patch": b""}, text
    )
    (tmp_path / "secret.patch").write_bytes(step(project, gate(7, "x")))
    (folder / "out.patch").symlink_to(tmp_path / "secret.patch")
    _refused(project, folder, said)


def _hostile(name: bytes, other: bytes | None = None) -> bytes:
    return b"--- %s\n+++ %s\n@@ -0,0 +1 @@\n+x\n" % (other or name, name)


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        (_hostile(b"b/../../x.py", b"/dev/null"), "leaves the tree"),
        (_hostile(b"/etc/x", b"/dev/null"), "/etc/x is absolute"),
        (_hostile(b"b/.git/hooks/pre-commit", b"/dev/null"), "reaches into .git"),
        (_hostile(b"b/tiny/.GIT/config", b"/dev/null"), "reaches into .git"),
        (_hostile(b'"b/tiny/a\\000b.py"', b"/dev/null"), "holds a NUL byte"),
        (_hostile(b"b/tiny/a\0b.py", b"/dev/null"), "holds a NUL byte"),
        (_hostile(b"b/tiny/GATE.py", b"/dev/null"), "tiny/GATE.py and tiny/gate.py are one file"),
        (_hostile(b'"b/tiny/e\\314\\201.py"', b"/dev/null")
         + _hostile(b'"b/tiny/\\303\\251.py"', b"/dev/null"), "are one file"),
        (b"diff --git a/tiny/l b/tiny/l\nnew file mode 120000\n--- /dev/null\n+++ b/tiny/l\n"
         b"@@ -0,0 +1 @@\n+../../../etc/passwd\n\\ No newline at end of file\n",
         "the link points out of the tree"),
        (b"diff --cc tiny/gate.py\nindex 1,2..3\n--- a/tiny/gate.py\n+++ b/tiny/gate.py\n"
         b"@@@ -1,1 -1,1 +1,1 @@@\n--a\n++b\n", "combined diff of a merge"),
        (b"*** a/tiny/gate.py\n--- b/tiny/gate.py\n***************\n*** 1 ****\n! a\n"
         b"--- 1 ----\n! b\n", "context diff"),
        (b"Binary files a/tiny/x.png and b/tiny/x.png differ\n", "binary file is missing"),
        (b"--- a/tiny/gate.py\n+++ b/tiny/gate.py\n@@ -1,3 +1,3 @@\n line 1\n-line 2\n+two\n",
         "line 3"),
        (b"--- a/tiny/gate.py\n+++ b/tiny/gate.py\n@@ -1,3 +1,3 @@\n line one\n-line 2\n+two\n"
         b" line 3\n", "fits nowhere without fuzz"),
        (b"--- a/tiny/lost.py\n+++ b/tiny/lost.py\n@@ -1 +1 @@\n-a\n+b\n", "not in the tree"),
        (b"just prose\n", "an empty patch: it holds no diff"),
        (b"\n > quoted:\n\n --- a/tiny/gate.py\n +++ b/tiny/gate.py\n @@ -1 +1 @@\n -a\n +b\n"
         + _hostile(b"b/tiny/n.py", b"/dev/null"), "an indented diff"),
    ],
)  # fmt: skip
def test_hostile_and_broken_diffs_are_refused_by_name(
    project: TinyProject, tmp_path: Path, diff: bytes, said: str
) -> None:
    _refused(project, series(tmp_path / "q", {"bad.patch": diff}), "bad.patch", said)


def test_the_whole_import_is_reported(project: TinyProject, tmp_path: Path) -> None:
    folder = series(tmp_path / "q", {
        "good.patch": step(project, gate(3, "x")),
        "bad.patch": _hostile(b"b/../x", b"/dev/null"),
        "worse.patch": b"",
    })  # fmt: skip
    before = state(project)
    ran = project.run("import", "--json", str(folder))
    assert ran.code == 1
    rows = ran.json()["patches"]
    assert [row["name"] for row in rows] == ["good.patch", "bad.patch", "worse.patch"]
    assert [bool(row["refused"]) for row in rows] == [False, True, True]
    assert "(1 more above)" in ran.err
    assert state(project) == before


def test_export_overwrites_nothing(project: TinyProject, tmp_path: Path) -> None:
    folder = series(tmp_path / "q", {"a.patch": step(project, gate(3, "x"))})
    assert project.run("import", str(folder)).code == 0
    ran = project.run("export", "--format", "quilt", str(folder))
    assert ran.code == 2
    assert "something stands here already" in ran.err


def test_a_damaged_original_is_not_given_out(project: TinyProject, tmp_path: Path) -> None:
    folder = series(tmp_path / "q", {"a.patch": step(project, gate(3, "x"))})
    assert project.run("import", str(folder)).code == 0
    kept = project.root / "patches" / "originals" / "q" / "files" / "a.patch"
    kept.write_bytes(kept.read_bytes() + b"more\n")
    out = exported(project)
    assert (out / "series").read_text() == "0001-tiny-a.patch\n"
