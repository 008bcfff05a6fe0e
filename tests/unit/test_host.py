"""Programs for the host, made of upstream's C++: compiled once, then asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from patchwright.smoke.host import host_program
from patchwright.smoke.outcomes import Blocked, SmokeError

DOUBLE = """\
#include <cstdio>
#include <cstdlib>
int main(int, char** argv) {
  int given;
  while (scanf("%d", &given) == 1) printf("%d\\n", given * atoi(argv[1]));
}
"""

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHWRIGHT_CACHE", str(tmp_path / "cache"))


@needs_compiler
def test_a_program_answers() -> None:
    assert host_program(DOUBLE).run(3, data="1 2\n").stdout == "3\n6\n"


@needs_compiler
def test_it_is_compiled_once_for_one_source_and_its_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_program(DOUBLE)
    real = shutil.which("g++")
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin" / "g++"
    wrapper.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {real} --version\nexit 1\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert host_program(DOUBLE).run(3, data="5\n").stdout == "15\n"
    for other in ((DOUBLE + "\n",), (DOUBLE, "-O1")):
        with pytest.raises(SmokeError, match="does not compile"):
            host_program(*other)


@needs_compiler
def test_the_compilers_first_error_is_quoted() -> None:
    with pytest.raises(SmokeError, match=r"program\.cpp:1:\d+: error: .*nothing"):
        host_program("int main() { return nothing; }\nint more() { return none; }")


def test_without_a_compiler_it_is_blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Blocked, match=r"needs the host compiler g\+\+"):
        host_program(DOUBLE)
