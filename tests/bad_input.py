"""What the tests of bad input share: a small project, and what a refusal must leave as it was.

tiny = small_project(tmp_path)
before = snapshot(tiny.root)
refused(tiny.run("lock"), 2, "what", "where", "next step")
assert snapshot(tiny.root) == before
"""

from __future__ import annotations

from pathlib import Path

from projects import Ran, TinyProject, make_project

GATE = "0001-tiny-gate-open.patch"
OTHER = "0002-other-value.patch"
SMOKE = """import pytest

@pytest.mark.tier("static")
def test_open(tree):
    assert "OPEN = True" in tree.text("tiny", "tiny/gate.py")
"""


def small_project(folder: Path) -> TinyProject:
    """Return two upstreams and two patches; 0002 needs 0001, which has a smoke test."""
    tiny = make_project(
        folder, {"tiny/__init__.py": "", "tiny/gate.py": "OPEN = False\nMORE = 0\n"}
    )
    tiny.add_upstream("other", {"other/__init__.py": "x = 1\n"})
    tiny.add_patch(
        1, {"tiny/gate.py": "OPEN = True\nMORE = 0\n"}, title="gate: open",
        fields={"Smoke": "tests/smoke/test_0001.py"},
    )  # fmt: skip
    tiny.add_patch(
        2, {"other/__init__.py": "x = 2\n"}, upstream="other", title="value",
        fields={"Depends": "0001 (the gate)"},
    )  # fmt: skip
    tiny.add_smoke("test_0001.py", SMOKE)
    return tiny


def edit(path: Path, old: str, new: str) -> None:
    """Replace the first ``old`` in a file, which must hold it."""
    data = path.read_bytes()
    assert old.encode() in data, old
    path.write_bytes(data.replace(old.encode(), new.encode(), 1))


def patch_file(tiny: TinyProject, name: str = GATE) -> Path:
    """Return the path of a patch."""
    return tiny.root / "patches" / name


def snapshot(root: Path) -> dict[str, bytes | str]:
    """Return what a folder holds, but for what runs leave behind on purpose."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else path.name
        for path in sorted(root.rglob("*"))
        if ".patchwright" not in path.parts
    }


def refused(ran: Ran, code: int, *parts: str) -> None:
    """Assert the exit code, what stands in the error, and that it ends with a next step."""
    assert ran.code == code, (ran.code, ran.out, ran.err)
    for part in parts:
        assert part in ran.err, (part, ran.err)
    assert "patchwright: error: " in ran.err
    assert ran.err.rstrip().splitlines()[-1].startswith("Next: "), ran.err
    assert "Traceback" not in ran.err + ran.out
    assert "traceback is in" not in ran.err
