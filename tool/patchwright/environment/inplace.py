"""Patches in an environment that is there already: put on, moved by difference, taken off."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.environment.comparing import differences
from patchwright.environment.installed import Distribution, Site
from patchwright.environment.transaction import Carried, Move, SiteFiles, sha256, source_of
from patchwright.errors import AnswerNo, InputError
from patchwright.lock import patch_file
from patchwright.quoting import display

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.environment.patched import PatchedDistribution
    from patchwright.patch import Patch
    from patchwright.project import Project

Say = Callable[[str], None]


@dataclass(frozen=True)
class Applied:
    """What was done: versions by distribution (None: as it was installed), files moved."""

    carried: Carried | None
    moves: tuple[Move, ...]
    versions: Mapping[str, str]
    left_out: tuple[str, ...] = ()


def apply(
    project: Project, site: Site, patches: Sequence[Patch], state: State, say: Say = lambda _: None
) -> Applied:
    """Let the environment carry ``state``, whatever it carried of this project before.

    Raises InputError where it holds other versions than the pins, or another project's
    patches; AnswerNo, naming the file, where one is not as it was installed or applied;
    PatchwrightError where it cannot be written. Nothing has changed then.
    """
    from patchwright.environment.patched import patched_distributions

    wanted = patched_distributions(project, state)
    files = SiteFiles(site.packages)
    if not wanted and not files.folder.exists():
        return Applied(None, (), {})
    with files.alone():
        now = files.carried()
        if now is not None and Path(now.project) != project.root:
            raise InputError(
                f"this environment carries patches of another project, {now.project}",
                where=str(site.root),
                next_step=f"take them off with `patchwright unapply --env {site.root}`",
            )
        site = replace(site)  # what is installed may have just changed
        _refuse_prebuilt(project, site, wanted)
        present, left_out = _present(project, site, wanted, now)
        say("checking that the files are as they were installed")
        _check_untouched(site, present, files, now)
        contents: dict[bytes, bytes] = {}
        table: dict[bytes, tuple[str | None, str | None]] = {}
        for each in wanted:
            if each.distribution in left_out:
                continue
            info = _pristine_info(each.distribution, present[each.distribution], now)
            for path, data in _changes(each, info, files, now).items():
                was = files.pristine(path, now)
                if was == data:
                    continue
                table[path] = (sha256(was) if was is not None else None,
                               sha256(data) if data is not None else None)  # fmt: skip
                if data is not None:
                    contents[path] = data
        _check_free(files, table, now)
        table |= _bytecode(files, table, now)
        after = Carried(
            project=str(project.root),
            patches={patch_file(project.root, p.path): p.sha256 for p in patches},
            trees=dict(state.trees),
            distributions={
                d.distribution: {
                    "version": d.version, "new_version": d.new_version,
                    "info": os.fsdecode(
                        _pristine_info(d.distribution, present[d.distribution], now)
                    ),
                }
                for d in wanted if d.distribution not in left_out
            },
            files=table,
        )  # fmt: skip
        result = after if table else None
        moves: list[Move] = []
        if result != now:
            say("writing the patched files")
            moves = files.change(result, contents, now)
        return Applied(result, tuple(moves), _versions(result), left_out)


def unapply(site: Site) -> Applied:
    """Give back the files as they were installed, byte for byte.

    Raises AnswerNo, naming the file, where one was edited since, and where the environment
    carries nothing; PatchwrightError where it cannot be written.
    """
    files = SiteFiles(site.packages)
    nothing = AnswerNo(
        "no patches of ours are in this environment", where=str(site.root),
        next_step="name the environment that `patchwright apply --env` patched",
    )  # fmt: skip
    if not files.folder.is_dir():
        raise nothing
    with files.alone():
        now = files.carried()
        if now is None:
            raise nothing
        _check_as_applied(files, now)
        for path, (was, _) in now.files.items():
            if was is not None:
                files.pristine(path, now)  # all of it is there, before anything changes
        return Applied(None, tuple(files.change(None, {}, now)), {})


def finish(site: Site) -> bool:
    """Carry out what a killed command left half-way; return whether there was anything."""
    files = SiteFiles(site.packages)
    if not files.is_half_way:
        return False
    with files.alone():
        return True


def _versions(carried: Carried | None) -> dict[str, str]:
    return {n: d["new_version"] for n, d in carried.distributions.items()} if carried else {}


def _refuse_prebuilt(project: Project, site: Site, wanted: Sequence[PatchedDistribution]) -> None:
    for name in {each.upstream for each in wanted}:
        for prebuilt in project.upstream(name).prebuilt:
            there = site.distributions.get(prebuilt)
            if there is not None:
                raise InputError(
                    f"{prebuilt} {there.version} is installed: its kernels would win over {name}'s "
                    "patched sources, or keep it from starting",
                    where=str(site.root),
                    next_step=f"remove it (uv pip uninstall {prebuilt}) and apply again",
                )


def _present(
    project: Project, site: Site, wanted: Sequence[PatchedDistribution], now: Carried | None
) -> tuple[dict[str, Distribution], tuple[str, ...]]:
    """Return the installed distributions that take part, and companions that are not there."""
    ours = {u.distribution or u.name for u in project.config.upstreams.values()}
    carried = dict(now.distributions) if now is not None else {}
    found: dict[str, Distribution] = {}
    left_out = []
    for name in sorted({d.distribution for d in wanted} | carried.keys()):
        there = site.distributions.get(name)
        each = next((d for d in wanted if d.distribution == name), None)
        if there is None:
            if each is not None and name not in ours and name not in carried:
                left_out.append(name)
                continue
            raise InputError(
                f"{name} is not installed in this environment", where=str(site.root),
                next_step=f"install {name}{f'=={each.version}' if each else ''} into it, or name "
                "another environment",
            )  # fmt: skip
        expected = carried[name]["new_version"] if name in carried else each.version if each else ""
        _check_version(name, there, expected, name in carried, site)
        if there.folder != site.packages:
            raise InputError(
                f"{name} stands in {there.folder}, apart from the other packages",
                where=str(site.root),
                next_step="apply to an environment with one site-packages",
            )
        if there.is_editable:
            raise InputError(
                f"{name} is an editable install: its files are a work tree of yours",
                where=str(site.root), next_step=f"install the wheel of {name} {expected} instead",
            )  # fmt: skip
        found[name] = there
    return found, tuple(left_out)


def _check_version(
    name: str, there: Distribution, expected: str, carried: bool, site: Site
) -> None:
    from packaging.version import InvalidVersion, Version

    try:
        if Version(there.version.replace("_", "-")) == Version(expected):
            return
    except InvalidVersion:
        pass
    if carried:
        step = f"install {name} {expected.partition('+')[0]} again, then `patchwright unapply`"
        what = f"{name} {there.version} is installed, but {expected} was applied here"
    elif "+pw." in there.version:
        step = "let `patchwright rebuild` make it anew; `apply --env` is for what others installed"
        what = f"{name} {there.version} is patched already, by a rebuild"
    else:
        step = f"install {name}=={expected}, or move the pin and run `patchwright lock`"
        what = f"{name} {there.version} is installed, the pin is {expected}"
    raise InputError(what, where=str(site.root), next_step=step)


def _check_untouched(
    site: Site, present: Mapping[str, Distribution], files: SiteFiles, now: Carried | None
) -> None:
    """Check that every file of the distributions is as installed, or as applied."""
    if now is not None:
        _check_as_applied(files, now)
    found = [d for d in differences(list(present.values())) if d.what != "extra"]
    if found:
        first, more = found[0], len(found) - 1
        others = f", and {more} other file{'s' * (more != 1)}" if more else ""
        raise AnswerNo(
            f"the file is {first.what}: {first.distribution} is not as it was installed{others}",
            where=str(site.packages / os.fsdecode(first.path)),
            next_step=f"keep an edit with `patchwright capture --env {site.root}`, then install "
            f"{first.distribution} again (uv pip install --reinstall)",
        )  # fmt: skip


def _check_as_applied(files: SiteFiles, now: Carried) -> None:
    for path, (was, then) in sorted(now.files.items()):
        if path.endswith(b".pyc"):
            continue
        data = files.content(path)
        found = sha256(data) if data is not None else None
        # Pristine again: somebody installed the package anew over the patches.
        if found not in (then, was):
            raise AnswerNo(
                f"the file {'was edited' if data is not None else 'is gone'} since patches were "
                "applied here",
                where=str(files.packages / os.fsdecode(path)),
                next_step="keep an edit with `patchwright capture`; put the file back as it was, "
                "or install what it belongs to again",
            )  # fmt: skip


def _pristine_info(name: str, there: Distribution, now: Carried | None) -> bytes:
    if now is not None and name in now.distributions:
        return os.fsencode(now.distributions[name]["info"])
    return there.info


def _changes(
    each: PatchedDistribution, info: bytes, files: SiteFiles, now: Carried | None
) -> dict[bytes, bytes | None]:
    """Return all changes that make a pristine installation the patched one."""
    prefix = info + b"/"
    paths = {p for p in (now.files if now is not None else ()) if p.startswith(prefix)}
    folder = files.packages / os.fsdecode(info)
    paths |= {os.fsencode(p.relative_to(files.packages)) for p in folder.rglob("*") if p.is_file()}
    infos: dict[bytes, bytes] = {}
    for path in sorted(paths):
        data = files.pristine(path, now)
        if data is not None:
            infos[path] = data

    def read(path: bytes) -> bytes:
        data = files.pristine(path, now)
        if data is None:
            raise InputError(
                f"{each.distribution} has no such version file", where=display(path),
                next_step="correct version-files or companions in pyproject.toml",
            )  # fmt: skip
        return data

    return dict(each.complete(info, infos, read))


def _check_free(
    files: SiteFiles, table: Mapping[bytes, tuple[str | None, str | None]], now: Carried | None
) -> None:
    """Refuse where a file that a patch adds would replace one that nobody accounts for.

    RECORD lists what the installer brought; anything else that stands there is a stranger's.
    """
    from patchwright.environment.metadata import read_record

    listed: set[bytes] | None = None
    for path, (was, then) in table.items():
        if was is None or then is None or (now is not None and path in now.files):
            continue
        if listed is None:
            listed = set()
            for name in table:
                if name.endswith(b".dist-info/RECORD"):
                    record = files.pristine(name, now)
                    listed |= {row[0] for row in read_record(record)} if record else set()
        if path not in listed:
            raise AnswerNo(
                "a patch adds this file, and one that no RECORD lists stands there",
                where=str(files.packages / os.fsdecode(path)), next_step="move it away",
            )  # fmt: skip


def _bytecode(
    files: SiteFiles, table: Mapping[bytes, tuple[str | None, str | None]], now: Carried | None
) -> dict[bytes, tuple[str | None, str | None]]:
    """Return the pristine bytecode of changed sources: it gives way, and is kept."""
    before = now.files if now is not None else {}
    found = {p: hashes for p, hashes in before.items() if source_of(p) in table}
    for path in table.keys() - before.keys():
        for name in files.bytecode(path):
            data = files.content(name)
            if data is not None:
                found[name] = (sha256(data), None)
    return found
