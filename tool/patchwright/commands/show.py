"""patchwright show: one patch with its fields, needs, files and verdicts."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from patchwright.commands import Invocation, json_option, print_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from patchwright.overview import PatchOverview
    from patchwright.patch import FileChange, Patch
    from patchwright.project import Project
    from patchwright.series import Series


@click.command(short_help="Print one patch.")
@click.argument("patch")
@json_option
@click.pass_obj
def command(invocation: Invocation, patch: str, as_json: bool) -> int:
    """Print one patch: its fields, what it needs, its files, how it applies, its evidence.

    PATCH is a number (3, 0003) or a file name. Runs no smoke test. Exits with 1 when
    the patch does not apply in its place in the series.
    """
    from patchwright.project import Project

    project = Project.open(invocation.directory)
    project.progress = lambda text: click.echo(text, err=True)
    shown = find(project.series, patch)
    row, unknown = _verdicts(project, shown.number)
    facts = describe(project.series, shown) | _outcome(row, unknown)
    if as_json:
        print_json(facts)
    else:
        from patchwright.quoting import printable

        # A patch may come from anywhere; its text must not steer the terminal.
        click.echo(printable("\n".join(_lines(shown, facts))))
    if facts["corrupt"]:
        return 1
    return 1 if row is not None and not row.apply.ok else 0


def find(series: Series, wanted: str) -> Patch:
    """Return the patch with this number or file name; InputError where there is none."""
    from patchwright.errors import InputError

    if wanted.isascii() and wanted.isdigit():
        return series.get(int(wanted))
    name = PurePath(wanted).name
    for patch in series.patches:
        if patch.path.name == name:
            return patch
    raise InputError(
        f"there is no patch file {name!r}", next_step=f"the series has {series.numbers()}"
    )


def _verdicts(project: Project, number: int) -> tuple[PatchOverview | None, str]:
    """Return how the patch applies and what is on record, or why that is not known.

    Without a network the pins may be missing; the patch itself can be shown all the same.
    """
    from patchwright.errors import PatchwrightError
    from patchwright.overview import overview
    from patchwright.series import Selection

    try:
        return overview(project, Selection(to=number))[-1], ""
    except PatchwrightError as error:
        return None, str(error)


def describe(series: Series, patch: Patch) -> dict[str, Any]:
    """Return what the patch file itself says, in the order of ``show --json``."""
    from patchwright.diff import CorruptPatch

    files: list[dict[str, Any]] = []
    corrupt = None
    try:
        files = [_file(change) for change in patch.changes]
    except CorruptPatch as error:
        corrupt = {"line": error.line, "reason": error.reason, "next_step": error.next_step}
    return {
        "number": patch.number,
        "file": patch.path.name,
        "sha256": patch.sha256,
        "title": patch.title,
        "author": patch.author,
        "date": patch.date,
        "upstream": patch.upstream,
        "made_for": patch.made_for,
        "needs": [
            {"number": n.number, "reason": n.reason, "title": series.get(n.number).title}
            for n in patch.depends
        ],
        "needed_by": list(series.dependants(patch.number)),
        "arch": list(patch.arch),
        "gates": list(patch.gates),
        "smoke": list(patch.smoke),
        "upstream_status": patch.upstream_status,
        "bugs": list(patch.bugs),
        "fields": [{"name": f.name, "value": f.value} for f in patch.fields],
        "message": patch.message_text,
        "files": files,
        "corrupt": corrupt,
    }


def _file(change: FileChange) -> dict[str, Any]:
    from patchwright.quoting import display

    lines = [line for hunk in change.hunks for line in hunk.lines]
    old = change.old_path
    return {
        "path": display(change.path),
        "kind": change.kind,
        "old_path": display(old) if old is not None and old != change.path else None,
        "added": sum(line[:1] == b"+" for line in lines),
        "removed": sum(line[:1] == b"-" for line in lines),
        "binary": change.binary is not None,
        "old_mode": change.old_mode.decode() if change.old_mode else None,
        "new_mode": change.new_mode.decode() if change.new_mode else None,
    }


def _outcome(row: PatchOverview | None, unknown: str) -> dict[str, Any]:
    if row is None:
        return {"apply": None, "reason": unknown, "tree": None, "applied_files": [], "evidence": {}}
    return {
        "apply": row.apply.verdict,
        "reason": row.apply.reason,
        "tree": row.apply.tree,
        "applied_files": [
            {"path": f.path, "verdict": f.verdict, "detail": f.detail} for f in row.apply.files
        ],
        "evidence": {
            tier: {context: {"verdict": known.verdict, "why": known.why}
                   for context, known in contexts.items()}
            for tier, contexts in row.evidence.items()
        },
    }  # fmt: skip


def _lines(patch: Patch, facts: Mapping[str, Any]) -> list[str]:
    out = [
        f"{patch.number:04d} {patch.title or '(no title)'}",
        f"File:   {patch.path.name}",
        f"Author: {patch.author}",
        f"Date:   {patch.date}",
    ]
    if patch.fields:
        out += ["", "Fields", *(f"  {f.name}: {f.value}" for f in patch.fields)]
    out += ["", "Needs"]
    for need in facts["needs"]:
        reason = f" ({need['reason']})" if need["reason"] else ""
        out.append(f"  {need['number']:04d} {need['title']}{reason}")
    if not facts["needs"]:
        out.append("  nothing")
    if facts["needed_by"]:
        out.append(f"  needed by {', '.join(f'{n:04d}' for n in facts['needed_by'])}")
    out += ["", "Files", *(f"  {_file_line(item)}" for item in facts["files"])]
    if facts["corrupt"]:
        out.append(f"  corrupt at line {facts['corrupt']['line']}: {facts['corrupt']['reason']}")
        out.append(f"  Next: {facts['corrupt']['next_step']}")
    out += ["", "Verdicts"]
    reason = str(facts["reason"]).replace("\n", "\n  ")
    if facts["apply"] is None:
        out.append(f"  not known: {reason}")
    else:
        out.append(f"  apply: {facts['apply']}" + (f": {reason}" if reason else ""))
        if facts["tree"]:
            out.append(f"  tree after it: {facts['tree']}")
        for tier, contexts in facts["evidence"].items():
            for context, known in contexts.items():
                why = f": {known['why']}" if known["why"] else ""
                out.append(f"  {tier}, {context}: {known['verdict']}{why}")
    if facts["message"]:
        out += ["", "Message", *(f"  {line}".rstrip() for line in facts["message"].split("\n"))]
    return out


def _file_line(item: Mapping[str, Any]) -> str:
    name = f"{item['old_path']} -> {item['path']}" if item["old_path"] else item["path"]
    counts = "binary" if item["binary"] else f"+{item['added']} -{item['removed']}"
    words = [item["kind"], name, counts]
    if item["old_mode"] and item["new_mode"] and item["old_mode"] != item["new_mode"]:
        words.append(f"mode {item['old_mode']} -> {item['new_mode']}")
    return " ".join(words)
