"""patchwright check: what differs between the lock and an environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchwright.commands import Invocation, console, json_option, print_json, progress
from patchwright.errors import AnswerNo

if TYPE_CHECKING:
    from patchwright.environment.drift import Drift


@click.command(short_help="Name every difference between the lock and an environment.")
@click.option("--env", "directory", metavar="DIR", type=click.Path(path_type=Path),
              help="The environment; without it, the one that the project names.")  # fmt: skip
@json_option
@click.pass_obj
def command(invocation: Invocation, directory: Path | None, as_json: bool) -> int:
    """Compare an environment with upstream.lock and with what was applied to it.

    Compared are versions, the files of each package, settings, compiler, driver and
    devices, what an import finds, bytecode, compiled JIT modules and prebuilt kernels.
    What cannot be told is said. Exit code 1 with a list of differences, or 0.
    """
    from patchwright.environment.drift import check
    from patchwright.environment.inplace import finish
    from patchwright.environment.installed import find_site
    from patchwright.environment.named import named_environment
    from patchwright.project import Project

    project = Project.open(invocation.directory)
    site = find_site(named_environment(project, directory))
    with progress("looking at the environment") as say:
        finish(site)
        drift = check(project, site, say)
    if as_json:
        print_json({
            "environment": str(site.root),
            "agrees": not drift.findings,
            "compared": {"packages": drift.packages, "files": drift.files,
                         "modules": drift.modules},
            "differences": [
                {"kind": f.kind, "where": f.where, "what": f.what, "expected": f.expected,
                 "actual": f.actual}
                for f in drift.findings
            ],
            "unknown": drift.unknown,
        })  # fmt: skip
    else:
        _print(drift)
    if drift.findings:
        count = len(drift.findings)
        raise AnswerNo(
            f"the environment differs in {count} place{'s' * (count != 1)}", where=str(site.root),
            next_step="undo each, or make the environment anew",
        )  # fmt: skip
    return 0


def _print(drift: Drift) -> None:
    from patchwright.quoting import printable

    out = console()
    for finding in drift.findings:
        values = [f"expected {finding.expected}"] if finding.expected else []
        values += [f"found {finding.actual}"] if finding.actual else []
        rest = f" ({printable(', '.join(values))})" if values else ""
        out.print(f"{finding.kind}: {printable(finding.where)}: {finding.what}{rest}")
    for text in drift.unknown:
        out.print(f"not told: {text}")
    out.print(
        f"{drift.packages} packages, {drift.files} files and {drift.modules} compiled modules "
        "compared"
    )
