"""Hand edits in installed packages come into the series, each where it belongs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from projects import TinyProject, make_project
from venvs import make_env

A = [f"a {n}\n" for n in range(1, 41)]
K = [f"k {n}\n" for n in range(1, 21)]


def _with(lines: list[str], changes: Mapping[int, str]) -> str:
    return "".join(changes.get(n, line) for n, line in enumerate(lines, 1))


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    """Two upstreams; 0001 and 0003 change one file of the first, 0002 one of the second."""
    made = make_project(
        tmp_path, {"tiny/__init__.py": "", "tiny/a.py": "".join(A), "csrc/k.cu": "".join(K)},
        built={"tiny/_version.py": "V = 1\n"}, outside=("tiny/_version.py",),
    )  # fmt: skip
    made.add_upstream("other", {"other/__init__.py": "", "other/o.py": "".join(A)})
    made.add_patch(1, {"tiny/a.py": _with(A, {5: "five\nfive and a half\n"})}, title="five")
    made.add_patch(2, {"other/o.py": _with(A, {10: "ten\n"})}, upstream="other", title="ten")
    made.add_patch(
        3, {"tiny/a.py": _with(A, {5: "five\nfive and a half\n", 7: "seven\n", 30: "thirty\n"})},
        title="seven and thirty",
    )  # fmt: skip
    assert made.run("lock").code == 0
    return made


@pytest.fixture
def env(project: TinyProject, tmp_path: Path) -> Path:
    """An environment with both upstreams as the whole series leaves them."""
    return _environment(project, tmp_path / "env")


def _environment(project: TinyProject, folder: Path, *select: str) -> Path:
    site = folder / "lib/python3.11/site-packages"
    site.mkdir(parents=True)
    for wheel in project.wheels.values():
        zipfile.ZipFile(wheel).extractall(site)
    for package in ("tiny", "other"):
        shutil.rmtree(site / package)  # a patch may remove files of the wheel
    out = folder / "patched"
    ran = project.run("apply", "--into", str(out), "--installed-layout", *select)
    assert ran.code == 0, ran.err
    shutil.copytree(out, site, dirs_exist_ok=True)
    return folder


def _site(env: Path) -> Path:
    return env / "lib/python3.11/site-packages"


def _edit(env: Path, name: str, old: str, new: str) -> None:
    path = _site(env) / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def _capture(project: TinyProject, env: Path, *args: str) -> list[tuple[int, bool, list[str]]]:
    ran = project.run("capture", "--env", str(env), "--json", *args)
    assert ran.code == 0, ran.err
    assert not ran.json()["lock_stale"]
    assert project.run("lock", "--check").code == 0
    return [(p["number"], p["new"], p["files"]) for p in ran.json()["patches"]]


def _same(project: TinyProject, env: Path, *select: str) -> bool:
    """Return whether the environment's files are just what the series makes."""
    other = _environment(project, env.parent / f"again{len(list(env.parent.iterdir()))}", *select)
    names = {p.relative_to(_site(e)) for e in (env, other) for p in _site(e).rglob("*.py")}
    names |= {p.relative_to(_site(e)) for e in (env, other) for p in _site(e).rglob("*.cu")}
    return all(
        (_site(env) / n).exists() == (_site(other) / n).exists()
        and (not (_site(env) / n).exists()
             or (_site(env) / n).read_bytes() == (_site(other) / n).read_bytes())
        for n in names
    )  # fmt: skip


def test_edits_of_three_files_go_where_they_belong(project: TinyProject, env: Path) -> None:
    before = {p.name: p.read_bytes() for p in (project.root / "patches").iterdir()}
    _edit(env, "tiny/a.py", "five and a half", "FIVE AND A HALF")  # 0001's line
    _edit(env, "tiny/data/csrc/k.cu", "k 9\n", "k nine\n")  # nobody's
    _edit(env, "other/o.py", "ten\n", "ten\neleven\n")  # next to 0002's line
    _edit(env, "tiny/_version.py", "V = 1", "V = 2")  # generated: not of the repository
    done = _capture(project, env)
    assert done == [
        (1, False, ["tiny/a.py"]), (4, True, ["csrc/k.cu"]), (5, True, ["other/o.py"]),
    ]  # fmt: skip
    assert _same(project, env) is False  # _version.py is still the user's
    _edit(env, "tiny/_version.py", "V = 2", "V = 1")
    assert _same(project, env)
    text = (project.root / "patches/0001-tiny-five.patch").read_text()
    assert "+five\n+FIVE AND A HALF\n" in text
    after = {p.name: p.read_bytes() for p in (project.root / "patches").iterdir()}
    assert after["0002-other-ten.patch"] == before["0002-other-ten.patch"]
    rows = project.run("status", "--json").json()["patches"]
    assert [row["apply"] for row in rows] == ["clean"] * 5
    assert rows[3]["evidence"]["static"]["step"]["verdict"] == "unproven"
    # 0005 stands on 0002's line, and says so.
    assert [n["number"] for n in project.run("show", "5", "--json").json()["needs"]] == [2]
    assert project.run("capture", "--env", str(env)).code == 1
    assert project.run("undo").code == 0
    assert {p.name: p.read_bytes() for p in (project.root / "patches").iterdir()} == before


def test_lines_of_two_patches_are_not_folded_into_one(project: TinyProject, env: Path) -> None:
    old = (project.root / "patches/0001-tiny-five.patch").read_bytes()
    _edit(env, "tiny/a.py", "five and a half\na 6\nseven\n", "all in one\n")
    ran = project.run("capture", "--env", str(env))
    assert ran.code == 0, ran.err
    assert "tiny/a.py:6 changes lines of 0001 and 0003: kept apart" in ran.out
    assert (project.root / "patches/0001-tiny-five.patch").read_bytes() == old
    shown = project.run("show", "4", "--json").json()
    assert [n["number"] for n in shown["needs"]] == [1, 3]
    assert _same(project, env)


def test_each_of_two_patches_gets_its_own_lines(project: TinyProject, env: Path) -> None:
    _edit(env, "tiny/a.py", "five\n", "FIVE\n")
    _edit(env, "tiny/a.py", "thirty\n", "THIRTY\nand more\n")
    assert _capture(project, env) == [(1, False, ["tiny/a.py"]), (3, False, ["tiny/a.py"])]
    first = (project.root / "patches/0001-tiny-five.patch").read_text()
    third = (project.root / "patches/0003-tiny-seven-and-thirty.patch").read_text()
    assert ("+FIVE\n" in first, "THIRTY" in first) == (True, False)
    assert ("+THIRTY\n+and more\n" in third, "+FIVE\n" in third) == (True, False)
    assert _same(project, env)


def test_new_and_removed_files(project: TinyProject, env: Path) -> None:
    (_site(env) / "tiny/extra.py").write_text("E = 1\n")
    (_site(env) / "tiny/data/csrc/k.cu").unlink()
    (_site(env) / "tiny/__pycache__").mkdir()
    (_site(env) / "tiny/__pycache__/a.cpython-311.pyc").write_bytes(b"junk")
    (_site(env) / "tiny/a.py.orig").write_text("junk")
    assert _capture(project, env, "--split-by", "file") == [
        (4, True, ["csrc/k.cu"]), (5, True, ["tiny/extra.py"]),
    ]  # fmt: skip
    (_site(env) / "tiny/a.py.orig").unlink()
    assert _same(project, env)


def test_split_by_hunk(project: TinyProject, env: Path) -> None:
    _edit(env, "tiny/data/csrc/k.cu", "k 2\n", "k two\n")
    _edit(env, "tiny/data/csrc/k.cu", "k 15\n", "k fifteen\n")
    done = _capture(project, env, "--split-by", "hunk", "--title", "kernel")
    assert done == [(4, True, ["csrc/k.cu"]), (5, True, ["csrc/k.cu"])]
    assert _same(project, env)


def test_an_environment_that_lacks_the_later_patches(project: TinyProject, tmp_path: Path) -> None:
    env = _environment(project, tmp_path / "partial", "--to", "2")
    _edit(env, "tiny/a.py", "a 20\n", "twenty\n")
    ran = project.run("capture", "--env", str(env), "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["state"]["tiny"] == "the series up to 0001"
    text = (project.root / "patches" / ran.json()["patches"][0]["file"]).read_text()
    assert "+twenty\n" in text
    assert "seven" not in text
    assert "thirty" not in text


def test_a_pristine_environment(project: TinyProject, tmp_path: Path) -> None:
    env = _environment(project, tmp_path / "pristine", "--to", "0")
    _edit(env, "tiny/a.py", "a 7\n", "SEVEN\n")  # 0003 changes that line
    before = {p.name: p.read_bytes() for p in (project.root / "patches").iterdir()}
    ran = project.run("capture", "--env", str(env))
    assert (ran.code, "conflict with patches that the environment does not have" in ran.err) == (
        1, True,
    )  # fmt: skip
    assert {p.name: p.read_bytes() for p in (project.root / "patches").iterdir()} == before


def test_what_is_no_use_is_refused(project: TinyProject, env: Path, tmp_path: Path) -> None:
    ran = project.run("capture", "--env", str(env))
    assert (ran.code, "nothing in the installed packages was changed" in ran.err) == (1, True)
    ran = project.run("capture", "--env", str(tmp_path / "none"))
    assert (ran.code, "no such environment" in ran.err) == (2, True)
    ran = project.run("capture")
    assert (ran.code, "no such environment" in ran.err) == (2, True)
    (tmp_path / "empty").mkdir()
    ran = project.run("capture", "--env", str(tmp_path / "empty"))
    assert (ran.code, "has no site-packages" in ran.err) == (2, True)
    info = _site(env) / "tiny-1.0.dist-info"
    info.rename(_site(env) / "tiny-1.1.dist-info")
    ran = project.run("capture", "--env", str(env), "--upstream", "tiny")
    assert (ran.code, "1.1 is installed, the pin is 1.0" in ran.err) == (2, True)
    (_site(env) / "tiny-1.1.dist-info").rename(_site(env) / "tiny-1.0+pw.1a2b3c4d.dist-info")
    ran = project.run("capture", "--env", str(env), "--upstream", "tiny")
    assert (ran.code, "was changed by hand" in ran.err) == (1, True)


def test_edits_in_a_real_environment_of_uv(project: TinyProject, tmp_path: Path) -> None:
    env = tmp_path / "real"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--offline", str(env)], check=True)
    wheels = [str(w) for w in project.wheels.values()]
    subprocess.run([*uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python",
                    str(env / "bin/python"), *wheels], check=True)  # fmt: skip
    path = next(env.glob("lib/python3*/site-packages/tiny/a.py"))
    text = path.read_text()
    path.unlink()  # uv may have linked it from its cache
    path.write_text(text.replace("a 36\n", "thirty-six\n"))
    done = _capture(project, env, "--title", "by hand")
    assert done == [(4, True, ["tiny/a.py"])]


def test_what_apply_wrote_into_an_environment_is_no_hand_edit(tmp_path: Path) -> None:
    """Versions of its own, in files of the repository too; the hand edit beside them is one."""
    project = make_project(tmp_path, {"tiny/__init__.py": 'V = "1.0"\n\n\n\n\nW = 1\n'})
    project.upstreams["tiny"]["version-files"] = ["tiny/__init__.py"]
    project.write_config()
    project.add_patch(1, {"tiny/gate.py": "OPEN = True\n"}, title="gate")
    env = make_env(tmp_path, project.wheels.values())
    assert project.run("apply", "--env", str(env.root)).code == 0
    ran = project.run("capture", "--env", str(env.root))
    assert (ran.code, "was changed by hand" in ran.err) == (1, True)
    path = env.site / "tiny/__init__.py"
    text = path.read_text()
    assert "+pw." in text
    path.unlink()
    path.write_text(text.replace("W = 1", "W = 2"))
    ran = project.run("capture", "--env", str(env.root), "--json")
    assert ran.code == 0, ran.err
    (new,) = ran.json()["patches"]
    assert (new["new"], new["files"]) == (True, ["tiny/__init__.py"])
    patch = (project.root / "patches" / new["file"]).read_text()
    assert "+W = 2\n" in patch
    assert "+pw." not in patch
