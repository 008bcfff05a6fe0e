"""send on its way: versions, mails through a real SMTP server, gh, the repository's checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from projects import TinyProject
from sending import Servers, Smtp

pytest_plugins = ("sending_fixtures",)
pytestmark = pytest.mark.usefixtures("no_programs")


# Status, versions


def test_sent_is_written_and_undone(project: TinyProject, servers: Servers) -> None:
    path = next((project.root / "patches").glob("0001-*"))
    before = path.read_bytes()
    assert project.run("lock").code == 0
    assert project.run("send", "1", "--sent", "https://example.org/pull/1").code == 0
    assert b"\nUpstream-Status: Submitted [https://example.org/pull/1]\n" in path.read_bytes()
    assert project.run("lock", "--check").code == 0
    assert project.run("undo").code == 0
    assert path.read_bytes() == before


def test_a_second_version_replaces_the_branch_and_says_what_changed(
    project: TinyProject, servers: Servers, reworked: Callable[[], None]
) -> None:
    to_fork = ("--to", "branch", "--accept", "--fork", servers.fork_url)
    assert project.run("send", "1", *to_fork).code == 0
    first = servers.fork("rev-parse", "fix-gate-open-for-12")
    project.run("send", "1", "--sent", "https://example.org/pull/1")
    reworked()
    servers.change({"tiny/new.py": "x = 1\n"})
    found = project.run("send", "1", "-v2", "--note", "Sorted.", "--json").json()
    assert "## Changes in v2\n\nSorted." in found["body"]
    assert "++MAJORS = [12, 10, 9]" in found["body"]
    assert project.run("send", "1", "-v2", *to_fork).code == 0
    second = servers.fork("rev-parse", "fix-gate-open-for-12")
    assert second != first
    assert servers.fork("rev-parse", f"{second}^") == servers.main()


def test_a_second_version_of_what_another_machine_sent(
    project: TinyProject, servers: Servers
) -> None:
    project.run("send", "1", "--sent", "https://example.org/pull/1")
    found = project.run("send", "1", "-v2", "--note", "Sorted.", "--json").json()
    assert not found["refused"]
    assert any("no earlier version is on record" in note for note in found["notes"])
    assert found["body"].endswith("## Changes in v2\n\nSorted.")


# gh, by a stand-in for the network service behind it


def test_gh_gets_the_pull_request_and_the_status_names_it(
    project: TinyProject, servers: Servers, gh: Callable[..., Path]
) -> None:
    asked = gh("https://example.org/owner/tiny/pull/12")
    ran = project.run("send", "1", "--accept", "--fork", servers.fork_url)
    assert ran.code == 0, ran.out + ran.err
    assert asked.read_text(encoding="utf-8").split("\n")[:7] == [
        "pr", "create", "--repo=owner/tiny", "--base=main", "--head=fix-gate-open-for-12",
        "--title=fix(gate): open for 12", "--body-file=-",
    ]  # fmt: skip
    assert "## 📌 Description" in asked.read_text(encoding="utf-8")
    path = next((project.root / "patches").glob("0001-*"))
    assert b"Upstream-Status: Submitted [https://example.org/owner/tiny/pull/12]" in (
        path.read_bytes()
    )


def test_without_gh_the_commands_are_told(project: TinyProject, servers: Servers) -> None:
    ran = project.run("send", "1", "--accept", "--fork", servers.fork_url)
    assert ran.code == 1
    assert "gh was not found on PATH" in ran.out
    assert "gh pr create --repo=owner/tiny --base=main --head=fix-gate-open-for-12" in ran.out
    assert "https://github.com/owner/tiny/compare/main...fix-gate-open-for-12?expand=1" in ran.out
    assert servers.fork("rev-parse", "fix-gate-open-for-12^") == servers.main()
    path = next((project.root / "patches").glob("0001-*"))
    assert b"Submitted" not in path.read_bytes()


def test_gh_that_is_not_logged_in(
    project: TinyProject, servers: Servers, gh: Callable[..., Path]
) -> None:
    gh("", logged_in=False)
    ran = project.run("send", "1", "--accept", "--fork", servers.fork_url)
    assert ran.code == 1
    assert "gh is not logged in: run `gh auth login`" in ran.out


def test_a_token_is_neither_printed_nor_stored(
    project: TinyProject, servers: Servers, gh: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("GH_TOKEN", "ghp_topsecret123")
    gh("", trouble="bad credentials: ghp_topsecret123")
    ran = project.run("send", "1", "--accept", "--fork", servers.fork_url)
    assert ran.code == 1
    assert "[GH_TOKEN]" in ran.out
    files = [p for p in (project.root / ".patchwright").rglob("*") if p.is_file()]
    texts = [ran.out, ran.err, *(p.read_text("utf-8", "replace") for p in files
                                 if p.suffix in (".json", ".md"))]  # fmt: skip
    assert not [text for text in texts if "ghp_topsecret123" in text]


def test_a_patch_that_holds_a_token_is_refused(
    project: TinyProject, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.run("message", "1", "-m", "It printed ghp_topsecret123 here.")
    monkeypatch.setenv("GH_TOKEN", "ghp_topsecret123")
    [why] = servers.refused("1")
    assert why == "0001 holds the value of the environment variable GH_TOKEN: take it out"


def test_a_login_in_an_address_is_not_told(project: TinyProject, servers: Servers) -> None:
    fork = "https://me:ghp_topsecret123@localhost:1/me/tiny"
    ran = project.run("send", "1", "--to", "branch", "--accept", "--fork", fork)
    assert ran.code == 3
    assert "https://localhost:1/me/tiny" in ran.err
    assert "ghp_topsecret123" not in ran.err + ran.out


# The repository's own checks


def test_checks_are_told_where_they_cannot_run(project: TinyProject, servers: Servers) -> None:
    found = project.run("send", "1", "--json").json()
    assert found["checks"] == {
        "name": "pre-commit", "outcome": "not run",
        "reason": "pre-commit was not found on PATH: install it",
    }  # fmt: skip
    servers.change({".pre-commit-config.yaml": None})
    found = project.run("send", "1", "--json").json()
    assert found["checks"]["reason"] == "main has no .pre-commit-config.yaml"
    assert "pre-commit on the touched files: not run" in found["body"]


def test_a_failed_check_refuses(
    project: TinyProject, servers: Servers, program: Callable[[str, str], None]
) -> None:
    # What pre-commit prints; the real one is in the test below, where it is installed.
    program("pre-commit", 'echo "ruff....Failed"; echo "- hook id: ruff"; echo "$@"; exit 1')
    [why] = servers.refused("1")
    assert why.startswith("main's own checks fail on the touched files: ruff:")
    assert "--files tiny/gate.py" in why


def test_the_real_pre_commit(
    project: TinyProject, servers: Servers, real_program: Callable[[str], None]
) -> None:
    real_program("pre-commit")
    found = project.run("send", "1", "--json").json()
    assert found["checks"]["outcome"] == "passed", found["checks"]
    hook = servers.files[".pre-commit-config.yaml"].replace("MINORS", "MAJORS")
    servers.change({".pre-commit-config.yaml": hook})
    [why] = servers.refused("1")
    assert "main's own checks fail on the touched files: no-such-word" in why


def test_the_arguments_are_those_of_the_real_gh(
    project: TinyProject, servers: Servers, real_program: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """gh parses them and fails only where GitHub itself would answer."""
    from patchwright.upstreaming import github

    real_program("gh")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    create = github.create_command("owner/tiny", "main", "me:b", "t", "-")
    comment = github.comment_command("https://github.com/o/t/pull/1", "-")
    assert github.ask(create, "x").trouble == "gh is not logged in: run `gh auth login`"
    monkeypatch.setenv("GH_TOKEN", "none")
    for arguments in (create, comment):
        assert "127.0.0.1:1" in github.ask(arguments, "x").trouble
    assert "unknown flag" in github.ask([*create, "--no-such-flag"], "x").trouble


# Mails


def test_the_mails_go_through_smtp_and_give_the_same_tree(
    project: TinyProject, servers: Servers, tmp_path: Path, smtp: Smtp,
) -> None:  # fmt: skip
    """By git send-email where it is installed, else by Python's own SMTP client."""
    ran = project.run("send", "1", "2", "--to", "mail", "--accept", "-o", str(tmp_path / "mails"),
                      "--author", "Zoë Ångström <zoe@example.org>", "--json")  # fmt: skip
    assert ran.code == 0, ran.out + ran.err
    found = ran.json()
    files = found["sent"]["files"]
    assert [Path(f).name[:4] for f in files] == ["0000", "0001", "0002"]
    smtp.send(files)
    assert len(smtp.received) == 3
    cover, *patches = smtp.received
    assert b"Subject: [PATCH 0/2] fix(gate): open for 12" in cover
    assert f"base-commit: {servers.main()}".encode() in b"".join(smtp.received)
    assert "Zoë Ångström".encode() not in b"".join(m.partition(b"\n\n")[0] for m in patches)
    box = tmp_path / "box"
    box.write_bytes(b"".join(b"From x Thu Jan  1 00:00:00 1970\n" + m + b"\n" for m in patches))
    clone = tmp_path / "theirs"
    servers.git("clone", "--quiet", servers.upstream_url, str(clone))
    servers.git("am", str(box), cwd=clone)
    assert servers.git("rev-parse", "HEAD^{tree}", cwd=clone) == found["tree"]
    log = servers.git("log", "-2", "--format=%an|%s", cwd=clone)
    assert log.split("\n") == [
        "Zoë Ångström|fix(route): to 12", "Zoë Ångström|fix(gate): open for 12",
    ]  # fmt: skip


def test_a_dry_run_shows_the_cover_letter_and_writes_nothing(
    project: TinyProject, servers: Servers
) -> None:
    ran = project.run("send", "1", "--to", "mail", "--mail-to", "list@example.org")
    assert ran.code == 0, ran.out + ran.err
    assert "Subject: [PATCH 0/1] fix(gate): open for 12" in ran.out
    assert "git send-email --to=list@example.org 0000-cover-letter.patch 0001-" in ran.out
    assert not (project.root / ".patchwright" / "outgoing").exists()


def test_the_mails_of_a_second_version(
    project: TinyProject, servers: Servers, reworked: Callable[[], None]
) -> None:
    args = ("send", "1", "--to", "mail", "--accept")
    assert project.run(*args).code == 0
    reworked()
    assert project.run(*args, "-v2", "--note", "Sorted, as asked.").code == 0
    folder = project.root / ".patchwright" / "outgoing" / "0001-v2"
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["v2-0000-cover-letter.patch", "v2-0001-fix-gate-open-for-12.patch"]
    cover = (folder / names[0]).read_text(encoding="utf-8")
    assert "Subject: [PATCH v2 0/1]" in cover
    assert "Sorted, as asked." in cover
    assert "Range-diff against v1:" in cover
    assert "+MAJORS = [12, 10, 9]" in cover


def test_a_folder_that_holds_other_files_is_left_alone(
    project: TinyProject, servers: Servers, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("x", encoding="ascii")
    ran = project.run("send", "1", "--to", "mail", "--accept", "-o", str(tmp_path))
    assert ran.code == 2
    assert "holds other files already" in ran.err
