"""Where the small environment stands, what is in it, and a rebuild that is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

from environments import SmallEnvironment
from projects import Ran


def env(small: SmallEnvironment) -> Path:
    return small.project.root / ".patchwright" / "env"


def site(environment: Path) -> Path:
    [found] = environment.glob("lib/python3*/site-packages")
    return found


def files(environment: Path) -> dict[str, str]:
    """Every installed file and script but bytecode, with its sha256."""
    places = [*site(environment).rglob("*"), *(environment / "bin").glob("tiny*")]
    return {
        str(path.relative_to(environment)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in places
        if path.is_file() and path.suffix != ".pyc"
    }


def refused(small: SmallEnvironment, *args: str, code: int, says: str) -> Ran:
    before = files(env(small)) if env(small).exists() else {}
    ran = small.project.run("rebuild", *args)
    assert (ran.code, says in ran.err) == (code, True), ran.err
    assert ran.err.count("patchwright: error:") == 1
    assert "Next: " in ran.err
    assert (files(env(small)) if env(small).exists() else {}) == before
    left = [p.name for p in (small.project.root / ".patchwright").glob(".env.*")]
    assert left == []
    return ran
