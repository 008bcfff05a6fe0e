"""What every Python process of a start runs first: the proof, and a note of what it imports.

``proof.save`` writes a sitecustomize that reports imports from anywhere but the patched
tree. This adds the positive half, a line per package that a process executed from the
tree, and then loads the sitecustomize that ours hides, which may be the environment's own.
"""

from __future__ import annotations

from pathlib import Path

from patchwright.smoke import proof

IMPORTED = "imported"
VIOLATIONS = "violations"

_NOTE = """
import importlib.machinery as _machinery, os as _os
def _watch(site, report):
    seen = set()
    def hook(event, args):
        if event == "exec":
            name = getattr(args[0], "co_filename", "")
            if name.startswith(site):
                top = name[len(site):].split("/", 1)[0]
                if top not in seen:
                    seen.add(top)
                    with open(report, "a") as stream:
                        stream.write(f"{{_os.getpid()}} {{top}}\\n")
    sys.addaudithook(hook)
_watch({site!r}, {report!r})
_own = _os.path.dirname(_os.path.abspath(__file__))
_next = _machinery.PathFinder.find_spec(
    "sitecustomize", [p for p in sys.path if _os.path.abspath(p) != _own])
if _next is not None and _next.loader is not None:
    _next.loader.exec_module(importlib.util.module_from_spec(_next))
"""


def install(folder: Path, proof_folder: Path, packages: tuple[str, ...], site: Path,
            listing: Path) -> None:  # fmt: skip
    """Write the hook into ``proof_folder``; what it reports goes into ``folder``."""
    claim = proof.Claim(packages, {str(site): str(listing)}, str(folder / VIOLATIONS))
    proof.save(claim, proof_folder)
    own = proof_folder / "sitecustomize.py"
    note = _NOTE.format(site=f"{site}/", report=str(folder / IMPORTED))
    own.write_text(own.read_text("utf-8") + note, encoding="utf-8")


def violations(folder: Path, site: str) -> list[str]:
    """Return what was imported from anywhere but the tree.

    The site folder is checked before each start and holds no bytecode then: what lies
    there now was compiled by this start, and is no violation.
    """
    own = f" from the bytecode {site}/"
    return [line for line in proof.violations(folder / VIOLATIONS) if own not in line]


def imported(folder: Path) -> tuple[str, ...]:
    """Return the packages that some process executed from the tree."""
    try:
        lines = (folder / IMPORTED).read_text("utf-8").splitlines()
    except FileNotFoundError:
        return ()
    return tuple(sorted({line.partition(" ")[2] for line in lines}))
