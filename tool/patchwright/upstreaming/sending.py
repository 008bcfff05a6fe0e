"""Sending: what would reach upstream, worked out whole before anything leaves this machine.

parcel = prepare(project, Wish((4,), …))     # writes to the cache only
parcel.refusals                              # not empty: it must not be sent
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from patchwright.errors import InputError
from patchwright.tiers import DEFAULT_TIERS
from patchwright.upstreaming import branch as branches
from patchwright.upstreaming import description, wording
from patchwright.upstreaming.checking import Checked, check
from patchwright.upstreaming.fitting import Fit, Step, fit
from patchwright.upstreaming.mainline import Mainline, fetch_mainline
from patchwright.upstreaming.profiles import Profile, profile_of
from patchwright.upstreaming.proving import Proof, Row, prove
from patchwright.upstreaming.record import Sent, read_sent
from patchwright.upstreaming.secrecy import redacted

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.smoke.evidenced import Result
    from patchwright.smoke.runs import Run


@dataclass(frozen=True)
class Wish:
    """What the user asks for.

    ``source`` is an address or a clone in place of the upstream's ``git``; ``kind`` the
    type of a conventional title; ``author`` replaces the patches' own; ``note`` says what
    a new version changes.
    """

    numbers: tuple[int, ...]
    source: str | None = None
    fork: str | None = None
    branch: str | None = None
    title: str | None = None
    kind: str = "fix"
    author: str | None = None
    version: int = 1
    note: str = ""
    tiers: tuple[str, ...] = DEFAULT_TIERS
    checks: bool = True


@dataclass(frozen=True)
class Parcel:
    """What would be sent, or why not.

    ``commits`` are on ``main`` in the mirror, one per step, the last is the branch's tip;
    ``body`` is the pull request's text, ``template`` where its form is from. ``previous``
    is the version before, ``changed`` what this one changes (range-diff and all).
    """

    main: Mainline
    profile: Profile
    steps: tuple[Step, ...]
    refusals: tuple[str, ...]
    notes: tuple[str, ...]
    rows: tuple[Row, ...] = ()
    checked: Checked | None = None
    branch: str = ""
    fork: str = field(default="", repr=False)
    version: int = 1
    titles: tuple[str, ...] = ()
    title: str = ""
    body: str = ""
    template: str = ""
    commits: tuple[str, ...] = ()
    tree: str = ""
    committer: tuple[str, str] = ("", "")
    cover: str = ""
    previous: Sent | None = None
    changed: str = ""

    @property
    def tip(self) -> str:
        """The commit that the branch ends in."""
        return self.commits[-1]


def prepare(
    project: Project, wish: Wish,
    on_run: Callable[[Run, Result, int, int], None] | None = None,
) -> Parcel:  # fmt: skip
    """Work out what would be sent. Raises InputError for a wish that makes no sense."""
    numbers = tuple(sorted(set(wish.numbers)))
    upstream = _upstream(project, numbers)
    profile = profile_of(project.upstream(upstream))
    previous = _previous(project, numbers[0], wish.version)
    main = fetch_mainline(project, project.upstream(upstream), profile, wish.source)
    found = fit(project, main, upstream, numbers, again=wish.version > 1)
    notes = [*main.notes, *(_moved(step, main) for step in found.steps if step.asked)]
    notes += [f"{n:04d}, which is needed, is in {main.name} already" for n in found.landed]
    authors, refusals = _authors(found, wish)
    refusals = [*found.refusals, *refusals]
    if refusals or not any(step.asked for step in found.steps):
        return Parcel(main, profile, found.steps, tuple(refusals), _said(notes))
    proof = prove(project, main, found.steps, tiers=wish.tiers, on_run=on_run)
    notes += proof.notes
    if proof.refusals:
        return Parcel(main, profile, found.steps, proof.refusals, _said(notes), proof.rows)
    name = wish.branch or (previous.branch if previous is not None else "")
    titles = _titles(found.steps, profile, wish)
    asked = [t for t, step in zip(titles, found.steps, strict=True) if step.asked]
    name = branches.checked_name(name or branches.name_for(asked[0]))
    tree = found.steps[-1].after
    checked = check(project, main, tree, _paths(found), name,
                    wish.checks and "pre-commit" in profile.checks)  # fmt: skip
    failed = (
        [f"{main.branch}'s own checks fail on the touched files: {checked.reason}"]
        if checked.outcome == "failed"
        else []
    )
    if failed:
        return Parcel(main, profile, found.steps, tuple(failed), _said(notes), proof.rows, checked)
    committer = _committer(project)
    commits = branches.commit(project, main, [
        branches.Draft(
            step.after,
            wording.commit_message(
                step.patch, title, f"{committer[0]} <{committer[1]}>" if profile.sign_off else None
            ),
            author, committer, wording.date_of(step.patch),
        )
        for step, title, author in zip(found.steps, titles, authors, strict=True)
    ])  # fmt: skip
    fork = wish.fork or profile.fork
    changed, old = _changed(project, main, wish, previous, commits[-1], fork, notes)
    sections = _sections(project, main, found, proof, checked, titles)
    template = description.find_template(project.store, main.tree, profile.templates)
    if not template.path:
        notes.append(f"{main.branch} has no {' or '.join(profile.templates)}: a plain text instead")
    body, added = description.fill(template, sections)
    if template.path and added:
        notes.append(f"{template.path} has no place for: {', '.join(added)}; added at its end")
    if any(wording.has_tags(title) for title in titles):
        notes.append("a title has [tags]: plain `git am` drops them, `git am -b` keeps them")
    title = asked[0] if len(asked) == 1 else wish.title or asked[0]
    cover = redacted(_cover(sections, changed if old is None else wish.note))
    if changed:
        body += f"\n## Changes in v{wish.version}\n\n{changed}"
    return Parcel(
        main, profile, found.steps, (), _said(notes), proof.rows, checked, name, fork,
        wish.version, titles, title, redacted(body), template.path, commits, tree, committer,
        cover, old, redacted(changed),
    )  # fmt: skip


def _upstream(project: Project, numbers: Sequence[int]) -> str:
    names = {str(project.series.get(n).upstream) for n in numbers}
    if len(names) > 1:
        raise InputError(
            f"these patches are for {' and '.join(sorted(names))}",
            next_step="send the patches of one upstream at a time",
        )
    return names.pop()


def _previous(project: Project, number: int, version: int) -> Sent | None:
    """Return the version before, where it was sent from this machine."""
    earlier = [s for s in read_sent(project, number) if s.version < version]
    return earlier[-1] if earlier else None


def _moved(step: Step, main: Mainline) -> str:
    verdict = step.verdict
    how = f": {verdict.reason}" if verdict.reason else ""
    return f"{verdict.patch_number:04d} on {main.name}: {verdict.verdict}{how}"


def _authors(found: Fit, wish: Wish) -> tuple[list[tuple[str, str]], list[str]]:
    authors, refusals = [], []
    for step in found.steps:
        person = step.patch.author
        if wish.author is not None and (step.asked or not wording.name_and_address(person)):
            person = wish.author
        author = wording.name_and_address(person)
        if author is None:
            refusals.append(
                f"the author of {step.patch.number:04d}, {person!r}, has no e-mail address that "
                "upstream could use: correct its From line, or give --author 'Name <address>'"
            )
        authors.append(author or ("", ""))
    return authors, refusals


def _committer(project: Project) -> tuple[str, str]:
    from patchwright.editing.identity import author

    person = author(project.root)
    found = wording.name_and_address(person)
    if found is None:
        raise InputError(
            f"{person!r}, by git's configuration, has no e-mail address that upstream could use",
            where="user.email", next_step="run `git config --global user.email …`",
        )  # fmt: skip
    return found


def _titles(steps: Sequence[Step], profile: Profile, wish: Wish) -> tuple[str, ...]:
    single = sum(step.asked for step in steps) == 1
    return tuple(
        wording.check_title(wish.title)
        if single and step.asked and wish.title is not None
        else wording.title_for(step.patch, profile, wish.kind)
        for step in steps
    )


def _paths(found: Fit) -> list[bytes]:
    return list(dict.fromkeys(
        path
        for step in found.steps
        for change in step.patch.changes
        for path in (change.new_path,)
        if path is not None
    ))  # fmt: skip


def _changed(
    project: Project, main: Mainline, wish: Wish, previous: Sent | None, tip: str, fork: str,
    notes: list[str],
) -> tuple[str, Sent | None]:  # fmt: skip
    """Return what a new version changes, and the earlier one where its commits can be had."""
    lines = [wish.note] if wish.note else []
    if previous is None:
        if wish.version > 1:
            notes.append("no earlier version is on record on this machine: no range-diff")
        return "\n".join(lines), None
    if previous.base != main.commit:
        lines.append(f"On {main.name} now; v{previous.version} was on {previous.base[:12]}.")
    if previous.tip == tip:
        notes.append(f"v{wish.version} is what v{previous.version} was: nothing changed")
    here = all(branches.bring(project, main, c, fork) for c in (previous.base, previous.tip))
    if not here:
        notes.append(f"the commits of v{previous.version} cannot be had any more: no range-diff")
        return "\n\n".join(lines), None
    diff = branches.range_diff(project, main, (previous.base, previous.tip), tip)
    lines.append(f"Range-diff against v{previous.version}:\n\n```\n{diff.rstrip()}\n```")
    return "\n\n".join(lines) + "\n", previous


def _sections(
    project: Project, main: Mainline, found: Fit, proof: Proof, checked: Checked,
    titles: Sequence[str],
) -> dict[str, str]:  # fmt: skip
    asked = [(s, t) for s, t in zip(found.steps, titles, strict=True) if s.asked]
    under = [s for s in found.steps if not s.asked]
    several = len(asked) > 1
    purpose = "\n\n".join(
        (f"### {title}\n\n" if several else "") + wording.reasons(step.patch)
        for step, title in asked
    )
    stat = project.store.git.run(
        "diff-tree", "-r", "-M", "--stat=72", "--summary", "--no-color", main.tree,
        found.steps[-1].after,
    ).stdout.decode("utf-8", "replace")  # fmt: skip
    changes = f"```\n{stat.rstrip()}\n```"
    if under:
        listed = "\n".join(f"- {s.patch.title} ({s.patch.upstream_status})" for s in under)
        changes = f"On top of what was sent before and is not merged yet:\n\n{listed}\n\n{changes}"
    issues = dict.fromkeys(f"- {bug}" for step, _ in asked for bug in step.patch.bugs)
    checks = f"{checked.name} on the touched files: {checked.outcome}"
    checks += f" ({checked.reason})" if checked.reason else ""
    tests = [
        "Each test ran with the change and, as a control, without it: red without, green with.",
        description.evidence_table(proof.rows), *proof.notes, f"{checks}.",
    ]  # fmt: skip
    return {
        "purpose": purpose, "changes": changes, "issues": "\n".join(issues),
        "tests": "\n\n".join(tests), "speed": "No speed was measured.",
    }  # fmt: skip


def _cover(sections: dict[str, str], note: str) -> str:
    parts = [note, sections["purpose"], sections["issues"], sections["tests"]]
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _said(notes: Sequence[str]) -> tuple[str, ...]:
    return tuple(redacted(note) for note in dict.fromkeys(notes))
