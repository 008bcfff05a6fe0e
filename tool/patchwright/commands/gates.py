"""patchwright gates: where the upstreams decide by GPU architecture, and what they decide."""

from __future__ import annotations

from collections import Counter
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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from patchwright.audit.gates import Change, Gate
    from patchwright.audit.inventory import Inventory
    from patchwright.series import Selection

_WORDS = {True: "T", False: "F", None: "?"}


@click.command(cls=SelectingCommand, short_help="List the gates and what each decides.")
@click.option("--upstream", "upstreams", multiple=True, metavar="NAME",
              help="Only this upstream; may be repeated.")  # fmt: skip
@click.option("--arch", "archs", multiple=True, metavar="ARCH",
              help="Only gates that do not let this architecture (sm_120) through.")  # fmt: skip
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only gates of this kind.")
@click.option("--changed", is_flag=True, help="What the series changes, before and after.")
@click.option("--all", "everything", is_flag=True,
              help="Also where the capability is read and predicates are defined.")  # fmt: skip
@json_option
@click.pass_obj
def command(
    invocation: Invocation, selection: Selection, upstreams: tuple[str, ...],
    archs: tuple[str, ...], kinds: tuple[str, ...], changed: bool, everything: bool, as_json: bool,
) -> int:  # fmt: skip
    """List every place where an upstream decides by GPU architecture.

    Each is evaluated for eight compute capabilities: T it holds, F it does not, ?
    something else decides as well. Evaluated on the tree with the selected patches;
    nothing of an upstream is executed.
    """
    from patchwright.audit.gates import FEEDING, KINDS, changes
    from patchwright.audit.series import Auditor, capability_of
    from patchwright.project import Project

    project = Project.open(invocation.directory)
    for name in upstreams:
        project.upstream(name)
    if unknown := set(kinds) - KINDS.keys():
        known = ", ".join(KINDS)
        raise click.BadParameter(f"no kind {min(unknown)!r}: {known}", param_hint="--kind")
    try:
        capabilities = [capability_of(arch) for arch in archs]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--arch") from error
    with progress("reading the pins and the series") as say:
        project.progress = say
        auditor = Auditor(project, say)
        state, _ = auditor.chain.apply(selection.pick(project.series))
        found = auditor.gates(state)
        before = auditor.gates(auditor.chain.base()) if changed else found

    def wanted(gate: Gate) -> bool:
        return (
            (not upstreams or gate.upstream in upstreams)
            and (not kinds or gate.kind in kinds)
            and all(gate.values.get(c) is False for c in capabilities)
            and (everything or bool(kinds) or gate.kind not in FEEDING)
        )

    if changed:
        moved = [c for c in changes(before.gates, found.gates)
                 if (not upstreams or c.gate.upstream in upstreams)
                 and (not kinds or c.gate.kind in kinds)]  # fmt: skip
        if as_json:
            print_json([_change_json(c) for c in moved])
        else:
            _print_changes(moved)
        return 0
    gates = [gate for gate in found.gates if wanted(gate)]
    if as_json:
        unread = [{"upstream": u, "path": p, "why": why} for u, p, why in found.unread]
        print_json({"gates": [gate.to_json() for gate in gates], "unread": unread})
    else:
        _print(gates, found)
    return 0


def _change_json(change: Change) -> dict[str, Any]:
    return {
        "change": change.word,
        "opened": list(change.opened),
        "closed": list(change.closed),
        "before": change.before.to_json() if change.before else None,
        "after": change.after.to_json() if change.after else None,
    }


def row(gate: Gate) -> str:
    """Return a gate's values as one letter for each capability."""
    return " ".join(_WORDS[value].ljust(4) for value in gate.values.values())


def _heading() -> str:
    from patchwright.audit.gates import CAPABILITIES

    return " ".join(c.ljust(4) for c in CAPABILITIES)


def _print(gates: Sequence[Gate], found: Inventory) -> None:
    out = console()
    place = ("", "")
    out.print(f"{'':11} {_heading()}")
    for gate in gates:
        if (gate.upstream, gate.path) != place:
            place = (gate.upstream, gate.path)
            out.print(f"\n{gate.upstream}: {gate.path}")
        mark = "~" if gate.assumed else " "
        out.print(f"{gate.line:>5} {gate.kind:<11}{mark}{row(gate)} {gate.function or '<module>'}: "
                  f"{gate.condition}", soft_wrap=True)  # fmt: skip
        if gate.effect:
            out.print(f"{'':18}{gate.effect}", soft_wrap=True, style="dim")
    out.print()
    for upstream in dict.fromkeys(g.upstream for g in found.gates):
        counts = Counter(g.kind for g in found.gates if g.upstream == upstream)
        total = ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
        out.print(f"{upstream}: {total}", soft_wrap=True)
    for upstream, path, why in found.unread:
        out.print(f"cannot tell: {upstream}: {path}: {why}", soft_wrap=True)
    if any(g.assumed for g in gates):
        out.print("~ rests on what a name is taken to mean")


def _print_changes(moved: Sequence[Change]) -> None:
    out = console()
    if not moved:
        out.print("no gate is changed")
        return
    out.print(f"{'':9} {_heading()}")
    for change in moved:
        gate = change.gate
        out.print(f"\n{change.word} {gate.upstream}: {gate.place} {gate.kind} "
                  f"{gate.function or '<module>'}", soft_wrap=True)  # fmt: skip
        for word, one in (("before", change.before), ("after", change.after)):
            if one is not None:
                out.print(f"  {word:<7} {row(one)} {one.condition}", soft_wrap=True)
