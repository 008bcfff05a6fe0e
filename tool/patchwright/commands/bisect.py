"""patchwright bisect: which patches break startup."""

from __future__ import annotations

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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from patchwright.bisecting.bisection import Bisection
    from patchwright.bisecting.outcomes import Answer, Problem, Run
    from patchwright.project import Project
    from patchwright.series import Selection

    Audited = dict[int, tuple[str, str]]


@click.command(cls=SelectingCommand, short_help="Find the patches that break startup.")
@click.option("--good", type=click.IntRange(min=0), metavar="N",
              help="Patches up to N start; 0 is the base.  [default: 0]")  # fmt: skip
@click.option("--bad", type=click.IntRange(min=1), metavar="N",
              help="Patches up to N fail.  [default: all of the selection]")  # fmt: skip
@click.option("--probe", metavar="CMD",
              help="Probe with this shell command: 0 starts, 125 cannot be tested.")  # fmt: skip
@click.option("--start", "start", is_flag=True,
              help="Search by starts, whatever the static tier shows.")  # fmt: skip
@click.option("--signature", default="", metavar="RE",
              help="The failure to search for.  [default: that of the first start]")  # fmt: skip
@click.option("--runs", type=click.IntRange(min=1), default=1, metavar="K", show_default=True,
              help="Start each end K times; a good state takes K clean starts.")  # fmt: skip
@click.option("--confidence", type=click.FloatRange(0.5, 0.99999), default=0.9999, metavar="P",
              show_default=True, help="Less makes fewer starts before a name.")  # fmt: skip
@click.option("--max-probes", type=click.IntRange(min=1), metavar="M",
              help="Make M starts at most; then say what is known.")  # fmt: skip
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=1, metavar="J",
              help="Starts at the same time.  [default: 1]")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Forget what the bisection before this one learned.")
@click.option("--replay", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              metavar="LOG", help="Say what a log says; start nothing.")  # fmt: skip
@json_option
@click.pass_obj
def command(
    invocation: Invocation, selection: Selection, good: int | None, bad: int | None,
    probe: str | None, start: bool, signature: str, runs: int, confidence: float,
    max_probes: int | None, jobs: int, fresh: bool, replay: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Find which patches of the selection break startup, with as few starts as possible.

    First come both ends: nothing, and the whole selection. What their failure points at
    is tried first. A patch is named when it fails with nothing but its needs and all the
    others start without it; where that cannot be reached, the answer is a range.

    What was learned is kept after every start: interrupted, the same command goes on.
    """
    from dataclasses import replace

    from patchwright.bisecting.audited import audited, suspected
    from patchwright.bisecting.bisection import Bisection, Limits, make_problem
    from patchwright.commands.start import probe_settings
    from patchwright.project import Project
    from patchwright.startup.starts import Starts

    _check_pattern(signature)
    project = Project.open(invocation.directory)
    limits = Limits(good, bad, signature, runs, max_probes, confidence)
    with progress("reading the pins and the series") as say:
        project.progress = say
        verdicts = audited(project, selection)
        problem = replace(make_problem(project, selection, limits), suspected=suspected(verdicts))
        if replay is not None:
            return _replay(project, problem, replay, verdicts, as_json)
        if not (probe or start) and good is None and bad is None:
            code = _shown(project, selection, as_json, say)
            if code is not None:
                return code
        settings = probe_settings(project, probe)
        directory = Path.cwd()
        with Starts(project, settings, directory if probe else None) as starts:
            bisection = Bisection(project, problem, starts, probe or "", directory)
            if fresh:
                bisection.forget()
            answer = _solve(bisection, jobs, say)
    _report(project, problem, bisection.journal.runs, answer, verdicts, as_json)
    if not as_json:
        click.echo(f"log: {bisection.journal.path}")
    from patchwright.bisecting.report import exit_code

    return exit_code(answer)


def _check_pattern(pattern: str) -> None:
    import re

    try:
        re.compile(pattern)
    except re.error as error:
        raise click.BadParameter(f"{pattern!r} is no pattern: {error}", param_hint="--signature"
                                 ) from error  # fmt: skip


def _solve(bisection: Bisection, jobs: int, say: Callable[[str], None]) -> Answer:
    from patchwright.bisecting.report import named

    known = len(bisection.journal.runs)
    if known:
        say(f"going on from {bisection.journal.path.name}: {known} runs are known")

    def on_run(run: Run, number: int, why: str) -> None:
        what = {"started": "starts", "failed": "fails", "untestable": "cannot be tested"}
        source = {"probe": f"{run.outcome.seconds:.0f} s", "record": "on record",
                  "applying": "not started"}[run.source]  # fmt: skip
        state = named(run.state, bisection.problem)
        say(f"{number}. {state}: {what[run.outcome.kind]} ({source}; {why})")

    return bisection.solve(jobs=jobs, on_run=on_run)


def _replay(project: Project, problem: Problem, log: Path, verdicts: Audited, as_json: bool) -> int:
    from dataclasses import replace

    from patchwright.bisecting.journal import read
    from patchwright.bisecting.outcomes import Answer
    from patchwright.bisecting.report import exit_code, named
    from patchwright.bisecting.search import decide

    runs, suspected = read(log)
    problem = replace(problem, suspected=suspected)
    answer = decide(problem, runs)
    if not isinstance(answer, Answer):
        click.echo(f"the log is not complete: next would be {named(answer.state, problem)} "
                   f"({answer.why})")  # fmt: skip
        return 1
    _report(project, problem, runs, answer, verdicts, as_json)
    return exit_code(answer)


def _shown(
    project: Project, selection: Selection, as_json: bool, say: Callable[[str], None]
) -> int | None:
    """Say what the static tier shows; None where it shows nothing."""
    from patchwright.bisecting.report import shown_data, shown_lines
    from patchwright.bisecting.shown import shown

    found = shown(project, selection, say)
    if not found:
        return None
    if as_json:
        print_json(shown_data(found))
    else:
        for line in shown_lines(found, _titles(project)):
            click.echo(line)
    return 1


def _report(
    project: Project, problem: Problem, runs: Sequence[Run], answer: Answer, verdicts: Audited,
    as_json: bool,
) -> None:  # fmt: skip
    from patchwright.bisecting.report import data, lines

    if as_json:
        print_json(data(answer, problem, runs, verdicts))
        return
    _table(problem, runs)
    for line in lines(answer, problem, runs, _titles(project), verdicts):
        click.echo(line)


def _table(problem: Problem, runs: Sequence[Run]) -> None:
    from rich import box
    from rich.table import Table

    from patchwright.bisecting.report import named

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, how in (("#", "right"), ("patches", "left"), ("outcome", "left"),
                         ("seconds", "right"), ("", "left")):  # fmt: skip
        table.add_column(heading, justify="right" if how == "right" else "left")
    words = {"started": "starts", "failed": "fails", "untestable": "cannot be tested"}
    for number, run in enumerate(runs, 1):
        seconds = {"probe": f"{run.outcome.seconds:.1f}", "record": "on record",
                   "applying": "-"}[run.source]  # fmt: skip
        detail = run.outcome.detail.partition("\n")[0][:120]
        table.add_row(str(number), named(run.state, problem), words[run.outcome.kind], seconds,
                      detail)  # fmt: skip
    console().print(table)


def _titles(project: Project) -> Callable[[int], str]:
    def title(number: int) -> str:
        patch = project.series.get(number)
        return f"{patch.upstream}: {patch.title}"

    return title
