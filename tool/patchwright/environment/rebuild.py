"""rebuild: a virtual environment from the lock alone, put in the place of the old one."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.environment.building import build_wheel, found_in, hashed, source_wheel, uv_twice
from patchwright.environment.content import (
    Content,
    change,
    digest_of,
    finish,
    losers,
    refuse_disputed,
)
from patchwright.environment.fetching import fetch_packages
from patchwright.environment.hashes import KnownHashes
from patchwright.environment.installed import site_packages
from patchwright.environment.locked import SDIST, LockedPackage
from patchwright.environment.locking import required_environment
from patchwright.environment.machine import checked_machine
from patchwright.environment.own_files import OldFiles, make_own
from patchwright.environment.patched import (
    PatchedDistribution,
    distribution_name,
    patched_distributions,
)
from patchwright.environment.record import EnvironmentRecord, check_ownership
from patchwright.environment.switching import built_beside, put_in_place
from patchwright.environment.wheels import patched_wheels, refuse_prebuilt
from patchwright.errors import AnswerNo, PatchwrightError
from patchwright.files import hold_folder
from patchwright.lock import file_sha256
from patchwright.uv import refuse, wrong_hash

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.patch import Patch
    from patchwright.project import Project


@dataclass(frozen=True)
class Rebuilt:
    """What came of it: where it stands, its record, the wheels that were made for it."""

    folder: Path
    record: EnvironmentRecord
    wheels: dict[str, str]


class Rebuild:
    """One run. ``finds`` are folders that hold all files (a bundle): no index is asked."""

    def __init__(
        self, project: Project, folder: Path, *, offline: bool = False, finds: Sequence[Path] = ()
    ) -> None:
        self.project = project
        self.folder = folder
        self.offline = offline or bool(finds)
        self.finds = tuple(finds)
        self.environment = required_environment(project)
        self.machine = checked_machine(self.environment)
        self.own = {distribution_name(u) for u in project.config.upstreams.values()}
        self.hashes = KnownHashes(project.cache_dir / "hashes")
        check_ownership(folder, project)
        for name in ("wheels", "built"):
            kept = project.cache_dir / name
            kept.mkdir(parents=True, exist_ok=True)
            hold_folder(kept, self)  # `cache prune` leaves them alone

    def run(self, patches: Sequence[Patch], state: State) -> Rebuilt:
        """Build the environment for ``state`` and put it in place.

        Raises AnswerNo, InputError or PatchwrightError; the old environment is then as it
        was.
        """
        refuse_prebuilt(self.project, self.environment, state)
        with built_beside(self.folder) as (new, lock), ThreadPoolExecutor(2) as pool:
            # Beside each other: uv does its part, we read what will be needed after it.
            made = pool.submit(self._make, new, lock)
            old = pool.submit(OldFiles, self.folder, self.own, self.hashes)
            patched = patched_distributions(self.project, state)
            wheels = self._wheels(state, patched)
            made.result()
            content = Content(site_packages(new))
            self._install(new, lock, content, wheels, old)
            refuse_disputed(content, self.own)
            self._change_companions(content, patched)
            finish(content)
            known = make_own(content, self.own, old.result())
            self.project.progress("checking every file")
            digest, versions = digest_of(content, self.hashes, known)
            record = EnvironmentRecord(
                project=str(self.project.root), python=self.environment.python,
                machine=self.machine, digest=digest, trees=dict(state.trees),
                patches=tuple(patch.number for patch in patches), versions=versions,
            )  # fmt: skip
            record.write(new)
            put_in_place(new, self.folder)
        return Rebuilt(self.folder, record, {path.name: sha for path, sha in wheels.values()})

    # The wheels of the upstreams

    def _wheels(
        self, state: State, patched: Sequence[PatchedDistribution]
    ) -> dict[str, tuple[Path, str]]:
        """Return the wheel of each upstream that is patched or built from source, and its sha256.

        Raises AnswerNo where a patched wheel is not the one that the lock has.
        """
        found = {}
        for wheel in patched_wheels(self.project, state, patched):
            locked = self.environment.wheels.get(wheel.path.name)
            if locked is not None and locked != wheel.sha256:
                raise AnswerNo(
                    f"the patched wheel has sha256 {wheel.sha256}, the lock has {locked}",
                    where=wheel.path.name,
                    next_step="run `patchwright lock --check`; a newer patchwright may pack "
                    "otherwise: `patchwright lock` accepts that",
                )
            found[wheel.distribution.upstream] = wheel.path, wheel.sha256
        for name, tree in state.trees:
            if self.project.upstream(name).source != "wheel":
                built = self._built(name, tree, state)
                found[name] = built, str(file_sha256(built))
        return found

    def _built(self, name: str, tree: str, state: State) -> Path:
        from patchwright.environment.metadata import local_version

        config = self.project.upstream(name)
        pristine = self.project.pristine(name).tree
        version = config.version if tree == pristine else local_version(config.version, tree)
        return source_wheel(
            self.project, name, tree, self.environment, self.machine, version,
            finds=self.finds, offline=self.offline,
        )  # fmt: skip

    # The environment, beside its place

    def _make(self, new: Path, lock: int) -> None:
        said = uv_twice(
            ["venv", "--relocatable", "--allow-existing", "--no-project",
             "--prompt", self.folder.name, str(new)],
            self.project.root, offline=self.offline, python=self.environment.python, holds=lock,
        )  # fmt: skip
        if said is not None:
            refuse(said, f"Python {self.environment.python}")
        cfg = new / "pyvenv.cfg"
        if not cfg.is_file():
            raise PatchwrightError("uv made no environment", where=str(new), next_step="try again")

    def _install(
        self, new: Path, lock: int, content: Content, wheels: dict[str, tuple[Path, str]],
        old: Future[OldFiles],
    ) -> None:  # fmt: skip
        from packaging.utils import canonicalize_name

        count = self.environment.counts()[self.machine] + len(self.own)
        self.project.progress(f"installing {count} packages")
        packages = (p for p in self.environment.packages if not self._is_source(p))
        lines = hashed(packages, self.machine)
        files = [(path, str(file_sha256(path))) for path in self._built_packages()]
        for name, config in self.project.config.upstreams.items():
            if name in wheels:
                files.append(wheels[name])
            elif config.path is not None:
                path = self.project.root / config.path
                files.append((path, str(file_sha256(path))))
            else:
                sha256 = str(self.project.locked_upstream(name).sha256)
                lines.append(_line(distribution_name(config), config.version, sha256))
        for path, sha256 in files:
            name, version = path.name.split("-")[:2]
            lines.append(_line(canonicalize_name(name), version, sha256))
        folders = [path.parent for path, _ in files]
        self._sync(new, lock, lines, ["sync", "--allow-empty-requirements"], folders)
        done: set[str] = set()
        while lost := losers(content, self.hashes, self.own, lambda *f: old.result().take(*f)):
            if lost[0] in done:
                break  # the check of every file says what is wrong with it
            done.add(lost[0])
            again = [line for line in lines if line.startswith(f"{lost[0]}==")]
            self._sync(new, lock, again, ["install", "--no-deps", "--reinstall"], folders)

    def _sync(
        self, new: Path, lock: int, lines: Sequence[str], how: Sequence[str],
        folders: Sequence[Path],
    ) -> None:  # fmt: skip
        requirements = new / "requirements.txt"
        requirements.write_text("".join(lines), "utf-8")
        named = ["-r", str(requirements)] if how[0] == "install" else [str(requirements)]
        said = uv_twice(
            ["pip", *how, "--require-hashes", "--only-binary", ":all:",
             *found_in(self.finds, folders), *named],
            self.project.root, offline=self.offline, python=str(new / "bin" / "python"),
            holds=lock, show=True,
        )  # fmt: skip
        requirements.unlink()
        if said is not None:
            self._refuse(said)

    def _refuse(self, said: str) -> None:
        pair = wrong_hash(said)
        if pair is not None:
            name = said.partition("`")[2].partition("`")[0]
            raise PatchwrightError(
                f"wrong sha256: {pair[0]} is locked, the index has {pair[1]}",
                where=name or "upstream.lock",
                next_step="find out why the file changed; `patchwright lock --upgrade "
                f"{name.partition('==')[0] or 'PACKAGE'}` accepts the new one",
            )
        refuse(said, "rebuild")

    def _change_companions(self, content: Content, patched: Sequence[PatchedDistribution]) -> None:
        there = content.distributions
        for distribution in patched:
            if distribution.distribution not in self.own and distribution.distribution in there:
                change(there[distribution.distribution], distribution)

    # Packages without a wheel

    def _built_packages(self) -> list[Path]:
        """Build what is locked as source for this machine, one after the other."""
        packages = [p for p in self.environment.packages if self._is_source(p)]
        sources = fetch_packages(
            self.project, self.environment, self.machine, packages, offline=self.offline,
            finds=self.finds,
        )  # fmt: skip
        return [
            build_wheel(
                self.project, sources[package.name], package.files[self.machine].sha256,
                self.environment, self.machine, finds=self.finds, offline=self.offline,
            )
            for package in packages
        ]  # fmt: skip

    def _is_source(self, package: LockedPackage) -> bool:
        file = package.files.get(self.machine)
        return file is not None and file.tag == SDIST


def _line(name: str, version: str, sha256: str) -> str:
    return f"{name}=={version} --hash=sha256:{sha256}\n"
