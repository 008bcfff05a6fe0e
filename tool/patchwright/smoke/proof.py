"""Proof that a run imported the tree under test, and no other copy of an upstream.

An audit hook sees every module that is executed and every file that is opened, also
what a test hides afterwards (``sys.modules``, ``sys.path``, a caught exception). Forked
children inherit the hook; other Python processes get it through ``sitecustomize``. The
hook only reports, by appending to files: one line per violation, and the name of each of
the tree's files that was read, so that one can tell which other trees would have given the
same answer.

This module must run in any interpreter that a test starts, so it imports nothing of
this package.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType
from typing import Any

# What starts another program, and which of its arguments is the environment.
_SPAWNS = {"subprocess.Popen": 3, "os.posix_spawn": 2, "os.exec": 2, "os.system": 1}
_UNKNOWN = b"*"  # in a name's place: a program that we do not see into was told of a site

_STARTUP = """\
import importlib.util, sys
spec = importlib.util.spec_from_file_location("_patchwright_proof", {module!r})
module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.install(module.load({file!r}))
"""


@dataclass(frozen=True)
class Claim:
    """What must hold: ``packages`` come from ``sites`` with the bytes of their listings.

    ``sites`` maps a site folder to the file that lists it (``MODE ID<TAB>PATH<NUL>``).
    ``report`` is the file that violations are appended to, ``reads`` the one for the files
    of a site that are read (nobody asks, by default).
    """

    packages: tuple[str, ...]
    sites: dict[str, str]
    report: str
    reads: str = os.devnull


def save(claim: Claim, folder: Path) -> Path:
    """Write the claim and a ``sitecustomize`` into ``folder``; return the claim's file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "claim.json"
    file.write_text(json.dumps(asdict(claim)), encoding="utf-8")
    startup = _STARTUP.format(module=__file__, file=str(file))
    (folder / "sitecustomize.py").write_text(startup, encoding="utf-8")
    return file


def load(file: str) -> Claim:
    """Return the claim that ``save`` wrote."""
    data = json.loads(Path(file).read_text(encoding="utf-8"))
    return Claim(tuple(data["packages"]), data["sites"], data["report"], data["reads"])


def violations(report: Path) -> tuple[str, ...]:
    """Return what was reported, each once."""
    try:
        text = report.read_text(encoding="utf-8", errors="backslashreplace")
    except FileNotFoundError:
        return ()
    return tuple(dict.fromkeys(text.splitlines()))


def files_read(reads: Path, sites: Sequence[Path]) -> list[frozenset[str]] | None:
    """Return for each site the files that were read there, as paths below it.

    None where it cannot be told: a program that nobody watches was told of a site.
    """
    try:
        names = reads.read_bytes().split(b"\0")[:-1]
    except FileNotFoundError:
        return None
    if _UNKNOWN in names:
        return None
    paths = set(map(os.fsdecode, names))
    roots = [os.path.realpath(site) + os.sep for site in sites]
    return [frozenset(p[len(root) :] for p in paths if p.startswith(root)) for root in roots]


def install(claim: Claim, listings: dict[str, Any] | None = None) -> None:
    """Watch this process and its forks from now on; it cannot be undone.

    ``listings`` are the listings already read, by site; others are read when needed.
    """
    witness = _Witness(claim, listings or {})
    for name in list(sys.modules):
        if witness.ours(name):
            witness.report(f"{name} was imported before the test began")
    sys.addaudithook(witness.hook)


class _Witness:
    def __init__(self, claim: Claim, listings: dict[str, Any]) -> None:
        self.packages = frozenset(claim.packages)
        # flashinfer-jit-cache: where it is, upstream loads from it and compiles nothing.
        self.prebuilt = frozenset(f"{name}_jit_cache" for name in claim.packages)
        self.sites = {os.path.realpath(site) + os.sep: site for site in claim.sites}
        self.claim = claim
        self.listings = dict(listings)
        self.checked: set[str] = set()
        names = "|".join(re.escape(name) for name in sorted(claim.packages))
        self.pattern = re.compile(rf"/(?:{names})(?=/)") if names else None
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self.out = os.open(claim.report, flags, 0o600)
        self.reads = os.open(claim.reads, flags, 0o600)
        self.read: set[str] = set()
        self.folders: dict[str, str] = {}
        # Where nothing leads to a site: the interpreter and its libraries.
        roots = {sys.prefix, sys.base_prefix, str(Path(__file__).parent.parent.parent)}
        self.elsewhere = tuple(root.rstrip(os.sep) + os.sep for root in roots)

    def ours(self, module: str) -> bool:
        return module.partition(".")[0] in self.packages

    def report(self, line: str) -> None:
        os.write(self.out, line.replace("\n", " ").encode("utf-8", "backslashreplace") + b"\n")

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        # Called for every event of the interpreter: decide fast, never raise.
        if event == "open":
            self.opened(*args)
        elif event == "exec":
            if isinstance(args[0], CodeType) and args[0].co_name == "<module>":
                self.executed(args[0])
        elif event == "import" and args[1] is not None and self.ours(str(args[0])):
            self.imported(str(args[0]), os.fsdecode(args[1]))
        elif event in _SPAWNS:
            self.spawned(args, _SPAWNS[event])

    def opened(self, path: object, mode: object = None, flags: object = 0) -> None:
        """A file is read: the tree's, or one of another copy; by a loader or by the test."""
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str):
            return
        if self.foreign(path):
            self.report(f"read {path}, not from the tree under test")
        elif isinstance(flags, int) and flags & os.O_ACCMODE != os.O_WRONLY:
            self.note(path)

    def note(self, path: str) -> None:
        """Note a file of a site, by whichever name it was opened."""
        if path in self.read:
            return
        # A cache may lie within the interpreter's own folders.
        if path.startswith(self.elsewhere) and self.below(path) is None:
            return
        self.read.add(path)
        real = self.real(path)
        if real.startswith(tuple(self.sites)):
            os.write(self.reads, os.fsencode(real) + b"\0")

    def real(self, path: str) -> str:
        """Return what ``os.path.realpath`` does, which is slow for hundreds of files a folder."""
        head, tail = os.path.split(path)
        if head not in self.folders:
            self.folders[head] = os.path.realpath(head)
        whole = os.path.join(self.folders[head], tail)  # noqa: PTH118
        plain = tail not in ("", os.curdir, os.pardir) and not os.path.islink(whole)  # noqa: PTH114
        return whole if plain else os.path.realpath(whole)

    def spawned(self, args: tuple[Any, ...], environment: int) -> None:
        """A program starts: what it reads of a site is not seen, so it must know of none."""
        told = repr(args)
        if environment >= len(args) or args[environment] is None:
            told += repr(os.environ)
        told += os.getcwd() + os.sep  # noqa: PTH109
        if any(root.rstrip(os.sep) in told or site in told for root, site in self.sites.items()):
            os.write(self.reads, _UNKNOWN + b"\0")

    def executed(self, code: CodeType) -> None:
        """A module's code runs: by import, by runpy, by exec."""
        name, path, cached = self.importing()
        if name is not None and name.partition(".")[0] in self.prebuilt:
            self.report(
                f"imported {name} from {path or code.co_filename}: its prebuilt kernels would win "
                "over the patched sources"
            )
        elif name is not None and self.ours(name):
            self.imported(name, path or code.co_filename, cached)
        elif self.site_of(code.co_filename) is None and self.foreign(code.co_filename):
            self.report(f"ran {code.co_filename}, not from the tree under test")

    def importing(self) -> tuple[str | None, str | None, str | None]:
        """Return name, file and bytecode file of the module that importlib executes."""
        with contextlib.suppress(ValueError, AttributeError, KeyError, IndexError, TypeError):
            frame = sys._getframe(3)
            if frame.f_code.co_name == "_call_with_frames_removed":
                module = frame.f_locals["args"][1]
                spec = module["__spec__"]
                return module["__name__"], spec.origin, spec.cached
        return None, None, None

    def imported(self, name: str, path: str, cached: str | None = None) -> None:
        site = self.site_of(path)
        if site is None:
            self.report(f"imported {name} from {path}, not from the tree under test")
            return
        if cached is not None and Path(cached).exists() and self.site_of(cached) is not None:
            self.report(f"imported {name} from the bytecode {cached}, not from its source")
        if path not in self.checked:
            self.checked.add(path)
            self.check(name, path, site)

    def check(self, name: str, path: str, site: str) -> None:
        """Compare the file with the tree's blob."""
        if site not in self.listings:
            self.listings[site] = _read_listing(self.claim.sites[site])
        inside = self.real(path)[len(os.path.realpath(site)) + 1 :]
        entry = self.listings[site].get(os.fsencode(inside))
        if entry is None:
            self.report(f"imported {name} from {path}, which is not a file of the tree")
            return
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            self.report(f"imported {name} from {path}, which cannot be read: {error.strerror}")
            return
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False)
        if blob.hexdigest() != entry[1]:
            self.report(f"imported {name} from {path}, which was changed: it is not the tree's")

    def site_of(self, path: str) -> str | None:
        return self.below(path) or self.below(self.real(path))

    def below(self, path: str) -> str | None:
        """Return the site that a path names."""
        for real, site in self.sites.items():
            if path.startswith((real, site + os.sep)):
                return site
        return None

    def foreign(self, path: str) -> bool:
        """Return whether ``path`` lies in another copy of one of the packages."""
        if not path.startswith("/"):
            path = str(Path.cwd() / path)
        if self.pattern is None or not self.pattern.search(path) or self.site_of(path):
            return False
        # A folder of that name is a copy of the package when one could import it: a
        # checkout in ~/src/flashinfer/ is not.
        return any(
            Path(path[: match.end()], "__init__.py").is_file()
            for match in self.pattern.finditer(path)
        )


def _read_listing(file: str) -> dict[bytes, Sequence[Any]]:
    listing: dict[bytes, Sequence[Any]] = {}
    for line in Path(file).read_bytes().split(b"\0")[:-1]:
        meta, _, path = line.partition(b"\t")
        mode, _, oid = meta.partition(b" ")
        listing[path] = (mode, oid.decode())
    return listing
