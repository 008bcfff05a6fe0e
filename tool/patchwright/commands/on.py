"""``patchwright on``: let patches take part on this machine again."""

from __future__ import annotations

import click

from patchwright.commands import Invocation, json_option, print_json


@click.command(short_help="Let patches take part again on this machine.")
@click.argument("numbers", nargs=-1, required=True, type=click.IntRange(min=1), metavar="N...")
@json_option
@click.pass_obj
def command(invocation: Invocation, numbers: tuple[int, ...], as_json: bool) -> int:
    """Let patches take part on this machine again.

    What is off takes part in nothing unless --only names it; the patch files and
    upstream.lock stay as they are, and so do other machines.
    """
    from patchwright.editing.switches import switch
    from patchwright.project import Project

    now = sorted(switch(Project.open(invocation.directory), numbers, off=False))
    if as_json:
        print_json({"off": now})
    else:
        click.echo(f"off on this machine: {', '.join(f'{n:04d}' for n in now) or 'none'}")
    return 0
