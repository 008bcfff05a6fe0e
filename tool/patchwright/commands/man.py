"""``patchwright man``: the manual page, made from what ``--help`` says."""

from __future__ import annotations

import re
from inspect import cleandoc

import click

from patchwright import __version__

_EXITS = (
    ("0", "done"),
    ("1", "the answer is no: a patch does not apply, a check found a disagreement"),
    ("2", "arguments or project files that cannot be used"),
    ("3", "the environment or the tool broke"),
)


@click.command(short_help="Print the manual page.")
@click.pass_context
def command(ctx: click.Context) -> int:
    """Print the manual page of all commands, in troff: patchwright man | man -l -

    To keep it: patchwright man > ~/.local/share/man/man1/patchwright.1
    """
    click.echo(page(ctx.find_root()), nl=False)
    return 0


def page(root: click.Context) -> str:
    """Return the page; it says what ``--help`` of the group and of each command says."""
    group = root.command
    assert isinstance(group, click.Group)
    title = _text(group.get_short_help_str(200)).rstrip(".")
    out = [
        f'.TH PATCHWRIGHT 1 "" "patchwright {__version__}" "User Commands"',
        ".SH NAME", f"patchwright \\- {title}",
        ".SH SYNOPSIS", f".B patchwright\n{_text(' '.join(group.collect_usage_pieces(root)))}",
        ".SH DESCRIPTION", _prose(group.help or ""),
        ".SH OPTIONS", *_options(group, root),
        ".SH COMMANDS",
    ]  # fmt: skip
    out += _commands(group, root)
    out.append(".SH EXIT STATUS")
    for code, what in _EXITS:
        out += [".TP", f".B {code}", _text(what)]
    return "\n".join(line for line in out if line) + "\n"


def _commands(group: click.Group, parent: click.Context) -> list[str]:
    out: list[str] = []
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is None or command.hidden:
            continue
        with click.Context(command, info_name=name, parent=parent) as ctx:
            usage = " ".join(command.collect_usage_pieces(ctx))
            out.append(f'.SS "{_text(ctx.command_path)} {_text(usage)}"')
            out.append(_prose(command.help or ""))
            out += _options(command, ctx)
            if isinstance(command, click.Group):
                out += _commands(command, ctx)
    return out


def _options(command: click.Command, ctx: click.Context) -> list[str]:
    out = []
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None and record[1]:
            out += [".TP", f".B {_text(record[0])}", _text(record[1])]
    return out


def _prose(help_text: str) -> str:
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", cleandoc(help_text)):
        if paragraph.startswith("\b"):
            lines = [_text(line.strip()) for line in paragraph.split("\n")[1:]]
            paragraphs.append(".nf\n" + "\n".join(lines) + "\n.fi")
        else:
            paragraphs.append(".PP\n" + _text(" ".join(paragraph.split())))
    return "\n".join(paragraphs)


def _text(text: str) -> str:
    """Escape what troff would take for its own."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)
