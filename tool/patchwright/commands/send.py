"""``patchwright send``: put patches on upstream's main and send them, once they hold there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patchwright.commands import Invocation, json_option, print_json, progress
from patchwright.errors import AnswerNo
from patchwright.tiers import DEFAULT_TIERS
from patchwright.upstreaming.wording import KINDS

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.smoke.evidenced import Result
    from patchwright.smoke.runs import Run
    from patchwright.upstreaming.delivery import Delivered
    from patchwright.upstreaming.sending import Parcel

_WAYS = ("pr", "mail", "branch")


@click.command(short_help="Send patches upstream, once they hold there.")
@click.argument("numbers", nargs=-1, required=True, type=click.IntRange(min=1), metavar="N...")
@click.option("--to", "way", type=click.Choice(_WAYS), default="pr", show_default=True,
              help="A pull request, mails for git send-email, or a branch alone.")  # fmt: skip
@click.option("--accept", is_flag=True, help="Do it. Without this, all is shown and nothing sent.")
@click.option("-v", "version", type=click.IntRange(1, 99), default=1, metavar="K",
              help="Version, as in -v2: with what changed since the one before.")  # fmt: skip
@click.option("--note", default="", help="What this version changes, in words.")
@click.option("--upstream", "source", metavar="ADDRESS",
              help="A git address or a local clone in place of the upstream's own.")  # fmt: skip
@click.option("--fork", metavar="ADDRESS", help="Your fork's git address.")
@click.option("--branch", metavar="NAME", help="The branch's name. Default: from the title.")
@click.option("--title", metavar="TEXT", help="The title, as upstream will read it.")
@click.option("--type", "kind", type=click.Choice(KINDS), default="fix", show_default=True,
              help="What it is, where upstream's titles say so: fix(scope): …")  # fmt: skip
@click.option("--author", metavar="PERSON", help="'Name <address>' in place of the patch's own.")
@click.option("--tier", "tiers", multiple=True, type=click.Choice(DEFAULT_TIERS),
              help="Only this tier counts; may be repeated. Default: all.")  # fmt: skip
@click.option("--no-checks", is_flag=True, help="Leave the repository's own checks out.")
@click.option("--mail-to", "to", multiple=True, metavar="ADDRESS", help="Who gets the mails.")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="The folder for mails. Default: below .patchwright/outgoing.")  # fmt: skip
@click.option("--sent", metavar="ADDRESS",
              help="It was sent by hand, to this address: put that on record.")  # fmt: skip
@json_option
@click.pass_obj
def command(
    invocation: Invocation, numbers: tuple[int, ...], way: str, accept: bool, version: int,
    note: str, source: str | None, fork: str | None, branch: str | None, title: str | None,
    kind: str, author: str | None, tiers: tuple[str, ...], no_checks: bool, to: tuple[str, ...],
    output: Path | None, sent: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Make patches N… on upstream's current main, alone with what they need, and send them.

    A dry run, unless --accept is given. It is refused, with the reasons, where a patch does
    not apply there, is there already, needs one that was not sent, has no passing evidence
    on record, fails its own smoke test on main, fails the repository's own checks, or
    carries our own fields in its message.
    """
    from patchwright.project import Project
    from patchwright.upstreaming.sending import Wish, prepare

    project = Project.open(invocation.directory)
    numbers = tuple(sorted(set(numbers)))
    if sent is not None:
        return _mark(project, numbers, sent, as_json)
    wish = Wish(
        numbers, source, fork, branch, title, kind, author, version, note,
        tuple(t for t in DEFAULT_TIERS if t in (tiers or DEFAULT_TIERS)), not no_checks,
    )  # fmt: skip
    with progress("reading the pins and the series") as say:
        project.progress = say

        def on_run(run: Run, result: Result, done: int, total: int) -> None:
            say(f"{done}/{total} {run.test.stem} {run.tier}: {result.outcome}")

        parcel = prepare(project, wish, on_run)
        done = (
            _deliver(project, parcel, way, output, to) if accept and not parcel.refusals else None
        )
    if as_json:
        print_json(_json(parcel, way, done))
    else:
        _print(project, parcel, way, done, to)
    if parcel.refusals:
        count = len(parcel.refusals)
        raise AnswerNo(
            f"nothing was sent, for {count} reason{'s' * (count != 1)} given above"
            if not as_json else f"nothing was sent: {parcel.refusals[0]}",
            where=parcel.main.name,
            next_step="see docs/send.md for what each reason asks for",
        )  # fmt: skip
    if done is None:
        return 0
    if way == "pr" and done.address and not done.trouble:
        _mark(project, numbers, done.address, as_json, quiet=as_json)
    return 1 if done.trouble else 0


def _deliver(
    project: Project, parcel: Parcel, way: str, output: Path | None, to: Sequence[str]
) -> Delivered:
    from patchwright.upstreaming import delivery

    numbers = [step.patch.number for step in parcel.steps if step.asked]
    if way == "mail":
        return delivery.deliver_mails(project, parcel, numbers, output, to)
    project.progress("pushing the branch")
    if way == "branch":
        return delivery.deliver_branch(project, parcel, numbers)
    return delivery.deliver_pull_request(project, parcel, numbers)


def _mark(
    project: Project, numbers: Sequence[int], address: str, as_json: bool, *, quiet: bool = False
) -> int:
    from patchwright.errors import PatchwrightError
    from patchwright.upstreaming.delivery import mark_sent

    try:
        relocked = mark_sent(project, numbers, address)
    except PatchwrightError as error:
        # What is out cannot be called back: its address must not be lost.
        again = f"patchwright send {' '.join(map(str, numbers))} --sent {address}"
        error.next_step = f"{error.next_step}; then run `{again}`".removeprefix("; then ")
        raise
    if as_json and not quiet:
        print_json({"status": f"Submitted [{address}]", "patches": list(numbers)})
    elif not as_json:
        names = ", ".join(f"{n:04d}" for n in numbers)
        click.echo(f"{names}: Upstream-Status: Submitted [{address}]")
    if not relocked:
        click.echo("upstream.lock is stale: `patchwright lock` says why or writes it", err=True)
    return 0


def _print(
    project: Project, parcel: Parcel, way: str, done: Delivered | None, to: Sequence[str]
) -> None:
    from patchwright.quoting import printable

    main = parcel.main
    click.echo(f"{main.branch} of {printable(main.address)}: {main.commit}")
    for note in parcel.notes:
        click.echo(f"note: {printable(note)}")
    for row in parcel.rows:
        control = f", without it {row.control}" if row.control else ""
        why = f" ({printable(row.reason)})" if row.reason else ""
        if row.verdict != "none":
            click.echo(f"{row.number:04d} {row.tier} on {row.place}: {row.verdict}{control}{why}")
    if parcel.checked is not None:
        why = f" ({printable(parcel.checked.reason)})" if parcel.checked.reason else ""
        click.echo(f"{parcel.checked.name}: {parcel.checked.outcome}{why}")
    for reason in parcel.refusals:
        click.echo(f"refused: {printable(reason)}")
    if parcel.refusals:
        return
    for commit, title in zip(parcel.commits, parcel.titles, strict=True):
        click.echo(f"commit {commit} {printable(title)}")
    click.echo(f"branch {parcel.branch}, tree {parcel.tree}")
    if done is None:
        _print_plan(project, parcel, way, to)
    else:
        _print_done(parcel, done)


def _print_plan(project: Project, parcel: Parcel, way: str, to: Sequence[str]) -> None:
    from patchwright.quoting import printable
    from patchwright.upstreaming import delivery, mails
    from patchwright.upstreams.revision import without_login

    if way == "mail":
        written = delivery.formatted(project, parcel)
        click.echo(f"\n{printable(next(iter(written.values())).decode('utf-8', 'replace'))}")
        click.echo(f"would be written: {', '.join(written)}")
        click.echo(mails.command([Path(name) for name in written], to))
    else:
        form = parcel.template or "no template"
        click.echo(f"\n--- {printable(parcel.title)} ({form})\n{printable(parcel.body)}---")
        fork = printable(without_login(parcel.fork)) or "no fork yet: name it with --fork"
        click.echo(f"would be pushed to: {fork}")
        for wanted in parcel.profile.reviewers:
            click.echo(f"reviewers want: {wanted}")
        if parcel.profile.ci:
            click.echo(f"CI: {parcel.profile.ci}")
    click.echo("nothing was sent; do it with --accept")


def _print_done(parcel: Parcel, done: Delivered) -> None:
    from patchwright.upstreams.revision import without_login

    for path in done.files:
        click.echo(str(path))
    if not done.files:
        fork = without_login(parcel.fork)
        said = "pushed to" if done.pushed else "stands already in"
        click.echo(f"branch {parcel.branch} {said} {fork}")
    if done.address:
        click.echo(f"pull request: {done.address}")
    if done.trouble:
        click.echo(f"the pull request is not opened: {done.trouble}; do it with one of")
    for line in done.commands:
        click.echo(f"  {line}")
    if done.commands:
        click.echo("then say so: patchwright send N... --sent ADDRESS")


def _json(parcel: Parcel, way: str, done: Delivered | None) -> dict[str, Any]:
    return {
        "to": way,
        "main": {"branch": parcel.main.branch, "address": parcel.main.address,
                 "commit": parcel.main.commit, "tree": parcel.main.tree},
        "refused": list(parcel.refusals),
        "notes": list(parcel.notes),
        "applied": [
            {"number": s.patch.number, "asked": s.asked, "apply": s.verdict.verdict,
             "tree": s.after} for s in parcel.steps
        ],
        "evidence": [vars(row) for row in parcel.rows],
        "checks": vars(parcel.checked) if parcel.checked is not None else None,
        "branch": parcel.branch, "commits": list(parcel.commits), "tree": parcel.tree,
        "version": parcel.version, "title": parcel.title, "body": parcel.body,
        "template": parcel.template,
        "sent": None if done is None else {
            "pushed": done.pushed, "address": done.address, "trouble": done.trouble,
            "files": [str(path) for path in done.files], "commands": list(done.commands),
        },
    }  # fmt: skip
