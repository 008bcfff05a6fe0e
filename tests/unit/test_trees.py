from __future__ import annotations

import os
from pathlib import Path

import pytest

from patchwright.config import Layout, LayoutRule
from patchwright.smoke.outcomes import SmokeError
from patchwright.smoke.trees import (
    Files,
    Source,
    SyntaxCache,
    Trees,
    format_listing,
    parse_listing,
)
from patchwright.store import FILE, SYMLINK, object_id

FLASH = Layout(
    (
        LayoutRule(b"flashinfer/", b"flashinfer/"),
        LayoutRule(b"csrc/", b"flashinfer/data/csrc/"),
    ),
    ("flashinfer/_build_meta.py",),
)
SGL = Layout((LayoutRule(b"python/sglang/", b"sglang/"),))
SOURCES = (Source("flash", ("flashinfer",), FLASH), Source("sgl", ("sglang",), SGL))
FILES = {
    "flashinfer/__init__.py": b"",
    "flashinfer/jit/__init__.py": b"",
    "flashinfer/jit/comm.py": b"A = 1\n",
    "flashinfer/_build_meta.py": b"__version__ = '1'\n",
    "flashinfer/data/csrc/a.cu": b"// \xff\n",
    "sglang/srt/y.py": b"def f(:\n",
}


def make(site: Path, syntax: SyntaxCache | None = None) -> Trees:
    listing: dict[bytes, tuple[bytes, str]] = {}
    for name, data in FILES.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        listing[os.fsencode(name)] = (FILE, object_id("blob", data))
    listing[b"sglang/link"] = (SYMLINK, object_id("blob", b"srt"))
    return Trees(site, [("flash", "1" * 40), ("sgl", "2" * 40)], SOURCES, listing, syntax)


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return make(tmp_path)


def test_files_are_named_by_their_repository_paths(trees: Trees) -> None:
    assert trees.read("flash", "csrc/a.cu") == b"// \xff\n"
    assert trees.text("flash", "csrc/a.cu") == "// \udcff\n"
    assert trees.path("sgl", "python/sglang/srt/y.py") == trees.site / "sglang/srt/y.py"
    assert trees.files("flash") == (
        "csrc/a.cu", "flashinfer/__init__.py", "flashinfer/jit/__init__.py",
        "flashinfer/jit/comm.py",
    )  # fmt: skip
    assert trees.exists("sgl", "python/sglang/srt/y.py")
    assert not trees.exists("sgl", "sglang/srt/y.py")
    assert not trees.exists("flash", "tests/test_a.py")
    assert trees.upstreams == ("flash", "sgl")
    assert trees.packages("sgl") == ("sglang",)


def test_a_generated_file_can_be_read_though_it_is_outside(trees: Trees) -> None:
    assert trees.read("flash", "flashinfer/_build_meta.py").startswith(b"__version__")
    assert "flashinfer/_build_meta.py" not in trees.files("flash")


@pytest.mark.parametrize(
    ("dotted", "found"),
    [
        ("flashinfer.jit.comm", ("flash", "flashinfer/jit/comm.py")),
        ("flashinfer.jit", ("flash", "flashinfer/jit/__init__.py")),
        ("sglang.srt.y", ("sgl", "python/sglang/srt/y.py")),
        ("sglang.srt", None),
        ("flashinfer.gone", None),
        ("torch", None),
    ],
)
def test_a_module_is_found_in_any_upstream(
    trees: Trees, dotted: str, found: tuple[str, str] | None
) -> None:
    assert trees.module(dotted) == found


@pytest.mark.parametrize(
    ("upstream", "path", "reason"),
    [
        ("flash", "tests/test_a.py", "flash: the distribution does not contain tests/test_a.py"),
        ("flash", "csrc/b.cu", "flash: the tree has no file csrc/b.cu"),
        ("flash", "csrc/../../../x", "the tree has no file"),
        ("sgl", "python/sglang/link", "is a link, not a file"),
        ("nobody", "a", "no upstream is named 'nobody': flash, sgl"),
    ],
)
def test_what_is_not_in_the_tree_is_the_tests_error(
    trees: Trees, upstream: str, path: str, reason: str
) -> None:
    with pytest.raises(SmokeError, match=reason):
        trees.read(upstream, path)


def test_a_file_that_is_not_the_trees_is_never_read(trees: Trees) -> None:
    place = trees.path("flash", "flashinfer/jit/comm.py")
    place.write_bytes(b"A = 2\n")
    with pytest.raises(SmokeError, match="was changed on disk"):
        trees.read("flash", "flashinfer/jit/comm.py")
    with pytest.raises(SmokeError, match="was changed on disk"):
        trees.ast("flash", "flashinfer/jit/comm.py")
    place.unlink()
    with pytest.raises(SmokeError, match="cannot be read from the tree: No such file"):
        trees.text("flash", "flashinfer/jit/comm.py")


def test_a_blob_is_parsed_once(tmp_path: Path) -> None:
    syntax = SyntaxCache()
    trees, same = make(tmp_path / "a", syntax), make(tmp_path / "b", syntax)
    tree = trees.ast("flash", "flashinfer/jit/comm.py")
    assert same.ast("flash", "flashinfer/jit/comm.py") is tree
    assert syntax.asked == {object_id("blob", b"A = 1\n")}
    with pytest.raises(SmokeError, match=r"y\.py is not valid Python: invalid syntax"):
        trees.ast("sgl", "python/sglang/srt/y.py")


def test_a_listing_reads_back(tmp_path: Path) -> None:
    listing: Files = {
        b"a\tb\n\xff": (b"100755", "1" * 40),
        b"a": (b"100644", "2" * 40),
    }
    assert parse_listing(format_listing(listing)) == listing
    assert parse_listing(format_listing({})) == {}
