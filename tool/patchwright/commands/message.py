"""``patchwright message``: change the words of a patch, not its diff."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from patchwright.commands import Invocation, json_option
from patchwright.commands._changed import change, open_project

if TYPE_CHECKING:
    from patchwright.editing.plans import Plan
    from patchwright.project import Project
    from patchwright.series import Series


@click.command(short_help="Change title, message and fields of a patch.")
@click.argument("number", type=click.IntRange(min=1), metavar="N")
@click.option("--title", help="The new title.")
@click.option("-m", "--message", "message", help="The new message.")
@click.option("--field", "fields", multiple=True, metavar="NAME=VALUE",
              help="Set a field; no value removes it. May be repeated.")  # fmt: skip
@json_option
@click.pass_obj
def command(
    invocation: Invocation, number: int, title: str | None, message: str | None,
    fields: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """Change what patch N says. Without options, $EDITOR opens title, message and fields.

    The diff stays, byte for byte.
    """
    project = open_project(invocation)
    patch = project.series.get(number)
    given = title is not None or message is not None or bool(fields)
    wanted: dict[str, list[str]] = {}
    for field in fields:
        name, equals, value = field.partition("=")
        if not equals or not name.replace("-", "").isalnum():
            raise click.BadParameter(f"{field!r} is not NAME=VALUE", param_hint="--field")
        wanted.setdefault(name, [])
        wanted[name] += [value] if value else []
    text = None if given else _edited(project, number)
    if not given and text is None:
        click.echo("nothing was changed")
        return 0

    def make(project: Project, series: Series) -> Plan:
        from dataclasses import replace

        from patchwright.editing import plans
        from patchwright.editing.wording import reworded, with_text
        from patchwright.errors import InputError

        now = series.get(number)
        if text is not None and now.raw != patch.raw:
            raise InputError(
                "this file was changed while the editor was open", where=str(now.path),
                next_step="look at it, and run the command again",
            )  # fmt: skip
        new = (
            with_text(now, text) if text is not None
            else reworded(now, title=title, message=message, fields=wanted, only_these=False)
        )  # fmt: skip
        parts = [
            replace(p, patch=new) if p.patch.number == number else p for p in plans.keep(series)
        ]
        numbers = [p.number for p in series.patches]
        return plans.numbered(f"message {number}", series, parts, numbers)

    said = f"{patch.path.name}: words changed"
    try:
        return change(invocation, make, said, as_json, stays_open=True)
    except Exception:
        if text is not None:
            _keep(project, text)
        raise


def _edited(project: Project, number: int) -> str | None:
    from patchwright.editing.wording import text_of

    before = text_of(project.series.get(number))
    text = click.edit(before, extension=".txt")
    return None if text is None or text == before else text


def _keep(project: Project, text: str) -> None:
    """Nothing that was typed is lost because it could not be used."""
    from patchwright.files import write_atomically

    path = project.state_dir / "message.txt"
    write_atomically(path, text.encode("utf-8", "surrogateescape"))
    click.echo(f"what you wrote is in {path}", err=True)
