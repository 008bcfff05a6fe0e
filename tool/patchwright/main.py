"""The command line: parses what stands before a command, dispatches, says errors.

This is the one place that turns an error into its text and its exit code:
0 done, 1 the answer is no, 2 arguments or project files, 3 environment or tool.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import keyword
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from patchwright import __version__
from patchwright.commands import Invocation
from patchwright.errors import PatchwrightError

# Name to one line of help: `--help` must not import what the commands need.
_COMMANDS = {
    "apply": "Apply the series; write or install it.",
    "audit": "See whether an opened gate leads to whole code.",
    "bisect": "Find the patches that break startup.",
    "bump": "Move a pin; show first what becomes of each patch.",
    "bundle": "Pack everything that a rebuild without a network needs.",
    "cache": "List and prune what the tool keeps in your cache.",
    "capture": "Turn hand edits in installed packages into patches.",
    "check": "Name every difference between the lock and an environment.",
    "completion": "Print the completion script of a shell.",
    "drop": "Take patches out of the series.",
    "edit": "Open a patch as files to change them.",
    "evidence": "List, show, export and import what was verified.",
    "explain": "Say which patch led to an error in a log.",
    "export": "Write the series for others: quilt, mbox, git.",
    "fold": "Make one patch of several.",
    "gates": "List the gates and what each decides.",
    "graph": "Show which patch stands on which.",
    "import": "Bring in quilt series, mails, commits, single diffs.",
    "init": "Start a project for any upstream.",
    "landed": "Say which patches upstream contains by now.",
    "lint": "Check that patch files are well-formed.",
    "lock": "Resolve the pins and write upstream.lock, or check it.",
    "log": "List what was done to the series.",
    "man": "Print the manual page.",
    "message": "Change title, message and fields of a patch.",
    "move": "Put a patch elsewhere in the series.",
    "new": "Start a patch.",
    "off": "Leave patches out on this machine.",
    "on": "Let patches take part again on this machine.",
    "prebuild": "Compile JIT modules ahead of the first start.",
    "rebuild": "Make the environment from the lock, patched wheels in.",
    "redo": "Do again what was undone last.",
    "refresh": "Write the work tree back to its patch.",
    "renumber": "Give patches other numbers, in the same order.",
    "run": "Run a command in the rebuilt environment.",
    "send": "Send patches upstream, once they hold there.",
    "show": "Print one patch: fields, needs, files, verdicts.",
    "split": "Make several patches of one.",
    "start": "Start a server on the patched tree, once.",
    "status": "Print the series: how each patch applies, and what is verified.",
    "unapply": "Take the patches off an environment again.",
    "undo": "Take back the last change of the series.",
    "verify": "Show for each patch that it does what it says.",
}
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_INTERRUPTED, _BROKEN_PIPE = 130, 141  # 128 + SIGINT, 128 + SIGPIPE


class _Carried(Exception):
    """An error that click would take for its own: click exits silently on these two."""


class _Commands(click.Group):
    """Loads a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            if not cmd_name.startswith("-"):
                from difflib import get_close_matches

                near = get_close_matches(cmd_name, _COMMANDS, 1)
                hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(_COMMANDS)}"
                ctx.fail(f"no such command {cmd_name!r}: {hint}")
            return None
        # A module cannot be called import.
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        module = importlib.import_module(f"patchwright.commands.{name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (EOFError, OSError) as error:
            raise _Carried from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-C", "directory", metavar="DIR", default=".", type=click.Path(path_type=Path),
    help="Work on the project that DIR lies in.",
)  # fmt: skip
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
@click.pass_context
def _cli(ctx: click.Context, directory: Path) -> None:
    """Manage patches to GPU upstreams: apply them one at a time, verify each alone."""
    if not directory.is_dir():
        raise click.BadParameter(f"{directory} is not a folder", param_hint="-C")
    ctx.obj = Invocation(directory)


def run(argv: list[str]) -> int:
    """Run one command line and return its exit code; errors are said on stderr."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed when we were started
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        # File names and upstream text may hold what the terminal's encoding lacks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            code = _cli.main(argv, prog_name="patchwright", standalone_mode=False)
            sys.stdout.flush()
        except _Carried as carried:
            cause = carried.__cause__
            raise cause if cause is not None else carried from None
    except PatchwrightError as error:
        _say(error)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("patchwright: interrupted", err=True)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader has gone; the interpreter's own flush at exit must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except Exception as error:
        return _broke(error, argv)
    return code if isinstance(code, int) else 0


def _say(error: PatchwrightError) -> None:
    from patchwright.quoting import printable

    place = f"{error.where}: " if error.where else ""
    # The exit code says it as well, where standard error cannot be written.
    with contextlib.suppress(OSError):
        click.echo(f"patchwright: error: {printable(place + error.what)}", err=True)
        if error.next_step:
            click.echo(f"Next: {printable(error.next_step)}", err=True)


def _broke(error: Exception, argv: list[str]) -> int:
    """Say an error that nobody foresaw; its traceback goes to a log (or to stderr)."""
    import platform
    import traceback

    text = (
        f"patchwright {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"arguments: {argv}\n\n{''.join(traceback.format_exception(error))}"
    )
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        # Nobody's fault, and a log would not fit either.
        _say(PatchwrightError(
            str(error.strerror), where=str(error.filename or ""),
            next_step="make room on the disks of the project, PATCHWRIGHT_CACHE and TMPDIR, and "
            "run it again: what was there is untouched",
        ))  # fmt: skip
        return PatchwrightError.exit_code
    if isinstance(error, OSError) and error.strerror:
        what, where = error.strerror, str(error.filename or "")
    else:
        what, where = f"{type(error).__name__}: {error}", ""
    try:
        log = _log(text)
    except OSError:
        click.echo(text, err=True)
        next_step = "report this with the text above"
    else:
        next_step = f"the traceback is in {log}; report it if this is not about your machine"
    _say(PatchwrightError(what, where=where, next_step=next_step))
    return PatchwrightError.exit_code


def _log(text: str) -> Path:
    import tempfile

    from platformdirs import user_log_path

    folder = user_log_path("patchwright", appauthor=False)
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix="error-", suffix=".log", dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
        stream.write(text)
    return Path(name)


def main() -> NoReturn:
    """Run the console script."""
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # The interpreter would try once more, and end with a code of its own.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)
