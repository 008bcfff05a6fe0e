"""The objects of a JIT module, each known by the content of what it is compiled from.

An object's key has its command, the compiler, and the content of its source and of every
header that may be included; places in it are named, so that another workspace, another
version's folder and another environment find the same object.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from patchwright.environment.closure import Closure
from patchwright.environment.workspace import Hashes
from patchwright.smoke.compiler import CHANGING
from patchwright.smoke.ninja import NinjaFile, parse_ninja
from patchwright.smoke.objects import ObjectCache


class Part(NamedTuple):
    """One object: its source, its command with places named, where headers are looked for."""

    source: str
    output: str
    command: str
    folders: tuple[str, ...]


class Objects:
    """The objects of the module in ``folder``, as its build.ninja says.

    ``packages`` is the site-packages folder of the environment, ``home`` the toolkit's,
    ``compiler`` its identity, ``variables`` those with which compilers will run. Raises
    OSError, and ValueError or KeyError for a build.ninja that is not flashinfer's.
    """

    def __init__(
        self, folder: Path, packages: Path, home: Path, compiler: str, cache: Path,
        variables: Mapping[str, str], hashes: Hashes,
    ) -> None:  # fmt: skip
        workspace = folder.parent.parent
        self._places = {
            str(workspace): "$workspace", str(workspace.resolve()): "$workspace",
            str(packages.resolve()): "$site", str(packages): "$site", str(home): "$cuda_home",
        }  # fmt: skip
        self._store = ObjectCache(cache / "objects")
        self.text = (folder / "build.ninja").read_bytes()
        self.parts = self._parts(parse_ninja(self.text.decode()), str(home))
        closure = Closure(hashes)
        self.inputs = {p.output: closure.of(p.source, p.folders) for p in self.parts}
        every = {path for files in self.inputs.values() for path in files}
        self._before = _statuses(every)
        self.hashes = {path: hashes.of(path) for path in every}
        own = [f"{name}={variables[name]}" for name in CHANGING if name in variables]
        self._keys = {p.output: self._key(p, [compiler, *own]) for p in self.parts}

    def restore(self) -> list[str]:
        """Put the known objects in their places; return them. The others are removed."""
        found = []
        for part in self.parts:
            output = Path(part.output)
            output.unlink(missing_ok=True)
            try:
                data = self._store.get(self._keys[part.output], _missing)
            except KeyError:
                continue
            output.write_bytes(data)
            # What ninja has to know of it.
            words = " ".join(path.replace(" ", "\\ ") for path in self.inputs[part.output])
            output.with_name(f"{output.name}.d").write_text(f"{part.output}: {words}\n", "utf-8")
            found.append(part.output)
        return found

    def keep(self, but: Collection[str] = ()) -> None:
        """Keep the objects that were just compiled, but not those that were known.

        ValueError where an input changed meanwhile: what they were compiled from is not
        known then.
        """
        if _statuses(self._before) != self._before:
            raise ValueError("a source was changed while it was compiled")
        for part in self.parts:
            if part.output not in but:
                data = Path(part.output).read_bytes()
                self._store.get(self._keys[part.output], lambda data=data: data)  # type: ignore[misc]

    def _parts(self, ninja: NinjaFile, home: str) -> list[Part]:
        found = []
        for source, (command, output) in ninja.commands.items():
            text = ninja.expand(command, keep=frozenset(), **{"in": source, "out": output})
            words = shlex.split(text)
            folders = [w[2:] for w in words if w.startswith("-I") and len(w) > 2]
            folders += [b for a, b in pairwise(words) if a in ("-isystem", "-I")]
            own = tuple(f for f in folders if not f.startswith(home))
            found.append(Part(source, output, self._named(text), own))
        return found

    def _key(self, part: Part, compiler: list[str]) -> str:
        rows = [f"{self._named(path)} {self.hashes[path]}" for path in self.inputs[part.output]]
        return hashlib.sha256(
            "\0".join([part.command, *compiler, *sorted(rows)]).encode()
        ).hexdigest()

    def _named(self, text: str) -> str:
        for place, name in self._places.items():
            text = text.replace(place, name)
        return text


def do_nothing(cache: Path, path: str) -> dict[str, str]:
    """Return variables with which compilers do nothing and succeed; ``path`` is their PATH.

    ninja takes note of objects that are there when it has "compiled" them.
    """
    folder = cache / "toolkits" / "nothing"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("c++", "g++", "clang++"):
        if not (folder / name).exists():
            temporary = folder / f"{name}.{os.getpid()}"
            temporary.write_text("#!/bin/sh\nexit 0\n", "ascii")
            temporary.chmod(0o755)
            temporary.replace(folder / name)
    # nvcc then prints what it would do; any other compiler is found on PATH.
    return {"NVCC_PREPEND_FLAGS": "--dryrun", "PATH": f"{folder}{os.pathsep}{path}"}


def _statuses(paths: Iterable[str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - hundreds of them
            # Not the inode's own time: it moves when another environment's link goes.
            found[path] = status.st_ino, status.st_size, status.st_mtime_ns
        except OSError:
            found[path] = ()
    return found


def _missing() -> bytes:
    raise KeyError
