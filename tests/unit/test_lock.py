"""upstream.lock: the format, what is refused, what disagrees."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patchwright.config import Config, Layout, LayoutRule, UpstreamConfig
from patchwright.errors import InputError
from patchwright.lock import (
    Lock,
    LockedPatch,
    LockedUpstream,
    disagreements,
    format_lock,
    layout_digest,
    read_lock,
)

LAYOUT = Layout((LayoutRule(b"tiny/", b"tiny/"), LayoutRule(b"csrc/", b"tiny/data/csrc/")))
WHEEL = LockedUpstream(
    name="tiny", source="wheel", version="1.0", distribution="tiny",
    file="tiny-1.0-py3-none-any.whl", sha256="a" * 64, tree="1" * 40, outside="2" * 40,
    layout=layout_digest(LAYOUT),
)  # fmt: skip
GIT = LockedUpstream(
    name="ops", source="git", version="2.0", commit="3" * 40, revision="v2.0",
    submodules={"3rdparty/x": "4" * 40}, tree="5" * 40, outside="6" * 40,
    layout=layout_digest(LAYOUT),
)  # fmt: skip
PATCH = LockedPatch("patches/0001-tiny-open.patch", "tiny", "b" * 64, "7" * 40)
LOCK = Lock((WHEEL, GIT), (PATCH,), {"python": "3.11", "package": [{"name": "x"}]})


def config(root: Path, **changes: Any) -> Config:
    tiny = UpstreamConfig("tiny", "wheel", "tiny", "1.0", None, None, None, ("tiny",), LAYOUT)
    ops = UpstreamConfig("ops", "git", None, "2.0", None, "https://x", "v2.0", ("ops",), LAYOUT)
    return Config(root, {"tiny": replace(tiny, **changes), "ops": ops})


def series(root: Path, *patches: tuple[str, str, str], made_for: str | None = None) -> Any:
    return SimpleNamespace(
        patches=tuple(
            SimpleNamespace(
                path=root / "patches" / name, upstream=upstream, sha256=digest, made_for=made_for
            )
            for name, upstream, digest in patches
        )
    )


SERIES = ("0001-tiny-open.patch", "tiny", "b" * 64)


def test_a_lock_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "upstream.lock"
    path.write_bytes(format_lock(LOCK))
    assert read_lock(path) == Lock((GIT, WHEEL), (PATCH,), LOCK.environment)  # sorted by name
    assert format_lock(read_lock(path)) == path.read_bytes()


def test_the_file_names_no_address(tmp_path: Path) -> None:
    assert b"://" not in format_lock(LOCK)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("version = 1\n", "version = 2\n", "version = ", "newer patchwright"),
        ("version = 1\n", "version = true\n", "version = ", "not a format number"),
        ("version = 1\n", 'version = 1\nextra = "x"\n', "extra", "not known"),
        ("[environment]", "<<<<<<< ours\n[environment]", "<<<<<<<", "conflict markers"),
        ('tree = "1111', 'tree = "111', 'tree = "111', "cannot stand here"),
        ('sha256 = "bbb', "sha256 = 3 #", "sha256 = 3", "3 cannot stand here"),
        ('commit = "', 'comit = "', "comit", "not known"),
        ('file = "tiny-', 'file = "../tiny-', "file = ", "cannot stand here"),
        ('upstream = "tiny"\n', "", "[[patch]]", "upstream: this key is missing"),
        # Without its hash, any wheel of that name would be let in.
        ('sha256 = "' + "a" * 64 + '"\n', "", "[[upstream]]", "sha256: this key is missing"),
        ('x" = "4444', 'x" = "444', "[upstream.submodules]", "not a commit"),
        ('name = "ops"', 'name = "tiny"', 'name = "tiny"', "twice"),
        ("[[patch]]", "[patch]", "[patch]", "tables are expected"),
    ],
)
def test_a_lock_edited_by_hand_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, line: str, said: str
) -> None:
    path = tmp_path / "upstream.lock"
    text = format_lock(LOCK).decode()
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError, match=said) as caught:
        read_lock(path)
    number = int(caught.value.where.rpartition(":")[2])
    assert line in path.read_text(encoding="utf-8").split("\n")[number - 1]
    assert caught.value.next_step


def test_a_lock_that_is_not_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "upstream.lock"
    path.write_text("version = 1\nnonsense\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 2"):
        read_lock(path)


def test_nothing_disagrees(tmp_path: Path) -> None:
    assert disagreements(LOCK, config(tmp_path), series(tmp_path, SERIES)) == []


@pytest.mark.parametrize(
    ("change", "what", "locked", "actual"),
    [
        ({"version": "1.1"}, "upstream tiny: version", "1.0", "1.1"),
        ({"distribution": "tiny-next"}, "upstream tiny: distribution", "tiny", "tiny-next"),
        ({"source": "sdist"}, "upstream tiny: source", "wheel", "sdist"),
        (
            {"layout": Layout(LAYOUT.rules, ("x",))},
            "upstream tiny: layout",
            layout_digest(LAYOUT),
            layout_digest(Layout(LAYOUT.rules, ("x",))),
        ),
        ({"path": "w/tiny-2.whl"}, "upstream tiny: file", WHEEL.file, "tiny-2.whl"),
    ],
)
def test_a_changed_configuration_is_named_with_both_values(
    tmp_path: Path, change: dict[str, Any], what: str, locked: str, actual: str
) -> None:
    [found] = disagreements(LOCK, config(tmp_path, **change), series(tmp_path, SERIES))
    assert (found.what, found.locked, found.actual) == (what, locked, actual)


def test_the_order_of_layout_rules_means_nothing() -> None:
    assert layout_digest(Layout(LAYOUT.rules[::-1])) == layout_digest(LAYOUT)


def test_a_local_wheel_with_other_bytes_disagrees(tmp_path: Path) -> None:
    (tmp_path / str(WHEEL.file)).write_bytes(b"other")
    changed = config(tmp_path, path=WHEEL.file)
    [found] = disagreements(LOCK, changed, series(tmp_path, SERIES))
    assert found.what == "upstream tiny: sha256"
    assert found.actual == hashlib.sha256(b"other").hexdigest()


def test_a_moved_revision_disagrees(tmp_path: Path) -> None:
    changed = config(tmp_path)
    changed.upstreams["ops"] = replace(changed.upstreams["ops"], revision="v2.1")
    [found] = disagreements(LOCK, changed, series(tmp_path, SERIES))
    assert str(found) == "upstream ops: revision: the lock has v2.0, the project has v2.1"


def test_upstreams_that_only_one_side_has(tmp_path: Path) -> None:
    changed = config(tmp_path)
    changed.upstreams["new"] = replace(changed.upstreams.pop("ops"), name="new")
    found = disagreements(LOCK, changed, series(tmp_path, SERIES))
    assert [(d.what, d.locked == "(absent)", d.actual == "(absent)") for d in found] == [
        ("upstream new", True, False),
        ("upstream ops", False, True),
    ]


@pytest.mark.parametrize(
    ("patches", "expected"),
    [
        ([], [("patch patches/0001-tiny-open.patch", "b" * 64, "(absent)")]),
        (
            [SERIES, ("0002-x.patch", "tiny", "c" * 64)],
            [("patch patches/0002-x.patch", "(absent)", "c" * 64)],
        ),
        (
            [(SERIES[0], "tiny", "c" * 64)],
            [("patch patches/0001-tiny-open.patch: sha256", "b" * 64, "c" * 64)],
        ),
        (
            [(SERIES[0], "ops", "b" * 64)],
            [("patch patches/0001-tiny-open.patch: upstream", "tiny", "ops")],
        ),
    ],
)
def test_patch_files_that_differ_are_named_with_both_values(
    tmp_path: Path, patches: list[tuple[str, str, str]], expected: list[tuple[str, str, str]]
) -> None:
    found = disagreements(LOCK, config(tmp_path), series(tmp_path, *patches))
    assert [(d.what, d.locked, d.actual) for d in found] == expected


@pytest.mark.parametrize(("made_for", "same"), [(None, True), ("v1.0", True), ("0.9", False)])
def test_a_patch_made_for_another_pin_disagrees(
    tmp_path: Path, made_for: str | None, same: bool
) -> None:
    found = disagreements(LOCK, config(tmp_path), series(tmp_path, SERIES, made_for=made_for))
    expected = [("patch patches/0001-tiny-open.patch: made for", "1.0", "0.9")]
    assert [(d.what, d.locked, d.actual) for d in found] == ([] if same else expected)
