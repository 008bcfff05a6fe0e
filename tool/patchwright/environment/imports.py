"""What an environment imports: copies that shadow, bytecode that is not its source's."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchwright.environment import inner
from patchwright.environment.installed import Site
from patchwright.errors import PatchwrightError

_DEADLINE = 300.0  # seconds; compiling thousands of files for comparison takes a minute


@dataclass(frozen=True)
class Imports:
    """``origins`` maps a package to the file that an import runs (None: not found), ``copies``
    to every place of that name on the path, first come first. ``stale`` are compiled files.
    """

    origins: Mapping[str, Path | None]
    copies: Mapping[str, tuple[Path, ...]]
    stale: tuple[Path, ...]


def ask(site: Site, names: Sequence[str], bytecode: Sequence[tuple[Path, Path]]) -> Imports:
    """Start the environment's interpreter here, with the variables of this process, and ask.

    ``bytecode`` are pairs of source and compiled file to be compared. Raises
    PatchwrightError where the interpreter gives no answer.
    """
    code = f"exec(compile(open({inner.__file__!r}, encoding='utf-8').read(), 'inner', 'exec'))"
    asked = {"names": list(names), "bytecode": [(str(a), str(b)) for a, b in bytecode]}
    variables = {n: v for n, v in os.environ.items() if n not in ("PYTHONHOME", "PYTHONINSPECT")}
    try:
        done = subprocess.run(
            [str(site.python), "-B", "-c", code], input=json.dumps(asked), capture_output=True,
            text=True, timeout=_DEADLINE, check=True, env=variables,
        )  # fmt: skip
        said = json.loads(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        raise PatchwrightError(
            f"its interpreter gives no answer: {str(detail).strip().splitlines()[-1:]}",
            where=str(site.python), next_step="see whether it starts, and what PYTHONPATH holds",
        ) from error  # fmt: skip
    found = said["imports"]
    return Imports(
        {name: Path(each["origin"]) if each["origin"] else None for name, each in found.items()},
        {name: tuple(map(Path, each["copies"])) for name, each in found.items()},
        tuple(map(Path, said["stale"])),
    )


def suspects(folders: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Return sources with bytecode that was there before them.

    Python goes by size and second of the source, which an edit can keep; the change time
    cannot be set back. Where it is newer than the bytecode the two have to be compared.
    """
    return [pair for folder in folders for pair in _suspects(os.fspath(folder))]


def _suspects(top: str) -> Iterator[tuple[Path, Path]]:
    for folder, folders, _ in os.walk(top):
        if "__pycache__" not in folders:
            continue
        folders.remove("__pycache__")
        with os.scandir(f"{folder}/__pycache__") as entries:
            for entry in entries:
                if not entry.name.endswith(".pyc"):
                    continue
                source = f"{folder}/{entry.name.partition('.')[0]}.py"
                try:
                    changed = os.stat(source).st_ctime_ns  # noqa: PTH116 - thousands of them
                    if entry.stat().st_ctime_ns <= changed:
                        yield Path(source), Path(entry.path)
                except OSError:
                    continue  # bytecode without a source is not imported
