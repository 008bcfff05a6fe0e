"""patchwright check of an environment that rebuild made: lock against reality."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import uv

from environments import SmallEnvironment, small_environment
from patchwright.environment.named import named_environment, start_variables
from patchwright.project import Project

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="locked for Python 3.11")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallEnvironment:
    small = small_environment(tmp_path, monkeypatch)
    for command in ("lock", "rebuild"):
        ran = small.project.run(command)
        assert ran.code == 0, ran.err
    monkeypatch.delenv("PYTHONPATH")  # the suite's own
    return small


def site(small: SmallEnvironment) -> Path:
    return next((small.project.root / ".patchwright/env/lib").glob("python3*/site-packages"))


def found(small: SmallEnvironment) -> list[str]:
    ran = small.project.run("check", "--json")
    differences = ran.json()["differences"]
    assert ran.code == (1 if differences else 0)
    folder = f"{site(small)}/"
    return sorted(f"{d['kind']} {d['where'].removeprefix(folder)} {d['what']}" for d in differences)


def edit(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


def test_clean_and_then_each_difference_alone_and_all_together(
    small: SmallEnvironment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert found(small) == []
    packages, expected = site(small), list[str]()

    def also(difference: str) -> None:
        expected.append(difference)
        assert found(small) == sorted(expected)

    edit(packages / "tiny/gate.py", "OPEN = None\n")
    also("file tiny/gate.py is changed (tiny)")
    (packages / "dep_data/a b, c.txt").unlink()
    also("file dep_data/a b, c.txt is missing (dep)")
    (packages / "tiny_cubin/more.py").write_text("")
    also("file tiny_cubin/more.py is extra (tiny-cubin)")
    monkeypatch.setenv("TINY_ARCH_LIST", "9.0a")
    also("setting TINY_ARCH_LIST has another value")
    other = tmp_path / "other"
    shutil.copytree(packages / "tiny", other / "tiny")
    monkeypatch.setenv("PYTHONPATH", str(other))
    also("shadow tiny another copy is imported")
    wheel = small.add("native", "2.1", {"native.py": "M = 0\n"}, tag="py3-none-any")
    extra = small.add("stranger", "1.0", {"stranger.py": ""})
    root = small.project.root / ".patchwright/env"
    subprocess.run(
        [uv.find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--python", str(root),
         str(wheel), str(extra)], check=True,
    )  # fmt: skip
    expected.append("package stranger is not in the lock")
    also("package native has another version")


def test_what_changed_in_the_project_since(small: SmallEnvironment) -> None:
    small.project.add_patch(2, {"csrc/a.cu": "two\n"})
    ran = small.project.run("check")
    assert ran.code == 0, ran.out
    assert "not told: 1 of 2 patches of the series are not in it" in ran.out
    assert small.project.run("rebuild", "--to", "2").code in (0, 1)
    small.project.run("lock")
    assert small.project.run("rebuild").code == 0
    assert found(small) == []
    path = next((small.project.root / "patches").glob("0001*"))
    path.write_bytes(path.read_bytes().replace(b"OPEN = True", b"OPEN = 3456"))
    small.project.run("lock")
    assert found(small) == ["patch tiny the patches were changed since it was rebuilt"]


def test_its_programs_start_with_what_run_sets(small: SmallEnvironment) -> None:
    small.configure(workspaces={"TINY_WORKSPACE": ["tiny/data/"]})
    project = Project.open(small.project.root)
    variables = start_variables(project, named_environment(project, None))
    assert variables["TINY_ARCH_LIST"] == "12.0a"
    assert variables["TINY_WORKSPACE"].startswith(f"{project.cache_dir}/compiled/")


def test_it_is_not_patched_in_place_as_well(small: SmallEnvironment) -> None:
    root = small.project.root / ".patchwright/env"
    ran = small.project.run("apply", "--env", str(root))
    assert ran.code == 2
    assert "is patched already, by a rebuild" in ran.err
