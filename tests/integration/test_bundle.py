"""bundle: everything for a machine without a network; and what is wrong with a bundle."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import pytest

from environments import SmallEnvironment, locked_environment


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallEnvironment:
    return locked_environment(tmp_path, monkeypatch)


@pytest.fixture
def bundle(small: SmallEnvironment, tmp_path: Path) -> Path:
    path = tmp_path / "all.tar"
    ran = small.project.run("bundle", str(path), "--json")
    assert ran.code == 0, ran.err
    assert len(ran.json()["files"]) == 4
    return path


def test_a_machine_that_never_saw_a_network(
    small: SmallEnvironment, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = small.project.run("rebuild", "--json").json()
    shutil.rmtree(small.index)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty-uv"))
    monkeypatch.setenv("PATCHWRIGHT_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    ran = small.project.run("rebuild", "--bundle", str(bundle), "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["digest"] == first["digest"]
    assert list((tmp_path / "empty" / "tmp").iterdir()) == []


def test_the_same_bundle_twice_is_the_same_bytes(
    small: SmallEnvironment, bundle: Path, tmp_path: Path
) -> None:
    assert small.project.run("bundle", str(tmp_path / "again.tar")).code == 0
    assert (tmp_path / "again.tar").read_bytes() == bundle.read_bytes()


def test_a_bundle_of_another_lock(small: SmallEnvironment, bundle: Path) -> None:
    small.project.add_patch(2, {"csrc/a.cu": "__global__ void a() { }\n"}, title="a: body")
    small.project.run("lock")
    ran = small.project.run("rebuild", "--bundle", str(bundle))
    assert ran.code == 2
    assert "the bundle was made for another lock: " in ran.err


def test_a_bundle_for_another_machine(small: SmallEnvironment, tmp_path: Path) -> None:
    path = tmp_path / "arm.tar"
    assert small.project.run("bundle", str(path), "--machine", "aarch64").code == 0
    ran = small.project.run("rebuild", "--bundle", str(path))
    assert ran.code == 2
    assert "made for another machine: aarch64, here it is x86_64" in ran.err


def edited(bundle: Path, change: str) -> None:
    """Write the bundle again with something wrong in it."""
    with tarfile.open(bundle) as old:
        members = [(m, old.extractfile(m)) for m in old.getmembers()]
        data = [(m, s.read() if s else b"") for m, s in members]
    with tarfile.open(bundle, "w") as new:
        for member, content in data:
            text = content
            if change == "content" and member.name.endswith("dep-1.0-py3-none-any.whl"):
                text = content[:-1] + bytes([content[-1] ^ 1])
            if change == "path" and member.name.endswith("dep-1.0-py3-none-any.whl"):
                member.name = "files/" + "a" * 64 + "/../../../evil.whl"
            if change == "link" and member.name.endswith("dep-1.0-py3-none-any.whl"):
                member.type, member.linkname, member.size, text = tarfile.SYMTYPE, "/etc", 0, b""
            new.addfile(member, io.BytesIO(text))


@pytest.mark.parametrize(
    ("change", "says"),
    [("content", "wrong sha256: "), ("path", "a bundle has no member "),
     ("link", "a bundle has no member ")],
)  # fmt: skip
def test_a_bundle_that_was_tampered_with(
    small: SmallEnvironment, bundle: Path, tmp_path: Path, change: str, says: str
) -> None:
    edited(bundle, change)
    ran = small.project.run("rebuild", "--bundle", str(bundle))
    assert (ran.code, says in ran.err) == (2, True), ran.err
    assert not (small.project.root / ".patchwright" / "env").exists()
    assert not list(tmp_path.rglob("evil.whl"))


@pytest.mark.parametrize("size", [0, 700, 3000])
def test_half_a_bundle(small: SmallEnvironment, bundle: Path, size: int) -> None:
    bundle.write_bytes(bundle.read_bytes()[:size])
    ran = small.project.run("rebuild", "--bundle", str(bundle))
    assert ran.code in (2, 3), ran.err
    assert ran.err.count("patchwright: error:") == 1
    assert not (small.project.root / ".patchwright" / "env").exists()
