"""What the product must show: no run that shows nothing is ever ``passed``."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from bad_input import edit, patch_file, small_project
from projects import TinyProject

_HEAD = 'import sys\nimport pytest\n\n@pytest.mark.tier("static")\n'


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    return small_project(tmp_path)


def verdict(tiny: TinyProject, smoke: str, *args: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the one result of 0001 with this smoke test."""
    tiny.add_smoke("test_0001.py", smoke)
    ran = tiny.run("verify", "1", "--context", "step", "--json", *(args or ("--tier", "static")))
    [result] = ran.json()["results"]
    return ran.code, result


def test_a_test_that_asserts_nothing_is_vacuous(tiny: TinyProject) -> None:
    code, result = verdict(tiny, _HEAD + "def test_x(tree):\n    pass\n")
    assert (code, result["verdict"], result["control"]) == (1, "vacuous", "passed")
    assert result["reason"] == "the smoke test passes without 0001 as well"


def test_one_that_dies_on_import_is_an_error_in_the_control_too(tiny: TinyProject) -> None:
    code, result = verdict(tiny, "import nowhere_at_all\n" + _HEAD + "def test_x():\n    pass\n")
    assert (code, result["verdict"], result["control"]) == (1, "error", "error")
    assert "No module named 'nowhere_at_all'" in result["reason"]


def test_a_control_that_dies_on_import_is_no_red_control(tiny: TinyProject) -> None:
    # Without the patch there is no OPEN = True: the import fails, and no assertion does.
    smoke = _HEAD + (
        "def test_x(tree):\n"
        '    if "OPEN = True" not in tree.text("tiny", "tiny/gate.py"):\n'
        '        raise ImportError("cannot import name OPEN")\n'
    )
    code, result = verdict(tiny, smoke)
    assert (code, result["verdict"], result["control"]) == (1, "error", "error")
    assert "the control broke" in result["reason"]
    assert "cannot import name OPEN" in result["reason"]


def test_one_that_needs_a_gpu_is_blocked(tiny: TinyProject) -> None:
    smoke = _HEAD.replace("static", "gpu") + "def test_x(tree):\n    assert False\n"
    code, result = verdict(tiny, smoke, "--tier", "gpu")
    if result["verdict"] != "blocked":
        pytest.skip("this machine has the device")
    assert (code, result["control"]) == (0, None)
    assert "sm_120" in result["reason"]
    code, result = verdict(tiny, smoke, "--tier", "gpu", "--require", "gpu")
    assert (code, result["verdict"]) == (1, "blocked")


def test_a_copy_that_is_not_the_trees_is_an_error(tiny: TinyProject, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign" / "tiny"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").touch()
    (foreign / "gate.py").write_text("OPEN = True\n", encoding="ascii")
    smoke = _HEAD + (
        "def test_x(tree):\n"
        f"    sys.path.insert(0, {str(foreign.parent)!r})\n"
        "    import tiny.gate\n"
        "    assert tiny.gate.OPEN\n"
    )
    code, result = verdict(tiny, smoke)
    assert (code, result["verdict"]) == (1, "error")
    assert f"{foreign}/" in result["reason"]
    assert "not from the tree under test" in result["reason"]


def test_a_test_that_hangs_is_killed_with_its_children(tiny: TinyProject, tmp_path: Path) -> None:
    tiny.write_config()
    edit(
        tiny.root / "pyproject.toml",
        "[tool.patchwright]\n",
        "[tool.patchwright]\nsmoke-deadline = 2\n",
    )
    pids = tmp_path / "pids"
    smoke = _HEAD + (
        "def test_x(tree):\n"
        "    import signal, subprocess, time\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        '    for words in (["sleep", "300"], ["setsid", "sleep", "300"]):\n'
        f"        with open({str(pids)!r}, 'a') as stream:\n"
        "            print(subprocess.Popen(words).pid, file=stream)\n"
        "    time.sleep(300)\n"
    )
    code, result = verdict(tiny, smoke)
    assert (code, result["verdict"], result["control"]) == (1, "error", "error")
    assert result["reason"] == "ran longer than 2 s and was killed"
    started = [Path("/proc", pid) for pid in pids.read_text().split()]
    assert len(started) == 4
    assert not [path for path in started if (path / "exe").exists()]


def test_a_test_that_prints_megabytes_passes_and_keeps_a_short_log(tiny: TinyProject) -> None:
    smoke = _HEAD + (
        "def test_x(tree):\n"
        "    for _ in range(8):\n"
        '        print("x" * 1_000_000)\n'
        '        print("y" * 1_000_000, file=sys.stderr)\n'
        '    assert "OPEN = True" in tree.text("tiny", "tiny/gate.py"), "z" * 1_000_000\n'
    )
    code, result = verdict(tiny, smoke)
    assert (code, result["verdict"]) == (0, "passed")
    kept = (tiny.root / ".patchwright").rglob("*.json")
    assert max(path.stat().st_size for path in kept) < 1_000_000


@pytest.fixture
def in_another_repository(tmp_path: Path) -> TinyProject:
    """Return a project in a virtual environment inside a repository that ignores all of it.

    There ``git apply`` looks at the outer repository, changes nothing and returns 0.
    """
    outer = tmp_path / "outer"
    outer.mkdir()
    subprocess.run(["git", "init", "--quiet"], cwd=outer, check=True)
    (outer / ".gitignore").write_text("*\n", encoding="ascii")
    (outer / ".gitattributes").write_text("* text eol=crlf\n", encoding="ascii")
    return small_project(outer / ".venv")


def test_inside_another_repository_the_patch_is_applied(
    in_another_repository: TinyProject,
) -> None:
    tiny = in_another_repository
    ran = tiny.run("apply", "--into", "../site", "--installed-layout", "--json")
    assert ran.code == 0
    assert ran.json()["patches"][0]["tree"] == tiny.trees["tiny"][1]
    gate = tiny.root.parent / "site" / "tiny" / "gate.py"
    assert gate.read_bytes() == b"OPEN = True\nMORE = 0\n"
    # The trap itself: git has nothing against it and does nothing.
    gate.write_bytes(b"OPEN = False\nMORE = 0\n")
    patch = patch_file(tiny).read_bytes()
    done = subprocess.run(
        ["git", "apply", "--exclude=nothing", "-"], input=patch, cwd=gate.parents[1], check=False
    )
    assert (done.returncode, gate.read_bytes()) == (0, b"OPEN = False\nMORE = 0\n")


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("+OPEN = True", "+OPEN = False", "empty"),
        ("tiny/gate.py", "docs/gate.py", "outside"),
        ("tiny/gate.py", "tiny/gone.py", "target-missing"),
    ],
)
def test_a_patch_that_changes_nothing_is_an_error(
    in_another_repository: TinyProject, old: str, new: str, word: str
) -> None:
    tiny = in_another_repository
    path = patch_file(tiny)
    path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
    ran = tiny.run("apply", "--into", "out", "--json")
    assert ran.code == 1
    assert ran.json()["into"] is None
    assert ran.json()["patches"][0]["verdict"] == word
    assert ran.json()["patches"][0]["tree"] is None
    assert not (tiny.root / "out").exists()
    ran = tiny.run("verify", "1", "--tier", "static", "--context", "step", "--json")
    assert (ran.code, [r["verdict"] for r in ran.json()["results"]]) == (1, ["error"])
    assert tiny.run("lock").code == 1
    assert not (tiny.root / "upstream.lock").exists()
