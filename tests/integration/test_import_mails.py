"""patchwright import of mailboxes, threads, branches, west metadata and single diffs."""

from __future__ import annotations

import base64
import quopri
import subprocess
from pathlib import Path

import pytest

from bringing import DOS, gate, mailed, plain, renamed, state, step, tiny, trees
from projects import Content, TinyProject


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    return tiny(tmp_path)


def _git(work: Path, *args: str, data: bytes | None = None) -> bytes:
    return subprocess.run(
        ["git", *args], cwd=work, capture_output=True, check=True, input=data
    ).stdout


def _encoded(mail: bytes, how: str) -> bytes:
    """Return the mail as a mail client sends it."""
    head, _, body = mail.partition(b"\n\n")
    if how == "8bit":
        return mail
    if how == "crlf":
        return mail.replace(b"\n", b"\r\n")
    if how == "mixed":
        part = b"Content-Type: text/plain; charset=utf-8\n"
        message, _, diff = body.partition(b"---\n")
        return (
            head + b'\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="XX"\n\n--XX\n'
            + part + b"\n" + message + b"---\n\n--XX\n" + part
            + b"Content-Transfer-Encoding: base64\n\n" + base64.encodebytes(diff) + b"--XX--\n"
        )  # fmt: skip
    if how == "flowed":
        lines = [b" " + ln if ln[:1] in (b" ", b">") else ln for ln in body.split(b"\n")]
        kind, body, encoding = (
            b"text/plain; charset=utf-8; format=flowed",
            b"\n".join(lines),
            b"8bit",
        )
    elif how == "base64":
        kind, body, encoding = b"text/plain; charset=utf-8", base64.encodebytes(body), b"base64"
    elif how == "base64-crlf":
        body = base64.encodebytes(body.replace(b"\n", b"\r\n"))
        kind, encoding = b"text/plain; charset=utf-8", b"base64"
    else:
        kind, body = b"text/plain; charset=iso-8859-1", quopri.encodestring(body)
        encoding = b"quoted-printable"
    return (
        head + b"\nMIME-Version: 1.0\nContent-Type: " + kind
        + b"\nContent-Transfer-Encoding: " + encoding + b"\n\n" + body
    )  # fmt: skip


HOW = ["8bit", "crlf", "base64", "base64-crlf", "quoted-printable", "flowed", "mixed"]


@pytest.mark.parametrize("how", HOW)
def test_a_mailbox_of_two_in_every_encoding(project: TinyProject, tmp_path: Path, how: str) -> None:
    box = b"".join(
        _encoded(mailed(step(project, gate(line, f"changed = {line}")), f"[PATCH {n}/2] c{n}"), how)
        for n, line in ((1, 3), (2, 30))
    )
    (tmp_path / "box").write_bytes(box)
    ran = project.run("import", str(tmp_path / "box"))
    assert (ran.code, ran.err.partition("error")[2]) == (0, ""), ran.out
    assert trees(project) == project.trees["tiny"][1:]
    assert [p["title"] for p in project.run("status", "--json").json()["patches"]] == ["c1", "c2"]
    assert project.run("export", "--format", "mbox", str(tmp_path / "out")).code == 0
    assert (tmp_path / "out").read_bytes() == box
    # git am takes it so, or it is said that it does not.
    ran = project.run("export", "--format", "mbox", str(tmp_path / "again"))
    work = tmp_path / "work"
    _git(project.git["tiny"], "worktree", "add", "--quiet", "--detach", str(work), "HEAD~2")
    am = ["git", "am", "--quiet", "--keep-cr"]
    done = subprocess.run(
        [*am, str(tmp_path / "again")], cwd=work, capture_output=True, check=False
    )
    assert (done.returncode != 0) == ("git am --keep-cr" in ran.err), done.stderr
    if done.returncode:
        subprocess.run(["git", "am", "--abort"], cwd=work, capture_output=True, check=False)
        _git(work, "reset", "--quiet", "--hard")
        assert project.run("export", "-f", "mbox", "--anew", str(tmp_path / "anew")).code == 0
        _git(work, "am", "--quiet", "--keep-cr", str(tmp_path / "anew"))
    found = _git(work, "log", "--format=%T", "--reverse", "-2").decode().split()
    assert found == project.trees["tiny"][1:]


def test_bytes_of_the_diff_are_never_encoded_anew(project: TinyProject, tmp_path: Path) -> None:
    """A Latin-1 file in a UTF-8 mail, a file with CRLF in a mail with LF."""
    changes: dict[str, Content] = {
        "tiny/latin.py": "name = 'th\xe9'\nother = 1\n".encode("latin-1"),
        "tiny/dos.py": DOS.replace("line 5", "five"),
    }
    mail = mailed(step(project, changes, "--text"), "[PATCH] both",
                  headers="MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n"
                  "Content-Transfer-Encoding: 8bit\n", message="caf\xe9\n")  # fmt: skip
    (tmp_path / "m.patch").write_bytes(mail)
    assert project.run("import", str(tmp_path / "m.patch")).code == 0
    assert trees(project) == [project.tree()]
    assert project.run("show", "1", "--json").json()["message"] == "caf\xe9"
    assert project.run("export", "--format", "dir", str(tmp_path / "out")).code == 0
    assert (tmp_path / "out" / "m.patch").read_bytes() == mail


def test_git_am_takes_what_is_exported(project: TinyProject, tmp_path: Path) -> None:
    project.add_patch(1, gate(3, "x"), fields={"Gate": "tiny/gate.py::f"})
    project.add_patch(2, {"tiny/b.bin": b"\0\1", "tiny/dos.py": "a\r\nb\r\n"})
    project.add_patch(3, renamed)
    diff = plain(step(project, {"csrc/a.cu": "int a;\nint B;\nint c;\n"}, "--no-prefix"))
    (tmp_path / "p0.diff").write_bytes(diff)
    assert project.run("import", str(tmp_path / "p0.diff")).code == 0
    done = project.run_apart("export", "--format", "mbox")
    assert done.code == 0
    work = tmp_path / "work"
    git = project.git["tiny"]
    _git(git, "worktree", "add", "--quiet", "--detach", str(work), "HEAD~4")
    assert project.run("export", "--format", "mbox", str(tmp_path / "box")).code == 0
    assert "Gate:" not in done.out
    _git(work, "am", "--quiet", "--keep-cr", str(tmp_path / "box"))
    found = _git(work, "log", "--format=%T", "--reverse", "-4").decode().split()
    assert found == project.trees["tiny"][1:]


# Threads


def _thread(project: TinyProject) -> dict[str, bytes]:
    """Return the mails of a thread of three patches by name."""

    def headers(name: str, answers: str = "") -> str:
        reply = f"In-Reply-To: <{answers}@x>\nReferences: <{answers}@x>\n" if answers else ""
        return f"Message-ID: <{name}@x>\n{reply}"

    mails = {"0": mailed(b"", "[PATCH v2 0/3] all of it", headers=headers("0"))}
    for n, line in ((1, 3), (2, 15), (3, 30)):
        mails[str(n)] = mailed(
            step(project, gate(line, f"v{n}")), f"[PATCH v2 {n}/3] patch {n}",
            headers=headers(str(n), "0"), message="Why.\n\nSigned-off-by: A <a@b.c>\n",
        )  # fmt: skip
    mails["re1"] = mailed(b"", "Re: [PATCH v2 1/3] patch 1", headers=headers("r1", "1"),
                          message="> diff --git a/x b/x\n> --- a/x\n> +++ b/x\n> @@ -1 +1 @@\n\n"
                          "Good.\n\nReviewed-by: R Viewer <r@b.c>\n")  # fmt: skip
    mails["re0"] = mailed(b"", "Re: [PATCH v2 0/3] all of it", headers=headers("r0", "0"),
                          message="Tested-by: T Ester <t@b.c>\n")  # fmt: skip
    return mails


def _box(tmp_path: Path, *mails: bytes) -> str:
    (tmp_path / "box.mbox").write_bytes(b"".join(mails))
    return str(tmp_path / "box.mbox")


def test_a_thread_out_of_order_with_replies(project: TinyProject, tmp_path: Path) -> None:
    m = _thread(project)
    box = _box(tmp_path, m["0"], m["3"], m["re1"], m["1"], m["2"], m["1"], m["re0"])
    ran = project.run("import", box)
    assert ran.code == 0, ran.err
    assert trees(project) == project.trees["tiny"][1:]
    assert "cover letter, skipped" in ran.out
    assert "the mails stood in the order 3, 1, 2: sorted" in ran.out
    assert "the same patch as" in ran.out
    assert "2 replies skipped" in ran.out
    message = project.run("show", "1", "--json").json()["message"]
    assert message.endswith("Signed-off-by: A <a@b.c>\nReviewed-by: R Viewer <r@b.c>\n"
                            "Tested-by: T Ester <t@b.c>")  # fmt: skip
    second = project.run("show", "2", "--json").json()["message"]
    assert "R Viewer" not in second
    assert "T Ester" in second
    # With a trailer more the mail is not what it was.
    out = project.run_apart("export", "--format", "mbox").out
    assert out.count("Tested-by") == 3


def test_without_trailers_the_mails_go_out_as_they_came(
    project: TinyProject, tmp_path: Path
) -> None:
    m = _thread(project)
    box = _box(tmp_path, m["1"], m["2"], m["3"], m["re0"])
    assert project.run("import", "--no-trailers", box).code == 0
    assert project.run("export", "-f", "mbox", str(tmp_path / "out")).code == 0
    assert (tmp_path / "out").read_bytes() == m["1"] + m["2"] + m["3"]


def test_a_missing_mail_is_noticed(project: TinyProject, tmp_path: Path) -> None:
    m = _thread(project)
    before = state(project)
    box = _box(tmp_path, m["1"], m["2"])
    ran = project.run("import", box)
    assert ran.code == 1
    assert "3 of 3 is missing" in ran.err
    assert state(project) == before
    ran = project.run("import", "--partial", box)
    assert ran.code == 0
    assert trees(project) == project.trees["tiny"][1:3]


def test_two_mails_that_claim_one_place(project: TinyProject, tmp_path: Path) -> None:
    m = _thread(project)
    other = m["2"].replace(b"+v2", b"+v9")
    ran = project.run("import", _box(tmp_path, m["1"], m["2"], other, m["3"]))
    assert ran.code == 1
    assert "is (2, 3) as well" in ran.err


def test_an_older_version_in_the_thread_is_skipped(project: TinyProject, tmp_path: Path) -> None:
    m = _thread(project)
    old = [m[n].replace(b"[PATCH v2", b"[PATCH").replace(b"+v", b"+w") for n in "123"]
    ran = project.run("import", _box(tmp_path, *old, m["1"], m["2"], m["3"]))
    assert ran.code == 0, ran.err
    assert "3 patches of versions before v2 skipped" in ran.out
    assert trees(project) == project.trees["tiny"][1:]


def test_a_mail_that_only_quotes_a_diff(project: TinyProject, tmp_path: Path) -> None:
    quoted = b"".join(b"> " + ln for ln in step(project, gate(3, "x")).splitlines(keepends=True))
    mail = mailed(b"", "what about this", message="Hello,\n\n" + quoted.decode())
    ran = project.run("import", _box(tmp_path, mail))
    assert ran.code == 1
    assert "no mail holds a diff (one quotes a diff)" in ran.err


def test_a_folder_of_format_patch(project: TinyProject, tmp_path: Path) -> None:
    for n, line in ((1, 3), (2, 30)):
        step(project, gate(line, f"v{n}"))
    git = project.git["tiny"]
    _git(git, "format-patch", "--quiet", "--cover-letter", "-o", str(tmp_path / "fp"), "HEAD~2")
    ran = project.run("import", str(tmp_path / "fp"))
    assert ran.code == 0, ran.err
    assert trees(project) == project.trees["tiny"][1:]
    assert project.run("export", "-f", "dir", str(tmp_path / "out")).code == 0
    for path in (tmp_path / "fp").glob("000[12]*"):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_a_folder_of_patches_of_several_series(project: TinyProject, tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    for name, line in (("01", 3), ("02", 15), ("03", 30)):
        mail = mailed(step(project, gate(line, name)), f"[PATCH {1 + (name == '02')}/2] {name}")
        (folder / f"{name}.patch").write_bytes(mail)
    ran = project.run("import", str(folder))
    assert ran.code == 0, ran.err
    assert "numbered as several series" in ran.out
    assert trees(project) == project.trees["tiny"][1:]


# Commits


def test_a_range_of_a_repository_comes_in_and_goes_out_with_its_own_ids(tmp_path: Path) -> None:
    work = tmp_path / "up"
    work.mkdir()
    _git(work, "init", "--quiet", "-b", "main")
    _git(work, "config", "diff.noprefix", "true")
    _git(work, "config", "format.signOff", "true")
    for n in range(4):
        (work / "a.py").write_text(f"{n}\n" * 5)
        _git(work, "add", "-A")
        author = ["--author", "O Ther <o@b.c>"] if n % 2 else []
        _git(work, "commit", "--quiet", "-m", f"c{n}\n\nwhy", *author)
    commits = _git(work, "rev-list", "--reverse", "HEAD").decode().split()
    project = TinyProject(tmp_path / "project")
    init = ["init", str(project.root), "--git", str(work), "--revision", commits[0]]
    project.root.mkdir()
    assert project.run(*init).code == 0
    ran = project.run("import", str(work), "--range", f"{commits[0]}..main")
    assert ran.code == 0, ran.err
    expected = _git(work, "log", "--format=%T", "--reverse", "-3").decode().split()
    assert trees(project) == expected
    ran = project.run("export", "-f", "git-branch", str(work), "--branch", "back", "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["commits"] == commits[1:]
    assert _git(work, "rev-parse", "back").decode().strip() == commits[-1]
    again = project.run("export", "-f", "git-branch", str(work), "--branch", "back")
    assert again.code == 2
    assert "the branch back is there already" in again.err


def test_a_branch_is_made_where_nothing_is(project: TinyProject, tmp_path: Path) -> None:
    project.add_patch(1, gate(3, "x"))
    project.add_patch(2, {"tiny/b.bin": b"\0\1"})
    assert project.run("lock").code == 0
    out = tmp_path / "out"
    first = project.run("export", "-f", "git-branch", str(out), "--json").json()
    assert _git(out, "log", "--format=%T", "--reverse").decode().split() == project.trees["tiny"]
    assert _git(out, "status", "--porcelain") == b""
    assert (out / "tiny" / "b.bin").read_bytes() == b"\0\1"
    second = project.run("export", "-f", "git-branch", str(tmp_path / "again"), "--json").json()
    assert second["commits"] == first["commits"]


def test_what_a_range_must_be(project: TinyProject, tmp_path: Path) -> None:
    work = project.git["tiny"]
    for range_, code, said in (
        (None, 2, "which commits of this repository"), ("main", 2, "which commits"),
        ("main...x", 2, "symmetric difference"), ("none..main", 2, "git does not know"),
        ("--output=x..y", 2, "is not a git revision"), ("main..main", 1, "holds no commit"),
    ):  # fmt: skip
        options = [] if range_ is None else [f"--range={range_}"]
        ran = project.run("import", str(work), *options)
        assert (ran.code, said in ran.err) == (code, True), ran.err


def test_a_merge_and_an_empty_commit_are_named(project: TinyProject) -> None:
    work = project.git["tiny"]
    _git(work, "checkout", "--quiet", "-b", "side")
    step(project, {"csrc/a.cu": "int z;\n"})
    _git(work, "checkout", "--quiet", "main")
    step(project, gate(3, "x"))
    _git(work, "merge", "--quiet", "--no-ff", "-m", "merge", "side")
    _git(work, "commit", "--quiet", "--allow-empty", "-m", "nothing")
    ran = project.run("import", str(work), "--range", "main~3..main")
    assert ran.code == 1
    assert "this is a merge" in ran.out
    assert "the commit changes nothing" in ran.out
