"""Every difference between what was locked or applied and what an environment really is.

What cannot be told is said, and never counts as agreement.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from patchwright.environment import workspace
from patchwright.environment.comparing import differences
from patchwright.environment.hashes import KnownHashes
from patchwright.environment.imports import Imports, ask, suspects
from patchwright.environment.installed import Distribution, Site
from patchwright.environment.locked import LockedEnvironment, read_environment
from patchwright.environment.metadata import local_version
from patchwright.environment.named import start_variables
from patchwright.environment.record import EnvironmentRecord, read_record
from patchwright.environment.transaction import SiteFiles, sha256
from patchwright.lock import patch_file

if TYPE_CHECKING:
    from patchwright.config import UpstreamConfig
    from patchwright.project import Project

Kind = Literal[
    "python", "package", "file", "patch", "setting", "compiler", "device", "shadow", "bytecode",
    "jit", "prebuilt",
]  # fmt: skip
Say = Callable[[str], None]


@dataclass(frozen=True)
class Finding:
    """One difference; ``where`` is a package, file, variable or module."""

    kind: Kind
    where: str
    what: str
    expected: str = ""
    actual: str = ""


@dataclass
class Drift:
    """``unknown`` says what cannot be told here. The counts say how much was compared."""

    findings: list[Finding] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    packages: int = 0
    files: int = 0
    modules: int = 0

    def add(
        self, kind: Kind, where: object, what: str, expected: str = "", actual: str = ""
    ) -> None:
        """Note one difference."""
        self.findings.append(Finding(kind, str(where), what, expected, actual))


def check(project: Project, site: Site, say: Say = lambda _: None) -> Drift:
    """Compare an environment with the lock, and with what was applied to it.

    Raises InputError for a lock that cannot be read, PatchwrightError where the
    environment's interpreter gives no answer.
    """
    return _Check(project, site).run(say)


class _Check:
    def __init__(self, project: Project, site: Site) -> None:
        self.project = project
        self.site = site
        self.drift = Drift()
        self.files = SiteFiles(site.packages)
        self.carried = self.files.carried()
        lock = project.lock
        table = lock.environment if lock is not None else {}
        self.rebuilt: EnvironmentRecord | None = read_record(site.root)
        self.locked: LockedEnvironment | None = read_environment(table, str(project.lock_path))

    def run(self, say: Say) -> Drift:
        drift, site = self.drift, self.site
        if stale := len(self.project.stale()):
            places = f"{stale} place{'s' * (stale != 1)}"
            drift.unknown.append(f"the lock itself disagrees with the project in {places}: see "
                                 "`patchwright lock --check`")  # fmt: skip
        versions = self._patches()
        compared = self._packages(versions)
        say(f"comparing the files of {len(compared)} packages")
        self._files(compared)
        self._settings()
        say("asking what the environment imports")
        names = [p.partition(".")[0] for u in self._installed() for p in u.packages]
        folders = [f for name in names if (f := site.packages / name).is_dir()]
        said = ask(site, sorted({*names}), suspects(folders))
        self._imports(names, said)
        for place in said.stale:
            drift.add("bytecode", place, "is used, and its source says other things")
        self._prebuilt()
        if workspace.PACKAGE in names:
            self._workspace()
        self._machine()
        return drift

    # What is installed

    def _installed(self) -> list[UpstreamConfig]:
        upstreams = self.project.config.upstreams.values()
        return [u for u in upstreams if (u.distribution or u.name) in self.site.distributions]

    def _patches(self) -> dict[str, str]:
        """Compare the patches; return the version that each upstream's distributions need."""
        drift, carried = self.drift, self.carried
        versions: dict[str, str] = {}
        for config in self.project.config.upstreams.values():
            name = config.distribution or config.name
            there = self.site.distributions.get(name)
            expected = self._expected(config, there)
            versions[name] = expected
            for companion in config.companions:
                if companion.distribution in self.site.distributions:
                    versions[companion.distribution] = expected
        if carried is None:
            self._rebuilt()
            return versions
        if Path(carried.project) != self.project.root:
            drift.add("patch", self.site.root, "carries the patches of another project",
                      str(self.project.root), carried.project)  # fmt: skip
            return versions
        now = {patch_file(self.project.root, p.path): p.sha256 for p in self.project.series.patches}
        for file, digest in carried.patches.items():
            if now.get(file) != digest:
                what = "was changed" if file in now else "is gone"
                drift.add("patch", file, f"{what} since it was applied here")
        left = len(now.keys() - carried.patches.keys())
        if left:
            drift.unknown.append(f"{left} of {len(now)} patches of the series are not in it, by "
                                 "the selection that was applied")  # fmt: skip
        return versions

    def _rebuilt(self) -> None:
        """Compare what ``rebuild`` noted with the project as it is now."""
        drift, rebuilt = self.drift, self.rebuilt
        if rebuilt is None:
            drift.unknown.append("`patchwright rebuild` did not make this environment")
            return
        if Path(rebuilt.project) != self.project.root:
            drift.add("patch", self.site.root, "was made for another project",
                      str(self.project.root), rebuilt.project)  # fmt: skip
        lock = self.project.lock
        whole = {p.upstream: p.tree for p in lock.patches} if lock is not None else {}
        numbers = [p.number for p in self.project.series.patches]
        left = sorted(set(numbers) - set(rebuilt.patches))
        if left:
            drift.unknown.append(f"{len(left)} of {len(numbers)} patches of the series are not in "
                                 "it, by the selection of its rebuild")  # fmt: skip
            return
        for name, tree in rebuilt.trees.items():
            if whole.get(name, tree) != tree:
                drift.add("patch", name, "the patches were changed since it was rebuilt",
                          whole[name], tree)  # fmt: skip

    def _expected(self, config: UpstreamConfig, there: Distribution | None) -> str:
        name = config.distribution or config.name
        carried = self.carried.distributions.get(name) if self.carried is not None else None
        if carried is not None:
            return str(carried["new_version"])
        if there is not None and _is_patched(there.version):
            lock = self.project.lock
            trees = [p.tree for p in lock.patches if p.upstream == config.name] if lock else []
            if self.rebuilt is not None and config.name in self.rebuilt.trees:
                trees = [self.rebuilt.trees[config.name]]
            if trees:
                return local_version(config.version, trees[-1])
        elif there is not None and not self._is_built(config):
            self.drift.unknown.append(f"{name} is as upstream made it: no patches are in it")
        return config.version

    def _is_built(self, config: UpstreamConfig) -> bool:
        """Whether ``rebuild`` built it from patched source: a backend may keep its version."""
        entry = self.project.lock.upstream(config.name) if self.project.lock is not None else None
        tree = self.rebuilt.trees.get(config.name) if self.rebuilt is not None else None
        return config.source != "wheel" and entry is not None and tree not in (None, entry.tree)

    def _packages(self, versions: Mapping[str, str]) -> list[Distribution]:
        """Compare versions; return the distributions whose files are to be compared."""
        from packaging.utils import canonicalize_name

        drift, there = self.drift, self.site.distributions
        wanted: dict[str, str] = {canonicalize_name(n): v for n, v in versions.items()}
        if self.locked is None:
            drift.unknown.append("the lock has no environment: only the upstreams are compared")
        else:
            if not f"{self.site.version}.".startswith(f"{self.locked.python}."):
                drift.add("python", self.site.python, "is another Python", self.locked.python,
                          self.site.version)  # fmt: skip
            machine = platform.machine()
            if machine not in self.locked.machines:
                drift.unknown.append(f"nothing is locked for {machine}")
            else:
                locked = {p.name: p.version for p in self.locked.packages if machine in p.files}
                wanted = locked | wanted
                for name in sorted(there.keys() - wanted.keys()):
                    drift.add("package", name, "is not in the lock", "", there[name].version)
        for name, version in sorted(wanted.items()):
            found = there.get(name)
            if found is None:
                drift.add("package", name, "is not installed", version)
            elif _other(found.version, version):
                drift.add("package", name, "has another version", version, found.version)
        return [there[name] for name in sorted(wanted) if name in there]

    def _files(self, compared: Sequence[Distribution]) -> None:
        drift = self.drift
        drift.packages = len(compared)
        readable = []
        for each in compared:
            if each.is_editable:
                drift.add("package", each.name, "is an editable install: its files lie elsewhere")
            elif not each.has_record:
                drift.unknown.append(f"{each.name} has no RECORD: its files cannot be compared")
            else:
                readable.append(each)
        drift.files = sum(len(d.rows) for d in readable)
        for found in differences(readable, KnownHashes(self.project.cache_dir / "hashes")):
            place = self.site.distributions[found.distribution].folder / os.fsdecode(found.path)
            drift.add("file", place, f"is {found.what} ({found.distribution})")
        if self.carried is None:
            return
        named = {finding.where for finding in drift.findings}
        for path, (_, then) in sorted(self.carried.files.items()):
            place = self.site.packages / os.fsdecode(path)
            data = self.files.content(path) if not path.endswith(b".pyc") else None
            found_now = sha256(data) if data is not None else None
            if found_now != then and str(place) not in named:
                what = "is changed" if data is not None else "is missing"
                drift.add("file", place, f"{what} since patches were applied")

    # Around it

    def _settings(self) -> None:
        locked = self.locked.settings if self.locked is not None else {}
        for name, value in locked.items():
            actual = os.environ.get(name)
            if actual is None:
                self.drift.unknown.append(f"{name} is not set here (`patchwright run` sets it)")
            elif actual != value:
                self.drift.add("setting", name, "has another value", value, actual)
        arch, listed = self.project.config.arch, os.environ.get(_ARCH_LIST)
        if _ARCH_LIST in locked or not arch or listed is None:
            return
        targets = {"sm_" + word.replace(".", "").rstrip("af") for word in listed.split()}
        lost = [name for name in arch if name.rstrip("af") not in targets]
        if lost:
            self.drift.add("setting", _ARCH_LIST, f"leaves out {', '.join(lost)}",
                           " ".join(arch), listed)  # fmt: skip

    def _machine(self) -> None:
        from patchwright.smoke import devices
        from patchwright.smoke.compiler import find_compiler
        from patchwright.smoke.outcomes import Blocked
        from patchwright.tiers import is_target

        drift, cuda = self.drift, self.locked.cuda if self.locked is not None else ""
        if cuda:
            try:
                version = "{}.{}".format(*find_compiler((0, 0)).version)
                if version != cuda and (drift.modules or devices.count_nodes()):
                    drift.add("compiler", "nvcc", "is of another CUDA version", cuda, version)
                elif version != cuda:
                    drift.unknown.append(f"nvcc here is of CUDA {version}, the lock is for {cuda}; "
                                         "nothing was compiled with it")  # fmt: skip
            except Blocked as blocked:
                drift.unknown.append(f"the compiler: {blocked}")
        else:
            drift.unknown.append("the lock names no CUDA version: the compiler is not compared")
        if not devices.count_nodes():
            drift.unknown.append("there is no device here: neither driver nor device is compared")
            return
        try:
            machine = devices.probe(os.environ)
        except Blocked as blocked:
            drift.unknown.append(f"the devices: {blocked}")
            return
        arch = self.project.config.arch
        for device in machine.devices:
            if arch and not is_target(device.architecture, arch):
                drift.add("device", device.name, "is not what the project is for", " ".join(arch),
                          device.architecture)  # fmt: skip
        if cuda and machine.cuda and _numbers(machine.cuda)[:1] < _numbers(cuda)[:1]:
            drift.add("device", f"driver {machine.driver}", "serves an older CUDA", cuda,
                      machine.cuda)  # fmt: skip

    def _imports(self, names: Sequence[str], said: Imports) -> None:
        for name in names:
            ours = self.site.packages / name
            origin = said.origins.get(name)
            if origin is not None and not _within(origin, ours):
                self.drift.add("shadow", name, "another copy is imported", str(ours), str(origin))
            for copy in said.copies.get(name, ()):
                if not _within(copy, ours) and not (origin and _within(origin, copy)):
                    self.drift.add("shadow", name, "another copy is on the path", str(ours),
                                   str(copy))  # fmt: skip

    def _prebuilt(self) -> None:
        for config in self._installed():
            for name in config.prebuilt:
                there = self.site.distributions.get(name)
                own = self.site.distributions[config.distribution or config.name]
                if there is None:
                    continue
                if _is_patched(own.version):
                    self.drift.add(
                        "prebuilt", name, f"its kernels would win over {config.name}'s patched "
                        "sources, or keep it from starting", "not installed", there.version,
                    )  # fmt: skip
                else:
                    self.drift.unknown.append(f"{name} {there.version} is installed: patched "
                                              "sources would not be compiled")  # fmt: skip

    def _workspace(self) -> None:
        own = self.site.distributions[self._distribution()]
        folder = workspace.base(start_variables(self.project, self.site.root)) / own.version
        hashes = workspace.Hashes()
        for module in workspace.modules(folder):
            self.drift.modules += 1
            verdict = workspace.judge(module, self.site.packages, hashes)
            if verdict.verdict == "stale":
                self.drift.add("jit", module, verdict.why)

    def _distribution(self) -> str:
        return next(
            u.distribution or u.name for u in self._installed() if workspace.PACKAGE in u.packages
        )


_ARCH_LIST = "FLASHINFER_CUDA_ARCH_LIST"


def _other(installed: str, expected: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(installed.replace("_", "-")) != Version(expected)
    except InvalidVersion:
        return installed != expected


def _is_patched(version: str) -> bool:
    return "+pw." in version or ("+" in version and ".pw." in version)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _within(path: Path, folder: Path) -> bool:
    path, folder = path.resolve(), folder.resolve()
    return path == folder or folder in path.parents or path == folder.with_suffix(".py")
