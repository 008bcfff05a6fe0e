"""Seals every test: nothing of the user's machine decides an outcome."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_IDENTITY = "[user]\n\tname = A Tester\n\temail = tester@example.org\n[commit]\n\tgpgSign = false\n"
# What a run takes from outside; everything else a test sets itself.
_DROPPED = (
    "GIT_", "LC_", "XDG_", "PATCHWRIGHT_", "FLASHINFER_", "PYTEST_ADDOPTS", "NO_COLOR",
    "FORCE_COLOR", "CLICOLOR", "COLUMNS", "LANGUAGE", "EDITOR", "VISUAL", "PAGER",
)  # fmt: skip


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Compilers and servers take the whole machine: the slow tests come one after the other."""
    return 0 if config.option.markexpr == "slow" else None


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Close the packs that a test read: a command's process would have ended by now."""
    yield
    if "gitdb.util" in sys.modules:
        sys.modules["gitdb.util"].mman.collect()


@pytest.fixture(autouse=True)
def _sealed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test its own HOME, git configuration, dates, locale and cache."""
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(_DROPPED):
            monkeypatch.delenv(name)
    config = home / ".gitconfig"
    config.write_text(_IDENTITY, encoding="ascii")
    settings = {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "PATCHWRIGHT_CACHE": str(home / "cache"),
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(tmp_path_factory.getbasetemp()),
        "GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z",
        "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    # A shell that starts us in the background has us ignore it, and so would what we start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tool = Path(__file__).resolve().parent.parent / "tool"
    path = os.environ.get("PYTHONPATH", "")
    if str(tool) not in path.split(os.pathsep):
        monkeypatch.setenv("PYTHONPATH", f"{tool}{os.pathsep}{path}" if path else str(tool))
