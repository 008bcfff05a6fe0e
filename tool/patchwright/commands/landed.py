"""``patchwright landed``: which patches upstream contains by now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from patchwright.commands import Invocation, json_option, print_json, progress
from patchwright.quoting import printable

if TYPE_CHECKING:
    from patchwright.upstreaming.landing import Landed


@click.command(short_help="Say which patches upstream contains by now.")
@click.argument("names", nargs=-1, metavar="[UPSTREAM]...")
@click.option("--fetch", is_flag=True, help="Fetch upstream's branches first.")
@click.option("--write", is_flag=True, help="Write what follows into Upstream-Status.")
@click.option("--no-static", is_flag=True, help="Do not run the smoke tests without the patches.")
@json_option
@click.pass_obj
def command(
    invocation: Invocation, names: tuple[str, ...], fetch: bool, write: bool, no_static: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Say which patches the upstreams' current branches contain, and how that is known.

    Pull requests that Upstream-Status names are asked for through the gh program, where
    it is installed. Without --fetch nothing is fetched: what was fetched last counts.
    """
    from patchwright.project import Project
    from patchwright.upstreaming.landing import landed, write_status

    project = Project.open(invocation.directory)
    chosen = names or tuple(project.config.upstreams)
    for name in chosen:
        project.upstream(name)
    with progress("reading the histories") as project.progress:
        found = landed(project, chosen, fetch=fetch, static=not no_static)
    written = write_status(project, found) if write else ()
    if as_json:
        print_json({"patches": [_json(one) for one in found],
                    "written": [patch.number for patch in written]})  # fmt: skip
        return 0
    for line in _lines(found):
        click.echo(line)
    if write:
        click.echo(f"{len(written)} patches written; `patchwright undo` takes it back"
                   if written else "nothing to write")  # fmt: skip
    return 0


def _lines(found: tuple[Landed, ...]) -> Iterator[str]:
    heads = dict.fromkeys((one.move.upstream, one.head) for one in found)
    for name, head in heads:
        yield f"{name} at {printable(str(head))}"
    for one in found:
        yield f"{one.move.number:04d} {_word(one):<24} {printable(one.move.patch.title)}"
        yield from (f"     {printable(line)}" for line in _why(one))


def _word(one: Landed) -> str:
    if one.landed:
        return "landed"
    if one.without is not None and one.without.outcome == "passed":
        return "landed (by its test)"
    if one.merged is not None:
        return "merged, not the same"
    return "partly" if one.move.verdict == "partly-upstream" or _some(one) else "not landed"


def _some(one: Landed) -> bool:
    return any(place.standing == "upstream" for place in one.move.places)


def _why(one: Landed) -> Iterator[str]:
    if one.commit is not None:
        yield f"the same change as {one.commit}"
    elif one.landed or _some(one):
        yield one.move.reason.splitlines()[0]
    if one.merged is not None and one.commit is None:
        yield f"its pull request is in the branch: {one.merged}"
    if one.without is not None and one.without.outcome == "passed":
        yield "its smoke test passes there without it"
    elif one.landed and one.without is not None and one.without.outcome in ("failed", "error"):
        yield f"but its smoke test does not pass there without it: {one.without.reason}"
    if one.pull is not None:
        yield f"{one.pull.address}: {one.pull.state}" + (f" ({one.pull.why})" * bool(one.pull.why))
    if one.status:
        yield f"Upstream-Status would be: {one.status}"


def _json(one: Landed) -> dict[str, Any]:
    return {
        "number": one.move.number, "upstream": one.move.upstream, "landed": one.landed,
        "verdict": one.move.verdict, "reason": one.move.reason, "head": one.head.oid,
        "commit": one.commit.oid if one.commit else None,
        "merged": one.merged.oid if one.merged else None,
        "without": one.without.outcome if one.without else None,
        "pull": {"address": one.pull.address, "state": one.pull.state, "why": one.pull.why}
        if one.pull else None,
        "status": one.status or None,
    }  # fmt: skip
