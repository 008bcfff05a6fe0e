"""send against real git servers: a bare upstream whose main moved on, a bare fork."""

from __future__ import annotations

from pathlib import Path

import pytest

from projects import TinyProject
from sending import GATE, OPENED, Servers

pytest_plugins = ("sending_fixtures",)
pytestmark = pytest.mark.usefixtures("no_programs")


def test_the_branch_is_main_plus_exactly_the_change(project: TinyProject, servers: Servers) -> None:
    ran = project.run("send", "1", "--to", "branch", "--accept", "--fork", servers.fork_url)
    assert ran.code == 0, ran.out + ran.err
    tip = servers.fork("rev-parse", "refs/heads/fix-gate-open-for-12")
    assert servers.fork("rev-parse", f"{tip}^") == servers.main()
    names = servers.fork("diff", "--name-status", servers.main(), tip)
    assert names == "M\ttiny/gate.py"
    diff = servers.fork("diff", "-U0", servers.main(), tip)
    assert diff.endswith("\n-MAJORS = [9, 10]\n+MAJORS = [9, 10, 12]")


def test_the_commit_carries_no_field_of_ours(project: TinyProject, servers: Servers) -> None:
    project.run("send", "1", "--to", "branch", "--accept", "--fork", servers.fork_url)
    message = servers.fork("log", "-1", "--format=%B", "fix-gate-open-for-12")
    assert message == "fix(gate): open for 12\n\nWhy, in prose."
    assert servers.fork("log", "-1", "--format=%an <%ae>", "fix-gate-open-for-12") == (
        "A Tester <tester@example.org>"
    )


def test_without_accept_nothing_leaves_and_all_is_shown(
    project: TinyProject, servers: Servers
) -> None:
    before = servers.fork("for-each-ref")
    ran = project.run("send", "1", "--fork", servers.fork_url)
    assert ran.code == 0, ran.out + ran.err
    assert servers.fork("for-each-ref") == before
    assert "nothing was sent" in ran.out
    assert "Why, in prose." in ran.out
    assert "static on main" in ran.out
    assert not list((project.root / ".patchwright").glob("sent/*"))


def test_the_body_is_the_template_filled(project: TinyProject, servers: Servers) -> None:
    body = project.run("send", "1", "--json").json()["body"]
    assert "## 📌 Description\n\nWhy, in prose." in body
    assert "Briefly describe" not in body  # the template's hint gave way
    assert "- [ ] All tests are passing." in body  # a box is the author's to tick
    assert f"| main {servers.main()[:12]} | static | passed | failed |" in body
    assert "| tiny 1.0 (the pin) | static | passed | failed |" in body
    assert "- https://example.org/issues/7" in body
    for field in ("Upstream:", "Upstream-Status", "Smoke:", "Depends:"):
        assert field not in body


def test_a_template_that_changed_keeps_its_text_and_gains_what_it_lacks(
    project: TinyProject, servers: Servers
) -> None:
    servers.change({".github/pull_request_template.md": "# Hello\n\nBe kind.\n"})
    found = project.run("send", "1", "--json").json()
    assert found["body"].startswith("# Hello\n\nBe kind.\n")
    assert "## Motivation\n\nWhy, in prose." in found["body"]
    assert any("has no place for: Motivation" in note for note in found["notes"])


def test_without_a_template_the_text_stands_alone(project: TinyProject, servers: Servers) -> None:
    servers.change({".github/pull_request_template.md": None})
    found = project.run("send", "1", "--json").json()
    assert found["template"] == ""
    assert found["body"].startswith("## Motivation\n\nWhy, in prose.")
    assert any("main has no .github/pull_request_template.md" in n for n in found["notes"])


def test_a_file_that_moved_on_is_patched_where_it_is_now(
    project: TinyProject, servers: Servers
) -> None:
    text = "# one\n# two\n" + GATE
    servers.change({"tiny/gate.py": text})
    found = project.run("send", "1", "--json").json()
    assert found["applied"][0]["apply"] == "offset"
    assert not found["refused"]


# Refusals


def test_a_need_that_was_not_sent_is_named(project: TinyProject, servers: Servers) -> None:
    [why] = servers.refused("2")
    assert why.startswith("0002 needs 0001 (tiny: gate: open for 12), which is not on main")


def test_two_patches_that_need_each_other_go_together(
    project: TinyProject, servers: Servers
) -> None:
    ran = project.run("send", "1", "2", "--to", "branch", "--accept", "--fork", servers.fork_url)
    assert ran.code == 0, ran.out + ran.err
    log = servers.fork("log", "--format=%s", f"{servers.main()}..fix-gate-open-for-12")
    assert log.split("\n") == ["fix(route): to 12", "fix(gate): open for 12"]


def test_a_need_that_was_sent_stands_below(project: TinyProject, servers: Servers) -> None:
    assert project.run("send", "1", "--sent", "https://example.org/pull/1").code == 0
    ran = project.run("send", "2", "--to", "branch", "--accept", "--fork", servers.fork_url)
    assert ran.code == 0, ran.out + ran.err
    log = servers.fork("log", "--format=%s", f"{servers.main()}..fix-route-to-12")
    assert log.split("\n") == ["fix(route): to 12", "fix(gate): open for 12"]


def test_a_need_that_main_has_is_left_out(project: TinyProject, servers: Servers) -> None:
    servers.change({"tiny/gate.py": OPENED})
    found = project.run("send", "2", "--json").json()
    assert [step["number"] for step in found["applied"]] == [2]
    assert any("0001, which is needed, is in main" in note for note in found["notes"])


def test_a_patch_that_main_has_is_there_already(project: TinyProject, servers: Servers) -> None:
    servers.change({"tiny/gate.py": OPENED})
    [why] = servers.refused("1")
    assert why.startswith("0001 is there already")


def test_a_patch_in_other_words_is_there_already(project: TinyProject, servers: Servers) -> None:
    servers.change({"tiny/gate.py": GATE + "MAJORS.append(12)\n"})
    [why] = servers.refused("1")
    assert "passes on main" in why
    assert "without it" in why


def test_a_patch_that_does_not_apply(project: TinyProject, servers: Servers) -> None:
    servers.change({"tiny/gate.py": "ALL = True\n"})
    [why] = servers.refused("1")
    assert why.startswith("0001 does not apply to main")


def test_a_patch_that_fails_its_own_smoke_test_on_main(
    project: TinyProject, servers: Servers
) -> None:
    servers.change({"tiny/gate.py": GATE + "MAJORS.clear()\n"})
    [why] = servers.refused("1", "--fork", servers.fork_url)
    assert why.startswith("0001 fails its own smoke test on main")
    assert "No supported CUDA architectures" in why


def test_a_patch_without_evidence(project: TinyProject, servers: Servers) -> None:
    for record in (project.root / ".patchwright" / "evidence").glob("*.json"):
        record.unlink()
    [why] = servers.refused("1")
    assert "no evidence on record at tier static" in why
    assert "patchwright verify 1" in why


def test_a_patch_without_a_smoke_test(project: TinyProject, servers: Servers) -> None:
    [why] = servers.refused("3")
    assert why == "0003 has no passing evidence: names no smoke test"


@pytest.mark.parametrize(
    ("message", "field"),
    [("Why.\n\nUpstream-Status: Pending", "Upstream-Status"), ("Why.\n\nsmoke: x", "Smoke")],
)
def test_a_message_that_carries_our_fields(
    project: TinyProject, servers: Servers, message: str, field: str
) -> None:
    assert project.run("message", "1", "-m", message).code == 0
    [why] = servers.refused("1")
    assert f"still carries our own field {field} (line 8)" in why


def test_a_patch_that_was_sent_is_a_new_version(project: TinyProject, servers: Servers) -> None:
    project.run("send", "1", "--sent", "https://example.org/pull/1")
    [why] = servers.refused("1")
    assert "was sent already (Submitted [https://example.org/pull/1])" in why


def test_a_patch_that_is_not_for_upstream(project: TinyProject, servers: Servers) -> None:
    project.run("message", "1", "--field", "Upstream-Status=Inappropriate [local]")
    [why] = servers.refused("1")
    assert "is not for sending" in why


def test_an_author_without_an_address(project: TinyProject, servers: Servers) -> None:
    path = next((project.root / "patches").glob("0001-*"))
    path.write_bytes(path.read_bytes().replace(b"<tester@example.org>", b"<tester@localhost>"))
    [why] = servers.refused("1")
    assert "'A Tester <tester@localhost>', has no e-mail address" in why
    ran = project.run("send", "1", "--author", "Ä. Näme <a@example.org>", "--json")
    assert ran.code == 0, ran.out + ran.err


# Titles, names, sign-off


def test_tags_and_names_that_are_not_ascii_arrive(project: TinyProject, servers: Servers) -> None:
    project.run("message", "1", "--title", "[SM120] Öffne das Tor")
    ran = project.run(
        "send", "1", "--to", "branch", "--accept", "--fork", servers.fork_url,
        "--author", "Zoë Ångström <zoe@example.org>", "--branch", "tor",
    )  # fmt: skip
    assert ran.code == 0, ran.out + ran.err
    assert servers.fork("log", "-1", "--format=%an|%s", "tor") == (
        "Zoë Ångström|fix: [SM120] Öffne das Tor"
    )


def test_a_sign_off_where_the_project_asks_for_it(project: TinyProject, servers: Servers) -> None:
    servers.configure(**{"sign-off": True, "title": "plain"})
    project.run("send", "1", "--to", "branch", "--accept", "--fork", servers.fork_url)
    assert servers.fork("log", "-1", "--format=%B", "gate-open-for-12") == (
        "gate: open for 12\n\nWhy, in prose.\n\nSigned-off-by: A Tester <tester@example.org>"
    )


# Forks and clones


def test_a_second_send_finds_its_branch(project: TinyProject, servers: Servers) -> None:
    args = ("send", "1", "--to", "branch", "--accept", "--fork", servers.fork_url)
    project.run(*args)
    again = project.run(*args)
    assert again.code == 0, again.err
    assert "stands already in" in again.out


def test_a_branch_of_somebody_else_is_left_alone(project: TinyProject, servers: Servers) -> None:
    servers.fork("branch", "mine", servers.old_main)
    ran = project.run(
        "send", "1", "--to", "branch", "--accept", "--fork", servers.fork_url, "--branch", "mine"
    )
    assert ran.code == 1
    assert "which was not sent from here" in ran.err
    assert servers.fork("rev-parse", "mine") == servers.old_main


def test_a_fork_without_shared_history_is_refused(
    project: TinyProject, servers: Servers, tmp_path: Path
) -> None:
    other = servers.bare("other", {"README": "mine\n"})
    ran = project.run("send", "1", "--to", "branch", "--accept", "--fork", f"file://{other}")
    assert ran.code == 1
    assert "shares no history" in ran.err


def test_a_fork_whose_head_is_detached_takes_the_branch(
    project: TinyProject, servers: Servers
) -> None:
    servers.fork("update-ref", "--no-deref", "HEAD", servers.old_main)
    (servers.fork_path / "HEAD").write_text(f"{servers.old_main}\n", encoding="ascii")
    ran = project.run("send", "1", "--to", "branch", "--accept", "--fork", servers.fork_url)
    assert ran.code == 0, ran.out + ran.err
    assert servers.fork("rev-parse", "fix-gate-open-for-12^") == servers.main()


def test_an_upstream_that_cannot_be_reached(project: TinyProject, servers: Servers) -> None:
    ran = project.run("send", "1", "--upstream", "file:///no/such/place.git")
    assert ran.code == 3
    assert "git cannot fetch from it" in ran.err


def test_a_branch_that_upstream_lacks(project: TinyProject, servers: Servers) -> None:
    servers.configure(branch="develop")
    ran = project.run("send", "1")
    assert ran.code == 2
    assert "the repository has no branch develop" in ran.err


def test_a_dirty_shallow_clone_serves_as_upstream(
    project: TinyProject, servers: Servers, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    servers.git("clone", "--quiet", "--depth=1", servers.upstream_url, str(clone))
    (clone / "tiny" / "gate.py").write_text("scribble\n", encoding="ascii")
    found = project.run("send", "1", "--upstream", str(clone), "--json").json()
    assert not found["refused"]
    assert any("uncommitted changes" in note for note in found["notes"])
    assert any("is shallow" in note for note in found["notes"])
    ran = project.run(
        "send", "1", "--upstream", str(clone), "--to", "branch", "--accept",
        "--fork", servers.fork_url,
    )  # fmt: skip
    assert ran.code == 3  # the fork's main is behind, and the clone has no history to give
    assert "git fetch --unshallow" in ran.err


def test_a_tag_that_moved_is_told(tmp_path: Path, servers: Servers) -> None:
    project = TinyProject(tmp_path / "other")
    (project.root / "patches").mkdir(parents=True)
    servers.upstream("tag", "v1", servers.old_main)
    project.upstreams["tiny"] = {
        "source": "git", "version": "1.0", "git": servers.upstream_url, "revision": "v1",
        "packages": ["tiny"],
    }  # fmt: skip
    project.write_config()
    raw = next((servers.project.root / "patches").glob("0001-*"))
    (project.root / "patches" / raw.name).write_bytes(raw.read_bytes())
    assert project.run("lock").code == 0
    servers.upstream("tag", "--force", "v1", servers.main())
    ran = project.run("send", "1")
    assert ran.code == 3
    assert f"tag v1 is commit {servers.main()} now, the lock has {servers.old_main}" in ran.err
