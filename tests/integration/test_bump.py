"""Moving a pin: what becomes of each patch, what is written, and how it is taken back."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from projects import LAYOUT, Content, TinyProject, make_project, make_wheel

LINES = [f"line_{n} = {n}" for n in range(1, 41)]


def text(changes: dict[int, str | None] | None = None, *, above: int = 0) -> str:
    """Forty lines of Python, some of them changed or removed, and some new ones above."""
    changed = [(changes or {}).get(n, line) for n, line in enumerate(LINES, 1)]
    new = [f"new_{n} = {n}" for n in range(above)]
    return "".join(f"{line}\n" for line in [*new, *changed] if line is not None)


def add_wheel(project: TinyProject, version: str, files: dict[str, Content]) -> Path:
    """Put the wheel of another version beside the pinned one (repository paths)."""
    installed = {}
    for path, content in files.items():
        prefix = next(p for p in LAYOUT if path.startswith(p))
        installed[LAYOUT[prefix] + path[len(prefix) :]] = content
    return make_wheel(project.root / "wheels", installed, version=version)


def wheel(
    tmp_path: Path, old: dict[str, Content], new: dict[str, Content], version: str = "1.1"
) -> TinyProject:
    """Return a project pinned on ``old``, with the wheel of ``new`` at hand."""
    project = make_project(tmp_path, old)
    add_wheel(project, version, new)
    return project


def snapshot(project: TinyProject) -> dict[str, bytes]:
    return {
        path.relative_to(project.root).as_posix(): path.read_bytes()
        for path in sorted(project.root.rglob("*"))
        if path.is_file() and ".patchwright" not in path.parts
    }


def verdicts(project: TinyProject, *args: str) -> dict[int, str]:
    ran = project.run("bump", *(args or ("tiny", "1.1")), "--no-static", "--no-gates", "--json")
    assert ran.out, ran.err
    return {row["number"]: row["verdict"] for row in ran.json()["patches"]}


def row(project: TinyProject, number: int, *args: str) -> dict[str, Any]:
    ran = project.run("bump", "tiny", "1.1", "--no-gates", "--json", *args)
    found: dict[str, Any] = next(r for r in ran.json()["patches"] if r["number"] == number)
    return found


PATCHED = text({20: "line_20 = 'ours'"})


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        ({"tiny/a.py": text()}, "clean"),
        ({"tiny/a.py": text(above=3)}, "moved"),
        ({"tiny/a.py": text({18: "line_18 = 'theirs'"})}, "merged"),
        ({"tiny/a.py": text({20: "line_20 = 'theirs'"})}, "conflict"),
        ({"tiny/sub/b.py": text(above=1)}, "retargeted"),
        ({"tiny/b.py": "OTHER = 1\n"}, "gone"),
        ({"tiny/a.py": PATCHED}, "upstream"),
        ({"tiny/a.py": text({20: "line_20='ours'  # reworded", 19: None, 21: None})}, "upstream"),
    ],
)
def test_each_verdict(tmp_path: Path, new: dict[str, Content], verdict: str) -> None:
    files: dict[str, Content] = {"tiny/a.py": text(), "tiny/z.py": "Z = 1\n"}
    project = wheel(tmp_path, files, {"tiny/z.py": "Z = 1\n", **new})
    project.add_patch(1, {"tiny/a.py": PATCHED})
    assert verdicts(project) == {1: verdict}


def test_a_patch_of_which_upstream_has_a_part(tmp_path: Path) -> None:
    project = wheel(tmp_path, {"tiny/a.py": text()}, {"tiny/a.py": text({5: "line_5 = 'ours'"})})
    project.add_patch(1, {"tiny/a.py": text({5: "line_5 = 'ours'", 30: "line_30 = 'ours'"})})
    assert verdicts(project) == {1: "partly-upstream"}
    assert project.run("bump", "tiny", "1.1", "--accept", "--no-static").code == 0
    patch = next((project.root / "patches").glob("0001-*")).read_text()
    assert "+line_30 = 'ours'" in patch
    assert "+line_5" not in patch
    assert project.run("lock", "--check").code == 0


def test_upstream_moved_the_function_and_has_the_fix(tmp_path: Path) -> None:
    def module(order: list[str], fixed: bool) -> str:
        parts = {
            "one": "def one():\n    return build(\n        [9, 10]\n    )\n",
            "two": f"def two():\n    return build(\n        [9, 10{', 12' * fixed}]\n    )\n",
        }
        return "\n\n".join(parts[name] for name in order)

    project = wheel(
        tmp_path,
        {"tiny/a.py": module(["one", "two"], fixed=False)},
        {"tiny/a.py": "# moved\n" + module(["two", "one"], fixed=True).replace("12]", "12]  # x")},
    )
    project.add_patch(1, {"tiny/a.py": module(["one", "two"], fixed=True)})
    assert verdicts(project) == {1: "upstream"}


def test_no_index_line_is_needed(tmp_path: Path) -> None:
    project = wheel(
        tmp_path, {"tiny/a.py": text()}, {"tiny/a.py": text({18: "line_18 = 'theirs'"})}
    )
    path = project.add_patch(1, {"tiny/a.py": PATCHED})
    raw = b"".join(
        line for line in path.read_bytes().splitlines(True) if not line.startswith(b"index ")
    )
    path.write_bytes(raw)
    assert verdicts(project) == {1: "merged"}


SMOKE = """
import pytest

@pytest.mark.tier("static")
def test_open(tree):
    scope = {}
    exec(tree.text("tiny", "tiny/a.py"), scope)
    assert scope["allowed"]() == "ours"
"""
GATE = "def allowed():\n    return 'theirs'\n"
OURS = "def allowed():\n    return 'ours'\n"


def obsolete(tmp_path: Path, new: str) -> TinyProject:
    project = wheel(tmp_path, {"tiny/a.py": GATE + text()}, {"tiny/a.py": new})
    project.add_smoke("test_0001_open.py", SMOKE)
    project.add_patch(1, {"tiny/a.py": OURS + text()},
                      fields={"Smoke": "tests/smoke/test_0001_open.py"})  # fmt: skip
    return project


def test_a_patch_is_obsolete_when_its_smoke_test_passes_without_it(tmp_path: Path) -> None:
    reworded = "def allowed():\n    word = 'ou'\n    return f'{word}rs'\n" + text()
    found = row(obsolete(tmp_path, reworded), 1)
    assert (found["verdict"], found["obsolete"], found["without"]) == ("conflict", True, "passed")


def test_a_patch_that_is_needed_still_is_not_obsolete(tmp_path: Path) -> None:
    project = obsolete(tmp_path, "import os\n" + GATE + text())
    ran = project.run("bump", "tiny", "1.1", "--no-gates", "--json")
    found = ran.json()
    assert ran.code == 0
    assert not found["patches"][0]["obsolete"]
    assert found["patches"][0]["without"] == "failed"
    assert [(a["number"], a["verdict"]) for a in found["static"]] == [(1, "passed")]


def test_nothing_is_written_without_accept(tmp_path: Path) -> None:
    project = obsolete(tmp_path, "import os\n" + GATE + text())
    assert project.run("lock").code == 0
    before = snapshot(project)
    assert project.run("bump", "tiny", "1.1").code == 0
    assert snapshot(project) == before


def test_accept_writes_all_of_it_and_undo_takes_it_back(tmp_path: Path) -> None:
    project = wheel(
        tmp_path,
        {"tiny/a.py": text(), "tiny/b.py": "B = 1\n"},
        {"tiny/a.py": text(above=2), "tiny/b.py": "B = 2\n"},
    )
    project.add_smoke("test_0002_b.py", "def test_b(): pass\n")
    project.add_patch(1, {"tiny/a.py": PATCHED})
    project.add_patch(2, {"tiny/b.py": "B = 2\n"}, fields={"Smoke": "tests/smoke/test_0002_b.py"})
    project.add_patch(3, {"tiny/a.py": text({20: "line_20 = 'ours'", 30: "line_30 = 'ours'"})},
                      fields={"Depends": "0001 (lines), 0002 (values)"})  # fmt: skip
    config = project.root / "pyproject.toml"
    config.write_text("# kept\n" + config.read_text(), encoding="utf-8")
    assert project.run("lock").code == 0
    before = snapshot(project)

    ran = project.run("bump", "tiny", "1.1", "--accept", "--no-static")
    assert ran.code == 0, ran.err
    after = snapshot(project)
    names = {
        name.partition("-")[0].removeprefix("patches/") for name in after if "patches/" in name
    }
    assert names == {"0001", "0003"}
    assert "tests/smoke/test_0002_b.py" not in after
    assert config.read_text(encoding="utf-8").startswith("# kept\n")
    table = tomllib.loads(config.read_text(encoding="utf-8"))["tool"]["patchwright"]["upstreams"]
    assert table["tiny"]["version"] == "1.1"
    assert table["tiny"]["path"] == "wheels/tiny-1.1-py3-none-any.whl"
    third = next(data for name, data in after.items() if "/0003-" in name).decode()
    assert "Upstream: tiny 1.1\n" in third
    assert "Depends: 0001 (lines)\n" in third
    assert "@@ -29," in third  # the lines of the new pin
    assert project.run("lock", "--check").code == 0
    rows = project.run("status", "--json").json()["patches"]
    assert [(r["number"], r["apply"]) for r in rows] == [(1, "clean"), (3, "clean")]

    assert project.run("undo").code == 0
    assert snapshot(project) == before


def test_a_bump_that_cannot_be_is_refused_whole(tmp_path: Path) -> None:
    project = wheel(
        tmp_path, {"tiny/a.py": text(), "tiny/b.py": "B = 1\n"},
        {"tiny/a.py": text({20: "line_20 = 'theirs'"}), "tiny/b.py": "B = 1\n"},
    )  # fmt: skip
    project.add_patch(1, {"tiny/a.py": PATCHED})
    project.add_patch(2, {"tiny/b.py": "B = 2\n"}, fields={"Depends": "0001 (why)"})
    before = snapshot(project)
    ran = project.run("bump", "tiny", "1.1", "--accept", "--no-static", "--without", "1")
    assert ran.code == 1
    assert "0002 (needs 0001)" in ran.err
    assert "--without 1,2" in ran.err
    assert snapshot(project) == before
    ran = project.run("bump", "tiny", "1.1", "--accept", "--no-static", "--without", "1,2")
    assert ran.code == 0, ran.err
    assert project.run("lock", "--check").code == 0


def conflict(tmp_path: Path) -> TinyProject:
    project = wheel(
        tmp_path, {"tiny/a.py": text()},
        {"tiny/a.py": text({20: "line_20 = 'theirs'", 30: "line_30 = 'theirs'"})},
    )  # fmt: skip
    project.add_patch(1, {"tiny/a.py": PATCHED}, title="twenty")
    project.add_patch(2, {"tiny/a.py": text({20: "line_20 = 'ours'", 30: "line_30 = 'ours'"})},
                      title="thirty")  # fmt: skip
    assert project.run("lock").code == 0
    return project


def resolve(project: TinyProject, wanted: str) -> None:
    path = project.root / ".patchwright" / "edit" / "tree" / "tiny" / "a.py"
    data = path.read_text(encoding="utf-8")
    start, end = data.index("<<<<<<<"), data.index(">>>>>>>")
    path.write_text(data[:start] + wanted + data[data.index("\n", end) + 1 :], encoding="utf-8")


def test_conflicts_open_one_after_the_other_and_go_on(tmp_path: Path) -> None:
    project = conflict(tmp_path)
    before = snapshot(project)
    ran = project.run("bump", "tiny", "1.1", "--accept", "--no-static")
    assert ran.code == 1
    assert "0001 (twenty) conflicts in tiny/a.py, 1 more after it" in ran.err
    assert snapshot(project) == before
    # Until it is resolved nothing else may change the series, and refresh knows whose it is.
    for command in (("drop", "1"), ("refresh", "--continue"), ("refresh", "--abort")):
        ran = project.run(*command)
        assert ran.code == 1
        assert "patchwright bump --continue" in ran.err
    assert "conflict markers" in project.run("bump", "--continue").err
    resolve(project, "line_20 = 'both'\n")
    ran = project.run("bump", "--continue")
    assert ran.code == 1
    assert "0002 (thirty) conflicts" in ran.err
    assert snapshot(project) == before
    resolve(project, "line_30 = 'both'\n")
    ran = project.run("bump", "--continue")
    assert ran.code == 0, ran.err
    assert not (project.root / ".patchwright" / "edit").exists()
    patches = [p.read_text() for p in sorted((project.root / "patches").iterdir())]
    assert "-line_20 = 'theirs'\n+line_20 = 'both'" in patches[0]
    assert "-line_30 = 'theirs'\n+line_30 = 'both'" in patches[1]
    assert project.run("lock", "--check").code == 0
    assert project.run("undo").code == 0
    assert snapshot(project) == before


def test_a_conflict_is_given_up(tmp_path: Path) -> None:
    project = conflict(tmp_path)
    before = snapshot(project)
    assert project.run("bump", "tiny", "1.1", "--accept", "--no-static").code == 1
    assert project.run("bump", "--abort").code == 0
    assert snapshot(project) == before
    ran = project.run("bump", "--continue")
    assert ran.code == 1
    assert "no bump waits" in ran.err
    assert project.run("drop", "2").code == 0


def test_to_latest_takes_the_newest_wheel(tmp_path: Path) -> None:
    project = wheel(tmp_path, {"tiny/a.py": text()}, {"tiny/a.py": text(above=1)}, "1.10")
    add_wheel(project, "1.9", {"tiny/a.py": text()})
    project.add_patch(1, {"tiny/a.py": PATCHED})
    ran = project.run("bump", "--to-latest", "--no-static", "--no-gates", "--json")
    assert ran.json()["pins"][0]["to"] == "1.10"
    ran = project.run("bump", "tiny", "--to-latest", "--accept", "--no-static")
    assert ran.code == 0, ran.err
    ran = project.run("bump", "--to-latest")
    assert (ran.code, ran.out) == (0, "the pin is there already: tiny 1.10\n")
    ran = project.run("bump", "tiny", "1.10")
    assert ran.code == 1
    assert "the pin is there already" in ran.err


def test_what_the_environment_must_change_is_said(tmp_path: Path) -> None:
    project = wheel(tmp_path, {"tiny/a.py": text()}, {"tiny/a.py": text()})
    project.add_upstream("other", {"other/o.py": "O = 1\n"})
    path = project.root / "wheels"
    make_wheel(
        path, {"other/o.py": "O = 1\n"}, distribution="other", requires=("tiny==1.0",)
    )  # fmt: skip
    ran = project.run("bump", "tiny", "1.1", "--no-static", "--no-gates", "--json")
    said = ran.json()["environment"]
    assert said[0]["breaks"]
    assert "other 1.0 requires tiny==1.0, and the pin would be tiny 1.1" in said[0]["said"]


def test_functions_changed_under_a_patch_and_gates_are_told(tmp_path: Path) -> None:
    old = "def gate(x):\n    y = x\n    z = y\n    w = z\n    v = w\n    return v\n" + text()
    new = old.replace("y = x", "y = x + 1")
    project = wheel(tmp_path, {"tiny/a.py": old}, {"tiny/a.py": new})
    project.add_patch(1, {"tiny/a.py": old.replace("return v", "return v + 1")})
    ran = project.run("bump", "tiny", "1.1", "--no-static", "--no-gates", "--json")
    assert ran.json()["functions"] == [
        {"number": 1, "path": "tiny/a.py", "function": "gate", "added": 1, "removed": 1}
    ]


def test_new_and_vanished_gates_are_told(tmp_path: Path) -> None:
    gate = "import torch\ndef f():\n    return torch.cuda.get_device_capability()[0] {}\n"
    project = wheel(tmp_path, {"tiny/a.py": gate.format(">= 9")},
                    {"tiny/b.py": gate.format("== 10")})  # fmt: skip
    ran = project.run("bump", "tiny", "1.1", "--no-static", "--json")
    found = {(g["change"], (g["after"] or g["before"])["path"]) for g in ran.json()["gates"]}
    assert found == {("adds", "tiny/b.py"), ("removes", "tiny/a.py")}


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("tiny",), 2, "which version of tiny?"),
        ((), 2, "which upstream is to move"),
        (("nobody", "1.1"), 2, "there is no upstream 'nobody'"),
        (("tiny", "not-a-version"), 2, "is not a version"),
        (("tiny@main",), 2, "pinned by its wheel"),
        (("tiny", "7.0"), 2, "there is no wheel of tiny 7.0 here (there: 1.0, 1.1)"),
        (("tiny", "1.1", "tiny", "1.0"), 2, "tiny is named twice"),
        (("tiny", "1.1", "--without", "9"), 2, "there is no patch 9"),
        (("tiny", "1.1", "--without", "x"), 2, "patch numbers are expected"),
        (("tiny@1.1", "--to-latest"), 2, "--to-latest another one"),
        (("tiny", "1.1", "--continue"), 2, "for the bump that waits"),
        (("--accept", "--abort"), 2, "give one of"),
    ],
)
def test_bad_input(tmp_path: Path, args: tuple[str, ...], code: int, told: str) -> None:
    project = wheel(tmp_path, {"tiny/a.py": text()}, {"tiny/a.py": text()})
    project.add_patch(1, {"tiny/a.py": PATCHED})
    ran = project.run("bump", *args)
    assert ran.code == code
    assert told in ran.err


def test_a_pin_that_is_written_in_an_unknown_way_is_not_touched(tmp_path: Path) -> None:
    project = wheel(tmp_path, {"tiny/a.py": text()}, {"tiny/a.py": text()})
    project.add_patch(1, {"tiny/a.py": PATCHED})
    config = project.root / "pyproject.toml"
    config.write_text(
        '[tool.patchwright]\nupstreams = { tiny = { source = "wheel", distribution = "tiny", '
        'version = "1.0", path = "wheels/tiny-1.0-py3-none-any.whl" } }\n', encoding="utf-8",
    )  # fmt: skip
    before = snapshot(project)
    ran = project.run("bump", "tiny", "1.1", "--accept", "--no-static")
    assert ran.code == 3
    assert "written in a way that is not found" in ran.err
    assert snapshot(project) == before
