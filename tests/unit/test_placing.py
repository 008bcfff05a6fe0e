"""Where a hunk goes, and what a diff says: beside GNU patch."""

from __future__ import annotations

import difflib
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchwright.changes import CorruptPatch
from patchwright.importing.placing import place
from patchwright.importing.unified import read

_LINES = st.lists(st.sampled_from("abc"), max_size=14)


@pytest.mark.skipif(not shutil.which("patch"), reason="GNU patch is not installed")
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(old=_LINES, new=_LINES, before=_LINES, after=_LINES, context=st.integers(0, 3))
def test_hunks_go_where_gnu_patch_puts_them(
    tmp_path: Path, old: list[str], new: list[str], before: list[str], after: list[str],
    context: int,
) -> None:  # fmt: skip
    """A diff from ``old`` to ``new``, applied where other lines stand around ``old``."""
    diff = "".join(
        difflib.unified_diff([f"{x}\n" for x in old], [f"{x}\n" for x in new], "f", "f", n=context)
    ).encode()
    if not diff:
        return
    content = "".join(f"{x}\n" for x in (*before, *old, *after)).encode()
    file = tmp_path / "f"
    file.write_bytes(content)
    done = subprocess.run(
        ["patch", "-s", "-f", "--fuzz=0", "-r", "-", str(file)], input=diff, cwd=tmp_path,
        capture_output=True, check=False,
    )  # fmt: skip
    found = place(content, read(diff).sections[0].hunks)
    if done.returncode:
        assert isinstance(found, int)
    else:
        assert found == (file.read_bytes() if file.exists() else b"")


def test_names_time_stamps_and_text_between_the_files() -> None:
    text = (
        b"prose\n\nOnly in b: c\nIndex: x/a.c\n====\n--- x/a.c.orig 2010-01-02 03:04:05.6 +0100\n"
        b"+++ x/a.c\t(working copy)\n@@ -1 +1 @@\n-a\n+b\nmore prose\n"
        b"diff -u 'x/b c' 'y/b c'\n--- x/b c\t2010-01-02 03:04:05 +0100\n+++ \"y/b\\tc\"\n"
        b"@@ -0,0 +1 @@ f()\n+b\n\\ No newline at end of file\n"
    )
    diff = read(text)
    assert text[: diff.start] == b"prose\n\nOnly in b: c\n"
    first, second = diff.sections
    assert (first.old, first.new, first.line) == (b"x/a.c.orig", b"x/a.c", 6)
    assert (second.old, second.new) == (b"x/b c", b"y/b\tc")
    assert second.written == (b"@@ -0,0 +1 @@ f()\n+b\n\\ No newline at end of file\n",)


@pytest.mark.parametrize("options", [[], ["--no-prefix"], ["-R"]])
def test_git_headers_survive_reversal(tmp_path: Path, options: list[str]) -> None:
    for name, text in (("a", "1\n2\n3\n4\n5\n"), ("b", "x\n"), ("gone", "y\n")):
        (tmp_path / name).write_text(text)

    def git(*args: str, data: bytes | None = None) -> bytes:
        return subprocess.run(["git", *args], cwd=tmp_path, check=True, capture_output=True,
                              input=data).stdout  # fmt: skip

    git("init", "--quiet")
    git("add", "-A")
    git("commit", "--quiet", "-m", "x")
    git("mv", "a", "c d")
    (tmp_path / "c d").write_text("1\n2\n3\n4\nfive\n")
    (tmp_path / "b").chmod(0o755)
    (tmp_path / "gone").unlink()
    (tmp_path / "new").write_text("z\n")
    git("add", "-A")
    sections = read(git("diff", "--cached", "-M", *options)).sections
    twice = [section.reversed().reversed() for section in sections]
    assert [(s.old, s.new, s.hunks) for s in twice] == [(s.old, s.new, s.hunks) for s in sections]
    prefix = b"" if options == ["--no-prefix"] else b"a/"
    names = {name for s in sections for name in s.names}
    assert prefix + b"a" in {name.replace(b"b/", b"a/") for name in names}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"--- a\n+++ b\n@@ -1,2 +1 @@\n-a\n", 3),
        (b"@@ -1 +1 @@\n-a\n+b\n", 1),
        (b"--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n c\n", 3),
        (b"x\n--- \n+++ \n@@ -1 +1 @@\n-a\n+b\n", 2),
    ],
)
def test_damage_is_named_with_its_line(text: bytes, line: int) -> None:
    with pytest.raises(CorruptPatch) as caught:
        read(text)
    assert caught.value.line == line
