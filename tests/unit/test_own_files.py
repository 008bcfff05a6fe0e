"""The upstreams' files of a new environment, and which of the old one's serve again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from patchwright.environment.content import Content, content_time
from patchwright.environment.hashes import KnownHashes
from patchwright.environment.metadata import recorded_hash
from patchwright.environment.own_files import OldFiles, make_own

FILES = {
    "tiny/__init__.py": b"",
    "tiny/gate.py": b"OPEN = True\n",
    "tiny/data/a.cu": b"void a();\n",
}
GATE = "tiny/gate.py"


def site(environment: Path) -> Path:
    return environment / "lib" / "python3.11" / "site-packages"


def install(environment: Path, cache: Path | None = None, **other: bytes) -> Path:
    """Install FILES, as links into a cache where there is one; ``gate`` has another content."""
    contents = FILES | ({GATE: other["gate"]} if "gate" in other else {})
    place = site(environment)
    rows = []
    for name, data in contents.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if cache is None:
            file.write_bytes(data)
        else:
            cached = cache / name
            cached.parent.mkdir(parents=True, exist_ok=True)
            if not cached.exists() or cached.read_bytes() != data:
                cached.unlink(missing_ok=True)
                cached.write_bytes(data)
            os.link(cached, file)
        rows.append(f"{name},{recorded_hash(data)},{len(data)}\n")
    info = place / "tiny-1.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("".join(rows), "utf-8")
    return place


def rebuilt(old: Path, new: Path, cache: Path, **other: bytes) -> dict[bytes, str]:
    """Install into ``new`` and make the files its own; return what ``old`` handed on."""
    hashes = KnownHashes()
    place = install(new, cache, **other)
    found = make_own(Content(place), {"tiny"}, OldFiles(old, {"tiny"}, hashes))
    for name, data in (FILES | ({GATE: other["gate"]} if "gate" in other else {})).items():
        status = (place / name).stat()
        assert (place / name).read_bytes() == data
        assert status.st_mtime_ns == content_time(recorded_hash(data)) * 10**9
        assert not os.path.samestat(status, (cache / name).stat())
    assert not list(place.rglob("*.patchwright*"))
    return found


@pytest.fixture
def old(tmp_path: Path) -> Path:
    assert rebuilt(tmp_path / "none", tmp_path / "old", tmp_path / "cache") == {}
    return tmp_path / "old"


def test_files_that_are_the_same_are_handed_on(old: Path, tmp_path: Path) -> None:
    inodes = {name: (site(old) / name).stat().st_ino for name in FILES}
    found = rebuilt(old, tmp_path / "new", tmp_path / "cache", gate=b"OPEN = None\n")
    assert found == {
        name.encode(): recorded_hash(data) for name, data in FILES.items() if name != GATE
    }
    new = {name: (site(tmp_path / "new") / name).stat().st_ino for name in FILES}
    assert [name for name in FILES if new[name] != inodes[name]] == [GATE]


def edited(file: Path) -> None:
    file.write_bytes(b"OPEN = None\n")


def edited_and_set_back(file: Path) -> None:
    before = file.stat()
    file.write_bytes(b"OPEN = None\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def linked_elsewhere(file: Path) -> None:
    os.link(file, file.parents[5] / "mine.py")


def replaced_by_a_link(file: Path) -> None:
    target = file.parents[5] / "mine.py"
    file.rename(target)
    file.symlink_to(target)


def in_a_folder_elsewhere(file: Path) -> None:
    target = file.parents[5] / "checkout"
    file.parent.rename(target)
    file.parent.symlink_to(target)


def made_private(file: Path) -> None:
    file.chmod(0o600)


@pytest.mark.parametrize(
    "done",
    [edited, edited_and_set_back, linked_elsewhere, replaced_by_a_link, in_a_folder_elsewhere,
     made_private],
)  # fmt: skip
def test_what_somebody_changed_is_not(old: Path, tmp_path: Path, done: object) -> None:
    assert callable(done)
    done(site(old) / GATE)
    found = rebuilt(old, tmp_path / "new", tmp_path / "cache")
    assert GATE.encode() not in found
    new = site(tmp_path / "new") / GATE
    assert new.stat().st_nlink == 1
    assert not new.samefile(site(old) / GATE)
    assert new.stat().st_mode == (tmp_path / "cache" / GATE).stat().st_mode


def test_a_file_that_is_changed_after_it_was_looked_at_is_not(old: Path, tmp_path: Path) -> None:
    files = OldFiles(old, {"tiny"}, KnownHashes())
    edited(site(old) / GATE)
    place = install(tmp_path / "new", tmp_path / "cache") / GATE
    digest = recorded_hash(FILES[GATE])
    assert not files.take(GATE.encode(), digest, os.fsencode(place))
    assert place.read_bytes() == FILES[GATE]
    assert sorted(p.name for p in place.parent.iterdir()) == ["__init__.py", "data", "gate.py"]


def test_a_file_is_taken_once(old: Path, tmp_path: Path) -> None:
    files = OldFiles(old, {"tiny"}, KnownHashes())
    place = install(tmp_path / "new", tmp_path / "cache") / GATE
    digest = recorded_hash(FILES[GATE])
    for _ in range(2):
        assert files.take(GATE.encode(), digest, os.fsencode(place))
    assert sorted(p.name for p in place.parent.iterdir()) == ["__init__.py", "data", "gate.py"]


def test_the_list_of_an_old_environment_leads_nowhere_else(old: Path, tmp_path: Path) -> None:
    outside = tmp_path / "old" / "outside.py"
    outside.write_bytes(FILES[GATE])
    time = content_time(recorded_hash(FILES[GATE]))
    os.utime(outside, (time, time))
    record = site(old) / "tiny-1.0.dist-info" / "RECORD"
    path = "../../../outside.py"
    record.write_text(f"{path},{recorded_hash(FILES[GATE])},12\n", "utf-8")
    files = OldFiles(old, {"tiny"}, KnownHashes())
    place = install(tmp_path / "new", tmp_path / "cache") / GATE
    assert not files.take(path.encode(), recorded_hash(FILES[GATE]), os.fsencode(place))
