"""``patchwright new``: start a patch."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchwright.commands import Invocation, json_option, print_json
from patchwright.commands._changed import open_project

if TYPE_CHECKING:
    from patchwright.project import Project

_SKELETON = '''"""{title}

Not written yet: it fails, and so the patch counts as unproven work. Say here what must be
seen with the patch and cannot be seen without it, and assert that.
"""

from __future__ import annotations

import pytest


@pytest.mark.tier("static")
def test_what_the_patch_does() -> None:
    pytest.fail("the smoke test of this patch is not written yet")
'''


@click.command(short_help="Start a patch.")
@click.argument("title")
@click.option("--upstream", metavar="NAME", help="Which upstream it changes.")
@click.option("--number", type=click.IntRange(min=1), metavar="N",
              help="Its place; default: behind all others.")  # fmt: skip
@click.option("-m", "--message", help="Why, for upstream to read. Default: $EDITOR asks.")
@click.option("--author", metavar="'NAME <ADDRESS>'", help="Default: who you are to git.")
@click.option("--smoke/--no-smoke", default=True, help="Write a smoke test's skeleton, too.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation, title: str, upstream: str | None, number: int | None,
    message: str | None, author: str | None, smoke: bool, as_json: bool,
) -> int:  # fmt: skip
    """Start a patch called TITLE: open the work tree for it.

    Change files there, then run `patchwright refresh`: it writes the patch and its smoke
    test. The test fails until it is written. Nothing is in the series before.
    """
    from patchwright.editing import identity, refreshing
    from patchwright.errors import InputError

    project = open_project(invocation)
    title = " ".join(title.split())
    if not title:
        raise click.BadParameter("a patch needs a title", param_hint="TITLE")
    names = list(project.config.upstreams)
    if upstream is None:
        if len(names) != 1:
            raise InputError(
                "which upstream does it change?", where=str(project.root / "pyproject.toml"),
                next_step=f"give --upstream with one of {', '.join(names)}",
            )  # fmt: skip
        upstream = names[0]
    project.upstream(upstream)
    sender = author or identity.author(project.root)
    text = _asked(title) if message is None else message
    opened = refreshing.start(
        project, number, upstream, title,
        _draft(project, upstream, title, text, sender, smoke),
        (lambda n: (_smoke(n, title), _SKELETON.format(title=title))) if smoke else None,
    )  # fmt: skip
    if as_json:
        print_json({
            "folder": str(opened.folder), "number": opened.number, "upstream": opened.upstream,
        })  # fmt: skip
    else:
        click.echo(f"{opened.number:04d} ({opened.upstream}) is open in {opened.folder}")
        click.echo("Next: change files there, then run `patchwright refresh`")
    return 0


def _smoke(number: int, title: str) -> str:
    from patchwright.editing.rewriting import slug

    return f"tests/smoke/test_{number:04d}_{slug(title, '_')}.py"


def _draft(project: Project, upstream: str, title: str, message: str, sender: str, smoke: bool):  # type: ignore[no-untyped-def]
    from patchwright.patch import Patch

    def make(number: int, name: str) -> Patch:
        import datetime
        from email.utils import format_datetime

        from patchwright.editing.rewriting import new_patch

        version = project.upstream(upstream).version
        fields = {"Upstream": [f"{upstream} {version}".strip()]}
        if smoke:
            fields["Smoke"] = [_smoke(number, title)]
        fields["Upstream-Status"] = ["Pending"]
        date = format_datetime(datetime.datetime.now().astimezone())
        return new_patch(Path(project.root / "patches" / name), title, sender, date, message,
                         fields, b"")  # fmt: skip

    return make


def _asked(title: str) -> str:
    """Return the message that the user writes in an editor; none where nobody can be asked."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not named and not (sys.stdin.isatty() and sys.stdout.isatty()):
        return ""
    hint = f"# Why, in prose that upstream can read: {title}\n# Lines with a # in front go.\n"
    text = click.edit(f"\n{hint}", extension=".txt") or ""
    return "\n".join(line for line in text.splitlines() if not line.startswith("#")).strip("\n")
