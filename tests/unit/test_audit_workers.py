"""Files are evaluated in several processes: with the same outcome as in one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from audits import UTILS, stored
from patchwright.audit import workers
from patchwright.audit.gates import Gate
from patchwright.audit.inventory import inventory
from patchwright.audit.workers import Workers
from patchwright.errors import PatchwrightError

ASKS = "from serve.m{next} import FAST_{next}\nFAST_{n} = FAST_{next}\nif FAST_{n}: import fast\n"
FILES = {
    "python/serve/utils.py": UTILS,
    "python/serve/m2.py": "from serve.utils import is_blackwell\nFAST_2 = is_blackwell()\n",
    **{f"python/serve/m{n}.py": ASKS.format(n=n, next=n + 1) for n in range(2)},
}


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_WORTH", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


def _found(tmp_path: Path) -> list[Gate]:
    return inventory(stored(tmp_path, {"serve": FILES}), ["serve"]).gates


def test_processes_find_what_one_finds(
    tmp_path: Path, two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = _found(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert several == _found(tmp_path)
    assert {g.condition for g in several} >= {"FAST_0", "FAST_1"}


def _pid(method: str, argument: tuple[list[Any], Any]) -> tuple[int, list[Any], Any]:
    return os.getpid(), *argument


def test_what_a_process_had_comes_to_it_again(two: None) -> None:
    items = {name: 10 - n for n, name in enumerate("abcd")}
    with Workers(_pid) as made:
        first = made.run("x", items, "more")
        again = made.run("x", {"c": 1, "a": 1}, "more")
    assert len({pid for pid, _, _ in first} - {os.getpid()}) == 2
    assert sorted(name for _, share, _ in first for name in share) == list("abcd")
    had = {name: pid for pid, share, _ in first for name in share}
    assert all(had[name] == pid for pid, share, _ in again for name in share)
    assert {more for _, _, more in first} == {"more"}


def _fails(method: str, argument: Any) -> None:
    raise ValueError(f"cannot {method}")


def test_what_goes_wrong_in_a_process_is_told_here(two: None) -> None:
    with Workers(_fails) as made, pytest.raises(ValueError, match="cannot read"):
        made.run("read", {"a": 1})


def _ends(method: str, argument: Any) -> None:
    os._exit(1)


def test_a_process_that_ends_is_an_error_and_no_loss(two: None) -> None:
    with Workers(_ends) as made, pytest.raises(PatchwrightError, match="evaluates gates ended"):
        made.run("read", {"a": 1})


def test_files_that_no_package_holds_are_one_row(tmp_path: Path) -> None:
    ask = "if torch.cuda.get_device_capability() < (9, 0): pass\n"
    files = {"kern/jit.py": ask, "csrc/a/one.py": ask, "csrc/a/two.py": ask, "csrc/b.py": ask}
    found = inventory(stored(tmp_path, {"kern": files}), ["kern"])
    assert [gate.path for gate in found.gates if gate.kind == "comparison"] == ["kern/jit.py"]
    assert [(path, why) for _, path, why in found.unread] == [
        ("csrc/a/ (2 files)", "not in kern's packages: nothing imports it"),
        ("csrc/b.py", "not in kern's packages: nothing imports it"),
    ]
