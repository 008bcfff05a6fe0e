"""patchwright verify: show for each patch, alone and in its place, that it does what it says."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patchwright.commands import (
    Invocation,
    SelectingCommand,
    console,
    json_option,
    print_json,
    progress,
)
from patchwright.tiers import CONTEXTS, DEFAULT_TIERS, TIERS

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.series import Selection
    from patchwright.smoke.evidenced import Result
    from patchwright.smoke.run import Run
    from patchwright.verify import Answer

_BAD = ("failed", "vacuous", "error")


@click.command(cls=SelectingCommand, short_help="Show for each patch that it does what it says.")
@click.argument("numbers", nargs=-1, type=click.IntRange(min=1), metavar="[N]...")
@click.option("--tier", "tiers", multiple=True, type=click.Choice(TIERS),
              help="Only this tier; may be repeated. Default: all but startup.")  # fmt: skip
@click.option("--context", "contexts", multiple=True, type=click.Choice(CONTEXTS),
              help="Only this context; may be repeated. Default: step and alone.")  # fmt: skip
@click.option("--require", "required", multiple=True, type=click.Choice(TIERS),
              help="Exit with 1 if this tier is blocked; may be repeated.")  # fmt: skip
@click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="J",
              help="Runs at a time. Default: one per core at the static tier, else 1.")  # fmt: skip
@click.option("--junit", "junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the results to FILE as JUnit XML, too.")  # fmt: skip
@json_option
@click.pass_obj
def command(
    invocation: Invocation, numbers: tuple[int, ...], selection: Selection,
    tiers: tuple[str, ...], contexts: tuple[str, ...], required: tuple[str, ...],
    jobs: int | None, junit: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Run each patch's smoke test with the patch and without it.

    The test must pass with the patch and fail without it, by an assertion of its own:
    in its place in the series (step) and on top of nothing but what it needs (alone).
    With --context without, the whole series but one patch: that patch's test and those
    of the patches that need it must fail, and all others pass.

    What is on record with the same trees, test and tools is not run again.
    """
    from patchwright.project import Project
    from patchwright.verify import Request, verify

    if junit is not None and not junit.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {junit.parent}", param_hint="--junit")
    project = Project.open(invocation.directory)
    chosen = tiers or tuple(dict.fromkeys((*DEFAULT_TIERS, *required)))
    request = Request(
        tuple(sorted(set(numbers))), selection,
        tuple(sorted(set(chosen) | set(required), key=TIERS.index)),
        contexts or ("step", "alone"),
    )  # fmt: skip
    with progress("reading the pins and the series") as say:
        project.progress = say

        def on_run(run: Run, result: Result, done: int, total: int) -> None:
            say(f"{done}/{total} {run.test.stem} {run.tier}: {result.outcome}")

        answers = verify(project, request, jobs=jobs, on_run=on_run)
    if junit is not None:
        _write_junit(junit, project, answers, required)
    stale = [str(d) for d in project.stale()]
    if as_json:
        print_json({"stale": stale, "results": [_json(a, selection) for a in answers]})
    else:
        _print(project, answers, request.tiers, selection, stale)
    bad = any(
        a.verdict in _BAD or (a.verdict == "blocked" and a.question.tier in required)
        for a in answers
    )
    return 1 if bad else 0


def _json(answer: Answer, selection: Selection) -> dict[str, Any]:
    question = answer.question
    return {
        "number": question.number,
        "tier": question.tier,
        "context": question.context,
        "verdict": answer.verdict,
        "control": answer.control,
        "reason": answer.reason,
        "notes": list(question.notes),
        "seconds": round(answer.seconds, 3),
        "made": len(answer.made),
        "elsewhere": _elsewhere(answer),
        "trees": dict(question.trees.trees) if question.trees else {},
        "control_trees": dict(question.control_trees.trees) if question.control_trees else {},
        "repeat": _repeat([answer], selection),
    }


def _elsewhere(answer: Answer) -> dict[str, str] | None:
    found = answer.elsewhere
    if found is None:
        return None
    return {"verdict": found.verdict, "why": found.why, "from": found.source}


def _write_junit(
    path: Path, project: Project, answers: Sequence[Answer], required: Sequence[str]
) -> None:
    from patchwright.errors import PatchwrightError
    from patchwright.files import sweep, write_atomically
    from patchwright.junit import format_junit

    try:
        sweep(path.absolute().parent, path.name)
        write_atomically(path, format_junit(project.series, answers, required))
    except OSError as error:
        raise PatchwrightError(
            f"the results cannot be written: {error.strerror}", where=str(path),
            next_step="name another file with --junit; the evidence is kept",
        ) from error  # fmt: skip


def _repeat(answers: Sequence[Answer], selection: Selection) -> str:
    """Return the command that asks these questions again: one patch, one context."""
    question = answers[0].question
    words = ["patchwright", "verify", str(question.number)]
    if selection.to is not None:
        words += ["--to", str(selection.to)]
    for option, numbers in (("--only", selection.only), ("--without", selection.without)):
        if numbers:
            words += [option, ",".join(map(str, sorted(numbers)))]
    for answer in answers:
        words += ["--tier", answer.question.tier]
    words += ["--context", question.context]
    return shlex.join(words)


def _print(
    project: Project, answers: Sequence[Answer], tiers: Sequence[str], selection: Selection,
    stale: Sequence[str],
) -> None:  # fmt: skip
    from patchwright.audit.verdicts import recall

    # Only the table goes through rich, which would fold long lines.
    if answers:
        audited = recall(project, selection)
        console().print(_table(project, answers, tiers, audited))
    else:
        click.echo("no patches")
    for line in stale:
        click.echo(f"stale: {line}")
    blocked = {a.question.tier: a.reason for a in answers if a.verdict == "blocked"}
    for tier, need in blocked.items():
        click.echo(f"{tier}: blocked: {need}")
    for note in dict.fromkeys(n for a in answers for n in a.question.notes):
        click.echo(f"note: {note}")
    for alike in _failures(answers):
        _print_failure(alike, selection)
    made = len(frozenset().union(*(a.made for a in answers)))
    bad = sum(a.verdict in _BAD for a in answers)
    passed = sum(a.verdict == "passed" for a in answers)
    click.echo(f"{passed} passed, {bad} not; {made} runs made, what else was needed is on record")


def _table(
    project: Project, answers: Sequence[Answer], tiers: Sequence[str],
    audited: Mapping[int, tuple[str, str]],
) -> Any:  # fmt: skip
    from rich import box
    from rich.table import Table

    from patchwright.quoting import printable

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("patch", no_wrap=True)
    table.add_column("", overflow="ellipsis", no_wrap=True, max_width=52)
    for tier in tiers:
        table.add_column(tier)
    if audited:
        table.add_column("audit")
    table.add_column("seconds", justify="right")
    for number in dict.fromkeys(a.question.number for a in answers):
        own = [a for a in answers if a.question.number == number]
        cells = [_cell([a for a in own if a.question.tier == tier]) for tier in tiers]
        patch = project.series.get(number)
        if audited:
            cells.append(audited[number][0] if number in audited else "-")
        seconds = sum(a.seconds for a in own)
        table.add_row(
            f"{number:04d}", f"{patch.upstream}: {printable(patch.title)}", *cells, f"{seconds:.1f}"
        )
    return table


def _cell(answers: Sequence[Answer]) -> Any:
    from rich.text import Text

    colours = {"passed": "green", "blocked": "yellow", "none": "dim", "unproven": "yellow"}
    shown = {a.question.context: (a.verdict, _more(a)) for a in answers}
    same = len(set(shown.values())) == 1
    cell = Text()
    for context, (verdict, more) in shown.items():
        if len(cell):
            cell.append("\n")
        cell.append("-" if verdict == "none" else verdict, style=colours.get(verdict, "red"))
        cell.append(more)
        if same:
            break
        cell.append(f" ({context})")
    return cell


def _more(answer: Answer) -> str:
    """Return what a verdict alone does not say: what another machine found changes none."""
    if answer.elsewhere is None:
        return _left_alone(answer.verdict, answer.reason)
    found = answer.elsewhere
    more = _left_alone(found.verdict, found.why)
    return f"; {found.verdict}{more} on {found.source} (imported)"


def _left_alone(verdict: str, reason: str) -> str:
    """A pass that has a reason is one on a device that the patch is not for."""
    return f", {reason}" if verdict == "passed" and reason else ""


def _failures(answers: Sequence[Answer]) -> list[list[Answer]]:
    """Return what is bad, grouped: a patch that does not apply fails alike at every tier."""
    alike: dict[tuple[object, ...], list[Answer]] = {}
    for answer in answers:
        if answer.verdict in _BAD:
            asked = answer.question
            key = (asked.number, asked.context, answer.verdict, answer.control, answer.reason,
                   asked.trees, asked.control_trees)  # fmt: skip
            alike.setdefault(key, []).append(answer)
    return list(alike.values())


def _print_failure(alike: Sequence[Answer], selection: Selection) -> None:
    answer, question = alike[0], alike[0].question
    tiers = ", ".join(each.question.tier for each in alike)
    click.echo(
        f"\n{question.number:04d} {tiers}, {question.context}: {answer.verdict}"
        + (f" (control: {answer.control})" if answer.control else "")
    )
    click.echo(f"  {answer.reason}")
    for label, state in (("trees", question.trees), ("control", question.control_trees)):
        if state is not None:
            trees = ", ".join(f"{name} {tree[:12]}" for name, tree in state.trees)
            click.echo(f"  {label}: {trees}")
    click.echo(f"  repeat: {_repeat(alike, selection)}")
