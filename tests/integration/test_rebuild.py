"""rebuild: the same environment from the lock, wherever and whenever; all of it or nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from disks import small_disk
from environments import PYTHON, SmallEnvironment, locked_environment, served, small_environment
from projects import Ran, make_project


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallEnvironment:
    return locked_environment(tmp_path, monkeypatch)


def env(small: SmallEnvironment) -> Path:
    return small.project.root / ".patchwright" / "env"


def site(environment: Path) -> Path:
    [found] = environment.glob("lib/python3*/site-packages")
    return found


def files(environment: Path) -> dict[str, str]:
    """Every installed file and script but bytecode, with its sha256."""
    places = [*site(environment).rglob("*"), *(environment / "bin").glob("tiny*")]
    return {
        str(path.relative_to(environment)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in places
        if path.is_file() and path.suffix != ".pyc"
    }


def test_two_rebuilds_on_two_machines_are_the_same(
    small: SmallEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = small.project.run("rebuild", "--json")
    assert first.code == 0, first.err
    elsewhere = tmp_path / "another" / "project"
    shutil.copytree(small.project.root, elsewhere, ignore=shutil.ignore_patterns(".patchwright"))
    settings = {
        "TZ": "Pacific/Kiritimati", "LC_ALL": "C", "UV_LINK_MODE": "copy",
        "PATCHWRIGHT_CACHE": str(tmp_path / "another-cache"),
        "UV_CACHE_DIR": str(tmp_path / "another-uv-cache"),
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    old = os.umask(0o077)
    try:
        second = small.project.run_apart(
            "rebuild", "--json", "--env", str(tmp_path / "far" / "env"), cwd=elsewhere
        )
    finally:
        os.umask(old)
    assert second.code == 0, second.err
    one, other = first.json(), second.json()
    same = ("digest", "wheels", "trees", "versions", "patches")
    assert {key: one[key] for key in same} == {key: other[key] for key in same}
    assert files(env(small)) == files(tmp_path / "far" / "env")
    assert len(files(env(small))) > 20


def test_the_patched_state_is_what_runs(
    small: SmallEnvironment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small.project.run("rebuild")
    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"] + os.pathsep + str(tmp_path))
    (tmp_path / "tiny.py").write_text("raise SystemExit('a shadow')\n", encoding="utf-8")
    new = f"1.0+pw.{small.project.tree()[:8]}"
    code = (
        "import os, sys, tiny.gate, tiny_cubin._meta as c, native, importlib.metadata as m;"
        "print(tiny.gate.OPEN, tiny.__version__, c.__version__, m.version('tiny-cubin'), "
        "os.environ['TINY_ARCH_LIST'], native.M, sys.prefix)"
    )
    ran = small.project.run_apart("run", "--", "python", "-c", code, TINY_ARCH_LIST="9.0")
    assert ran.out.split() == ["True", new, new, new, "12.0a", "x86_64", str(env(small))], ran.err
    assert small.project.run_apart("run", "tiny").out == f"{new}\n"
    ran = small.project.run_apart("run", "python", "-c", "raise SystemExit(7)")
    assert ran.code == 7


def test_a_selection_is_rebuilt_and_none_gives_the_pins(small: SmallEnvironment) -> None:
    small.project.add_patch(2, {"csrc/a.cu": "__global__ void a() { }\n"}, title="a: body")
    small.project.run("lock")
    assert small.project.run("rebuild", "--only", "2").code == 0
    place = site(env(small))
    assert (place / "tiny/gate.py").read_text("utf-8") == "OPEN = False\n"
    assert (place / "tiny/data/csrc/a.cu").read_text("utf-8") == "__global__ void a() { }\n"
    ran = small.project.run("rebuild", "--to", "0", "--json")
    assert ran.json()["versions"]["tiny"] == "1.0"
    assert ran.json()["wheels"] == {}
    assert (site(env(small)) / "tiny_cubin/_meta.py").read_text("utf-8") == '__version__ = "1.0"\n'


def test_nothing_is_a_link_into_the_cache_where_files_are_changed(small: SmallEnvironment) -> None:
    small.project.run("rebuild")
    place = site(env(small))
    for name in ("tiny/gate.py", "tiny_cubin/_meta.py"):
        assert (place / name).stat().st_nlink == 1
    cached = list(Path(os.environ["UV_CACHE_DIR"]).rglob("_meta.py"))
    assert any(p.read_text("utf-8") == '__version__ = "1.0"\n' for p in cached)


def test_a_warm_rebuild_asks_no_index(
    small: SmallEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(small.index, monkeypatch) as index:
        first = small.project.run("rebuild", "--json")
        assert first.code == 0, first.err
        assert any(name.endswith(".whl") for name in index.asked)
        index.asked.clear()
        again = small.project.run("rebuild", "--json")
        assert index.asked == []
    offline = small.project.run("rebuild", "--offline", "--json")
    digests = {ran.json()["digest"] for ran in (first, again, offline)}
    assert len(digests) == 1


def test_a_network_that_goes_half_way(
    small: SmallEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(small.index, monkeypatch) as index:
        assert small.project.run("rebuild").code == 0
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty-uv-cache"))
        index.cut = True
        refused(small, code=3, says="rebuild: ")
        index.cut = False
        assert small.project.run("rebuild").code == 0


# What goes wrong leaves the old environment as it was


def refused(small: SmallEnvironment, *args: str, code: int, says: str) -> Ran:
    before = files(env(small)) if env(small).exists() else {}
    ran = small.project.run("rebuild", *args)
    assert (ran.code, says in ran.err) == (code, True), ran.err
    assert ran.err.count("patchwright: error:") == 1
    assert "Next: " in ran.err
    assert (files(env(small)) if env(small).exists() else {}) == before
    left = [p.name for p in (small.project.root / ".patchwright").glob(".env.*")]
    assert left == []
    return ran


@pytest.fixture
def rebuilt(
    small: SmallEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SmallEnvironment:
    """An environment is there; uv has forgotten what it fetched for it."""
    assert small.project.run("rebuild").code == 0
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty-uv-cache"))
    return small


def test_a_file_with_another_hash(rebuilt: SmallEnvironment) -> None:
    rebuilt.add("dep", "1.0", {"dep.py": "V = 666\n"})
    ran = refused(rebuilt, code=3, says="wrong sha256: ")
    assert "dep==1.0: wrong sha256" in ran.err
    assert "`patchwright lock --upgrade dep`" in ran.err


def test_a_file_that_the_index_lost(rebuilt: SmallEnvironment) -> None:
    next(rebuilt.index.glob("dep-*")).unlink()
    refused(rebuilt, code=3, says="the package index in use does not have it")


def test_no_network_and_nothing_cached(rebuilt: SmallEnvironment) -> None:
    shutil.rmtree(rebuilt.index)
    refused(rebuilt, "--offline", code=3, says="rebuild: ")


def test_a_wheel_for_another_machine(rebuilt: SmallEnvironment) -> None:
    path = rebuilt.project.root / "upstream.lock"
    text = path.read_text("utf-8")
    line = next(line for line in text.splitlines() if line.startswith("native"))
    arm = line.split("aarch64=")[1].split()[0]
    path.write_text(text.replace(line, f"native 2.0 aarch64={arm} x86_64={arm}"), "utf-8")
    ran = refused(rebuilt, code=2, says="native is locked for x86_64 with a wheel for aarch64")
    assert "environment.packages: line 2: " in ran.err


def test_a_python_that_is_not_there(rebuilt: SmallEnvironment) -> None:
    path = rebuilt.project.root / "upstream.lock"
    text = path.read_text("utf-8").replace(f'python = "{PYTHON}"', 'python = "3.99"')
    path.write_text(text, "utf-8")
    rebuilt.configure(python="3.99")
    refused(rebuilt, code=3, says="Python 3.99: there is no such Python here")


@pytest.mark.parametrize("size", ["16k", "90k"])
def test_a_full_disk(small: SmallEnvironment, tmp_path: Path, size: str) -> None:
    with small_disk(tmp_path / "disk", size):
        ran = small.project.run("rebuild", "--env", str(tmp_path / "disk" / "env"))
        assert (ran.code, ran.err.count("patchwright: error: ")) == (3, 1), ran.err
        assert "Next: make room" in ran.err
        assert list((tmp_path / "disk").iterdir()) == []


def test_a_lock_that_disagrees_shows_both_values(rebuilt: SmallEnvironment) -> None:
    rebuilt.configure(settings={"TINY_ARCH_LIST": "12.1a"})
    ran = refused(rebuilt, code=1, says="the lock disagrees with the project")
    assert "the lock has TINY_ARCH_LIST=12.0a, the project has TINY_ARCH_LIST=12.1a" in ran.err


def test_a_patched_wheel_that_is_not_the_locked_one(rebuilt: SmallEnvironment) -> None:
    path = rebuilt.project.root / "upstream.lock"
    text = path.read_text("utf-8")
    line = next(line for line in text.splitlines() if line.startswith("tiny-1.0+pw"))
    path.write_text(text.replace(line.split()[1], "0" * 64), "utf-8")
    refused(rebuilt, code=1, says=f"the lock has {'0' * 64}")


def test_a_patch_that_does_not_apply_without_another(rebuilt: SmallEnvironment) -> None:
    rebuilt.project.add_patch(2, {"tiny/gate.py": "OPEN = 2\n"}, title="gate: two")
    assert rebuilt.project.run("lock").code == 0
    ran = refused(rebuilt, "--only", "2", code=1, says="so nothing was rebuilt")
    assert "1 of 1 patches does not apply" in ran.err


@pytest.mark.parametrize("kind", ["a file", "a link", "somebody's files", "an environment"])
def test_a_place_that_is_not_ours_is_not_replaced(
    small: SmallEnvironment, tmp_path: Path, kind: str
) -> None:
    place = tmp_path / "place"
    if kind == "a file":
        place.write_text("x", "utf-8")
    elif kind == "a link":
        place.symlink_to(tmp_path)
    else:
        place.mkdir()
        (place / ("pyvenv.cfg" if kind == "an environment" else "thesis.txt")).write_text("x")
    ran = small.project.run("rebuild", "--env", str(place))
    assert ran.code == 2
    assert "Next: name another folder with --env, or remove this one yourself" in ran.err
    assert os.path.lexists(place)


def test_the_environment_of_another_project_is_not_replaced(
    small: SmallEnvironment, tmp_path: Path
) -> None:
    assert small.project.run("rebuild", "--env", str(tmp_path / "shared")).code == 0
    other = tmp_path / "other"
    shutil.copytree(small.project.root, other, ignore=shutil.ignore_patterns(".patchwright"))
    ran = small.project.run("-C", str(other), "rebuild", "--env", str(tmp_path / "shared"))
    assert ran.code == 2
    assert f"this environment belongs to another project, {small.project.root}" in ran.err
    # The project has moved: then the environment is its own.
    shutil.rmtree(small.project.root)
    ran = small.project.run(
        "-C", str(other), "rebuild", "--env", str(tmp_path / "shared"), cwd=tmp_path
    )
    assert ran.code == 0, ran.err


def test_a_target_that_cannot_be_written(small: SmallEnvironment) -> None:
    ran = small.project.run("rebuild", "--env", "/proc/nowhere/env")
    assert ran.code == 3
    assert "the environment cannot be written: " in ran.err
    assert "Next: make room or the folder writable, or name another one with --env" in ran.err


def test_killed_at_any_point_the_old_environment_works(small: SmallEnvironment) -> None:
    assert small.project.run("rebuild").code == 0
    before = files(env(small))
    started = time.monotonic()
    assert small.project.run_apart("rebuild", "--to", "0").code == 0
    whole = time.monotonic() - started
    small.project.run("rebuild")
    for part in (0.4, 0.6, 0.75, 0.9):
        process = subprocess.Popen(
            [sys.executable, "-m", "patchwright", "rebuild", "--to", "0"], cwd=small.project.root,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        time.sleep(whole * part)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        now = files(env(small))
        if now != before:
            # It was put in place already: then all of it was.
            assert (site(env(small)) / "tiny/gate.py").read_text("utf-8") == "OPEN = False\n"
            assert subprocess.run([env(small) / "bin/tiny"], check=True).returncode == 0
            break
    # A uv that was killed holds its folder until it is gone, which takes a busy machine a while.
    for _ in range(5):
        ran = small.project.run("rebuild")
        assert ran.code == 0, ran.err
        assert files(env(small)) == before
        left = list((small.project.root / ".patchwright").glob(".env.*"))
        if not left:
            break
        time.sleep(2)
    assert left == []


def test_an_environment_moved_aside_by_a_killed_run_comes_back(small: SmallEnvironment) -> None:
    small.project.run("rebuild")
    before = files(env(small))
    # As it is between two renames, where the file system cannot exchange two folders.
    env(small).rename(env(small).with_name(".env.patchwright-abc.old"))
    shutil.rmtree(small.index)
    assert small.project.run("rebuild").code == 3
    assert files(env(small)) == before
    assert list((small.project.root / ".patchwright").glob(".env.*")) == []


def test_two_upstreams_with_one_file(small: SmallEnvironment) -> None:
    small.project.add_upstream(
        "other", {"other/gate.py": "OTHER = 1\n"}, layout={"other/": "tiny/"}
    )
    small.configure()
    assert small.project.run("lock").code == 0
    ran = refused(small, code=2, says="other and tiny both bring this file, with other content")
    assert "tiny/gate.py: other and tiny" in ran.err


def test_of_two_packages_with_one_file_a_rule_decides(small: SmallEnvironment) -> None:
    for name in ("alpha", "beta", "gamma"):
        small.add(name, "1.0", {"shared.py": f"FROM = {name!r}\n", "tiny/gate.py": "no\n"})
    small.configure(requirements=["native", "gamma", "beta", "alpha"])
    assert small.project.run("lock").code == 0
    assert small.project.run("rebuild").code == 0
    assert (site(env(small)) / "shared.py").read_text("utf-8") == "FROM = 'gamma'\n"
    assert (site(env(small)) / "tiny/gate.py").read_text("utf-8") == "OPEN = True\n"


def test_run_without_an_environment(small: SmallEnvironment) -> None:
    ran = small.project.run_apart("run", "true")
    assert ran.code == 3
    assert "Next: make it: `patchwright rebuild`" in ran.err


def test_compiled_objects_are_found_by_what_they_are_made_from(small: SmallEnvironment) -> None:
    small.configure(workspaces={"TINY_WORKSPACE": ["tiny/data/"]})

    def workspace(*selection: str) -> str:
        assert small.project.run("rebuild", *selection).code == 0
        return small.project.run_apart("run", "sh", "-c", "echo $TINY_WORKSPACE").out

    small.project.add_patch(2, {"csrc/a.cu": "__global__ void a() { }\n"}, title="a: body")
    small.project.run("lock")
    pristine, python_only, all_of_it = workspace("--to", "0"), workspace("--to", "1"), workspace()
    assert pristine == python_only != all_of_it
    assert pristine.strip()


def test_pruning_spares_the_workspace_of_a_program_that_runs(small: SmallEnvironment) -> None:
    small.configure(workspaces={"TINY_WORKSPACE": ["tiny/data/"]})
    small.project.run("rebuild")
    with subprocess.Popen(
        [sys.executable, "-m", "patchwright", "run", "sh", "-c", "echo; read line"],
        cwd=small.project.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as running:  # fmt: skip
        assert running.stdout
        assert running.stdin
        running.stdout.readline()
        [kept] = small.project.run("cache", "prune", "--all", "--json").json()["kept"]
        assert (kept["kind"], kept["why"]) == ("workspaces", "in use by a running process")
        running.stdin.close()
    removed = small.project.run("cache", "prune", "--all", "--json").json()["removed"]
    assert [row["kind"] for row in removed] == ["workspaces"]
    # All of it is made again.
    assert small.project.run("rebuild").code == 0


def test_a_git_upstream_is_built_from_source_with_locked_requirements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = small_environment(tmp_path, monkeypatch)
    small.add("tinybuild", "1.0", {"tinybuild.py": BACKEND})
    source = make_project(
        tmp_path / "source",
        {"pyproject.toml": PYPROJECT, "tiny/__init__.py": "", "tiny/gate.py": "OPEN = False\n"},
    )
    small.project.upstreams["tiny"] = {
        "source": "git", "version": "1.0", "distribution": "tiny",
        "path": os.path.relpath(source.git["tiny"], small.project.root), "revision": "main",
        "layout": {"tiny/": "tiny/"},
    }  # fmt: skip
    small.configure(requirements=["dep"])
    ran = small.project.run("lock")
    assert ran.code == 0, ran.err
    text = (small.project.root / "upstream.lock").read_text("utf-8")
    assert "build = '''\ntinybuild 1.0 py3-none-any:" in text
    first = small.project.run("rebuild", "--json")
    assert first.code == 0, first.err
    assert (site(env(small)) / "tiny/gate.py").read_text("utf-8") == "OPEN = True\n"
    version = f"1.0+pw.{first.json()['trees']['tiny'][:8]}"
    assert first.json()["versions"] == {"dep": "1.0", "tiny": version}
    # Built once: what it is built with may be gone.
    next(small.index.glob("tinybuild*")).unlink()
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty-uv-cache"))
    again = small.project.run("rebuild", "--json")
    assert again.code == 0, again.err
    assert again.json()["digest"] == first.json()["digest"]


PYPROJECT = """\
[build-system]
requires = ["tinybuild"]
build-backend = "tinybuild"
[project]
name = "tiny"
version = "1.0"
"""
BACKEND = """\
import os, zipfile


def _make(folder, with_files):
    version = os.environ.get("SETUPTOOLS_SCM_PRETEND_VERSION", "1.0")
    info = f"tiny-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\\nName: tiny\\nVersion: {version}\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    if with_files:
        for name in os.listdir("tiny"):
            files[f"tiny/{name}"] = open(f"tiny/{name}").read()
    files[f"{info}/RECORD"] = "".join(f"{n},,\\n" for n in [*files, f"{info}/RECORD"])
    if not with_files:
        os.mkdir(f"{folder}/{info}")
        open(f"{folder}/{info}/METADATA", "w").write(files[f"{info}/METADATA"])
        return info
    name = f"tiny-{version}-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return name


def build_wheel(folder, settings=None, metadata=None):
    return _make(folder, True)


def prepare_metadata_for_build_wheel(folder, settings=None):
    return _make(folder, False)
"""
