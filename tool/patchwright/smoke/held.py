"""A pytest session that is begun once and goes on in many forks.

To begin one (options, plugins, the fixtures of each plugin) takes as long as many a smoke
test. So the prepared process begins it and holds it where pytest would collect; each run is
a fork that goes on from there, with its own test, folders and recorder.

    hold(tests, folder, serve)     # calls serve(session), which forks
    finish(session, test)          # in the fork: collect, run, report; the exit status
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from patchwright.smoke import plugin

# Plugins of pytest that a smoke test cannot use, or (the last two) must not: one keeps a
# descriptor that is another file's in a fork, the other's last act is to collect garbage
# five times over, a third of a short run.
_UNUSED = (
    "doctest", "pastebin", "stepwise", "setuponly", "setupplan", "junitxml", "cacheprovider",
    "faulthandler", "unraisableexception",
)  # fmt: skip


class _Hold:
    """Stops a session ahead of its collection."""

    def __init__(self, serve: Callable[[pytest.Session], None]) -> None:
        self._serve = serve
        self.was_reached = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool | None:
        if self.was_reached:
            return None  # in a fork: the collection is pytest's own
        self.was_reached = True
        sys.stdout.flush()  # or every fork would print it again
        self._serve(session)
        return True


def hold(tests: Path, folder: Path, serve: Callable[[pytest.Session], None]) -> None:
    """Begin a session for the files in the folder ``tests``; call ``serve`` with it.

    ``folder`` is that of the runs: what is temporary lies there. Returns when ``serve``
    does; what goes on in a fork must not come back from there.
    """
    held = _Hold(serve)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    status = pytest.main(_arguments(tests, folder), plugins=[plugin, held])
    if not held.was_reached:
        raise RuntimeError(f"pytest ended with status {status} before it began")


def finish(session: pytest.Session, test: Path, *, collect_only: bool) -> int:
    """Collect and run the tests of the file ``test``; return pytest's exit status."""
    config = session.config
    config.args = [str(test)]
    config.option.collectonly = collect_only
    status = _rest(session)
    session.exitstatus = status
    config.hook.pytest_sessionfinish(session=session, exitstatus=status)
    return int(status)


def _rest(session: pytest.Session) -> pytest.ExitCode:
    """What pytest does from here on, and what it makes of an exception."""
    config = session.config
    try:
        config.hook.pytest_collection(session=session)
        config.hook.pytest_runtestloop(session=session)
    except (KeyboardInterrupt, pytest.exit.Exception):
        config.hook.pytest_keyboard_interrupt(excinfo=pytest.ExceptionInfo.from_current())
        return pytest.ExitCode.INTERRUPTED
    except session.Failed:
        return pytest.ExitCode.TESTS_FAILED
    except pytest.UsageError as error:
        print(f"ERROR: {error}")
        return pytest.ExitCode.USAGE_ERROR
    except BaseException:
        config.notify_exception(pytest.ExceptionInfo.from_current(), config.option)
        return pytest.ExitCode.INTERNAL_ERROR
    if session.testsfailed:
        return pytest.ExitCode.TESTS_FAILED
    return pytest.ExitCode.OK if session.testscollected else pytest.ExitCode.NO_TESTS_COLLECTED


def _arguments(tests: Path, folder: Path) -> list[str]:
    # No configuration, no conftest, no plugin but ours: what runs is the file and the
    # fixtures, which are what evidence is keyed by.
    return [
        "-c", os.devnull, "--rootdir", str(tests), "-q",
        "--noconftest", "--import-mode=importlib", "--capture=no", "--color=no", "-ra",
        # The others parse the test's file again for each failure; a control is made to fail.
        "--tb=native",
        # Not even the folders above are looked at for what might be collected there.
        "--confcutdir", str(tests), "--basetemp", str(folder / "pytest"),
        *(word for name in _UNUSED for word in ("-p", f"no:{name}")),
    ]  # fmt: skip
