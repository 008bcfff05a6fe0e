"""A bundle: every file that a rebuild without a network needs, in one tar archive.

``bundle.json`` names the lock and the machine it was made for; beside it lies
``files/SHA256/NAME`` for each wheel and sdist, patched wheels included. It is not
believed: what does not have the sha256 that its folder says is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.environment.fetching import fetch_packages
from patchwright.environment.locking import required_environment
from patchwright.environment.machine import checked_machine
from patchwright.environment.sources import pristine_archive
from patchwright.environment.wheels import patched_wheels, refuse_prebuilt
from patchwright.errors import InputError, PatchwrightError
from patchwright.files import temporary_folder
from patchwright.lock import file_sha256

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.project import Project

_FORMAT = 1
_MEMBER = re.compile(r"files/([0-9a-f]{64})/([A-Za-z0-9_.+!-]+\.(?:whl|tar\.gz|tgz|zip))")
_INDEX = "bundle.json"
_CHUNK = 1 << 20
_STEP = "make it again on a machine with a network: `patchwright bundle FILE`"


def write_bundle(
    project: Project, state: State, file: Path, machine: str | None = None
) -> list[str]:
    """Write the bundle and return the names of the files in it.

    Nothing is at ``file`` until all of it is written. Raises AnswerNo, InputError or
    PatchwrightError.
    """
    environment = required_environment(project)
    machine = checked_machine(environment, machine)
    refuse_prebuilt(project, environment, state)
    packages = [p for p in environment.packages if machine in p.files]
    build = [p for p in environment.build if machine in p.files]
    found = [
        *fetch_packages(project, environment, machine, packages).values(),
        *fetch_packages(project, environment, machine, build).values(),
        *(wheel.path for wheel in patched_wheels(project, state)),
        *(
            pristine_archive(project, config)
            for config in project.config.upstreams.values()
            if config.source != "git" and config.path is None
        ),
    ]  # fmt: skip
    files = {f"files/{file_sha256(path)}/{path.name}": path for path in found}
    about = {
        "format": _FORMAT,
        "machine": machine,
        "python": environment.python,
        "lock": hashlib.sha256(project.lock_path.read_bytes()).hexdigest(),
    }
    part = file.with_name(f".{file.name}.part")
    try:
        with part.open("wb") as out, tarfile.open(fileobj=out, mode="w") as tar:
            _add(tar, _INDEX, json.dumps(about, indent=1).encode())
            for number, name in enumerate(sorted(files), 1):
                project.progress(f"packing {files[name].name} ({number} of {len(files)})")
                with files[name].open("rb") as stream:
                    size = os.fstat(stream.fileno()).st_size
                    tar.addfile(_entry(name, size), stream)
            out.flush()
            os.fsync(out.fileno())
        part.replace(file)
    except OSError as error:
        raise PatchwrightError(
            f"the bundle cannot be written: {error.strerror}", where=str(file),
            next_step="make room, or name another place",
        ) from error  # fmt: skip
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return sorted(path.name for path in files.values())


@contextmanager
def opened_bundle(project: Project, file: Path | None) -> Iterator[Sequence[Path]]:
    """Yield a folder with the bundle's files, for a while; nothing where there is no bundle.

    The upstreams' own archives go into the cache, so that their trees can be made without
    a network. Raises InputError for a bundle that cannot be used.
    """
    if file is None:
        yield ()
        return
    with temporary_folder(project.cache_dir / "tmp") as (folder, _):
        project.progress(f"unpacking {file.name}")
        try:
            _unpack(project, file, folder)
        except (tarfile.TarError, EOFError, ValueError) as error:
            raise InputError(
                f"this is not a whole bundle: {error}", where=str(file), next_step=_STEP
            ) from error
        except OSError as error:
            raise PatchwrightError(
                f"the bundle cannot be unpacked: {error.strerror}",
                where=str(error.filename or file), next_step="make it readable, or make room",
            ) from error  # fmt: skip
        _keep_upstreams(project, folder)
        yield (folder,)


def _unpack(project: Project, file: Path, folder: Path) -> None:
    with tarfile.open(file, "r:") as tar:
        for member in tar:
            if member.name == _INDEX and member.isfile():
                stream = tar.extractfile(member)
                _check(project, file, json.loads(stream.read(_CHUNK)) if stream else {})
                continue
            match = _MEMBER.fullmatch(member.name)
            stream = tar.extractfile(member) if member.isfile() else None
            if match is None or stream is None:
                raise InputError(
                    f"a bundle has no member {member.name!r}", where=str(file), next_step=_STEP
                )
            target = folder / match[2]
            digest = hashlib.sha256()
            with target.open("xb") as out:
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
                    out.write(chunk)
            if digest.hexdigest() != match[1]:
                raise InputError(
                    f"wrong sha256: {match[1]} is recorded, the member has {digest.hexdigest()}",
                    where=f"{file}: {match[2]}", next_step=_STEP,
                )  # fmt: skip


def _check(project: Project, file: Path, about: object) -> None:
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise InputError(
            "this bundle was made by another version of patchwright", where=str(file),
            next_step=_STEP,
        )  # fmt: skip
    lock = hashlib.sha256(project.lock_path.read_bytes()).hexdigest()
    environment = required_environment(project)
    for what, has, wanted in (
        ("lock", about.get("lock"), lock),
        ("machine", about.get("machine"), checked_machine(environment)),
        ("python", about.get("python"), environment.python),
    ):
        if has != wanted:
            raise InputError(
                f"the bundle was made for another {what}: {has}, here it is {wanted}",
                where=str(file), next_step=_STEP,
            )  # fmt: skip


def _keep_upstreams(project: Project, folder: Path) -> None:
    for name in project.config.upstreams:
        locked = project.locked_upstream(name)
        source = folder / str(locked.file)
        if locked.file and source.is_file() and file_sha256(source) == locked.sha256:
            kept = project.cache_dir / "archives" / str(locked.sha256) / locked.file
            if not kept.is_file():
                kept.parent.mkdir(parents=True, exist_ok=True)
                part = kept.with_name(f"{kept.name}.part")
                shutil.copyfile(source, part)
                part.replace(kept)


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    return entry


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    tar.addfile(_entry(name, len(data)), io.BytesIO(data))
