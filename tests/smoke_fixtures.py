"""Fixtures of the tests of smoke runs: see smoke_bench.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoke_bench import Bench, Shared


@pytest.fixture(scope="module")
def shared() -> Shared:
    return Shared()


@pytest.fixture
def bench(shared: Shared, tmp_path: Path) -> Bench:
    return shared.bench(tmp_path)


@pytest.fixture
def own_bench(tmp_path: Path) -> Bench:
    """Return a project of the test's own, for a test that changes it."""
    return Bench(tmp_path)
