"""patchwright lock on a real wheel, real patches and the real store."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from projects import TinyProject, make_project, make_wheel

GATE = "".join(f"line {n}\n" for n in range(20)) + "OPEN = False\n"
FILES = {"tiny/__init__.py": "", "tiny/gate.py": GATE, "csrc/a.cu": "__global__ void a() {}\n"}


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    project = make_project(
        tmp_path, FILES, built={"tiny/_build.py": "V = '1.0'\n"}, outside=("tiny/_build.py",)
    )
    project.add_patch(1, {"tiny/gate.py": GATE.replace("False", "True")}, title="gate: open")
    project.add_patch(2, {"csrc/a.cu": "__global__ void a() { return; }\n"}, title="a: return")
    return project


def lock_of(project: TinyProject) -> dict[str, Any]:
    return tomllib.loads((project.root / "upstream.lock").read_text(encoding="utf-8"))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_lock_records_what_git_says(project: TinyProject) -> None:
    ran = project.run("lock")
    assert (ran.code, ran.out.count("\n")) == (0, 2), ran.err
    lock = lock_of(project)
    [tiny] = lock["upstream"]
    assert tiny["file"] == project.wheels["tiny"].name
    assert [tiny["tree"], *(p["tree"] for p in lock["patch"])] == project.trees["tiny"]
    assert [p["file"].split("-")[0] for p in lock["patch"]] == ["patches/0001", "patches/0002"]
    assert project.run("lock", "--check").code == 0


def test_check_says_that_all_agrees_from_a_sub_folder(project: TinyProject) -> None:
    assert (
        project.run("-C", str(project.root / "patches"), "lock", cwd=project.root.parent).code == 0
    )
    ran = project.run_apart("lock", "--check", cwd=project.root / "patches")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "upstream.lock agrees with pyproject.toml and 2 patches\n"
    assert project.run("lock", "--check", "--json").json() == {"agrees": True, "disagreements": []}


def test_locking_again_changes_nothing(project: TinyProject) -> None:
    project.run("lock")
    before = (project.root / "upstream.lock").stat()
    ran = project.run("lock")
    assert "is up to date" in ran.out
    assert (project.root / "upstream.lock").stat() == before


def test_another_machine_makes_the_same_lock(
    project: TinyProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.run("lock")
    first = (project.root / "upstream.lock").read_bytes()
    other = tmp_path / "elsewhere"
    shutil.copytree(project.root, other)
    (other / "upstream.lock").unlink()
    monkeypatch.setenv("PATCHWRIGHT_CACHE", str(tmp_path / "other-cache"))
    assert project.run("-C", str(other), "lock").code == 0
    assert (other / "upstream.lock").read_bytes() == first
    assert b"://" not in first
    assert str(tmp_path).encode() not in first


def test_no_lock_yet(project: TinyProject) -> None:
    ran = project.run("lock", "--check")
    assert ran.code == 1
    assert "there is no lock yet" in ran.err
    assert "Next: run `patchwright lock`" in ran.err


def test_each_disagreement_is_named_with_both_values_and_without_a_store(
    project: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.run("lock")
    locked = lock_of(project)
    patch = next((project.root / "patches").glob("0001*"))
    edit(patch, "Why, in prose.", "Why, in other words.")
    project.add_patch(7, {"tiny/new.py": "x = 1\n"}, title="new")
    edit(project.root / "pyproject.toml", 'version = "1.0"', 'version = "1.1"')
    monkeypatch.setenv("PATCHWRIGHT_CACHE", "/dev/null/nowhere")
    ran = project.run("lock", "--check", "--json")
    found = {d["what"]: (d["locked"], d["actual"]) for d in ran.json()["disagreements"]}
    assert ran.code == 1
    assert "disagrees with the project in 3 places" in ran.err
    assert found["upstream tiny: version"] == ("1.0", "1.1")
    was, now = found[f"patch patches/{patch.name}: sha256"]
    assert was == locked["patch"][0]["sha256"] != now
    assert found["patch patches/0007-tiny-new.patch"][0] == "(absent)"
    text = project.run("lock", "--check").out
    assert f"  lock:    {was}\n  project: {now}\n" in text


def test_a_wheel_with_other_bytes_is_a_disagreement(project: TinyProject) -> None:
    project.run("lock")
    make_wheel(project.root / "wheels", {"tiny/gate.py": "other\n"})
    ran = project.run("lock", "--check")
    assert ran.code == 1
    assert "upstream tiny: sha256" in ran.out


@pytest.mark.parametrize("which", ["pristine", "patched"])
def test_a_tree_id_edited_by_hand_is_found(project: TinyProject, which: str) -> None:
    project.run("lock")
    path = project.root / "upstream.lock"
    true = project.trees["tiny"][0 if which == "pristine" else 1]
    edit(path, f'tree = "{true}"', f'tree = "{"0" * 40}"')
    ran = project.run("lock", "--check")
    assert ran.code == 1
    assert true in ran.out
    assert "0" * 40 in ran.out
    assert project.run("lock").code == 0
    assert project.run("lock", "--check").code == 0


def test_a_patch_that_does_not_apply_leaves_the_lock_as_it_is(project: TinyProject) -> None:
    project.run("lock")
    path = project.root / "upstream.lock"
    before = path.read_bytes()
    patch = next((project.root / "patches").glob("0001*"))
    edit(patch, "-OPEN = False", "-OPEN = Perhaps")
    ran = project.run("lock")
    assert ran.code == 1
    assert ran.out.startswith("0001 conflict: tiny/gate.py")
    assert "1 of 2 patches does not apply" in ran.err
    assert "patchwright show 1" in ran.err
    assert path.read_bytes() == before
    refused = project.run("lock", "--json").json()
    assert refused["written"] is False
    assert [(v["number"], v["apply"]) for v in refused["refused"]] == [(1, "conflict")]


def test_a_patch_made_for_another_version_is_refused_before_anything_is_fetched(
    project: TinyProject,
) -> None:
    project.wheels["tiny"].unlink()
    patch = next((project.root / "patches").glob("0001*"))
    edit(patch, "Upstream: tiny 1.0", "Upstream: tiny 0.9")
    ran = project.run("lock")
    assert ran.code == 2
    assert "0001 was made for tiny 0.9, the pin is 1.0" in ran.err


def test_an_environment_that_nobody_asks_for_leaves_the_lock(project: TinyProject) -> None:
    project.run("lock")
    path = project.root / "upstream.lock"
    with path.open("a", encoding="utf-8") as stream:
        stream.write('\n[environment]\npython = "3.11"\n')
    assert (
        "environment\n  lock:    one\n  project: (absent)\n" in project.run("lock", "--check").out
    )
    assert project.run("lock").code == 0
    assert "environment" not in lock_of(project)


def test_a_lock_with_conflict_markers_is_not_written_over(project: TinyProject) -> None:
    project.run("lock")
    path = project.root / "upstream.lock"
    edit(path, "[[patch]]", "<<<<<<< HEAD\n[[patch]]")
    before = path.read_bytes()
    ran = project.run("lock")
    assert ran.code == 2
    assert "conflict markers" in ran.err
    assert path.read_bytes() == before


def test_a_branch_stays_where_it_was_locked_until_upgrade(tmp_path: Path) -> None:
    project = make_project(tmp_path, FILES)
    work = project.git["tiny"]

    def commit() -> str:
        (work / "tiny/gate.py").write_text(GATE + f"# {os.urandom(4).hex()}\n", encoding="utf-8")
        for args in (["commit", "--quiet", "-a", "-m", "more"], ["rev-parse", "HEAD"]):
            done = subprocess.run(["git", *args], cwd=work, capture_output=True, check=True)
        return done.stdout.decode().strip()

    first = commit()
    project.upstreams["tiny"].update(source="git", path="../git/tiny", revision="main")
    project.write_config()
    ran = project.run("lock")
    assert ran.code == 0, ran.err
    second = commit()
    assert project.run("lock").code == 0
    assert lock_of(project)["upstream"][0]["commit"] == first
    assert project.run("lock", "--check").code == 0
    assert project.run("lock", "--upgrade").code == 0
    assert lock_of(project)["upstream"][0]["commit"] == second


def test_a_cache_that_cannot_be_written(
    project: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATCHWRIGHT_CACHE", "/dev/null/nowhere")
    ran = project.run("lock")
    assert ran.code == 3
    assert "PATCHWRIGHT_CACHE" in ran.err
    assert not (project.root / "upstream.lock").exists()


def test_a_wheel_that_is_not_there(project: TinyProject) -> None:
    project.wheels["tiny"].unlink()
    ran = project.run("lock")
    assert ran.code in (2, 3)
    assert "tiny-1.0-py3-none-any.whl" in ran.err
    assert "Traceback" not in ran.err
