"""patchwright audit: see before GPU time whether a gate leads anywhere."""

from __future__ import annotations

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
from patchwright.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from patchwright.audit.contradictions import Contradiction
    from patchwright.audit.series import Judged, Report
    from patchwright.audit.standing import Finding
    from patchwright.project import Project
    from patchwright.series import Selection


class _Group(click.Group):
    """A group whose command is ``series`` where none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["series", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Group, short_help="See whether an opened gate leads to whole code.")
def command() -> None:
    """See before GPU time whether a gate leads anywhere.

    Without a command: the series, patch by patch (audit series).
    """


@command.command(cls=SelectingCommand)
@click.argument("numbers", nargs=-1, type=click.IntRange(min=1), metavar="[N]...")
@click.option("--routes/--no-routes", default=True,
              help="Also the routes of the tree itself that meet a refusal.")  # fmt: skip
@click.option("--kernels", is_flag=True, help="Compile the modules behind opened gates (minutes).")
@json_option
@click.pass_obj
def series(
    invocation: Invocation, numbers: tuple[int, ...], selection: Selection, routes: bool,
    kernels: bool, as_json: bool,
) -> int:  # fmt: skip
    """Say for each patch which gates it opens and what stands behind them.

    Exits with 1 when a patch leads to code that is missing, empty or trapping.
    """
    from patchwright.audit.contradictions import contradictions
    from patchwright.audit.series import Auditor
    from patchwright.audit.verdicts import BAD, keep
    from patchwright.project import Project

    project = Project.open(invocation.directory)
    with progress("reading the pins and the series") as say:
        project.progress = say
        auditor = Auditor(project, say)
        report = auditor.series(selection, numbers)
        if kernels:
            from patchwright.audit.compiled import with_kernels

            report.patches = with_kernels(auditor, selection, report, say)
        if not numbers:
            keep(project, selection, {j.number: (j.verdict, j.why) for j in report.patches})
        found: list[Contradiction] = []
        if routes and not numbers:
            state, _ = auditor.chain.apply(selection.pick(project.series))
            found = contradictions(auditor, state, say)
    if as_json:
        print_json({"patches": [_json(j) for j in report.patches],
                    "routes": [_route_json(c) for c in found],
                    "unread": [list(u) for u in report.unread]})  # fmt: skip
    else:
        _print_series(project, report, found)
    return 1 if any(j.verdict in BAD for j in report.patches) else 0


def _json(judged: Judged) -> dict[str, Any]:
    from patchwright.audit.series import SENTENCES

    return {
        "number": judged.number,
        "verdict": judged.verdict,
        "sentence": f"{SENTENCES[judged.verdict]}: {judged.why}",
        "gates": [{"change": c.word, "path": c.gate.path, "line": c.gate.line,
                   "function": c.gate.function, "condition": c.gate.condition,
                   "opened": list(c.opened), "closed": list(c.closed)} for c in judged.changes],
        "findings": [{"kind": f.kind, "sentence": f.sentence, "where": f.where,
                      "on_route": f.on_route, "chain": list(f.lines)} for f in judged.findings],
    }  # fmt: skip


def _route_json(found: Contradiction) -> dict[str, Any]:
    return {
        "capability": found.capability, "gate": found.gate.to_json(), "why": found.why,
        "place": found.place, "source": found.source, "when": list(found.when),
        "chain": list(found.lines),
    }  # fmt: skip


def _print_series(project: Project, report: Report, found: Sequence[Contradiction]) -> None:
    from patchwright.audit.series import SENTENCES

    out = console()
    for judged in report.patches:
        patch = project.series.get(judged.number)
        out.print(f"{judged.number:04d} {patch.upstream}: {patch.title}", soft_wrap=True)
        out.print(f"     {SENTENCES[judged.verdict]}: {judged.why}", soft_wrap=True)
        for change in judged.changes:
            gate = change.gate
            moved = [f"{word} {', '.join(cs)}" for word, cs in
                     (("to", change.opened), ("for", change.closed)) if cs]  # fmt: skip
            if change.opened or change.closed:
                out.print(f"     {change.word} {gate.place} {gate.function} {' '.join(moved)}",
                          soft_wrap=True)  # fmt: skip
        _print_findings(out, judged.findings)
    if found:
        out.print("\nroutes that meet a refusal on this tree:")
    groups: dict[tuple[str, str], list[Contradiction]] = {}
    for one in found:
        groups.setdefault((one.why, one.place), []).append(one)
    for (why, place), members in groups.items():
        first = min(members, key=lambda c: len(c.lines))
        archs = ", ".join(dict.fromkeys(c.capability for c in members))
        out.print(f"\n{archs}: {why} ({place})", soft_wrap=True)
        out.print(f"  gate {first.gate.place} {first.gate.function}: {first.gate.condition}",
                  soft_wrap=True)  # fmt: skip
        for line in first.lines:
            if line != why:
                out.print(f"    {line}", soft_wrap=True)
        others = list(dict.fromkeys(c.gate.place for c in members if c.gate != first.gate))
        if others:
            out.print(f"  also from {', '.join(others)}", soft_wrap=True)
    for upstream, path, why in report.unread:
        out.print(f"cannot tell: {upstream}: {path}: {why}", soft_wrap=True)


def _print_findings(out: Any, findings: Sequence[Finding]) -> None:
    seen: set[tuple[str, str]] = set()
    for finding in findings:
        if (finding.kind, finding.sentence) in seen:
            continue
        seen.add((finding.kind, finding.sentence))
        where = f" ({finding.where})" if finding.where else ""
        out.print(f"     - {finding.sentence}{where}", soft_wrap=True)
        for line in finding.lines:
            out.print(f"         {line}", soft_wrap=True, style="dim")


def _audited(function: Any) -> Any:
    """Add the options of what compares two architectures."""
    function = click.option(
        "--force", is_flag=True, help="Compile for the target also what refuses it."
    )(function)
    for name, default in (("--reference", "10.0a"), ("--arch", "12.0a")):
        function = click.option(name, default=default, show_default=True, metavar="ARCH")(function)
    return function


@command.command(cls=SelectingCommand)
@click.argument("names", nargs=-1, metavar="[MODULE|SOURCE]...")
@_audited
@json_option
@click.pass_obj
def guards(
    invocation: Invocation, names: tuple[str, ...], selection: Selection, arch: str,
    reference: str, force: bool, as_json: bool,
) -> int:  # fmt: skip
    """Say what the reference compiles and the target does not, by directive.

    MODULE is a generator (gen_trtllm_comm_module), SOURCE a CUDA file; without any, all
    modules that are built for both.
    """
    from patchwright.audit.behind import compare_guards
    from patchwright.audit.cuda_guards import summary

    project, say_to = _open(invocation)
    with progress("reading the pins and the series") as say:
        say_to(say)
        found = compare_guards(project, selection, names, arch, reference, force, say)
    if as_json:
        from dataclasses import asdict

        print_json({"sources": [asdict(f) for f in found], "counts": dict(summary(found))})
        return 0
    out = console()
    for one in found:
        name = f"{one.module.rpartition('::')[2]}: {one.source}".rstrip(": ")
        if one.why:
            out.print(f"{name}: cannot tell: {one.why}", soft_wrap=True)
        elif one.lost or one.flags:
            flags = ", flags differ" if one.flags else ""
            out.print(f"{name}: {one.lost} lines lost, {one.own} of its own{flags}", soft_wrap=True)
            others = [loss for loss in one.losses if loss.loss == "outside"]
            for loss in one.losses:
                if loss in others:
                    continue
                what = {"kernel": "a whole kernel's body", "barrier": "a barrier"}.get(
                    loss.loss, loss.loss)  # fmt: skip
                inside = f" in {loss.function}" if loss.function else ""
                out.print(f"  {loss.path}:{loss.line} {what}{inside}, {loss.lines} lines"
                          + (f": #if {loss.condition}" if loss.condition else ""),
                          soft_wrap=True)  # fmt: skip
            if others:
                out.print(f"  {sum(loss.lines for loss in others)} lines in {len(others)} headers "
                          "outside upstream, such as the toolkit's", soft_wrap=True)  # fmt: skip
    counts = ", ".join(f"{n} {kind}" for kind, n in summary(found).items() if n)
    out.print(f"{len(found)} sources: {counts}")
    return 0


@command.command(cls=SelectingCommand)
@click.argument("source", metavar="SOURCE")
@_audited
@click.option("--memory", default=5.0, show_default=True, metavar="GIB",
              help="What one compile may need.")  # fmt: skip
@json_option
@click.pass_obj
def kernels(
    invocation: Invocation, source: str, selection: Selection, arch: str, reference: str,
    force: bool, memory: float, as_json: bool,
) -> int:  # fmt: skip
    """Compile a CUDA source for both architectures and compare the objects.

    Exits with 1 when kernels are hollow, poisoned or over the shared memory.
    """
    from patchwright.audit.behind import compare_source

    project, say_to = _open(invocation)
    with progress("reading the pins and the series") as say:
        say_to(say)
        rows = compare_source(project, selection, source, arch, reference, force,
                              int(memory * (1 << 30)), say)  # fmt: skip
    bad = False
    for module, found in rows:
        if isinstance(found, str):
            if not as_json:
                click.echo(f"{module}: cannot tell: {found}")
            continue
        bad = bad or any(p.kind in ("hollow", "poisoned", "shared") for p in found.problems)
        if not as_json:
            click.echo(
                f"{module}: {found.source}: {found.count[0]} and {found.count[1]} kernels, "
                f"code {found.ratio:.3f} of the reference's, lowest {found.lowest:.3f}"
            )
            for problem in found.problems:
                click.echo(f"  {problem.kind}: {problem.sentence}")
                for name in problem.kernels[:8]:
                    click.echo(f"    {name}")
    if as_json:
        from dataclasses import asdict

        print_json([{"module": m, **({"why": f} if isinstance(f, str) else asdict(f))}
                    for m, f in rows])  # fmt: skip
    return 1 if bad else 0


@command.command(cls=SelectingCommand)
@click.option("--arch-list", "lists", multiple=True, metavar="LIST",
              help='Architectures as flashinfer is given them ("10.0a 12.0a").')  # fmt: skip
@click.option("--html", "page", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the matrix to FILE as one HTML page.")  # fmt: skip
@json_option
@click.pass_obj
def matrix(
    invocation: Invocation, selection: Selection, lists: tuple[str, ...], page: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Say which JIT modules build for which architecture, at the pin and with the series."""
    from patchwright.applying.chain import Chain
    from patchwright.audit.matrix import ARCHS, LEGEND, LETTERS, as_html
    from patchwright.audit.matrix import matrix as rows_of

    project, say_to = _open(invocation)
    archs = lists or ARCHS
    with progress("reading the pins and the series") as say:
        say_to(say)
        chain = Chain(project)
        state, _ = chain.apply(selection.pick(project.series))
        rows = rows_of(project, chain.base(), state, archs, say)
    if page is not None:
        _write(page, as_html(rows, archs, "JIT modules by architecture"))
    if as_json:
        print_json([{"module": r.generator.entry,
                     "before": {a: c.word for a, c in zip(archs, r.before, strict=False)},
                     "after": {a: c.word for a, c in zip(archs, r.after, strict=True)},
                     "why": {a: c.why for a, c in zip(archs, r.after, strict=True) if c.why}}
                    for r in rows])  # fmt: skip
        return 0
    out = console()
    out.print(f"{'':44} {' '.join(a.ljust(6) for a in archs)}", soft_wrap=True)
    for row in rows:
        cells = " ".join(LETTERS[c.word].ljust(max(6, len(a)))
                         for a, c in zip(archs, row.after, strict=True))  # fmt: skip
        out.print(f"{row.generator.name:<44} {cells}", soft_wrap=True)
        if row.changed:
            was = " ".join(LETTERS[c.word].ljust(max(6, len(a)))
                           for a, c in zip(archs, row.before, strict=False))  # fmt: skip
            out.print(f"{'  at the pin':<44} {was}", soft_wrap=True)
        notes = {c.why for c in row.after if c.word in ("drops", "cannot-tell") and c.why}
        for note in sorted(notes):
            out.print(f"  {note}", soft_wrap=True)
    out.print(", ".join(f"{k} {v}" for k, v in LEGEND.items()))
    return 0


def _open(invocation: Invocation) -> tuple[Project, Any]:
    from patchwright.project import Project

    project = Project.open(invocation.directory)

    def say_to(say: Any) -> None:
        project.progress = say

    return project, say_to


def _write(path: Path, text: str) -> None:
    from patchwright.files import write_atomically

    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise InputError(
            f"the page cannot be written: {error.strerror}", where=str(path),
            next_step="name another file with --html",
        ) from error  # fmt: skip
