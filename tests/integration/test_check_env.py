"""patchwright check: every difference between an environment and what it should be."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from projects import Content, TinyProject, make_project, make_wheel
from venvs import Env, make_env

FILES = {
    "tiny/__init__.py": "from .gate import OPEN\n",
    "tiny/gate.py": "OPEN = 0\n",
    "tiny/data.txt": "data\n",
    "csrc/k.cu": "k\n",
}


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyProject:
    tiny = make_project(
        tmp_path, FILES, built={"tiny/_version.py": "V = '1.0'\n"}, outside=("tiny/_version.py",)
    )
    tiny.upstreams["tiny"] |= {"version-files": ["tiny/_version.py"], "prebuilt": ["tiny-cache"]}
    tiny.write_config()
    tiny.add_patch(1, {"tiny/gate.py": "OPEN = 1\n"}, title="gate: open")
    monkeypatch.delenv("PYTHONPATH")  # the suite's own
    return tiny


@pytest.fixture
def env(tiny: TinyProject, tmp_path: Path) -> Env:
    assert tiny.run("lock").code == 0
    return make_env(tmp_path, tiny.wheels.values())


def found(tiny: TinyProject, env: Env, cwd: Path | None = None) -> list[tuple[str, str, str]]:
    """Return kind, place and words of each difference; exit code and JSON have to agree."""
    ran = tiny.run("-C", str(tiny.root), "check", "--env", str(env.root), "--json", cwd=cwd)
    said: dict[str, Any] = ran.json()
    assert (ran.code, said["agrees"]) == ((0, True) if not said["differences"] else (1, False))
    if ran.code:
        assert f"differs in {len(said['differences'])} place" in ran.err
    return [
        (d["kind"], d["where"].removeprefix(f"{env.site}/"), d["what"]) for d in said["differences"]
    ]


def edit(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


def test_clean_before_while_and_after_patches_are_in_it(tiny: TinyProject, env: Env) -> None:
    ran = tiny.run("check", "--env", str(env.root))
    assert ran.code == 0, ran.out
    assert "not told: tiny is as upstream made it: no patches are in it" in ran.out
    assert "not told: the lock has no environment: only the upstreams are compared" in ran.out
    tiny.run("apply", "--env", str(env.root))
    ran = tiny.run("check", "--env", str(env.root))
    assert ran.code == 0, ran.out
    assert "1 packages" in ran.out
    assert "as upstream made it" not in ran.out
    tiny.run("unapply", "--env", str(env.root))
    assert found(tiny, env) == []


@pytest.mark.parametrize("patched", [False, True])
def test_each_difference_alone_and_all_together(
    tiny: TinyProject, env: Env, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patched: bool
) -> None:
    if patched:
        tiny.run("apply", "--env", str(env.root))
    expected = []

    def also(kind: str, where: str, what: str) -> None:
        expected.append((kind, where, what))
        assert sorted(found(tiny, env)) == sorted(expected)

    edit(env.site / "tiny/gate.py", "OPEN = 2\n")
    also("file", "tiny/gate.py", "is changed (tiny)")
    (env.site / "tiny/data.txt").unlink()
    also("file", "tiny/data.txt", "is missing (tiny)")
    (env.site / "tiny/mine.py").write_text("")
    also("file", "tiny/mine.py", "is extra (tiny)")
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "9.0a")
    also("setting", "FLASHINFER_CUDA_ARCH_LIST", "leaves out sm_120")
    other = tmp_path / "other"
    (other / "tiny").mkdir(parents=True)
    (other / "tiny" / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(other))
    also("shadow", "tiny", "another copy is imported")
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "9.0a 12.0a")
    expected.remove(("setting", "FLASHINFER_CUDA_ARCH_LIST", "leaves out sm_120"))
    assert sorted(found(tiny, env)) == sorted(expected)


def test_another_version_and_none_at_all(tiny: TinyProject, env: Env, tmp_path: Path) -> None:
    env.install(str(make_wheel(tmp_path / "newer", {"tiny/__init__.py": ""}, version="1.1")))
    ran = tiny.run("check", "--env", str(env.root))
    assert ran.code == 1
    assert "package: tiny: has another version (expected 1.0, found 1.1)" in ran.out
    for path in env.site.glob("tiny-*"):
        path.rename(tmp_path / "away")
    assert found(tiny, env) == [("package", "tiny", "is not installed")]


def test_a_copy_in_the_current_folder_and_one_behind(
    tiny: TinyProject, env: Env, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    (copy / "tiny").mkdir(parents=True)
    (copy / "tiny" / "__init__.py").write_text("")
    (copy / "json.py").write_text("raise SystemExit('not me')\n")
    assert found(tiny, env, cwd=copy) == [("shadow", "tiny", "another copy is imported")]
    (env.site / "more.pth").write_text(f"{copy}\n")
    assert found(tiny, env) == [("shadow", "tiny", "another copy is on the path")]


def test_bytecode_that_is_used_and_is_not_its_sources(tiny: TinyProject, env: Env) -> None:
    gate = env.site / "tiny/gate.py"
    env.python("-c", "import tiny")
    status = gate.stat()
    data = gate.read_bytes()
    edit(gate, "OPEN = 7\n")
    os.utime(gate, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert env.python("-c", "import tiny; print(tiny.OPEN)") == "0\n"  # stale, and used
    [compiled] = (env.site / "tiny/__pycache__").glob("gate.*.pyc")
    place = str(compiled.relative_to(env.site))
    stale = ("bytecode", place, "is used, and its source says other things")
    assert found(tiny, env) == [("file", "tiny/gate.py", "is changed (tiny)"), stale]
    # The same bytes again: bytecode that is older than its source, and right.
    gate.write_bytes(data)
    os.utime(gate, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert found(tiny, env) == []


def test_prebuilt_kernels_win_only_over_patched_sources(
    tiny: TinyProject, env: Env, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path / "w", {"tiny_cache/k.so": b"\x7fELF"}, distribution="tiny-cache")
    env.install(str(wheel))
    assert found(tiny, env) == []
    ran = tiny.run("apply", "--env", str(env.root))
    assert ran.code == 2
    assert "tiny-cache 1.0 is installed: its kernels would win over tiny's" in ran.err
    for path in env.site.glob("tiny_cache*"):
        path.rename(tmp_path / path.name)
    assert tiny.run("apply", "--env", str(env.root)).code == 0
    env.install(str(wheel))
    [(kind, where, what)] = found(tiny, env)
    assert (kind, where) == ("prebuilt", "tiny-cache")
    assert "would win over tiny's patched sources" in what


def test_patches_that_changed_since_and_a_selection(tiny: TinyProject, env: Env) -> None:
    tiny.add_patch(2, {"csrc/k.cu": "kk\n"})
    tiny.run("apply", "--env", str(env.root), "--to", "1")
    ran = tiny.run("check", "--env", str(env.root))
    assert ran.code == 0, ran.out
    assert "not told: 1 of 2 patches of the series are not in it" in ran.out
    path = next((tiny.root / "patches").glob("0001*"))
    path.write_bytes(path.read_bytes().replace(b"Why, in prose.", b"Another reason."))
    assert found(tiny, env) == [
        ("patch", f"patches/{path.name}", "was changed since it was applied here")
    ]


def test_what_an_edit_hid_in_record_is_found_where_patches_were_applied(
    tiny: TinyProject, env: Env
) -> None:
    tiny.run("apply", "--env", str(env.root))
    [record] = env.site.glob("tiny-*/RECORD")
    edit(env.site / "tiny/data.txt", "mine\n")
    edit(record, "".join(
        line for line in record.read_text().splitlines(keepends=True) if "data.txt" not in line
    ))  # fmt: skip
    kinds = {(kind, where) for kind, where, _ in found(tiny, env)}
    assert ("file", f"{record.parent.name}/RECORD") in kinds


def test_one_file_among_hundreds(tiny: TinyProject, tmp_path: Path) -> None:
    many = {f"tiny/f{n % 50}/m{n}.py": f"N = {n}\n" for n in range(500)}
    tiny.wheels["tiny"] = make_wheel(tiny.root / "wheels", FILES_INSTALLED | many)
    tiny.upstreams["tiny"]["packages"] = ["tiny"]
    env = make_env(tmp_path / "many", [tiny.wheels["tiny"]])
    from patchwright.environment.comparing import differences
    from patchwright.environment.installed import find_site

    installed = list(find_site(env.root).distributions.values())
    assert differences(installed) == []
    assert len(installed[0].rows) > 500
    edit(env.site / "tiny/f7/m57.py", "edited\n")
    assert [d.path for d in differences(installed)] == [b"tiny/f7/m57.py"]


def test_a_package_without_a_list_and_a_pipe_in_a_files_place(tiny: TinyProject, env: Env) -> None:
    (env.site / "tiny/data.txt").unlink()
    os.mkfifo(env.site / "tiny/data.txt")
    assert found(tiny, env) == [("file", "tiny/data.txt", "is changed (tiny)")]
    (env.site / "tiny-1.0.dist-info/RECORD").unlink()
    ran = tiny.run("check", "--env", str(env.root))
    assert ran.code == 0, ran.out
    assert "not told: tiny has no RECORD: its files cannot be compared" in ran.out


def test_a_stale_lock_is_said(tiny: TinyProject, env: Env) -> None:
    tiny.add_patch(2, {"csrc/k.cu": "kk\n"})
    ran = tiny.run("check", "--env", str(env.root))
    assert ran.code == 0, ran.out
    assert "not told: the lock itself disagrees with the project in 1 place:" in ran.out


def test_a_file_that_two_distributions_bring(tiny: TinyProject, env: Env, tmp_path: Path) -> None:
    """flashinfer-python and torch-c-dlpack-ext: the last one wins, and nobody is to blame."""
    wheel = make_wheel(tmp_path / "w", {"tiny/data.txt": "other\n"}, distribution="other")
    env.install(str(wheel))
    assert (env.site / "tiny/data.txt").read_text() == "other\n"
    assert found(tiny, env) == []
    assert tiny.run("apply", "--env", str(env.root)).code == 0
    edit(env.site / "tiny/data.txt", "mine\n")
    assert found(tiny, env) == [("file", "tiny/data.txt", "is changed (tiny)")]


def test_a_large_file_that_was_right_before_and_is_edited(
    tiny: TinyProject, tmp_path: Path
) -> None:
    large = {"tiny/large.bin": b"0123456789abcdef" * 40000}
    env = make_env(tmp_path / "l", [make_wheel(tmp_path / "w", FILES_INSTALLED | large)])
    time.sleep(0.06)
    for _ in range(2):
        assert found(tiny, env) == []
    kinds = [h["kind"] for h in tiny.run("cache", "list", "--json").json()["holdings"]]
    assert "checked files" in kinds
    place = env.site / "tiny/large.bin"
    status, data = place.stat(), place.read_bytes()
    place.write_bytes(b"1" + data[1:])
    os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert found(tiny, env) == [("file", "tiny/large.bin", "is changed (tiny)")]
    removed = tiny.run("cache", "prune", "--all", "--json").json()["removed"]
    assert "checked files" in [each["kind"] for each in removed]


FILES_INSTALLED: dict[str, Content] = {"tiny/__init__.py": "", "tiny/gate.py": "OPEN = 0\n"}


def test_an_environment_is_named_or_asked_for(tiny: TinyProject, env: Env) -> None:
    ran = tiny.run("check")
    assert ran.code == 2
    assert "no environment is named" in ran.err
    ran = tiny.run("check", "--env", str(env.root.parent))
    assert ran.code == 2
    assert "there is no interpreter in bin/" in ran.err
