"""Starting a project: what its upstream is, how its files lie, the first lock."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from patchwright.config import FILE_NAME, load_config, read_toml
from patchwright.errors import InputError, PatchwrightError
from patchwright.files import write_atomically
from patchwright.git import Git, make_bare
from patchwright.project import PATCHES, Project
from patchwright.store import DIRECTORY, ObjectStore

_UPSTREAMS = "upstreams"
_SMOKE = "tests/smoke"
# Where projects keep the packages that they install.
_ROOTS = (b"", b"src/", b"python/", b"lib/")
_AUTHOR = b"patchwright <patchwright@localhost> 0 +0000"
# Line ends in patches are content: git must not touch them.
_ATTRIBUTES = b"patches/** -text\n"


@dataclass(frozen=True)
class Wanted:
    """One upstream as the user names it. ``what`` is an address, NAME==VERSION or a path."""

    kind: Literal["git", "wheel", "sdist", "directory"]
    what: str
    revision: str | None = None
    name: str | None = None
    version: str | None = None
    arch: tuple[str, ...] = ()


@dataclass(frozen=True)
class Started:
    """What was made: the project's folder, its upstream, the pristine tree, the layout."""

    root: Path
    upstream: str
    version: str
    tree: str
    layout: Mapping[str, str]


def initialise(
    root: Path, wanted: Wanted, progress: Callable[[str], None] = lambda _: None
) -> Started:  # fmt: skip
    """Make a project at ``root``, or nothing. Raises InputError and PatchwrightError."""
    from patchwright.lock import FILE_NAME as LOCK
    from patchwright.lock import format_lock
    from patchwright.locking import make_lock

    root = root.absolute()
    _check_free(root, LOCK)
    with _undone_on_error(root) as made:
        made.folder(root)
        values = _upstream(root, wanted, made)
        name = values.pop("name")
        probe = dict(values) | {"layout": {"": ""}, "packages": [_identifier(name)]}
        project = _probed(root, name, probe, progress)
        tree = project.pristine(name).tree
        packages, layout = _layout(project.store, tree, installed=values["source"] == "wheel")
        values |= {"packages": packages or [_identifier(name)], "layout": layout}
        made.write(root / FILE_NAME, _config(root, name, values, wanted.arch))
        for folder in (PATCHES, _SMOKE):
            made.folder(root / folder)
        if not (root / ".gitattributes").exists():
            made.write(root / ".gitattributes", _ATTRIBUTES)
        project = Project(root)
        project.progress = progress
        lock = make_lock(project).lock
        if lock is None:
            raise InputError(
                "patches that are here already do not apply", where=str(root / PATCHES),
                next_step="move them out of patches/, then `patchwright import` them",
            )  # fmt: skip
        made.write(root / LOCK, format_lock(lock))
        return Started(root, name, values["version"], project.pristine(name).tree, layout)


def _check_free(root: Path, lock: str) -> None:
    if root.exists() and not root.is_dir():
        raise InputError("this is not a folder", where=str(root), next_step="name another one")
    path = root / FILE_NAME
    tool = read_toml(path).get("tool", {}) if path.exists() else {}
    if isinstance(tool, dict) and "patchwright" in tool:
        raise InputError(
            "this is a project already: it has [tool.patchwright]", where=str(path),
            next_step="add [tool.patchwright.upstreams.<name>] there for another upstream",
        )  # fmt: skip
    if (root / lock).exists():
        raise InputError(
            "a lock is here already", where=str(root / lock), next_step="choose another folder"
        )


class _Made:
    """What was made so far; removed again where the rest fails."""

    def __init__(self) -> None:
        self._new: list[Path] = []
        self._old: dict[Path, bytes] = {}

    def folder(self, path: Path) -> None:
        missing = [p for p in (path, *path.parents) if not p.exists()]
        path.mkdir(parents=True, exist_ok=True)
        self._new += reversed(missing)

    def path(self, path: Path) -> None:
        self._new.append(path)

    def write(self, path: Path, data: bytes) -> None:
        if path.exists():
            self._old[path] = path.read_bytes()
        else:
            self._new.append(path)
        write_atomically(path, data)

    def undo(self) -> None:
        for path, data in self._old.items():
            write_atomically(path, data)
        for path in reversed(self._new):
            if path.is_dir() and path.suffix == ".git":
                shutil.rmtree(path, ignore_errors=True)
            elif path.is_dir():
                shutil.rmtree(path / ".patchwright", ignore_errors=True)
                path.rmdir()
            else:
                path.unlink(missing_ok=True)


@contextmanager
def _undone_on_error(root: Path) -> Iterator[_Made]:
    made = _Made()
    try:
        yield made
    except OSError as error:
        made.undo()
        raise PatchwrightError(
            f"the project cannot be made: {error.strerror}", where=str(error.filename or root),
            next_step="make the folder writable, or make room",
        ) from error  # fmt: skip
    except BaseException:
        made.undo()
        raise


def _upstream(root: Path, wanted: Wanted, made: _Made) -> dict[str, Any]:
    """Return the upstream's table, with its ``name``, but without packages and layout."""
    if wanted.kind == "directory":
        return _directory(root, wanted, made)
    if wanted.kind == "git":
        if wanted.revision is None:
            raise InputError("which revision?", next_step="give a tag or a commit with --revision")
        local = Path(wanted.what).is_dir()
        place = {"path": _relative(root, wanted.what)} if local else {"git": wanted.what}
        stem = wanted.what.rstrip("/").removesuffix("/.git").removesuffix(".git")
        name = wanted.name or _name(re.split(r"[/:]", stem)[-1])
        version = wanted.version or _version_of(wanted.revision)
        return {
            "name": name, "source": "git", "version": version, **place,
            "revision": wanted.revision,
        }  # fmt: skip
    return _distribution(root, wanted)


def _distribution(root: Path, wanted: Wanted) -> dict[str, Any]:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import (
        InvalidSdistFilename,
        InvalidWheelFilename,
        parse_sdist_filename,
        parse_wheel_filename,
    )

    path = Path(wanted.what)
    if path.is_file():
        try:
            parsed = (
                parse_wheel_filename(path.name)[:2]
                if wanted.kind == "wheel"
                else parse_sdist_filename(path.name)
            )
        except (InvalidWheelFilename, InvalidSdistFilename) as error:
            raise InputError(str(error), where=str(path), next_step="correct its name") from error
        place: dict[str, Any] = {"path": _relative(root, wanted.what)}
        distribution, version = str(parsed[0]), str(parsed[1])
    else:
        try:
            requirement = Requirement(wanted.what)
        except InvalidRequirement as error:
            raise InputError(
                f"{wanted.what!r} is neither a file nor NAME==VERSION", next_step="correct it"
            ) from error
        pins = list(requirement.specifier)
        if len(pins) != 1 or pins[0].operator != "==" or pins[0].version.endswith("*"):
            raise InputError(
                f"{wanted.what!r} names no version", next_step=f"write {requirement.name}==1.2.3"
            )
        place = {}
        distribution, version = requirement.name, pins[0].version
    return {
        "name": wanted.name or _name(distribution), "source": wanted.kind,
        "distribution": distribution, "version": version, **place,
    }  # fmt: skip


def _directory(root: Path, wanted: Wanted, made: _Made) -> dict[str, Any]:
    """Keep a copy of the directory as a commit in the project: it may change or go away."""
    source = Path(wanted.what).absolute()
    if not source.is_dir():
        raise InputError("there is no such folder", where=str(source), next_step="correct it")
    if root.is_relative_to(source):
        raise InputError(
            "the project would lie in the folder that is its upstream", where=str(root),
            next_step="start it elsewhere",
        )  # fmt: skip
    name = wanted.name or _name(source.name)
    version = wanted.version or _version_of(source.name.rpartition("-")[2])
    place = f"{_UPSTREAMS}/{name}.git"
    made.folder(root / _UPSTREAMS)
    made.path(root / place)
    make_bare(root / place)
    git = Git(root / place)
    git.run("add", "--all", "--force", ".", cwd=source, env={"GIT_WORK_TREE": str(source)})
    tree = git.run("write-tree").stdout.decode().strip()
    for line in git.run("ls-tree", "-r", "-z", tree).stdout.split(b"\0"):
        if line.startswith(b"160000 "):
            raise InputError(
                "a git repository lies in the folder", where=os.fsdecode(line.partition(b"\t")[2]),
                next_step="remove its .git folder from a copy, and start with that",
            )  # fmt: skip
    text = b"tree %s\nauthor %s\ncommitter %s\n\n%s\n" % (
        tree.encode(), _AUTHOR, _AUTHOR, f"{name} {version}".encode(),
    )  # fmt: skip
    commit = git.run("hash-object", "-t", "commit", "-w", "--stdin", data=text).stdout.strip()
    git.run("update-ref", "refs/heads/main", commit)
    (root / place / "index").unlink(missing_ok=True)
    git.run("repack", "-a", "-d", "-q")
    git.run("prune-packed", "-q")
    return {
        "name": name, "source": "git", "version": version, "path": place,
        "revision": commit.decode(),
    }  # fmt: skip


def _probed(
    root: Path, name: str, values: dict[str, Any], progress: Callable[[str], None]
) -> Project:
    """Return a project that is nowhere on disk, to see what the upstream's files are."""
    import tomli_w

    with tempfile.TemporaryDirectory(prefix="patchwright-") as folder:
        table = {"tool": {"patchwright": {"upstreams": {name: values}}}}
        (Path(folder) / FILE_NAME).write_text(tomli_w.dumps(table), encoding="utf-8")
        config = load_config(Path(folder))
    project = Project(root)
    project.__dict__["config"] = config
    project.__dict__["lock"] = None
    project.progress = progress
    return project


def _layout(
    store: ObjectStore, tree: str, *, installed: bool
) -> tuple[list[str], dict[str, str]]:  # fmt: skip
    """Return the packages of a tree and the rules that map them to where they are installed.

    A tree without Python packages has one rule that leaves everything where it is.
    """
    packages: list[str] = []
    rules: dict[str, str] = {}
    for prefix in (b"",) if installed else _ROOTS:
        entry = store.entry(tree, prefix.rstrip(b"/")) if prefix else None
        if prefix and (entry is None or entry.mode != DIRECTORY):
            continue
        for found in store.tree(entry.oid if entry is not None else tree):
            path = prefix.decode() + found.name.decode("utf-8", "replace")
            name = path[len(prefix) :]
            if found.mode == DIRECTORY and name.isidentifier():
                inner = store.tree(found.oid)
                if any(e.name == b"__init__.py" for e in inner) or installed:
                    packages.append(name)
                    rules[f"{path}/"] = f"{name}/"
            elif installed and name.endswith(".py") and name[:-3].isidentifier():
                packages.append(name[:-3])
                rules[path] = name
        if rules:
            break
    # tests and docs with an __init__.py of their own are not what is installed
    for name in ("tests", "test", "docs", "examples", "benchmarks"):
        if name in packages and len(packages) > 1 and not installed:
            packages.remove(name)
            rules = {k: v for k, v in rules.items() if v != f"{name}/"}
    return packages, rules or {"": ""}


def _config(root: Path, name: str, values: dict[str, Any], arch: tuple[str, ...]) -> bytes:
    import tomli_w

    section: dict[str, Any] = {"arch": list(arch)} if arch else {}
    section["upstreams"] = {name: values}
    text = tomli_w.dumps({"tool": {"patchwright": section}}).encode()
    path = root / FILE_NAME
    if not path.exists():
        return text
    old = path.read_bytes()
    return old + (b"" if old.endswith(b"\n") or not old else b"\n") + b"\n" + text


def _relative(root: Path, path: str) -> str:
    return Path(os.path.relpath(Path(path).resolve(), root.resolve())).as_posix()


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-") or "upstream"


def _identifier(name: str) -> str:
    word = re.sub(r"\W", "_", name)
    return word if word.isidentifier() else f"_{word}"


def _version_of(text: str) -> str:
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(text))
    except InvalidVersion:
        return "0"
