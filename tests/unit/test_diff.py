"""The diff parser: against real git on random series, and on damaged patches."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchwright.diff import CorruptPatch, FileChange, parse_diff
from patchwright.git import Git
from patchwright.patch import Patch
from strategies import Files, Plan, made, plans

OID = "0123456789012345678901234567890123456789"


def parsed(text: str | bytes) -> tuple[FileChange, ...]:
    return parse_diff(text.encode() if isinstance(text, str) else text, 1)


def numstat(folder: Path, raw: bytes) -> list[tuple[bytes, bytes, bytes]] | None:
    """Return what git counts in a patch: added, removed, path; None where it refuses it."""
    done = Git().run("apply", "--numstat", "-z", "-", data=raw, cwd=folder, ok=(0, 1, 128))
    if done.returncode:
        return None
    rows = [row.split(b"\t", 2) for row in done.stdout.split(b"\0") if row]
    return [(added, removed, path) for added, removed, path in rows]


def counted(changes: tuple[FileChange, ...]) -> list[tuple[bytes, bytes, bytes]]:
    rows = []
    for change in changes:
        lines = [line for hunk in change.hunks for line in hunk.lines]
        added = b"%d" % sum(line[:1] == b"+" for line in lines)
        removed = b"%d" % sum(line[:1] == b"-" for line in lines)
        binary = change.binary is not None
        rows.append((b"-" if binary else added, b"-" if binary else removed, change.path))
    return rows


def after(files: Files, changes: tuple[FileChange, ...], wanted: Files) -> Files:
    """Apply changes at their exact places; the content of binary files is not checked."""
    result = dict(files)
    for change in changes:
        if change.old_path is not None and change.kind in ("delete", "rename"):
            result.pop(change.old_path, None)
    for change in changes:
        if change.new_path is None:
            continue
        mode, content = files.get(change.old_path or b"", (b"", b""))
        if change.binary is not None:
            content = wanted[change.new_path][1]
        lines = content.splitlines(keepends=True) if b"\r" not in content else cut(content)
        for hunk in reversed(change.hunks):
            at = hunk.old_start - (hunk.old_count > 0)
            assert lines[at : at + hunk.old_count] == hunk.old
            assert len(hunk.new) == hunk.new_count
            lines[at : at + hunk.old_count] = hunk.new
        result[change.new_path] = (change.new_mode or mode, b"".join(lines))
    return result


def cut(content: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in content.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


@settings(max_examples=30, deadline=None)
@given(plans())
def test_every_change_of_a_real_series_is_read_exactly(plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as name:
        result = made(Path(name) / "repo", plan)
        before = plan.base
        for raw, commit in zip(result.patches, plan.commits, strict=True):
            changes = Patch.parse(raw, Path("0001-x.patch")).changes
            assert after(before, changes, commit.files) == commit.files
            assert counted(changes) == numstat(Path(name), raw)
            before = commit.files


DAMAGES = ("drop", "double", "unsign", "junk", "cut", "swap")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(DAMAGES), st.integers(0, 10_000), st.booleans())
def test_what_is_accepted_after_damage_is_what_git_reads(
    kind: str, place: int, signed: bool
) -> None:
    raw = (SIGNED if signed else SIGNED.rpartition("-- \n")[0]).encode()
    lines = raw.splitlines(keepends=True)
    at = place % len(lines)
    if kind == "cut":
        raw = raw[: place % len(raw)]
    else:
        line = lines[at]
        lines[at : at + 1] = {
            "drop": [], "double": [line, line], "unsign": [line[1:]], "junk": [b"junk\n", line],
            "swap": [*lines[at + 1 : at + 2], line],
        }[kind]  # fmt: skip
        if kind == "swap":
            del lines[at + 2 : at + 3]
        raw = b"".join(lines)
    with tempfile.TemporaryDirectory() as name:
        try:
            changes = Patch.parse(raw, Path("0001-x.patch")).changes
        except CorruptPatch:
            return
        assert counted(changes) == numstat(Path(name), raw)


SIGNED = f"""\
From {OID} Mon Sep 17 00:00:00 2001
From: A <a@example.com>
Subject: [PATCH] title

---
 f.c | 4 ++--

diff --git a/f.c b/f.c
index {OID}..{OID} 100644
--- a/f.c
+++ b/f.c
@@ -1,4 +1,4 @@
 one
-two
+TWO
 three
 four
@@ -9,3 +9,4 @@ five
 nine
 ten
+more
 eleven
diff --git a/g.c b/g.c
new file mode 100644
index {OID}..{OID}
--- /dev/null
+++ b/g.c
@@ -0,0 +1 @@
+a
--\x20
2.39.5

"""
HEAD = f"diff --git a/f.c b/f.c\nindex {OID}..{OID} 100644\n--- a/f.c\n+++ b/f.c\n"
BINARY = "GIT binary patch\nliteral 3\nKcmZQzU;qFB0{{U4\n\n"
HUNK = "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (HEAD + HUNK.replace("1,3 +", "1,4 +"), 5, "says 4 old and 3 new lines, the hunk has 3"),
        (HEAD + HUNK.replace("+1,3", "+1,2"), 5, "says 3 old and 2 new lines, the hunk has 3"),
        (HEAD + HUNK.replace("1,3 +", "1,4 +") + "-- \n2.39.5\n\n", 5, "says 4 old and 3 new"),
        (HEAD + HUNK + "+more\n-- \n2.39.5\n\n", 5, "the hunk has 3 and 4"),
        (HEAD + HUNK.replace("-two", "-a line\nwrapped"), 8, "wrapped the line above"),
        (HEAD + HUNK.replace(" three", " a line\nwrapped"), 10, "wrapped the line above"),
        (HEAD + HUNK.replace(" one", "one"), 6, "lost its leading space"),
        (HEAD + HUNK[:-1], 9, "its last newline is missing"),
        (HEAD + HUNK[:-3], 9, "its last newline is missing"),
        (HEAD + HUNK + "garbage\n", 10, "belongs to no hunk and to no file"),
        (HEAD + HUNK + "-- \n2.39.5\n\n" + HEAD + HUNK, 13, "a second patch"),
        (HEAD + HUNK + "diff --cc x\n", 10, "combined diff"),
        (HEAD + "@@ -1,3 +1,x @@\n", 5, "hunk header is damaged"),
        (HEAD + "@@ -1,0 +1,0 @@\n", 5, "hunk is empty"),
        (HEAD, 1, "changes nothing"),
        (HEAD + "@@ -5,2 +5,2 @@\n a\n-b\n+c\n@@ -2 +2 @@\n-x\n+y\n", 9, "before the hunk above"),
        (HEAD + "@@ -1,2 +1,2 @@\n-a\n\\ No newline at end of file\n+b\n c\n", 5, "before the end"),
        (HEAD + HUNK + HEAD + HUNK, 10, "already changed at line 1"),
        (HEAD.replace("100644", "100644 x") + HUNK, 1, "index line is damaged"),
        (HEAD.replace("+++ b/f.c\n", "") + HUNK, 4, "'+++' line of this file is missing"),
        (HEAD.replace("+++ b/f.c", "+++ b/g.c") + HUNK, 1, "'+++' line names another file"),
        (HEAD.replace("b/f.c\nindex", "b/g.c\nindex") + HUNK, 1, "paths of the 'diff --git' line"),
        (HEAD + "Binary files a/f.c and b/f.c differ\n", 5, "content of a binary file is missing"),
        (HEAD + "GIT binary patch\nliteral 3\nKcmZ\n\n", 7, "line of a binary patch is damaged"),
        (HEAD + "GIT binary patch\nliteral 3\nKcmZQ", 7, "binary patch"),
        (HEAD + "GIT binary patch\nliteral 3\n\n", 6, "binary patch is cut off"),
        (HEAD + BINARY.replace("qFB", "qGB"), 6, "content of this binary patch is damaged"),
        (HEAD + BINARY.replace(" 3", " 2"), 6, "content of this binary patch is damaged"),
        (HEAD.replace(OID, "abcd123") + "GIT binary patch\nliteral 0\nHcmV?d00001\n\n", 1,
         "lacks its full index line"),
        ('diff --git "a/x"!"b/x"\nold mode 100644\nnew mode 100755\n', 1, "not name two files"),
        (HEAD + "GIT binary patch\n\n", 5, "binary patch has no content"),
        (HEAD.replace("a/f.c", "f.c").replace("b/f.c", "f.c") + HUNK, 3, "lacks the prefix a/"),
        (HEAD.replace("f.c", "/etc/passwd") + HUNK, 3, "is absolute"),
        (HEAD.replace("f.c", "x/../../y") + HUNK, 3, "leaves the tree"),
        (HEAD.replace("f.c", ".GIT/config") + HUNK, 3, "reaches into .git"),
        (HEAD.replace("f.c", "x/.git/hooks/y") + HUNK, 3, "reaches into .git"),
        (HEAD.replace("f.c", "x//y") + HUNK, 3, "is not a path"),
        (HEAD.replace("a/f.c", '"a/f\\000"').replace("b/f.c", '"b/f\\000"') + HUNK, 3, "NUL"),
        (HEAD.replace("f.c", "lib/python3.11/site-packages/flashinfer/jit/comm.py") + HUNK, 3,
         "path of an installed package"),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 100666\n", 3, "'100666' is not a mode"),
        ("diff --git a/x b/x\nold mode 100644\n", 3, "'new mode' line of this file is missing"),
        ("diff --git a/x b/y\nrename from x\n", 1, "a rename must say from where and to where"),
        ("diff --git a/x b/x\nnew file mode 100644\ndeleted file mode 100644\n", 1, "both"),
        ("diff --git a/.git b/.git\nnew file mode 100644\n", 1, "reaches into .git"),
        ("diff --git a/x b/y\nrename from x\nrename to ../y\n", 3, "leaves the tree"),
    ],
)  # fmt: skip
def test_damage_is_refused_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(CorruptPatch) as raised:
        parsed(text)
    assert reason in raised.value.reason
    assert raised.value.line == line
    assert raised.value.next_step


def test_an_installed_path_gets_a_hint() -> None:
    with pytest.raises(CorruptPatch) as raised:
        parsed(HEAD.replace("f.c", "venv/lib/site-packages/sglang/srt/x.py") + HUNK)
    assert "as the upstream repository does" in raised.value.next_step


def test_a_signature_is_no_removed_line_and_a_removed_dash_is_no_signature() -> None:
    (change,) = parsed(HEAD + "@@ -1,2 +1 @@\n one\n-- \n-- \n2.39.5\n\n")
    assert change.hunks[0].old == [b"one\n", b"- \n"]
    (change,) = parsed(HEAD + "@@ -1,2 +1 @@\n one\n-- \n")
    assert change.hunks[0].old == [b"one\n", b"- \n"]


def test_binary_content_is_kept_as_it_stands() -> None:
    (change,) = parsed(HEAD + BINARY + "-- \n2.39.5\n\n")
    assert (change.kind, change.binary) == ("modify", BINARY.encode())


def test_base_commit_lines_may_follow_the_diff() -> None:
    tail = f"\nbase-commit: {OID}\nprerequisite-patch-id: {OID}\n-- \n2.39.5\n\n"
    assert len(parsed(HEAD + HUNK + tail)) == 1


def test_an_empty_line_is_an_empty_context_line() -> None:
    (change,) = parsed(HEAD + "@@ -1,3 +1,2 @@\n one\n\n-two\n")
    assert change.hunks[0].lines == (b" one\n", b" \n", b"-two\n")


def test_a_missing_last_newline_is_folded_into_its_line() -> None:
    marker = "\\ No newline at end of file\n"
    (change,) = parsed(HEAD + f"@@ -1,2 +1,2 @@\n one\n-two\n{marker}+TWO\n{marker}")
    assert change.hunks[0].old == [b"one\n", b"two"]
    assert change.hunks[0].new == [b"one\n", b"TWO"]
    (change,) = parsed(HEAD + f"@@ -1,2 +1 @@\n-one\n two\n{marker}")
    assert change.hunks[0].lines[-1] == b" two"


def test_a_file_may_become_a_symlink() -> None:
    gone, come = parsed(
        "diff --git a/x b/x\ndeleted file mode 100644\n--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
        "diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+y\n"
        "\\ No newline at end of file\n"
    )
    assert (gone.kind, gone.old_path, gone.new_path) == ("delete", b"x", None)
    assert (come.kind, come.new_mode, come.hunks[0].new) == ("add", b"120000", [b"y"])


def test_short_and_missing_ids_are_kept_as_they_are() -> None:
    (change,) = parsed(HEAD.replace(f"{OID}..{OID}", "abcd123..0123abc") + HUNK)
    assert (change.old_oid, change.new_oid) == ("abcd123", "0123abc")
    (change,) = parsed("".join(x for x in HEAD.splitlines(True) if "index" not in x) + HUNK)
    assert (change.old_oid, change.old_mode) == (None, None)


@pytest.mark.parametrize(
    ("names", "path"),
    [
        ('"a/f\\303\\274\\t\\"" "b/f\\303\\274\\t\\""', b'f\xc3\xbc\t"'),
        ("a/a b/a b/a b/a", b"a b/a"),
        ("a/back\\slash b/back\\slash", b"back\\slash"),
    ],
)
def test_names_are_read_from_the_first_line_where_no_other_has_them(
    names: str, path: bytes
) -> None:
    (change,) = parsed(f"diff --git {names}\nold mode 100644\nnew mode 100755\n")
    assert change.path == path
    assert change.kind == "mode"
