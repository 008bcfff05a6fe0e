"""The witness, told of events directly; that the interpreter tells it, runs show."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from patchwright.smoke import proof

GATE = b"OPEN = True\n"


def blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Scene:
    """A site with the package tiny, and another copy of it."""

    def __init__(self, folder: Path) -> None:
        self.site, self.other = folder / "site", folder / "other"
        for place in (self.site, self.other):
            (place / "tiny").mkdir(parents=True)
            (place / "tiny" / "__init__.py").write_bytes(b"")
            (place / "tiny" / "gate.py").write_bytes(GATE)
        listing = folder / "listing"
        files = {"tiny/__init__.py": b"", "tiny/gate.py": GATE}
        lines = [f"100644 {blob(data)}\t{path}\x00" for path, data in files.items()]
        listing.write_bytes("".join(lines).encode())
        self.claim = proof.Claim(
            ("tiny",), {str(self.site): str(listing)}, str(folder / "violations")
        )
        self.claim_file = proof.save(self.claim, folder / "startup")

    def run(self, code: str, *paths: Path) -> tuple[str, ...]:
        """Run code in an interpreter of its own that is watched from its start."""
        subprocess.run(
            [sys.executable, "-B", "-c", code],
            env={"PYTHONPATH": ":".join(map(str, (self.claim_file.parent, *paths)))},
            check=True, timeout=60,
        )  # fmt: skip
        return proof.violations(Path(self.claim.report))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path.resolve())


def test_the_tree_under_test_may_be_imported(scene: Scene) -> None:
    assert scene.run("import tiny.gate; assert tiny.gate.OPEN", scene.site) == ()


def test_a_link_to_the_tree_is_the_tree(scene: Scene, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(scene.site)
    assert scene.run("import tiny.gate", link) == ()


def test_another_copy_is_named_with_its_place(scene: Scene) -> None:
    found = scene.run("import tiny.gate", scene.other)
    gate = scene.other / "tiny" / "gate.py"
    assert f"imported tiny.gate from {gate}, not from the tree under test" in found
    assert f"read {gate}, not from the tree under test" in found


def test_each_violation_is_told_once(scene: Scene) -> None:
    path = scene.other / "tiny" / "gate.py"
    assert len(scene.run(f"for _ in range(3): open({str(path)!r}).read()")) == 1


def test_reading_by_a_relative_path_is_seen(scene: Scene) -> None:
    code = f"import os; os.chdir({str(scene.other)!r}); open('tiny/gate.py').read()"
    assert len(scene.run(code)) == 1


def test_a_changed_file_of_the_tree_is_not_the_trees(scene: Scene) -> None:
    (scene.site / "tiny" / "gate.py").write_bytes(b"OPEN = 'yes'\n")
    (found,) = scene.run("import tiny.gate", scene.site)
    assert "gate.py, which was changed: it is not the tree's" in found


def test_a_file_that_the_tree_does_not_have_is_not_the_trees(scene: Scene) -> None:
    (scene.site / "tiny" / "more.py").write_bytes(b"")
    (found,) = scene.run("import tiny.more", scene.site)
    assert "more.py, which is not a file of the tree" in found


def test_bytecode_beside_the_sources_is_refused(scene: Scene) -> None:
    code = "import tiny.gate"
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(scene.site)}, check=True)
    # Same size, same second: Python itself takes the bytecode for the file's.
    found = scene.run(code, scene.site)
    assert any("imported tiny.gate from the bytecode" in line for line in found)


def test_what_was_there_before_the_test_is_told(scene: Scene) -> None:
    (scene.claim_file.parent / "early.py").write_bytes(b"import tiny\n")
    startup = scene.claim_file.parent / "sitecustomize.py"
    startup.write_text("import early\n" + startup.read_text())
    assert scene.run("", scene.site) == ("tiny was imported before the test began",)


def test_a_checkout_of_the_same_name_is_no_copy(scene: Scene, tmp_path: Path) -> None:
    folder = tmp_path / "src" / "tiny" / "tests"
    folder.mkdir(parents=True)
    (folder / "test_it.py").write_text("import json\n")
    code = f"exec(compile(open({str(folder / 'test_it.py')!r}).read(), 'x', 'exec'))"
    assert scene.run(code) == ()


def test_packages_of_a_longer_name_are_not_ours(scene: Scene) -> None:
    package = scene.other / "tiny_cubin"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert scene.run("import tiny_cubin", scene.other) == ()


def test_nothing_reported_is_no_violation(tmp_path: Path) -> None:
    assert proof.violations(tmp_path / "none") == ()


def test_what_is_read_is_noted_wherever_the_cache_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, listing = tmp_path / "venv" / "cache" / "site", tmp_path / "listing"
    (site / "kern").mkdir(parents=True)
    (site / "kern" / "a.py").write_text("A = 1\n", encoding="ascii")
    listing.write_bytes(b"")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    reads = tmp_path / "reads"
    claim = proof.Claim(("kern",), {str(site): str(listing)}, str(tmp_path / "report"), str(reads))
    witness = proof._Witness(claim, {})
    witness.hook("open", (str(site / "kern" / "a.py"), "r", 0))
    assert proof.files_read(reads, [site]) == [frozenset({"kern/a.py"})]
