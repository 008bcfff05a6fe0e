"""JIT specs: what a flashinfer generator answers for one architecture, without torch.

Upstream's real generator runs, from the tree under test, in a forked child; the flags
are read from the build.ninja that upstream's own code writes. With the architecture
list unset or empty the generators raise the same error as for an unsupported one, so
the list is always set, and a test should ask 10.0a too, as a positive control.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.smoke import generator as child
from patchwright.smoke.ninja import NinjaFile, parse_ninja
from patchwright.smoke.outcomes import SmokeError, UpstreamRefused
from patchwright.smoke.provenance import require_tree_modules

if TYPE_CHECKING:
    from patchwright.smoke.trees import Trees

_ARCH = re.compile(r"(\d+)\.(\d+)([af]?)")
# Names that stand for folders in the flags; they are not ninja's variables.
_KEPT = frozenset({"cuda_home", "site", "workspace", "in", "out"})
_OF_A_LINE = re.compile(r"\$(in|out)\b")
_QUOTING = re.compile(r"['\"\\]")
_WORD = re.compile(r"[^ \t\r\n]+")


@dataclass(frozen=True)
class JitSpec:
    """A module as its generator specifies it.

    ``arch`` are the requested architectures (``12.0a``), ``gencode`` the emitted ones
    (``arch=compute_120a,code=sm_120a``). ``cuda`` is the simulated CUDA version. In
    ``ninja`` and in every flag the folders that change from run to run stand as
    ``$site`` (the tree), ``$workspace`` and ``$cuda_home``, so that the specs of two
    trees are equal when upstream says the same; the paths are real. ``compile_lines``
    maps a source's file name to the words of its compile command. ``imported`` are the
    tree's files that ran, each found equal to the tree.
    """

    name: str
    arch: tuple[str, ...]
    cuda: str
    sources: tuple[Path, ...] = field(compare=False)
    nvcc_flags: tuple[str, ...]
    gencode: tuple[str, ...]
    host_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    include_dirs: tuple[Path, ...] = field(compare=False)
    ninja: str
    compile_lines: Mapping[str, tuple[str, ...]]
    imported: tuple[str, ...] = field(compare=False)
    workspace: Path = field(repr=False, compare=False)
    trees: Trees = field(repr=False, compare=False)

    @property
    def targets(self) -> tuple[str, ...]:
        """The architectures that are compiled for, as nvcc names them: ``120a``."""
        return tuple(code.rpartition("code=sm_")[2] for code in self.gencode)

    @property
    def dropped(self) -> tuple[str, ...]:
        """The requested architectures for which no code is emitted.

        With several architectures in the list a generator silently leaves out those
        that it does not support.
        """
        return tuple(a for a in self.arch if target(a) not in self.targets)

    def source(self, name: str | Path) -> Path:
        """Return the source whose path is ``name`` or ends in it.

        Raises SmokeError when none or several do.
        """
        wanted = Path(name).parts
        found = [s for s in self.sources if s.parts[-len(wanted) :] == wanted]
        if len(found) != 1:
            names = ", ".join(s.name for s in self.sources)
            raise SmokeError(f"{self.name} has {len(found)} sources {name} (it has {names})")
        return found[0]


def target(arch: str) -> str:
    """Return nvcc's name of an architecture: ``12.0a`` gives ``120a``, ``120a`` itself.

    Raises SmokeError for something else.
    """
    if match := _ARCH.fullmatch(arch):
        return "".join(match.groups())
    if re.fullmatch(r"\d{2,3}[af]?", arch):
        return arch
    raise SmokeError(f"{arch!r} is not an architecture such as 12.0a")


def jit_spec(
    trees: Trees,
    generator: str,
    *,
    arch: str = "12.0a",
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    cuda: str = "12.8",
    deadline: float = 60.0,
) -> JitSpec:
    """Return what ``generator`` (``flashinfer/jit/comm.py::gen_x``) specifies for ``arch``.

    ``arch`` is one architecture or a list separated by spaces. ``args`` and ``kwargs``
    go to the generator; a string such as ``torch.bfloat16`` becomes that data type.
    ``cuda`` is the CUDA version that the generator sees; the default is the oldest that
    knows sm_120, so that the flags suit every compiler that is accepted. ``deadline``
    is in seconds. Raises UpstreamRefused with upstream's own error, SmokeError when the
    generator cannot be asked.
    """
    wanted = tuple(arch.split())
    if not wanted or not all(_ARCH.fullmatch(a) for a in wanted):
        raise SmokeError(f"{arch!r} is not a list of architectures such as 12.0a")
    path, colons, function = generator.partition("::")
    if not colons:
        raise SmokeError(f"{generator!r} is not of the form path/of/file.py::function")
    module, packages = _module(trees, path)
    trees.announce("torch (stub)")
    workspace = Path(tempfile.mkdtemp(prefix="patchwright-jit-"))
    try:
        call = child.Call(
            trees.site, packages, module, function, args, kwargs or {}, wanted, cuda, workspace
        )
        answer = trees.generators.ask(call, deadline)
        imported = answer["imported"]
        assert isinstance(imported, dict)
        require_tree_modules(trees, imported)
        if "refused" in answer:
            raise UpstreamRefused(str(answer["refused"]))
        spec = _spec(trees, call, answer)
    except BaseException:
        shutil.rmtree(workspace, ignore_errors=True)
        raise
    if not trees.generators.keeps_workspaces:
        # Generated sources live in the workspace as long as the spec does.
        weakref.finalize(spec, shutil.rmtree, workspace, ignore_errors=True)
    return spec


def _module(trees: Trees, path: str) -> tuple[str, tuple[str, ...]]:
    """Return the import name of a repository path, and the packages of all upstreams."""
    for upstream in trees.upstreams:
        if trees.exists(upstream, path):
            parts = trees.path(upstream, path).relative_to(trees.site).with_suffix("").parts
            packages = {u for u in trees.upstreams if (trees.site / u / "__init__.py").exists()}
            return ".".join(parts), tuple(sorted(packages | {parts[0]}))
    raise SmokeError(f"no upstream has a file {path}")


def _spec(trees: Trees, call: child.Call, answer: Mapping[str, object]) -> JitSpec:
    sources, imported = answer["sources"], answer["imported"]
    assert isinstance(sources, list)
    assert isinstance(imported, dict)
    text = str(answer["ninja"])
    folders = ((call.workspace, "$workspace"), (trees.site, "$site"))
    for folder, name in folders:
        # Upstream resolves links in its own path.
        for spelling in {str(folder.resolve()), str(folder)}:
            text = text.replace(f"{spelling}/", f"{name}/")
    try:
        ninja = parse_ninja(text)
        nvcc_flags = _words(ninja, "cuda_cflags")
        host_flags = _words(ninja, "cflags")
        link_flags = _words(ninja, "ldflags")
        # Hundreds of sources share a command: it is expanded once, around their names.
        commands = {command for command, _ in ninja.commands.values()}
        words = {command: _split(ninja, command) for command in commands}
        lines = {
            Path(source).name: _filled(words[command], {"in": source, "out": output})
            for source, (command, output) in ninja.commands.items()
        }
    except (KeyError, ValueError) as error:
        raise SmokeError(f"cannot read upstream's build.ninja: {error}") from error
    return JitSpec(
        name=str(answer["name"]),
        arch=call.arch,
        cuda=call.cuda,
        sources=tuple(map(Path, sources)),
        nvcc_flags=nvcc_flags,
        gencode=tuple(f.partition("=")[2] for f in nvcc_flags if f.startswith("-gencode=")),
        host_flags=host_flags,
        link_flags=link_flags,
        include_dirs=tuple(Path(f) for f in _include_dirs(nvcc_flags, folders)),
        ninja=text,
        compile_lines=lines,
        imported=tuple(imported.values()),
        workspace=call.workspace,
        trees=trees,
    )


def _words(ninja: NinjaFile, variable: str) -> tuple[str, ...]:
    return _split(ninja, f"${variable}")


def _split(ninja: NinjaFile, command: str) -> tuple[str, ...]:
    text = ninja.expand(command, keep=_KEPT)
    # shlex goes by single characters, and most command lines quote nothing.
    return tuple(shlex.split(text) if _QUOTING.search(text) else _WORD.findall(text))


def _filled(words: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Put a build line's own values in the place of their names."""
    return tuple(
        _OF_A_LINE.sub(lambda match: values[match[1]], word) if "$" in word else word
        for word in words
    )


def _include_dirs(flags: Sequence[str], folders: Sequence[tuple[Path, str]]) -> list[str]:
    """Return the folders that are searched for headers, in order, CUDA's own left out."""
    found = [f.removeprefix("-I") for f in flags if f.startswith("-I")]
    found += [b for a, b in pairwise(flags) if a == "-isystem"]
    found = [f for f in found if not f.startswith("$cuda_home")]
    for folder, name in folders:
        found = [f.replace(name, str(folder)) if f.startswith(name) else f for f in found]
    return found
