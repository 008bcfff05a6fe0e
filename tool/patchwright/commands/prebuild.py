"""patchwright prebuild: JIT modules compiled ahead of the first start."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchwright.commands import (
    Invocation,
    SelectingCommand,
    console,
    json_option,
    print_json,
    progress,
)
from patchwright.errors import AnswerNo, InputError, PatchwrightError

if TYPE_CHECKING:
    from patchwright.environment.installed import Site
    from patchwright.environment.prebuild import Built
    from patchwright.project import Project
    from patchwright.series import Selection

_ARCH = re.compile(r"(?:sm_)?(\d{1,2})\.?(\d)([af]?)")
_LIST = "FLASHINFER_CUDA_ARCH_LIST"


@click.command(cls=SelectingCommand, short_help="Compile JIT modules ahead of the first start.")
@click.argument("modules", nargs=-1, metavar="[MODULE]...")
@click.option("--arch", "arches", multiple=True, metavar="ARCH",
              help="sm_120 or 12.0a; may be repeated. Default: the project's.")  # fmt: skip
@click.option("--env", "directory", metavar="DIR", type=click.Path(path_type=Path),
              help="The environment; without it, the one that the project names.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), default=None, metavar="N",
              help="Compilers at once; default: as many as cores and memory allow.")  # fmt: skip
@json_option
@click.pass_obj
def command(
    invocation: Invocation, modules: tuple[str, ...], arches: tuple[str, ...],
    directory: Path | None, jobs: int | None, as_json: bool, selection: Selection,
) -> int:  # fmt: skip
    """Compile the JIT modules that the series touches, or MODULEs, where a start finds them.

    Without a MODULE, also those that were compiled so before, for another selection.

    A MODULE is a module's name, its generator's, or a source file's. Needs a CUDA compiler
    and no device. Objects are reused by the content of all that they are compiled from.
    """
    from patchwright.environment import workspace
    from patchwright.environment.inplace import finish
    from patchwright.environment.installed import find_site
    from patchwright.environment.named import named_environment, start_variables
    from patchwright.environment.prebuild import Prebuilder, workers
    from patchwright.environment.toolkit import toolkit
    from patchwright.environment.touched import named, touched
    from patchwright.project import Project
    from patchwright.smoke.compiler import free_memory
    from patchwright.smoke.outcomes import Blocked

    project = Project.open(invocation.directory)
    site = find_site(named_environment(project, directory))
    if jobs is None:
        jobs = workers(free_memory(), len(os.sched_getaffinity(0)))
    built: list[Built] = []
    with progress("looking for the modules") as say:
        project.progress = say
        finish(site)
        outer = start_variables(project, site.root)
        if modules:
            wanted, by_name = named(project, selection, modules)
        else:
            before = workspace.made_before(workspace.base(outer), _version(project, site))
            wanted, by_name = touched(project, selection, before), False
        try:
            kit = toolkit(project.cache_dir, outer.get("CUDA_HOME", ""))
        except Blocked as blocked:
            raise PatchwrightError(
                str(blocked), where="prebuild", next_step="set CUDA_HOME to a toolkit"
            ) from blocked
        for arch in _arches(project, arches):
            builder = Prebuilder(site, arch, kit, project.cache_dir, jobs, outer, say)
            if wanted:
                built += builder.build(wanted, modules if by_name else ())
    if by_name:
        built = [b for b in built if b.name]  # of all that were asked, those of that name
    if by_name and not built:
        raise InputError(
            f"no JIT module is named {' or '.join(modules)}",
            next_step="patchwright audit matrix lists the modules",
        )
    if as_json:
        print_json({"environment": str(site.root), "modules": [_json(b) for b in built]})
    else:
        _print(built)
    failed = [b for b in built if b.outcome == "failed"]
    refused = [b for b in built if b.outcome == "refused"] if modules else []
    if failed or refused:
        first = (failed or refused)[0]
        raise AnswerNo(
            f"{len(failed + refused)} of {len(built)} modules are not built: {first.why}",
            where=first.name or first.entry, next_step="correct the patch, or name other modules",
        )  # fmt: skip
    return 0


def _version(project: Project, site: Site) -> str:
    """Return the version of what has the JIT modules; empty where it is not installed."""
    from patchwright.environment.workspace import PACKAGE

    for config in project.config.upstreams.values():
        there = site.distributions.get(config.distribution or config.name)
        if PACKAGE in config.packages and there is not None:
            return there.version
    return ""


def _arches(project: Project, given: tuple[str, ...]) -> list[str]:
    """Return the architecture lists, each of which has a workspace of its own."""
    from patchwright.environment.locked import read_environment

    listed = os.environ.get(_LIST)
    lock = project.lock
    locked = read_environment(lock.environment, str(project.lock_path)) if lock else None
    listed = listed or (locked.settings.get(_LIST) if locked else None)
    if not given and listed:
        return [listed]
    found = []
    for name in given or project.config.arch:
        match = _ARCH.fullmatch(name)
        if match is None:
            raise InputError(
                f"{name!r} is not an architecture", where="--arch",
                next_step="write it as sm_120 or as 12.0a",
            )  # fmt: skip
        # As flashinfer itself names a device: 9.0 and later have code of their own.
        suffix = match[3] or ("a" if int(match[1]) >= 9 else "")
        found.append(f"{match[1]}.{match[2]}{suffix}")
    if not found:
        raise InputError(
            "no architecture is named", where="pyproject.toml",
            next_step="give --arch, or set arch in [tool.patchwright]",
        )  # fmt: skip
    return list(dict.fromkeys(found))


def _json(built: Built) -> dict[str, object]:
    return {
        "name": built.name, "generator": built.entry, "arch": built.arch,
        "outcome": built.outcome, "compiled": built.compiled, "reused": built.reused,
        "seconds": round(built.seconds, 1), "folder": built.folder, "why": built.why,
    }  # fmt: skip


def _print(built: list[Built]) -> None:
    from rich import box
    from rich.table import Table

    out = console()
    if not built:
        out.print("the patches touch no JIT module")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("module", "arch", "outcome"):
        table.add_column(heading)
    for heading in ("compiled", "reused", "seconds"):
        table.add_column(heading, justify="right")
    for each in built:
        name = each.name or each.entry.rpartition("::")[2]
        table.add_row(
            name, each.arch, each.outcome, str(each.compiled), str(each.reused),
            f"{each.seconds:.1f}",
        )  # fmt: skip
    out.print(table)
    for each in built:
        if each.why:
            out.print(f"{each.name or each.entry} {each.arch}: {each.why}")
