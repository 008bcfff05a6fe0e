"""Source distributions: what is read of them, and what is refused."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from archives import config, make_tar, tar_entry
from patchwright.upstreams.archive import BadArchive
from patchwright.upstreams.sdist import read_sdist

PKG_INFO = b"Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"


def make_sdist(path: Path, files: Mapping[str, bytes]) -> Path:
    members = {"PKG-INFO": PKG_INFO, **files}
    return make_tar(path, [(f"tiny-1.0/{name}", data) for name, data in members.items()])


def test_an_sdist_in_repository_layout(tmp_path: Path) -> None:
    made = make_sdist(
        tmp_path / "tiny-1.0.tar.gz",
        {
            "csrc/a.cu": b"cu", "tiny/a.py": b"py", "tests/t.py": b"t", "tiny/_version.py": b"v",
            "tiny.egg-info/SOURCES.txt": b"",
        },
    )  # fmt: skip
    rules = {"tiny/": "tiny/", "csrc/": "tiny/data/csrc/"}
    inside, outside = read_sdist(made, config("sdist", **rules))
    assert sorted(inside) == [b"csrc/a.cu", b"tests/t.py", b"tiny/a.py"]
    assert sorted(outside) == [b"tiny/_version.py"]


def test_an_sdist_in_package_layout(tmp_path: Path) -> None:
    made = make_sdist(
        tmp_path / "tiny-1.0.tar.gz",
        {"tiny/a.py": b"py", "tiny/_version.py": b"v", "pyproject.toml": b""},
    )
    inside, outside = read_sdist(made, config("sdist", **{"python/tiny/": "tiny/"}))
    assert sorted(inside) == [b"python/tiny/a.py"]
    assert sorted(outside) == [b"tiny/_version.py"]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"tiny-1.0/a.py": b"", "other/b.py": b""}, "one folder"),
        ({"tiny-1.0/a.py": b""}, "no PKG-INFO"),
        ({"tiny-1.0/PKG-INFO": PKG_INFO, "tiny-1.0/x": b""}, "no layout rule"),
    ],
)
def test_what_is_no_sdist(tmp_path: Path, members: dict[str, bytes], words: str) -> None:
    made = make_tar(tmp_path / "tiny-1.0.tar.gz", list(members.items()))
    with pytest.raises(BadArchive, match=words):
        read_sdist(made, config("sdist"))


def test_a_link_that_leaves_the_tree_once_the_top_folder_is_gone(tmp_path: Path) -> None:
    made = make_tar(
        tmp_path / "tiny-1.0.tar.gz",
        [
            ("tiny-1.0/PKG-INFO", PKG_INFO),
            ("tiny-1.0/tiny/a.py", b""),
            (tar_entry("tiny-1.0/tiny/l", tarfile.SYMTYPE, "../../x"), b""),
        ],
    )
    with pytest.raises(BadArchive, match="out of the tree") as caught:
        read_sdist(made, config("sdist"))
    assert caught.value.where == "tiny-1.0.tar.gz: tiny/l"
