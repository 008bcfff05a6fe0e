"""``patchwright run -- CMD``: a command in the rebuilt environment."""

from __future__ import annotations

import os
from pathlib import Path

import click

from patchwright.commands import Invocation
from patchwright.errors import AnswerNo


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--env", "folder", type=click.Path(path_type=Path), metavar="DIR",
              help="The environment; else the one that rebuild makes.")  # fmt: skip
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="CMD...")
@click.pass_obj
def command(invocation: Invocation, folder: Path | None, words: tuple[str, ...]) -> int:
    """Run CMD in the rebuilt environment with the locked settings; its exit code is ours.

    CMD takes this process's place. Nothing that PYTHONPATH or a JIT workspace of another
    state holds gets in.
    """
    from patchwright.environment.installed import site_packages
    from patchwright.environment.jit_ninja import with_ninja
    from patchwright.environment.locking import required_environment
    from patchwright.environment.record import environment_folder
    from patchwright.environment.running import hold, run_variables, workspaces
    from patchwright.project import Project

    project = Project.open(invocation.directory)
    environment = required_environment(project)
    place = environment_folder(project, folder)
    variables = run_variables(project, place, environment, os.environ)
    folders = workspaces(project, place)
    hold(folders.values())
    variables = with_ninja(folders, site_packages(place), project.cache_dir, variables)
    try:
        os.execvpe(words[0], words, variables)  # noqa: S606
    except OSError as error:
        raise AnswerNo(
            f"the command cannot be run: {error.strerror}", where=words[0],
            next_step="name a program of the environment, or one on PATH",
        ) from error  # fmt: skip
