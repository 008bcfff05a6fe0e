"""What audits found, kept by what they looked at: read by ``verify`` and by a second audit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchwright.files import write_atomically

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.series import Selection


# The verdicts of a patch that opens onto code which is not there or not whole.
BAD = ("missing", "hollow", "poisoned", "lost")


def series_key(project: Project, selection: Selection) -> str:
    """Return the key of a selection's audit: pins, patches, targets, declared facts, code."""
    from patchwright.audit.knowledge import FILE_NAME

    digest = hashlib.sha256(code_of_audit().encode())
    for name in project.config.upstreams:
        digest.update(repr(project.locked_upstream(name)).encode())
    for patch in selection.pick(project.series):
        digest.update(f"\0{patch.number} {patch.sha256}".encode())
    digest.update(repr(project.config.arch).encode())
    for path in (Path(__file__).with_name("knowledge.toml"), project.root / FILE_NAME):
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()


def code_of_audit() -> str:
    """Return the digest of the audit's code."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def recall(project: Project, selection: Selection) -> dict[int, tuple[str, str]]:
    """Return the verdict and its reason by patch; empty where this was not audited."""
    path = _path(project.cache_dir, series_key(project, selection))
    with suppress(OSError, ValueError, TypeError, KeyError):
        data = json.loads(path.read_bytes())
        return {int(n): (str(v), str(why)) for n, (v, why) in data.items()}
    return {}


def keep(project: Project, selection: Selection, verdicts: dict[int, tuple[str, str]]) -> None:
    """Keep the verdicts of a whole selection."""
    write(_path(project.cache_dir, series_key(project, selection)), verdicts)


def recorded(path: Path, make: Callable[[], Any]) -> Any:
    """Return what the JSON file holds, made and kept where it does not."""
    with suppress(OSError, ValueError):
        return json.loads(path.read_bytes())
    value = make()
    write(path, value)
    return value


def write(path: Path, value: Any) -> None:
    """Write JSON; a cache that cannot be written is no reason to stop."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(value).encode())


def _path(cache_dir: Path, key: str) -> Path:
    return cache_dir / "audit" / "series" / key[:2] / f"{key}.json"
