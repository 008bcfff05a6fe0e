"""Finding a CUDA compiler, with small scripts in place of compilers."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from deaths import is_dead
from patchwright.smoke import compiler
from patchwright.smoke.compiler import find_compiler, require_memory, run, wheel_includes
from patchwright.smoke.outcomes import Blocked, SmokeError


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def toolkit(home: Path, release: str, *, complete: bool = True) -> Path:
    """Make a folder that answers as a toolkit does; return its nvcc."""
    if complete:
        script(home / "nvvm/bin/cicc", "exit 1")
    return script(
        home / "bin/nvcc",
        f"""case "$*" in
  *--version*) echo "Cuda compilation tools, release {release}, V{release}.61";;
  *) echo "#$ _HERE_={home}/bin" >&2; echo "#$ CICC_PATH={home}/bin/../nvvm/bin" >&2;;
esac""",
    )


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a host compiler and no toolkit; returns the folder on PATH."""
    path = tmp_path / "path"
    script(path / "gcc", "echo 'gcc 12.2.0'")
    script(path / "g++", "echo 'g++ 12.2.0'")
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(compiler, "SYSTEM_HOME", tmp_path / "usr-local-cuda")
    # No wheels of the `nvcc` extra but the ones that a test makes.
    monkeypatch.setitem(sys.modules, "nvidia", None)
    return path


def test_none_found_says_how_to_get_one() -> None:
    with pytest.raises(Blocked) as blocked:
        find_compiler()
    assert str(blocked.value) == (
        "needs a CUDA compiler of 12.8 or newer; found none "
        "(get one with: pip install 'patchwright[nvcc]')"
    )


def test_too_old_names_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = toolkit(tmp_path / "old", "12.4")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "old"))
    with pytest.raises(Blocked, match=r"12\.8 or newer; found 12\.4 at ") as blocked:
        find_compiler()
    assert str(nvcc) in str(blocked.value)


def test_an_old_one_does_not_hide_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolkit(tmp_path / "old", "12.4")
    toolkit(tmp_path / "usr-local-cuda", "12.8")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "old"))
    found = find_compiler()
    assert found.version == (12, 8)
    assert found.home == tmp_path / "usr-local-cuda"
    assert found.nvcc == found.home / "bin/nvcc"


def test_the_order_is_variable_wheels_path_system(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes = [tmp_path / n for n in ("variable", "site/nvidia/cu13", "linked", "usr-local-cuda")]
    for home in homes:
        toolkit(home, "13.0")
    (machine / "nvcc").symlink_to(homes[2] / "bin/nvcc")
    monkeypatch.setenv("CUDA_HOME", str(homes[0]))
    monkeypatch.delitem(sys.modules, "nvidia")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = [find_compiler().home]
    monkeypatch.delenv("CUDA_HOME")
    found.append(find_compiler().home)
    monkeypatch.setitem(sys.modules, "nvidia", None)
    found.append(find_compiler().home)
    (machine / "nvcc").unlink()
    found.append(find_compiler().home)
    assert found == homes


def test_a_wrapper_on_path_is_asked_where_it_leads(tmp_path: Path, machine: Path) -> None:
    nvcc = toolkit(tmp_path / "real", "13.0")
    script(machine / "nvcc", f'exec {nvcc} "$@"')
    assert find_compiler().home == tmp_path / "real"


def test_an_incomplete_toolkit_is_no_compiler(tmp_path: Path) -> None:
    toolkit(tmp_path / "usr-local-cuda", "13.0", complete=False)
    with pytest.raises(Blocked, match=r"found an incomplete 13\.0 at "):
        find_compiler()


def test_a_broken_nvcc_is_passed_over(tmp_path: Path, machine: Path) -> None:
    script(machine / "nvcc", "exit 1")
    toolkit(tmp_path / "usr-local-cuda", "13.0")
    assert find_compiler().home == tmp_path / "usr-local-cuda"


def test_the_host_compiler_is_a_need(tmp_path: Path, machine: Path) -> None:
    toolkit(tmp_path / "usr-local-cuda", "13.0")
    (machine / "g++").unlink()
    with pytest.raises(Blocked, match=r"needs the host compiler g\+\+"):
        find_compiler()


def test_the_identity_knows_versions_and_no_paths(tmp_path: Path, machine: Path) -> None:
    seen = []
    for name in ("one", "two"):
        nvcc = toolkit(tmp_path / name, "13.0")
        script(machine / "nvcc", f'exec {nvcc} "$@"')
        seen.append(find_compiler())
    assert seen[0].home != seen[1].home
    assert seen[0].identity == seen[1].identity
    script(machine / "g++", "echo 'g++ 13.1.0'")
    assert find_compiler().identity != seen[0].identity


def test_headers_of_library_wheels_beside_another_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site/nvidia/cu13/include").mkdir(parents=True)
    # The environment of the tests may hold the compiler's wheels as well.
    without = [entry for entry in sys.path if not (Path(entry) / "nvidia").is_dir()]
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *without])
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    toolkit(tmp_path / "usr-local-cuda", "13.0")
    found = find_compiler()
    assert wheel_includes(found) == (tmp_path / "site/nvidia/cu13/include",)
    toolkit(tmp_path / "site/nvidia/cu13", "13.0")
    assert wheel_includes(find_compiler()) == ()


def test_too_little_memory_is_a_need() -> None:
    require_memory(1)
    with pytest.raises(Blocked, match=r"needs 1048576\.0 GiB of free memory to compile; \d"):
        require_memory(1 << 50)


def test_a_program_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    os.environ["PATH"] += ":/usr/bin:/bin"
    slow = script(tmp_path / "slow", f"sleep 60 & echo $! > {tmp_path}/pid; wait")
    start = time.monotonic()
    with pytest.raises(SmokeError, match=r"slow did not end within 0\.5 s"):
        run([slow], deadline=0.5)
    assert time.monotonic() - start < 30
    assert is_dead(int((tmp_path / "pid").read_text()))


def test_a_users_variables_do_not_reach_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
    monkeypatch.setenv("CPATH", "/elsewhere")
    shown = run([script(tmp_path / "show", "echo [$NVCC_APPEND_FLAGS$CPATH] $LC_ALL")], deadline=60)
    assert shown.stdout == "[] C\n"
