"""Moving a pin: what becomes of each patch, by its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from bumping import (
    PATCHED,
    row,
    text,
    verdicts,
    wheel,
)
from projects import Content


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


def test_a_function_that_is_gone_is_named_with_its_place(tmp_path: Path) -> None:
    old = "def gate(x):\n    y = x\n    return y\n\n\ndef other():\n    return 1\n"
    ours = old.replace("return y", "return y + 1")
    new = {"tiny/a.py": "def other():\n    return 2\n", "tiny/b.py": old.replace("x", "z")}
    project = wheel(tmp_path, {"tiny/a.py": old}, dict(new))
    project.add_patch(1, {"tiny/a.py": ours})
    found = row(project, 1, "--no-static")
    assert found["verdict"] == "conflict"
    assert "gate is gone from tiny/a.py; gate is in tiny/b.py" in found["reason"]


def test_a_function_that_is_nowhere_was_rewritten(tmp_path: Path) -> None:
    old = "def gate(x):\n    y = x\n    return y\n\n\ndef other():\n    return 1\n"
    project = wheel(tmp_path, {"tiny/a.py": old}, {"tiny/a.py": "def other():\n    return 2\n"})
    project.add_patch(1, {"tiny/a.py": old.replace("return y", "return y + 1")})
    reason = row(project, 1, "--no-static")["reason"]
    assert "gate is gone from tiny/a.py; no file of upstream has a function of that name" in reason
    assert "most like it" not in reason


def test_a_function_that_was_renamed_and_moved_is_found_by_what_it_says(tmp_path: Path) -> None:
    old = """\
def fusion_accepted(batch_size):
    return (
        (_is_hopper_supported or _is_blackwell_supported)
        and _is_flashinfer_available
        and batch_size <= FUSE_MAX_BATCH_SIZE
        and get_server_arguments().enable_fusion
    )


def other():
    return 1
"""
    moved = old[: old.index("\n\n\ndef other")].replace("fusion_accepted", "fusion_applies")
    moved = moved.replace("get_server_arguments().enable_fusion", "get_exec().fusion is not None")
    new = {
        "tiny/a.py": "def other():\n    return 2\n",
        "tiny/layers/norm.py": f"import os\n\n\n{moved}\n",
        "tiny/unlike.py": "_is_flashinfer_available = True\nbatch_size = 1\n",
    }
    project = wheel(tmp_path, {"tiny/a.py": old}, dict(new))
    project.add_patch(1, {"tiny/a.py": old.replace("_supported)", "_supported or _is_new)")})
    reason = row(project, 1, "--no-static")["reason"]
    assert "it was rewritten, most like it is tiny/layers/norm.py:" in reason
    assert reason.endswith(" (fusion_applies)")
