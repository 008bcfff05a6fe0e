"""The fixtures of smoke tests: thin wrappers that put the tree under test in front.

Each takes ``trees=`` for another tree, such as ``baseline``.
"""

from __future__ import annotations

import pytest

from patchwright.smoke.trees import Trees


class TreePair:
    """Brings the trees of one run into the session."""

    def __init__(self, tree: Trees, baseline: Trees) -> None:
        self.tree = tree
        self.baseline = baseline

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[_PAIR] = self


_PAIR = pytest.StashKey[TreePair]()


@pytest.fixture(scope="session")
def tree(request: pytest.FixtureRequest) -> Trees:
    """The upstreams with the patch; in the control, without it."""
    return request.config.stash[_PAIR].tree


@pytest.fixture(scope="session")
def baseline(request: pytest.FixtureRequest) -> Trees:
    """The same upstreams without the patch."""
    return request.config.stash[_PAIR].baseline
