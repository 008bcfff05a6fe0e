"""Imports by path and by name (offline, from a folder)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from importing import (
    INSTALLED,
    REPOSITORY,
    Place,
    make_repository,
    make_sdist,
    wanted,
)
from patchwright.config import Layout, LayoutRule
from patchwright.errors import InputError, PatchwrightError
from patchwright.store import EMPTY_TREE
from patchwright.upstreams.archive import BadArchive
from projects import falsify, make_wheel

pytest_plugins = ("importing_fixtures",)


def test_a_wheel_by_path(place: Place) -> None:
    made = make_wheel(place.root, INSTALLED)
    config = wanted(path=made.name)
    locked = place.resolve(config)
    assert (locked.file, locked.tree, locked.source) == (made.name, "", "wheel")
    pristine = place.run(config, locked)
    assert place.files(pristine.tree) == REPOSITORY
    assert sorted(place.files(pristine.outside)) == [
        "tiny-1.0.dist-info/METADATA", "tiny-1.0.dist-info/WHEEL", "tiny/_version.py",
        "tiny/ops.so",
    ]  # fmt: skip


def test_every_source_gives_the_same_tree(place: Place, index: Path) -> None:
    made = make_wheel(index, INSTALLED)
    make_sdist(index, REPOSITORY)
    make_repository(place.root / "clone")
    by_name = place.run(wanted())
    by_path = Place(place.root.parent, "other").run(wanted(path=str(made)))
    sdist = place.run(wanted(source="sdist"))
    revision = place.run(wanted(source="git", path="clone", revision="main"))
    assert by_name == by_path
    assert {by_name.tree, sdist.tree, revision.tree} == {by_path.tree}
    assert revision.outside == EMPTY_TREE


def test_the_second_import_reads_nothing(place: Place) -> None:
    made = make_wheel(place.root, INSTALLED)
    config = wanted(path=made.name)
    locked = place.resolve(config)
    first = place.run(config, locked)
    made.unlink()
    place.said.clear()
    assert place.run(config, locked) == first
    assert place.said == []


def test_another_layout_is_another_import(place: Place) -> None:
    make_wheel(place.root, INSTALLED)
    config = wanted(path="tiny-1.0-py3-none-any.whl")
    other = replace(config, layout=Layout((LayoutRule(b"tiny/", b"tiny/"),), ()))
    assert place.run(config).tree != place.run(other).tree


def test_a_record_without_its_trees_is_not_believed(place: Place) -> None:
    make_wheel(place.root, INSTALLED)
    config = wanted(path="tiny-1.0-py3-none-any.whl")
    first = place.run(config)
    shutil.rmtree(place.cache / "objects.git")
    assert place.run(config) == first
    assert place.files(first.tree) == REPOSITORY
    for record in (place.cache / "pristine").glob("*.json"):
        record.write_bytes(b'{"tree": "')
    assert place.run(config) == first


def test_a_local_file_with_another_hash(place: Place) -> None:
    made = make_wheel(place.root, INSTALLED)
    config = wanted(path=made.name)
    locked = place.resolve(config)
    make_wheel(place.root, {"tiny/a.py": "other"})
    actual = place.resolve(config).sha256
    with pytest.raises(InputError) as caught:
        place.run(config, locked)
    assert str(locked.sha256) in caught.value.what
    assert str(actual) in caught.value.what
    assert caught.value.where == str(made)


def test_a_hostile_local_file_leaves_nothing(place: Place) -> None:
    made = make_wheel(place.root, {"tiny/a.py": "", "../evil.py": ""})
    with pytest.raises(InputError, match="leaves the archive") as caught:
        place.run(wanted(path=made.name))
    assert caught.value.where == f"{made.name}: ../evil.py"
    assert not list((place.cache / "pristine").glob("*.json"))
    assert not list((place.cache / "objects.git/objects/pack").glob("*"))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"path": "missing.whl"}, "cannot be read"),
        ({"path": "x.tar.gz"}, "a wheel is expected"),
        ({"path": "missing", "source": "git", "revision": "v1"}, "no such repository"),
        ({"git": "ext::sh -c true", "source": "git", "revision": "v1"}, "not an address"),
        ({"git": "git://host/x", "source": "git", "revision": "v1"}, "not an address"),
        ({"git": "-u:x", "source": "git", "revision": "v1"}, "not an address"),
    ],
)
def test_what_cannot_be_resolved(place: Place, how: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        place.resolve(wanted(**how))


def test_a_layout_that_fits_nothing(place: Place) -> None:
    make_wheel(place.root, {"other/a.py": ""})
    with pytest.raises(InputError, match="no layout rule"):
        place.run(wanted(path="tiny-1.0-py3-none-any.whl"))


# By name, through uv


def test_a_wheel_by_name_whose_file_changed(place: Place, index: Path) -> None:
    made = make_wheel(index, INSTALLED)
    locked = place.resolve(wanted())
    assert locked.file == made.name
    make_wheel(index, {"tiny/a.py": "other"})
    with pytest.raises(PatchwrightError, match=f"{locked.sha256} is locked") as caught:
        place.run(wanted(), locked)
    assert caught.value.exit_code == 3
    assert str(place.resolve(wanted()).sha256) in caught.value.what


def test_a_file_edited_in_uvs_cache(place: Place, index: Path, tmp_path: Path) -> None:
    make_wheel(index, INSTALLED)
    locked = place.resolve(wanted())
    first = place.run(wanted(), locked)
    cached = [p for p in (tmp_path / "uv-cache").rglob("a.py") if p.parent.name == "tiny"]
    assert cached
    for path in cached:
        with path.open("r+b") as stream:
            stream.write(b"B")
    fresh = Place(tmp_path, "fresh")
    assert fresh.run(wanted(), locked) == first
    assert any("cache holds a changed file" in line for line in fresh.said)


def test_a_wheel_by_name_whose_record_is_wrong(place: Place, index: Path) -> None:
    made = make_wheel(index, {"tiny/a.py": "AAAA"})
    falsify(made, "tiny/a.py", b"BBBB")
    with pytest.raises(BadArchive, match="RECORD says") as caught:
        place.run(wanted())
    assert caught.value.where == "tiny: tiny/a.py"
    assert not list((place.cache / "tmp").iterdir())


def test_what_the_index_does_not_have(place: Place, index: Path) -> None:
    make_wheel(index, INSTALLED)
    for config in (wanted(version="9.9"), wanted(source="sdist")):
        with pytest.raises(PatchwrightError) as caught:
            place.resolve(config)
        assert caught.value.exit_code == 3
        assert caught.value.where == f"tiny=={config.version}"
        assert caught.value.next_step


def test_an_index_out_of_reach(place: Place, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_FIND_LINKS")
    monkeypatch.delenv("UV_OFFLINE")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(PatchwrightError, match="cannot be reached") as caught:
        place.resolve(wanted())
    assert "path" in caught.value.next_step


def test_an_sdist_is_kept_by_its_hash(place: Place, index: Path) -> None:
    made = make_sdist(index, REPOSITORY)
    config = wanted(source="sdist")
    locked = place.resolve(config)
    place.run(config, locked)
    kept = place.cache / "archives" / str(locked.sha256) / made.name
    assert kept.read_bytes() == made.read_bytes()
    made.unlink()
    shutil.rmtree(place.cache / "pristine")
    place.run(config, locked)
    # A kept file that was damaged is not used, and there is nothing to replace it.
    shutil.rmtree(place.cache / "pristine")
    kept.write_bytes(b"damaged")
    with pytest.raises(PatchwrightError):
        place.run(config, locked)
