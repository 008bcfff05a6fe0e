"""``patchwright refresh``: write the work tree back, and carry the later patches over it."""

from __future__ import annotations

import click

from patchwright.commands import Invocation, json_option
from patchwright.commands._changed import open_project, tell


@click.command(short_help="Write the work tree back to its patch.")
@click.option("--continue", "go_on", is_flag=True, help="The conflict is resolved: go on.")
@click.option("--skip", is_flag=True, help="Leave the patch in conflict out of the series.")
@click.option("--abort", is_flag=True, help="Give up; the work tree is as it was before.")
@json_option
@click.pass_obj
def command(invocation: Invocation, go_on: bool, skip: bool, abort: bool, as_json: bool) -> int:
    """Write the changes in the work tree back to the patch that is open.

    Later patches on the same lines are merged three-way. A conflict stands in the work
    tree, as git leaves one; nothing of the series is written until the last is resolved.
    The three options are for such a conflict, whichever command met it (refresh, move,
    drop, fold).
    """
    from patchwright.commands import print_json
    from patchwright.editing import refreshing
    from patchwright.quoting import display

    if go_on + skip + abort > 1:
        raise click.UsageError("give one of --continue, --skip and --abort")
    project = open_project(invocation)
    if abort:
        refreshing.abort(project)
        if as_json:
            print_json({"done": "aborted"})
        else:
            click.echo("given up; the series is as it was")
    elif go_on or skip:
        changed = refreshing.go_on(project) if go_on else refreshing.skip(project)
        tell(changed, "done, conflicts included", as_json)
    else:
        done = refreshing.refresh(project)
        files = [display(path) for path in done.changed]
        junk = [display(path) for path in done.junk]
        said = f"{done.patch.path.name}: {', '.join(files)}"
        tell(done.series, said, as_json, patch=done.patch.path.name, files=files, left_out=junk)
        if junk and not as_json:
            click.echo(f"left out: {', '.join(junk[:5])}{' …' * (len(junk) > 5)}", err=True)
    return 0
