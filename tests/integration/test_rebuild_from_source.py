"""Upstreams that are built from their source, with build requirements that are locked."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest
import tomli_w

from environments import PYTHON, small_environment
from patchwright.store import object_id
from projects import TinyProject, make_project
from rebuilds import env, site


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


@pytest.mark.slow
def test_a_real_sdist_is_built_with_setuptools(tmp_path: Path) -> None:
    """sortedcontainers has a setup.py and no pyproject.toml; both come from the index in use."""
    project = TinyProject(tmp_path / "project")
    (project.root / "patches").mkdir(parents=True)
    project.upstreams["sortedcontainers"] = {
        "source": "sdist", "distribution": "sortedcontainers", "version": "2.4.0",
        "packages": ["sortedcontainers"], "layout": {"sortedcontainers/": "sortedcontainers/"},
        "version-files": ["sortedcontainers/__init__.py"],
    }  # fmt: skip
    environment = {"python": PYTHON, "platforms": ["x86_64-manylinux_2_28"]}
    project.write_config(
        "\n" + tomli_w.dumps({"tool": {"patchwright": {"environment": environment}}})
    )
    assert project.run("lock").code == 0
    assert "build = '''\nsetuptools " in (project.root / "upstream.lock").read_text("utf-8")
    pristine = project.run("rebuild", "--json")
    assert pristine.code == 0, pristine.err
    assert pristine.json()["versions"] == {"sortedcontainers": "2.4.0"}
    before = (site(project.root / ".patchwright" / "env") / PATCHED).read_text("utf-8")
    write_patch(project.root / "patches" / "0001-sortedcontainers-mark.patch", before)
    assert project.run("lock").code == 0
    patched = project.run("rebuild", "--json")
    assert patched.code == 0, patched.err
    version = f"2.4.0+pw.{patched.json()['trees']['sortedcontainers'][:8]}"
    assert patched.json()["versions"] == {"sortedcontainers": version}
    code = "import sortedcontainers as s; print(s.sortedlist.PATCHED, s.__version__)"
    assert project.run_apart("run", "python", "-c", code).out == f"True {version}\n"
    ran = project.run("check")
    assert (ran.code, "no patches" in ran.out) == (0, False), ran.out
    again = project.run("rebuild", "--offline", "--json")
    assert again.json() == patched.json()


PATCHED = "sortedcontainers/sortedlist.py"


def write_patch(path: Path, before: str) -> None:
    after = before.replace("class SortedList(", "PATCHED = True\n\n\nclass SortedList(")
    old, new = (object_id("blob", text.encode()) for text in (before, after))
    lines = difflib.unified_diff(
        before.splitlines(True), after.splitlines(True), f"a/{PATCHED}", f"b/{PATCHED}"
    )
    path.write_text(
        "From: A Tester <tester@example.org>\nDate: Wed, 1 Jan 2020 00:00:00 +0000\n"
        "Subject: [PATCH] mark\n\nWhy, in prose.\n---\nUpstream: sortedcontainers 2.4.0\n\n"
        f"diff --git a/{PATCHED} b/{PATCHED}\nindex {old}..{new} 100644\n" + "".join(lines),
        "utf-8",
    )


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
