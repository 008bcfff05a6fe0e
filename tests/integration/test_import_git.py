"""Imports from git: the tree of a revision, and what a repository may try."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from importing import (
    REPOSITORY,
    Place,
    commit,
    git,
    make_repository,
    wanted,
)
from patchwright.errors import PatchwrightError
from patchwright.upstreams.archive import BadArchive

pytest_plugins = ("importing_fixtures",)


def test_a_revision_as_git_has_it(place: Place) -> None:
    clone = make_repository(place.root / "clone")
    (clone / "run.sh").write_text("#!/bin/sh\n")
    (clone / "run.sh").chmod(0o755)
    (clone / "link").symlink_to("run.sh")
    sub = "1" * 40
    git(clone, "update-index", "--add", "--cacheinfo", f"160000,{sub},3rdparty/x")
    git(clone, "add", "run.sh", "link")
    git(clone, "commit", "--quiet", "-m", "modes")
    git(clone, "tag", "-a", "v1", "-m", "annotated")
    head = git(clone, "rev-parse", "HEAD")
    commit(clone, {"later": b""})
    tree = git(clone, "rev-parse", "v1^{tree}")
    for revision in ("v1", head, head[:10]):
        config = wanted(source="git", path="clone", revision=revision)
        locked = place.resolve(config)
        assert locked.commit == head
        assert locked.submodules == {"3rdparty/x": sub}
        assert place.run(config, locked).tree == tree
    modes = {path: entry.mode for path, entry in place.store.files(tree)}
    assert (modes[b"run.sh"], modes[b"link"]) == (b"100755", b"120000")


def test_hooks_and_the_users_configuration_do_not_run(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = make_repository(place.root / "clone")
    mark = tmp_path / "ran"
    script = tmp_path / "hook"
    script.write_text(f'#!/bin/sh\ntouch {mark}\nexec "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    user = Path(os.environ["HOME"]) / ".gitconfig"
    user.write_text(
        f'[uploadpack]\n\tpackObjectsHook = {script}\n[url "/nowhere/"]\n\tinsteadOf = /\n'
        f"[core]\n\thooksPath = {tmp_path}\n\tfsmonitor = {script}\n"
    )
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    pristine = place.run(wanted(source="git", path="clone", revision="main"))
    assert place.files(pristine.tree) == REPOSITORY
    assert not mark.exists()
    assert clone.is_dir()


def test_a_moved_tag_names_both_commits(place: Place, tmp_path: Path) -> None:
    clone = make_repository(place.root / "clone")
    git(clone, "tag", "v1")
    config = wanted(source="git", path="clone", revision="v1")
    locked = place.resolve(config)
    moved = commit(clone, {"python/tiny/a.py": b"A = 2\n"})
    git(clone, "tag", "--force", "v1")
    assert place.run(config, locked).tree  # what was fetched stays good
    fresh = Place(tmp_path, "fresh")
    with pytest.raises(PatchwrightError, match="tag v1") as caught:
        fresh.run(config, locked)
    assert moved in caught.value.what
    assert str(locked.commit) in caught.value.what


def test_a_branch_may_move_on(place: Place, tmp_path: Path) -> None:
    clone = make_repository(place.root / "clone")
    config = wanted(source="git", path="clone", revision="main")
    locked = place.resolve(config)
    commit(clone, {"python/tiny/a.py": b"A = 2\n"})
    fresh = Place(tmp_path, "fresh")
    assert place.files(place.run(config, locked).tree) == REPOSITORY
    assert fresh.files(fresh.run(config, locked).tree) == REPOSITORY


@pytest.mark.parametrize("revision", ["v9", "f" * 40, "fffffff"])
def test_a_revision_that_is_not_there(place: Place, revision: str) -> None:
    make_repository(place.root / "clone")
    with pytest.raises(PatchwrightError, match=f"no (tag|commit).*{revision}"):
        place.resolve(wanted(source="git", path="clone", revision=revision))


def test_a_link_out_of_a_git_tree(place: Place) -> None:
    clone = make_repository(place.root / "clone")
    # Within the repository, but out of the installed distribution.
    (clone / "python/tiny/link").symlink_to("../../csrc/k.cu")
    commit(clone, {})
    with pytest.raises(BadArchive, match="out of the tree") as caught:
        place.run(wanted(source="git", path="clone", revision="main"))
    assert caught.value.where == "upstream tiny: python/tiny/link"
