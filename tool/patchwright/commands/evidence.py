"""patchwright evidence: what is on record, and how it travels from machine to machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patchwright.commands import Invocation, console, json_option, print_json
from patchwright.errors import AnswerNo, InputError, PatchwrightError

if TYPE_CHECKING:
    from patchwright.catalogue import Catalogue, Entry
    from patchwright.imported import Origin

_numbers = click.argument("numbers", nargs=-1, type=click.IntRange(min=1), metavar="[N]...")


@click.group(short_help="List, show, export and import what was verified.")
def command() -> None:
    """List, show, export and import the records of what was verified."""


@command.command("list")
@_numbers
@json_option
@click.pass_obj
def list_(invocation: Invocation, numbers: tuple[int, ...], as_json: bool) -> int:
    """Print one row per record: of which patch, where, when, and what it is worth now.

    With patch numbers, only the records of their smoke tests. A record is current when
    verify would take it, an imported one when it is for the present trees and test.
    Files that were damaged or edited never count and are named.
    """
    catalogue = _catalogue(invocation)
    entries = catalogue.about(numbers)
    if as_json:
        damaged = [{"file": str(path), "why": why} for path, why in catalogue.damaged.items()]
        print_json({"records": [_row(entry) for entry in entries], "damaged": damaged})
        return 0
    _print(entries)
    for path, why in catalogue.damaged.items():
        click.echo(f"damaged: {path}: {why}")
    return 0


@command.command("show")
@click.argument("key")
@json_option
@click.pass_obj
def show(invocation: Invocation, key: str, as_json: bool) -> int:
    """Print all of one record, its log included. KEY may be the start of a key."""
    entries = _catalogue(invocation).find(key)
    if as_json:
        print_json({"key": entries[0].key, "records": [_whole(entry) for entry in entries]})
        return 0
    for entry in entries:
        _print_whole(entry)
    return 0


@command.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@_numbers
@click.option("--all", "everything", is_flag=True, help="Old records, too.")
@json_option
@click.pass_obj
def export(
    invocation: Invocation, file: Path, numbers: tuple[int, ...], everything: bool, as_json: bool
) -> int:
    """Write this machine's current records to FILE, for `evidence import` elsewhere.

    With patch numbers, only the records of their smoke tests.
    """
    from patchwright.evidence_files import format_export
    from patchwright.files import sweep, write_atomically

    if file.is_dir() or not file.parent.is_dir():
        what = "this is a folder" if file.is_dir() else "there is no such folder to write to"
        raise InputError(what, where=str(file), next_step="name a file to write")
    catalogue = _catalogue(invocation)
    own = [entry for entry in catalogue.about(numbers) if entry.origin is None]
    chosen = [entry for entry in own if everything or entry.state == "current"]
    if not chosen:
        raise AnswerNo(
            f"there is no {'' if everything else 'current '}record of this machine to export",
            next_step="run `patchwright verify`" + ("" if everything or not own else ", or --all"),
        )
    try:
        sweep(file.parent, file.name)
        write_atomically(file, format_export(catalogue.exported(chosen)))
    except OSError as error:
        raise PatchwrightError(
            f"the file cannot be written: {error.strerror}", where=str(file),
            next_step="name a file in a folder that can be written",
        ) from error  # fmt: skip
    if as_json:
        print_json({"file": str(file), "keys": [entry.key for entry in chosen]})
    else:
        click.echo(f"{file}: {_count(len(chosen))} of {_patches(chosen)}")
    return 0


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
@click.pass_obj
def import_(invocation: Invocation, file: Path, as_json: bool) -> int:
    """Take the records of FILE, made by `evidence export` on another machine.

    They are kept apart from this machine's own and shown with where they come from.
    They say what passed there; nothing counts as verified here because of them.
    """
    catalogue = _catalogue(invocation)
    done = catalogue.imported.take(file)
    try:
        entries = catalogue.of(done)
    except PatchwrightError as error:
        # What was taken is taken; the series can be compared when it can be read.
        click.echo(f"imported, but not compared with the series: {error.what}", err=True)
        entries = []
    states = Counter(entry.state for entry in entries)
    if as_json:
        print_json({
            "new": done.new, "origin": _origin(done.origin),
            "current": states["current"], "old": states["old"], "unmatched": states["unmatched"],
        })  # fmt: skip
        return 0
    origin = done.origin
    click.echo(
        f"{'imported' if done.new else 'was imported before'}: {_count(len(entries))} from "
        f"{origin.host} (patchwright {origin.tool}, {origin.exported})"
    )
    if states["current"]:
        current = [entry for entry in entries if entry.state == "current"]
        click.echo(f"  {states['current']} for the present series: {_patches(current)}")
    if other := states["old"] + states["unmatched"]:
        click.echo(f"  {other} match no patch of the present series (other trees or tests)")
    return 0


def _catalogue(invocation: Invocation) -> Catalogue:
    from patchwright.catalogue import Catalogue
    from patchwright.project import Project

    project = Project.open(invocation.directory)
    project.progress = lambda text: click.echo(text, err=True)
    return Catalogue(project)


def _row(entry: Entry) -> dict[str, Any]:
    record = entry.record
    return {
        "key": entry.key,
        "numbers": list(entry.numbers),
        "test": record.inputs.test,
        "tier": record.inputs.tier,
        "run": _run(entry),
        "outcome": record.outcome,
        "trees": dict(record.inputs.trees),
        "when": record.when,
        "host": record.host,
        "device": record.device,
        "seconds": round(record.seconds, 3),
        "state": entry.state,
        "why": entry.why,
        "origin": _origin(entry.origin),
    }


def _whole(entry: Entry) -> dict[str, Any]:
    from dataclasses import asdict

    record = asdict(entry.record)
    return {
        "numbers": list(entry.numbers), "run": _run(entry), "state": entry.state,
        "why": entry.why, "origin": _origin(entry.origin), **record,
    }  # fmt: skip


def _origin(origin: Origin | None) -> dict[str, str] | None:
    from dataclasses import asdict

    return asdict(origin) if origin is not None else None


def _print(entries: Iterable[Entry]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("key", "patch", "tier", "run", "outcome", "trees", "when", "where", "worth"):
        table.add_column(heading)
    table.columns[0].no_wrap = True
    for entry in entries:
        record = entry.record
        trees = "\n".join(f"{name} {tree[:8]}" for name, tree in record.inputs.trees.items())
        where = record.host + (f" ({record.device})" if record.device else "")
        where += f"\n{entry.origin}" if entry.origin is not None else ""
        table.add_row(
            entry.key[:12], ", ".join(f"{n:04d}" for n in entry.numbers) or "-",
            record.inputs.tier, _run(entry), record.outcome, trees, record.when, where,
            entry.state + (f": {entry.why}" if entry.why else ""),
        )  # fmt: skip
    console().print(table)


def _print_whole(entry: Entry) -> None:
    record, inputs = entry.record, entry.record.inputs
    numbers = ", ".join(f"{number:04d}" for number in entry.numbers)
    rows = {
        "key": entry.key,
        "worth": entry.state + (f": {entry.why}" if entry.why else ""),
        "patch": numbers or "none of the series",
        "test": f"{inputs.test} (sha256 {inputs.test_sha256[:12]})",
        "tier": inputs.tier,
        "run": "without the patch (control)" if inputs.control else "with the patch",
        "outcome": record.outcome,
        "reason": record.reason,
        "seconds": f"{record.seconds:.3f}",
        "when": record.when,
        "host": record.host,
        "origin": str(entry.origin or "this project's own"),
        **{f"tree of {name}": tree for name, tree in inputs.trees.items()},
        **{f"without it, {name}": tree for name, tree in inputs.baseline.items()},
        **inputs.environment,
        **record.machine,
        "Python": inputs.python,
        "patchwright": f"{record.tool} (fixtures {inputs.harness[:12]})",
        "stubbed": ", ".join(record.stubs) or "nothing",
    }
    for name, value in rows.items():
        if value:
            click.echo(f"{name}: {_indented(value)}")
    for test in record.tests:
        words = [test[name] for name in ("test", "outcome", "reason") if test.get(name)]
        click.echo(f"  {_indented(': '.join(map(str, words)))}")
    click.echo(f"log:\n  {_indented(record.log)}\n" if record.log.strip() else "log: empty\n")


def _indented(text: str) -> str:
    """Return text for a terminal: no control characters, further lines indented."""
    lines = ("".join(c if c.isprintable() else _escaped(c) for c in line)
             for line in text.rstrip().split("\n"))  # fmt: skip
    return "\n  ".join(lines)


def _escaped(character: str) -> str:
    return character if character == "\t" else character.encode("unicode_escape").decode()


def _run(entry: Entry) -> str:
    return "control" if entry.record.inputs.control else "test"


def _count(number: int) -> str:
    return f"{number} record{'s' * (number != 1)}"


def _patches(entries: Iterable[Entry]) -> str:
    found: dict[str, set[int]] = {}
    for entry in entries:
        found.setdefault(entry.record.inputs.tier, set()).update(entry.numbers)
    return "; ".join(
        f"{tier} {', '.join(f'{number:04d}' for number in sorted(numbers)) or 'no patch'}"
        for tier, numbers in sorted(found.items())
    )
