"""A prepared parcel on its way: to a fork, to a pull request, to files; then on record."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.errors import InputError
from patchwright.upstreaming import github, mails
from patchwright.upstreaming.branch import push
from patchwright.upstreaming.profiles import repository_of
from patchwright.upstreaming.record import Sent, keep_sent, read_sent

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.upstreaming.sending import Parcel


@dataclass(frozen=True)
class Delivered:
    """What was done: ``address`` is the pull request's; ``trouble`` why there is none.

    ``commands`` are what is left to the user, as they would type them.
    """

    pushed: bool = False
    address: str = ""
    trouble: str = ""
    commands: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()


def deliver_branch(project: Project, parcel: Parcel, numbers: Sequence[int]) -> Delivered:
    """Push the branch to the fork and put the version on record."""
    fork = need_fork(parcel)
    pushed = push(
        project, parcel.main, parcel.tip, parcel.branch, fork, _left_there(project, numbers, parcel)
    )
    _keep(project, parcel, numbers)
    return Delivered(pushed)


def deliver_pull_request(project: Project, parcel: Parcel, numbers: Sequence[int]) -> Delivered:
    """Push the branch, and open the pull request through gh or say how to."""
    need_repository(parcel)  # before anything leaves
    done = deliver_branch(project, parcel, numbers)
    known = parcel.previous.address if parcel.previous is not None else ""
    text = parcel.changed if known else parcel.body
    arguments = pull_request_arguments(parcel, "-")
    asked = github.ask(arguments, text)
    address = known or asked.address
    if asked.trouble:
        commands = pull_request_commands(parcel, _text_file(project, parcel, numbers, text))
        return replace(done, address=known, trouble=asked.trouble, commands=commands)
    keep_sent(project, numbers[0], replace(_sent(parcel, numbers), address=address))
    return replace(done, address=address)


def pull_request_arguments(parcel: Parcel, body_file: str) -> list[str]:
    """Return gh's arguments: a new pull request, or a comment on the one there is."""
    if parcel.previous is not None and parcel.previous.address:
        return github.comment_command(parcel.previous.address, body_file)
    return github.create_command(
        need_repository(parcel), parcel.profile.branch, head_of(parcel), parcel.title, body_file
    )


def pull_request_commands(parcel: Parcel, body_file: str) -> tuple[str, ...]:
    """Return what opens the pull request by hand: gh's command, or a page to go to."""
    first = shlex.join(["gh", *pull_request_arguments(parcel, body_file)])
    if parcel.previous is not None and parcel.previous.address:
        return (first,)
    page = github.page(need_repository(parcel), parcel.profile.branch, head_of(parcel))
    return first, page


def head_of(parcel: Parcel) -> str:
    """Return ``owner:branch`` of the fork; the branch alone for a fork without an owner."""
    owner = repository_of(parcel.fork).partition("/")[0]
    return f"{owner}:{parcel.branch}" if owner else parcel.branch


def deliver_mails(
    project: Project, parcel: Parcel, numbers: Sequence[int], folder: Path | None,
    to: Sequence[str],
) -> Delivered:  # fmt: skip
    """Write the mails and put the version on record; sending them is the user's."""
    name = f"{numbers[0]:04d}-v{parcel.version}"
    written = mails.write_mails(
        folder or project.state_dir / "outgoing" / name, formatted(project, parcel)
    )
    _keep(project, parcel, numbers)
    return Delivered(files=tuple(written), commands=(mails.command(written, to),))


def formatted(project: Project, parcel: Parcel) -> dict[str, bytes]:
    """Return the mails by file name."""
    old = parcel.previous
    return mails.format_mails(
        parcel.main, parcel.tip, parcel.committer, (parcel.title, parcel.cover), parcel.version,
        project.cache_dir / "tmp", (old.base, old.tip) if old is not None else None,
    )  # fmt: skip


def need_fork(parcel: Parcel) -> str:
    """Return the fork's address; InputError where none is named."""
    if not parcel.fork:
        raise InputError(
            "no fork is named that the branch could go to",
            next_step="name its git address with --fork, or as `fork` in "
            "[tool.patchwright.upstreams.NAME.contribute]",
        )
    return parcel.fork


def need_repository(parcel: Parcel) -> str:
    """Return upstream's ``owner/name``; InputError where it is not known."""
    if not parcel.profile.repository:
        raise InputError(
            "it is not known which repository takes the pull request",
            next_step='name it as `repository = "owner/name"` in '
            "[tool.patchwright.upstreams.NAME.contribute]",
        )
    return parcel.profile.repository


def mark_sent(project: Project, numbers: Sequence[int], address: str) -> bool:
    """Write ``Upstream-Status: Submitted [address]`` in one change, which undo takes back.

    Returns False where upstream.lock could not follow. Raises InputError for an address
    with brackets or line breaks.
    """
    from patchwright.editing.transaction import begin
    from patchwright.lock import patch_file

    if not re.fullmatch(r"[^\s\[\]][^\[\]\r\n]*", address) or not address.isprintable():
        raise InputError(f"{address!r} is not an address", next_step="give one without brackets")
    command = f"send {' '.join(map(str, numbers))}"
    with begin(project, command) as change:
        for number in numbers:
            patch = project.series.get(number)
            new = patch.with_fields({"Upstream-Status": [f"Submitted [{address}]"]})
            change.write(patch_file(project.root, patch.path), new.raw)
        relocked = change.relock() if project.lock is not None else True
        change.commit()
    sent = read_sent(project, numbers[0])
    if sent and sent[-1].address != address:
        keep_sent(project, numbers[0], replace(sent[-1], address=address))
    return relocked


def _sent(parcel: Parcel, numbers: Sequence[int]) -> Sent:
    from patchwright.upstreams.revision import without_login

    address = parcel.previous.address if parcel.previous is not None else ""
    return Sent(
        parcel.version, parcel.main.commit, parcel.tip, parcel.branch, without_login(parcel.fork),
        address, tuple(numbers),
    )  # fmt: skip


def _keep(project: Project, parcel: Parcel, numbers: Sequence[int]) -> None:
    keep_sent(project, numbers[0], _sent(parcel, numbers))


def _left_there(project: Project, numbers: Sequence[int], parcel: Parcel) -> str | None:
    """Return the commit that an earlier send left as this branch."""
    tips = [s.tip for s in read_sent(project, numbers[0]) if s.branch == parcel.branch]
    return tips[-1] if tips else None


def _text_file(project: Project, parcel: Parcel, numbers: Sequence[int], text: str) -> str:
    """Write the text where gh can read it, and return its place."""
    path = project.state_dir / "outgoing" / f"{numbers[0]:04d}-v{parcel.version}.md"
    mails.write_text(path, text)
    return str(path)
