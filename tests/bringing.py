"""What people bring, made here: diffs of every kind on a tiny project's own work tree."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from projects import Content, TinyProject, make_project

DOS = "".join(f"line {n}\r\n" for n in range(1, 11))
FILES: dict[str, Content] = {
    "tiny/__init__.py": "",
    "tiny/gate.py": "".join(f"line {n}\n" for n in range(1, 41)),
    "tiny/dos.py": DOS,
    "tiny/latin.py": "name = 'caf\xe9'\nother = 1\n".encode("latin-1"),
    "csrc/a.cu": "int a;\nint b;\nint c;\n",
}


def tiny(folder: Path) -> TinyProject:
    """Return a project whose one upstream holds FILES, with a lock."""
    project = make_project(folder, FILES)
    assert project.run("lock").code == 0
    return project


def step(project: TinyProject, changes: Mapping[str, Content | None], *options: str) -> bytes:
    """Change the work tree; return git's diff (``options`` for git diff) and keep the tree id."""
    work = project.git["tiny"]
    for name, content in changes.items():
        path = work / name
        if content is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    _git(work, "add", "--all", "--force")
    diff = _git(work, "diff", "--cached", "--full-index", "--binary", *options)
    _git(work, "commit", "--quiet", "-m", "a step")
    project.trees["tiny"].append(_git(work, "rev-parse", "HEAD^{tree}").decode().strip())
    return diff


def gate(number: int, text: str) -> dict[str, Content]:
    """Return the change that makes line ``number`` of gate.py be ``text``, others as in FILES."""
    lines = [f"line {n}\n" for n in range(1, 41)]
    lines[number - 1] = f"{text}\n"
    return {"tiny/gate.py": "".join(lines)}


def plain(diff: bytes) -> bytes:
    """Return a diff without git's own lines: what diff -u writes."""
    lines = re.split(rb"(?<=\n)", diff)
    return b"".join(
        line for line in lines if not re.match(rb"diff --git |index |new file|deleted file", line)
    )


def mailed(
    diff: bytes, subject: str, *, headers: str = "", message: str = "Why, in prose.\n"
) -> bytes:
    """Return a mail as git format-patch writes it, with the line that splits mailboxes."""
    return (
        b"From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\n"
        + f"From: A U Thor <author@example.com>\nDate: Tue, 14 Nov 2023 22:13:21 +0000\n"
        f"Subject: {subject}\n{headers}\n{message}---\n\n".encode()
        + diff
        + b"-- \n2.39.5\n\n"
    )


def series(folder: Path, patches: Mapping[str, bytes], text: bytes | None = None) -> Path:
    """Write a quilt series into ``folder`` and return the folder."""
    for name, data in patches.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    listed = "".join(f"{name}\n" for name in patches).encode() if text is None else text
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "series").write_bytes(listed)
    return folder


def trees(project: TinyProject) -> list[str]:
    """Return the tree ids that status gives, after each patch."""
    ran = project.run("status", "--json")
    assert ran.code == 0, ran.err
    return [patch["tree"] for patch in ran.json()["patches"]]


def state(project: TinyProject) -> dict[str, bytes]:
    """Return every file of the project but the tool's own records."""
    return {
        str(path.relative_to(project.root)): path.read_bytes()
        for path in sorted(project.root.rglob("*"))
        if path.is_file() and ".patchwright" not in path.parts
    }


def renamed(work: Path) -> None:
    """Rename gate.py, as a change for ``add_patch``."""
    (work / "tiny/gate.py").rename(work / "tiny/door.py")


def _git(work: Path, *args: str) -> bytes:
    return subprocess.run(["git", *args], cwd=work, capture_output=True, check=True).stdout
