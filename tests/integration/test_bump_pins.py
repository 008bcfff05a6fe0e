"""Moving a pin: which one is meant, and what else moves with it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from bumping import (
    PATCHED,
    add_wheel,
    text,
    wheel,
)
from projects import make_wheel


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
    # Beside the static tier they are evaluated in another process: the same, and told once.
    both = project.run("bump", "tiny", "1.1", "--json").json()
    assert both["gates"] == ran.json()["gates"]
    assert both["static"] == []


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


def test_the_locked_environment_stays_and_is_called_old(tmp_path: Path) -> None:
    project = wheel(tmp_path, {"tiny/a.py": text()}, {"tiny/a.py": text(above=1)})
    project.add_patch(1, {"tiny/a.py": PATCHED})
    assert project.run("lock").code == 0
    config = project.root / "pyproject.toml"
    config.write_text(
        config.read_text() + '\n[tool.patchwright.environment]\npython = "3.11"\n'
        'platforms = ["x86_64-manylinux_2_28"]\n', encoding="utf-8",
    )  # fmt: skip
    locked = config.parent / "upstream.lock"
    table = (
        '\n[environment]\npython = "3.11"\nplatforms = ["x86_64-manylinux_2_28"]\n'
        'packages = []\n\n[environment.upstreams]\ntiny = "1.0"\n'
    )
    locked.write_text(locked.read_text(encoding="utf-8") + table, encoding="utf-8")
    ran = project.run("bump", "tiny", "1.1", "--accept", "--no-static")
    assert ran.code == 0, ran.err
    assert "upstream.lock keeps its [environment], which is that of tiny 1.0" in ran.out
    assert "next: patchwright lock, then patchwright verify" in ran.out
    assert tomllib.loads(locked.read_text())["environment"]["upstreams"] == {"tiny": "1.0"}
    ran = project.run("lock", "--check")
    assert ran.code == 1
    assert "environment: upstreams\n  lock:    tiny=1.0\n  project: tiny=1.1\n" in ran.out


OTHER = """
import pytest

@pytest.mark.tier("static")
def test_both(tree):
    assert "o = 2" in tree.text("other", "other/o.py")
    assert "line_1 = 1" in tree.text("tiny", "tiny/a.py")
"""


def test_a_patch_for_what_stays_that_no_longer_passes_is_told(tmp_path: Path) -> None:
    project = wheel(tmp_path, {"tiny/a.py": text()}, {"tiny/a.py": text({1: "line_1 = 9"})})
    project.add_upstream("other", {"other/o.py": "o = 1\n"})
    project.add_smoke("test_both.py", OTHER)
    project.add_patch(1, {"other/o.py": "o = 2\n"}, upstream="other",
                      fields={"Smoke": "tests/smoke/test_both.py"})  # fmt: skip
    ran = project.run("bump", "tiny", "1.1", "--no-gates")
    assert ran.code == 1
    assert "patches for what stays, on the new trees:\n  0001 failed: test_both: assert" in ran.out
