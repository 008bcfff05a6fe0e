"""The command line: dispatch, errors, exit codes, and what --help imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

from patchwright import __version__
from patchwright.commands import SelectingCommand, console, json_option, print_json, progress
from patchwright.errors import AnswerNo, InputError, PatchwrightError
from patchwright.main import run


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Put a command in the place of ``status``; it raises or returns what is put here."""
    does: list[object] = []

    @click.command()
    def command() -> object:
        for thing in does:
            if isinstance(thing, BaseException):
                raise thing
        return does[0] if does else None

    module = ModuleType("patchwright.commands.status")
    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "patchwright.commands.status", module)
    return does


@pytest.mark.parametrize(
    ("outcome", "code"), [(None, 0), (0, 0), (1, 1)], ids=["nothing", "zero", "one"]
)
def test_a_command_returns_its_exit_code(status: list[object], outcome: object, code: int) -> None:
    status[:] = [outcome] if outcome is not None else []
    assert run(["status"]) == code


@pytest.mark.parametrize(("kind", "code"), [(AnswerNo, 1), (InputError, 2), (PatchwrightError, 3)])
def test_an_error_is_said_once_with_place_and_next_step(
    status: list[object], capsys: pytest.CaptureFixture[str],
    kind: type[PatchwrightError], code: int,
) -> None:  # fmt: skip
    status[:] = [kind("it is broken", where="a.patch:3", next_step="mend it")]
    assert run(["status"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "patchwright: error: a.patch:3: it is broken\nNext: mend it\n"


@pytest.mark.parametrize("error", [ValueError("odd"), EOFError("odd"), OSError(5, "odd", "/x")])
def test_an_unforeseen_error_leaves_its_traceback_in_a_log(
    status: list[object], capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    status[:] = [error]
    assert run(["status"]) == 3
    err = capsys.readouterr().err
    assert "odd" in err
    assert "Traceback" not in err
    [log] = (Path(os.environ["XDG_STATE_HOME"]) / "patchwright").rglob("*.log")
    assert str(log) in err
    text = log.read_text(encoding="utf-8")
    assert type(error).__name__ in text
    assert "Traceback" in text
    assert "['status']" in text


def test_where_no_log_can_be_written_the_traceback_is_printed(
    status: list[object], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    status[:] = [ValueError("odd")]
    assert run(["status"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_ends_with_130(
    status: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    status[:] = [KeyboardInterrupt()]
    assert run(["status"]) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["statsu"], "did you mean status?"),
        (["xyzzy"], "lock, log"),
        (["--nonsense"], "--nonsense"),
        (["-C", "/nowhere/at/all", "lock"], "not a folder"),
        (["lock", "--nonsense"], "--nonsense"),
        (["lock", "--check", "--upgrade"], "--upgrade"),
    ],
)
def test_wrong_arguments_end_with_2(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 2
    assert said in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"patchwright {__version__}\n"


def test_outside_a_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-C", str(tmp_path), "lock"]) == 2
    assert "Next: " in capsys.readouterr().err


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, patchwright.main as m; assert m.run(['--help']) == 0; "
        "heavy = {'git', 'rich', 'unidiff', 'pytest', 'tomllib', 'subprocess', 'filelock',"
        " 'packaging', 'patchwright.project', 'patchwright.commands.lock'}; "
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("apply", "lock", "show", "status", "verify"):
        assert f"\n  {name} " in done.stdout


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = (
        "import sys, types, click\n"
        "module = types.ModuleType('patchwright.commands.status')\n"
        "module.command = click.command()(lambda: [click.echo('x' * 80) for _ in range(9999)])\n"
        "sys.modules[module.__name__] = module\n"
        "sys.argv = ['patchwright', 'status']\n"
        "import patchwright.main; patchwright.main.main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode == 141
    assert err == b""


@pytest.mark.parametrize(
    ("argv", "numbers", "to", "only", "without"),
    [
        ([], (), None, None, set()),
        (["4", "--without", "1"], (4,), None, None, {1}),
        (["--only", "1", "4"], (), None, {1, 4}, set()),
        (["--only", "1,4", "--only=0007"], (), None, {1, 4, 7}, set()),
        (["--without", "1", "--without", "2"], (), None, None, {1, 2}),
        (["--without", "1,", "2", "--to", "5", "3"], (3,), 5, None, {1, 2}),
        (["--only", "1", "4", "--json", "2"], (2,), None, {1, 4}, set()),
        (["--only", "1", "--", "4"], (4,), None, {1}, set()),
        (["--to", "0"], (), 0, None, set()),
    ],
)
def test_the_selection_is_written_as_it_is_said(
    argv: list[str], numbers: tuple[int, ...], to: int | None,
    only: set[int] | None, without: set[int],
) -> None:  # fmt: skip
    seen: list[object] = []

    @click.command(cls=SelectingCommand)
    @click.argument("numbers", nargs=-1, type=int)
    @json_option
    def command(numbers: tuple[int, ...], as_json: bool, selection: object) -> None:
        seen.extend([numbers, selection])

    command.main(argv, standalone_mode=False)
    from patchwright.series import Selection

    wanted = frozenset(only) if only is not None else None
    assert seen == [numbers, Selection(to=to, only=wanted, without=frozenset(without))]


@pytest.mark.parametrize("argv", [["--only", "x"], ["--only"], ["--without=1,x"], ["--to", "-1"]])
def test_a_selection_that_is_no_number(argv: list[str]) -> None:
    @click.command(cls=SelectingCommand)
    def command(selection: object) -> None: ...

    with pytest.raises(click.UsageError):
        command.main(argv, standalone_mode=False)


def test_output_that_is_not_a_terminal_has_no_colour_and_no_folding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console().print("[red]x[/red] " + "y" * 150, style="red")
    with progress("fetching") as say:
        say("applying")
    out, err = capsys.readouterr()
    assert out == "[red]x[/red] " + "y" * 150 + "\n"
    assert err == "fetching\napplying\n"


def test_json_is_stable(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"b": "\udc80…", "a": [1]})
    assert capsys.readouterr().out == '{"b": "\\udc80\\u2026", "a": [1]}\n'
