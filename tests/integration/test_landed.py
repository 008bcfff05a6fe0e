"""What upstream's repository says: which commit turned a patch, and what has landed."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from projects import TinyProject, make_project

LINES = [f"line_{n} = {n}" for n in range(1, 41)]
SMOKE = """
import pytest

@pytest.mark.tier("static")
def test_open(tree):
    scope = {}
    exec(tree.text("tiny", "tiny/a.py"), scope)
    assert scope.get("line_20") == "ours"
"""


def text(changes: dict[int, str] | None = None) -> str:
    return "".join(f"{(changes or {}).get(n, line)}\n" for n, line in enumerate(LINES, 1))


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=folder, capture_output=True, check=True, text=True)
    return done.stdout.strip()


class Upstream:
    """A real repository: each ``commit`` changes tiny/a.py."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        git(folder, "init", "--quiet", "--initial-branch=main")
        git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")

    def commit(self, title: str, content: str, tag: str = "", other: str = "") -> str:
        path = self.folder / "tiny" / "a.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
        (self.folder / "README").write_text(f"{title}\n{other}", encoding="utf-8")
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", "-m", title)
        if tag:
            git(self.folder, "tag", tag)
        return git(self.folder, "rev-parse", "HEAD")


def project(tmp_path: Path, upstream: Upstream, source: str = "git") -> TinyProject:
    """Return a project that pins tag v1.0; the patch sets line 20."""
    made = make_project(tmp_path, {"tiny/a.py": text()})
    table = made.upstreams["tiny"]
    table["revision"] = "v1.0"
    if source == "git":
        table |= {"source": "git", "path": str(upstream.folder)}
        table.pop("distribution")
    else:
        table["git"] = str(upstream.folder)
    made.write_config()
    made.add_smoke("test_0001.py", SMOKE)
    made.add_patch(1, {"tiny/a.py": text({20: "line_20 = 'ours'"})}, title="twenty",
                   fields={"Smoke": "tests/smoke/test_0001.py",
                           "Upstream-Status": "Submitted [https://github.com/o/tiny/pull/7]"},
                   )  # fmt: skip
    return made


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    made = Upstream(tmp_path / "upstream")
    made.commit("first", text(), tag="v1.0")
    return made


@pytest.mark.parametrize("source", ["git", "wheel"])
def test_bisect_names_the_commit_at_which_a_patch_stops_applying(
    tmp_path: Path, upstream: Upstream, source: str
) -> None:
    for n in range(1, 7):
        upstream.commit(f"other {n}", text({2: f"line_2 = {n}"}))
    guilty = upstream.commit("rewrite twenty", text({20: "line_20 = 'theirs'"}))
    upstream.commit("after", text({20: "line_20 = 'theirs'", 3: "line_3 = 1"}), tag="v1.1")
    made = project(tmp_path, upstream, source)
    target = "tiny@v1.1"
    if source == "wheel":
        wheel = made.wheels["tiny"]
        shutil.copy(wheel, wheel.with_name("tiny-1.1-py3-none-any.whl"))
        target = "tiny@1.1"
    ran = made.run("bump", target, "--bisect", "1", "--json")
    assert ran.code == 0, ran.err
    found = ran.json()
    assert [(t["what"], t["commit"]) for t in found] == [("applies", guilty)]
    assert (found[0]["before"], found[0]["after"]) == ("applies", "does not apply")
    assert found[0]["probes"] <= 6
    assert "rewrite twenty" in made.run("bump", target, "--bisect", "1", "--no-static").out


def test_bisect_names_the_commit_at_which_the_smoke_test_changes_sides(
    tmp_path: Path, upstream: Upstream
) -> None:
    upstream.commit("other", text({2: "line_2 = 1"}))
    reworded = text({2: "line_2 = 1"}) + "line_20 = 'ou' + 'rs'\n"
    guilty = upstream.commit("say it otherwise", reworded)
    upstream.commit("after", reworded + "x = 1\n", tag="v1.1")
    ran = project(tmp_path, upstream).run("bump", "tiny", "1.1", "--bisect", "1", "--json")
    found = ran.json()
    assert [(t["what"], t["commit"], t["before"], t["after"]) for t in found] == [
        ("smoke", guilty, "failed", "passed")
    ]


def test_bisect_with_nothing_to_find(tmp_path: Path, upstream: Upstream) -> None:
    upstream.commit("other", text({2: "line_2 = 1"}), tag="v1.1")
    ran = project(tmp_path, upstream).run("bump", "tiny", "1.1", "--bisect", "1", "--no-static")
    assert ran.code == 1
    assert "0001 stands at v1.1 as it does at v1.0" in ran.err


def test_a_git_upstream_moves_to_a_tag_or_to_the_latest(tmp_path: Path, upstream: Upstream) -> None:
    upstream.commit("other", text({2: "line_2 = 1"}), tag="v1.1")
    upstream.commit("more", text({2: "line_2 = 2"}), tag="v1.10")
    upstream.commit("next", text({2: "line_2 = 3"}), tag="v2.0rc1")
    made = project(tmp_path, upstream)
    assert made.run("lock").code == 0
    ran = made.run("bump", "tiny", "--to-latest", "--accept", "--no-static")
    assert ran.code == 0, ran.err
    config = (made.root / "pyproject.toml").read_text(encoding="utf-8")
    assert 'revision = "v1.10"' in config
    assert 'version = "1.10"' in config
    assert made.run("lock", "--check").code == 0
    assert made.run("undo").code == 0
    assert made.run("lock", "--check").code == 0


def landed(made: TinyProject, *args: str) -> dict[str, Any]:
    ran = made.run("landed", "--json", *args)
    assert ran.code == 0, ran.err
    row: dict[str, Any] = ran.json()["patches"][0]
    return row


@pytest.mark.parametrize("source", ["git", "wheel"])
def test_landed_by_patch_id_and_by_content(tmp_path: Path, upstream: Upstream, source: str) -> None:
    made = project(tmp_path, upstream, source)
    row = landed(made, "--fetch")
    assert (row["landed"], row["verdict"], row["without"]) == (False, "clean", "failed")
    merged = upstream.commit("twenty (#7)", text({20: "line_20 = 'ours'"}))
    head = upstream.commit("after", text({20: "line_20 = 'ours'", 3: "line_3 = 1"}))
    assert landed(made)["landed"] is False  # nothing was fetched
    row = landed(made, "--fetch")
    assert (row["landed"], row["commit"], row["head"]) == (True, merged, head)
    assert row["without"] == "passed"
    # Its title names the pull request that the patch does.
    assert row["merged"] == merged
    assert row["status"] == "Backport [https://github.com/o/tiny/pull/7]"


def test_landed_in_other_words(tmp_path: Path, upstream: Upstream) -> None:
    upstream.commit("squashed", text({19: "x = 1", 20: "line_20 = 'ours'  # so", 21: "y = 2"}))
    row = landed(project(tmp_path, upstream), "--fetch")
    assert (row["landed"], row["verdict"], row["commit"]) == (True, "upstream", None)


def test_merged_but_not_the_same(tmp_path: Path, upstream: Upstream) -> None:
    merged = upstream.commit("twenty, done better (#7)", text({20: "line_20 = 'better'"}))
    made = project(tmp_path, upstream)
    ran = made.run("landed", "--fetch", "--no-static")
    assert "0001 merged, not the same" in ran.out
    assert f"its pull request is in the branch: {merged[:12]}" in ran.out


def test_landed_writes_the_status_when_asked(tmp_path: Path, upstream: Upstream) -> None:
    made = project(tmp_path, upstream)
    assert made.run("lock").code == 0
    upstream.commit("twenty (#7)", text({20: "line_20 = 'ours'"}))
    path = next((made.root / "patches").iterdir())
    before = path.read_bytes()
    ran = made.run("landed", "--fetch", "--no-static")
    assert "0001 landed" in ran.out
    assert path.read_bytes() == before
    assert made.run("landed", "--no-static", "--write").code == 0
    status = "Upstream-Status: Backport [https://github.com/o/tiny/pull/7]\n"
    assert status in path.read_text(encoding="utf-8")
    assert made.run("lock", "--check").code == 0
    assert made.run("landed", "--no-static", "--write").out.endswith("nothing to write\n")
    assert made.run("undo").code == 0
    assert path.read_bytes() == before


def stub_gh(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program named gh on PATH: a stub for the real one, which needs a network."""
    folder.mkdir()
    program = folder / "gh"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@pytest.mark.parametrize(
    ("script", "state", "status", "why"),
    [
        ('echo \'{"state": "CLOSED", "mergeCommit": null}\'', "closed",
         "Denied [https://github.com/o/tiny/pull/7]", ""),
        ('echo \'{"state": "OPEN", "mergeCommit": null}\'', "open", None, ""),
        ('echo "gh auth login: $GH_TOKEN" >&2; exit 4', "unknown", None,
         "gh is not logged in: run `gh auth login`"),
        ("echo '[]'", "unknown", None, "gh's answer is not understood"),
        ("exit 1", "unknown", None, "gh found no answer"),
    ],
)  # fmt: skip
def test_what_gh_says_of_a_pull_request(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, script: str, state: str,
    status: str | None, why: str,
) -> None:  # fmt: skip
    stub_gh(tmp_path / "bin", monkeypatch, script)
    monkeypatch.setenv("GH_TOKEN", "ghp_secret")
    made = project(tmp_path, upstream)
    ran = made.run("landed", "--fetch", "--no-static", "--json")
    row = ran.json()["patches"][0]
    assert (row["pull"]["state"], row["pull"]["why"], row["status"]) == (state, why, status)
    assert "ghp_secret" not in ran.out + ran.err


def test_never_fetched(tmp_path: Path, upstream: Upstream) -> None:
    ran = project(tmp_path, upstream, "wheel").run("landed")
    assert ran.code == 1
    assert "the history of tiny was never fetched" in ran.err
    assert "--fetch" in ran.err


def test_an_upstream_that_cannot_be_reached(tmp_path: Path, upstream: Upstream) -> None:
    made = project(tmp_path, upstream, "wheel")
    made.upstreams["tiny"]["git"] = "file:///nowhere/at/all"
    made.write_config()
    ran = made.run("landed", "--fetch")
    assert ran.code == 3
    assert "git cannot fetch from it" in ran.err
    assert "give a local clone" in ran.err


def test_a_shallow_clone_is_named_as_such(tmp_path: Path, upstream: Upstream) -> None:
    upstream.commit("other", text({2: "line_2 = 1"}))
    upstream.commit("more", text({2: "line_2 = 2"}), tag="v1.1")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{upstream.folder}", str(clone))
    made = project(tmp_path, upstream, "wheel")
    made.upstreams["tiny"]["git"] = str(clone)
    made.write_config()
    wheel = made.wheels["tiny"]
    shutil.copy(wheel, wheel.with_name("tiny-1.1-py3-none-any.whl"))
    ran = made.run("bump", "tiny", "1.1", "--bisect", "1")
    assert ran.code == 3
    assert "shallow clone" in ran.err
    assert "git fetch --unshallow" in ran.err


@pytest.mark.parametrize("command", [("landed", "--fetch"), ("bump", "tiny", "1.1")])
def test_a_rewritten_tag_is_refused_with_both_commits(
    tmp_path: Path, upstream: Upstream, command: tuple[str, ...]
) -> None:
    made = project(tmp_path, upstream)
    assert made.run("lock").code == 0
    locked = git(upstream.folder, "rev-parse", "v1.0")
    moved = upstream.commit("rewritten", text({2: "line_2 = 1"}))
    git(upstream.folder, "tag", "--force", "v1.0")
    upstream.commit("next", text({2: "line_2 = 2"}), tag="v1.1")
    ran = made.run(*command)
    assert ran.code == 3
    assert f"tag v1.0 is commit {moved} now, the lock has {locked}" in ran.err


def test_an_upstream_without_a_repository(tmp_path: Path) -> None:
    made = make_project(tmp_path, {"tiny/a.py": text()})
    made.add_patch(1, {"tiny/a.py": text({20: "line_20 = 1"})})
    ran = made.run("landed", "--fetch")
    assert ran.code == 2
    assert "upstream tiny names no repository" in ran.err
