"""Random repositories and series, turned into real patches by real git.

A plan is drawn as pure data: the files of the base and of every commit. ``made`` lets
git write it, format it as patches and apply them again with ``git am --keep-cr``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import strategies as st

from patchwright.git import Git

REGULAR, EXECUTABLE, SYMLINK = b"100644", b"100755", b"120000"

_FAST = ("-c", "core.fsync=none")

Files = dict[bytes, tuple[bytes, bytes]]  # path to mode and content

PATHS = (
    b"a.txt", b"b.txt", b"dir/c.py", b"dir/deep/d.cu", b"sp ace.txt", b"sp  ace/e e", b"tab\tx",
    b'quo"te', b"back\\slash", "ünïcode/é".encode(), b"\xff\xfe.bin", b"new\nline", b"-dash",
    b"a/b/a", b"b/a", b"cr\rname", b"end ", b"=> {x}", b"'single'",
)  # fmt: skip
LINES = (
    b"one", b"two", b"three", b"", b" ", b"\tindented", b"same", b"same", b"}", b"caf\xe9",
    b"\xff\xfe\x80", b"-- ", b"--", b"---", b"--- a/a.txt", b"+++ b/a.txt", b"@@ -1 +1 @@",
    b"diff --git a/a.txt b/a.txt", b"\\ No newline at end of file", b"Index: a.txt",
    b"From 1234567890123456789012345678901234567890 Mon Sep 17 00:00:00 2001",
    b"GIT binary patch", b"form\x0cfeed", b"lone\rcr", b"trailing \t",
)  # fmt: skip
TITLES = (
    "jit: build trtllm_comm for SM12x", "[Bugfix] keep upstream's brackets", "Grüße, 世界",
    "a title so long that git format-patch has to fold the header that carries it, and é again",
    "Re: not a reply", "x: [y] z", "plain",
)  # fmt: skip
BODIES = (
    "", "One paragraph.", "Zwei Absätze.\n\nGrüße.", "An indented diff:\n\n  diff --git a/x b/x\n"
    "  --- a/x\n  +++ b/x\n  @@ -1 +1 @@\n  -a\n  +b", "- a list\n- -- of dashes\n\nFixes: #1",
    "----\nfour dashes\n ---\n--x\n+++ b/alone",
)  # fmt: skip
AUTHORS = (
    "A U Thor <author@example.com>",
    "Jürgen Müller <j@example.com>",
    '"Q, R" <q@example.com>',
)


@dataclass(frozen=True)
class Commit:
    """One commit of a plan: what it says, and every file after it."""

    title: str
    body: str
    author: str
    files: Files


@dataclass(frozen=True)
class Plan:
    """A base and the commits on it; each commit changes something."""

    base: Files
    commits: tuple[Commit, ...]


@dataclass(frozen=True)
class Made:
    """What git made of a plan. ``trees`` stand after each patch, as ``git am`` left them."""

    git_dir: Path
    base: str
    patches: tuple[bytes, ...]
    trees: tuple[str, ...]
    commits: tuple[str, ...] = field(default=())


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Draw a text of up to 24 lines: LF, CRLF or both, with and without a last newline."""
    lines = draw(st.lists(st.sampled_from(LINES), max_size=24))
    ends = draw(st.sampled_from(((b"\n",), (b"\r\n",), (b"\n", b"\r\n"))))
    text = b"".join(line + ends[i % len(ends)] for i, line in enumerate(lines))
    return text if draw(st.booleans()) else text.rstrip(b"\r\n")


def contents() -> st.SearchStrategy[bytes]:
    """Draw a file's content: text, binary, or nothing."""
    binaries = st.binary(max_size=300).map(lambda data: b"\0" + data)
    return st.one_of(texts(), texts(), binaries, st.just(b""))


@st.composite
def _edited(draw: st.DrawFn, content: bytes) -> bytes:
    """Draw ``content`` with one or two places changed, or its last newline toggled."""
    if b"\0" in content:
        return content + draw(st.binary(min_size=1, max_size=40))
    lines = content.splitlines(keepends=True) if b"\r" not in content else content.split(b"\n")
    joined = b"" if b"\r" not in content else b"\n"
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(lines)))
        new = draw(st.sampled_from(LINES)) + (b"\r" if joined else b"\n")
        lines[at : at + draw(st.integers(0, 2))] = [new] * draw(st.integers(0, 2))
    edited = joined.join(lines)
    toggle = draw(st.integers(0, 4)) == 0
    return (edited[:-1] if edited.endswith(b"\n") else edited + b"\n") if toggle else edited


@st.composite
def _changed(draw: st.DrawFn, before: Files) -> Files:
    """Draw the files after one commit: one to three changes of any kind."""
    files = dict(before)
    free = [path for path in PATHS if path not in before]
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(
            ("add", "edit", "edit", "edit", "replace", "empty", "delete", "rename", "copy",
             "mode", "symlink", "type")
        ))  # fmt: skip
        old = draw(st.sampled_from(sorted(files))) if files else None
        if kind in ("add", "symlink", "rename", "copy") and not free:
            continue
        if kind in ("add", "symlink") or old is None:
            if free:
                path = free.pop(draw(st.integers(0, len(free) - 1)))
                mode = draw(st.sampled_from((REGULAR, EXECUTABLE)))
                files[path] = (
                    (SYMLINK, draw(st.sampled_from((b"a.txt", b"../x", b"no where"))))
                    if kind == "symlink"
                    else (mode, draw(contents()))
                )
            continue
        mode, content = files[old]
        if kind == "delete":
            del files[old]
        elif kind in ("rename", "copy"):
            path = free.pop(draw(st.integers(0, len(free) - 1)))
            same = mode == SYMLINK or draw(st.booleans())
            files[path] = (mode, content if same else draw(_edited(content)))
            if kind == "rename":
                del files[old]
        elif kind == "type":
            files[old] = (REGULAR, content) if mode == SYMLINK else (SYMLINK, b"a.txt")
        elif mode == SYMLINK:
            files[old] = (mode, content + b"x")
        elif kind == "mode":
            files[old] = (EXECUTABLE if mode == REGULAR else REGULAR, content)
        else:
            new = b"" if kind == "empty" else draw(
                contents() if kind == "replace" else _edited(content)
            )  # fmt: skip
            files[old] = (mode, new)
    return files


@st.composite
def plans(draw: st.DrawFn, max_commits: int = 4) -> Plan:
    """Draw a base of up to six files and one to ``max_commits`` commits."""
    paths = draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=6, unique=True))
    base: Files = {
        path: (draw(st.sampled_from((REGULAR, REGULAR, EXECUTABLE))), draw(contents()))
        for path in paths
    }
    files, commits = base, []
    for _ in range(draw(st.integers(1, max_commits))):
        after = draw(_changed(files))
        if after == files:
            continue
        files = after
        commits.append(
            Commit(
                draw(st.sampled_from(TITLES)), draw(st.sampled_from(BODIES)),
                draw(st.sampled_from(AUTHORS)), files,
            )
        )  # fmt: skip
    return Plan(base, tuple(commits))


def made(folder: Path, plan: Plan) -> Made:
    """Let git write the plan into ``folder``, format it, and apply it again."""
    folder.mkdir(parents=True, exist_ok=True)
    Git().run("init", "--quiet", "--template=", "--", ".", cwd=folder)
    git = Git(folder / ".git")
    git.run(*_FAST, "fast-import", "--quiet", data=_stream(plan), cwd=folder)
    revisions = git.run("rev-list", "--reverse", "main", cwd=folder).stdout.split()
    base = revisions[0].decode()
    patches = folder / "patches.tmp"
    git.run(
        *_FAST,
        "format-patch", "--quiet", "--full-index", "--binary", "--find-copies-harder", "-M", "-C",
        "-o", str(patches), f"{base}..main", cwd=folder,
    )  # fmt: skip
    paths = sorted(patches.iterdir())
    worktree = {"GIT_WORK_TREE": str(folder)}
    git.run(*_FAST, "checkout", "--quiet", "-b", "applied", base, cwd=folder, env=worktree)
    if paths:
        command = (*_FAST, "am", "--quiet", "--keep-cr", "--no-3way", *map(str, paths))
        git.run(*command, cwd=folder, env=worktree)
    format_ = "--format=%T"
    trees = git.run("log", "--reverse", format_, f"{base}..applied", cwd=folder).stdout.split()
    root = git.run("log", "-1", format_, base, cwd=folder).stdout.strip().decode()
    return Made(
        folder / ".git",
        root,
        tuple(path.read_bytes() for path in paths),
        tuple(tree.decode() for tree in trees),
        tuple(revision.decode() for revision in revisions[1:]),
    )


def making_series(folder: Path, plan: Plan) -> tuple[list[bytes], list[str]]:
    """Return the patches of a plan, and the tree id after each."""
    result = made(folder, plan)
    return list(result.patches), list(result.trees)


def quoted(path: bytes) -> bytes:
    """Return a path in C-style quotes, as fast-import reads it."""
    return b'"' + b"".join(b"\\%03o" % byte for byte in path) + b'"'


def _stream(plan: Plan) -> bytes:
    out = []
    states = [Commit("base", "", AUTHORS[0], plan.base), *plan.commits]
    for number, commit in enumerate(states):
        message = f"{commit.title}\n\n{commit.body}".strip().encode() + b"\n"
        who = commit.author.replace('"', "").encode() + b" %d +0000" % (1_700_000_000 + number)
        out.append(b"commit refs/heads/main\nauthor %s\ncommitter %s\n" % (who, who))
        out.append(b"data %d\n%s\ndeleteall\n" % (len(message), message))
        for path, (mode, content) in commit.files.items():
            out.append(b"M %s inline %s\n" % (mode, quoted(path)))
            out.append(b"data %d\n%s\n" % (len(content), content))
        out.append(b"\n")
    return b"".join(out)


def numbered(folder: Path, patches: tuple[bytes, ...]) -> list[Path]:
    """Write patches as ``0001-x.patch`` … and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:04d}-x.patch" for number in range(1, len(patches) + 1)]
    for path, raw in zip(paths, patches, strict=True):
        path.write_bytes(raw)
    return paths
