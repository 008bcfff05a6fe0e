"""[environment] of the lock: written, read again, and refused where it was edited."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from patchwright.environment.locked import (
    LockedEnvironment,
    LockedFile,
    LockedPackage,
    read_environment,
)
from patchwright.errors import InputError
from patchwright.lock import Lock, format_lock

A, B, C = ("a" * 64, "b" * 64, "c" * 64)
PURE = LockedFile("py3-none-any", A)
ENVIRONMENT = LockedEnvironment(
    python="3.11",
    platforms=("x86_64-manylinux_2_28", "aarch64-manylinux_2_28"),
    cuda="12.8",
    requirements=("native",),
    upstreams={"tiny": "1.0"},
    settings={"ARCH": "12.0a"},
    wheels={"tiny-1.0+pw.1a2b3c4d-py3-none-any.whl": C},
    packages=(
        LockedPackage("dep", "1.0", {"x86_64": PURE, "aarch64": PURE}),
        LockedPackage("native", "2.0+cu1", {
            "x86_64": LockedFile("cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64", A),
            "aarch64": LockedFile("sdist", B),
        }),
        LockedPackage("one", "3", {"x86_64": PURE}),
    ),
    build=(LockedPackage("setuptools", "80", {"aarch64": PURE}),),
)  # fmt: skip


def table(environment: LockedEnvironment = ENVIRONMENT) -> dict[str, Any]:
    text = format_lock(Lock((), (), environment.to_table())).decode()
    found: dict[str, Any] = tomllib.loads(text)["environment"]
    return found


def test_what_is_written_is_read_again() -> None:
    assert read_environment(table(), "upstream.lock") == ENVIRONMENT


def test_the_same_environment_gives_the_same_bytes() -> None:
    first = format_lock(Lock((), (), ENVIRONMENT.to_table()))
    assert format_lock(Lock((), (), tomllib.loads(first.decode())["environment"])) == first


def test_each_package_is_one_line() -> None:
    assert table()["packages"].splitlines() == [
        f"dep 1.0 py3-none-any:{A}",
        f"native 2.0+cu1 aarch64=sdist:{B} "
        f"x86_64=cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64:{A}",
        f"one 3 x86_64=py3-none-any:{A}",
    ]


def test_what_is_not_as_one_would_hope_is_said() -> None:
    without = LockedEnvironment(
        "3.11", ENVIRONMENT.platforms, unresolved={"aarch64": "x==1 has no wheel"}
    )
    assert without.facts() == ("nothing is locked for aarch64: x==1 has no wheel",)
    assert without.machines == ("x86_64",)
    assert ENVIRONMENT.facts() == (
        "native 2.0+cu1 has no wheel for aarch64: there it is built from its source",
    )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("packages", "dep 1.0\n", r"packages: line 1 cannot be read: 'dep 1\.0'"),
        ("packages", f"dep 1.0 py3-none-any:{A[1:]}\n", r"packages: line 1 cannot be read"),
        ("packages", f"\nde/p 1.0 py3-none-any:{A}\n", r"packages: line 2 cannot be read"),
        ("packages", f"dep 1.0 sparc=py3-none-any:{A}\n", r"packages: line 1 cannot be read"),
        (
            "packages",
            f"dep 1.0 py3-none-any:{A}\ndep 2.0 x86_64=py3-none-any:{B}\n",
            r"line 2: dep stands here twice for x86_64",
        ),
        ("packages", ["dep"], r"packages: text is expected"),
        ("wheels", "../x.whl abc\n", r"wheels: line 1 cannot be read"),
        ("settings", {"A": 1}, r"settings: a table of texts is expected"),
        ("python", "", r"python: this key is missing"),
        ("colour", "red", r"colour: this key is not known"),
    ],
)
def test_an_edited_table_is_refused_by_key_and_line(key: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_environment({**table(), key: value}, "upstream.lock")
