"""Of two distributions that bring one file, which one has to be installed again."""

from __future__ import annotations

from pathlib import Path

from patchwright.environment.content import Content, losers
from patchwright.environment.hashes import KnownHashes
from patchwright.environment.metadata import recorded_hash

UPSTREAM = "an-upstream"  # the first by name: it comes last all the same
BRINGS = {
    "beta": {"shared.py": b"beta\n"},
    "gamma": {"shared.py": b"gamma\n", "tiny/gate.py": b"gamma's\n"},
    UPSTREAM: {"tiny/gate.py": b"upstream's\n"},
}


def install(site: Path, name: str) -> None:
    for path, data in BRINGS[name].items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).unlink(missing_ok=True)
        (site / path).write_bytes(data)
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(exist_ok=True)
    rows = [f"{path},{recorded_hash(data)},{len(data)}\n" for path, data in BRINGS[name].items()]
    (info / "RECORD").write_text("".join(rows), "utf-8")


def lost(site: Path) -> list[str]:
    return losers(Content(site), KnownHashes(), {UPSTREAM}, lambda *_: False)


def test_what_is_installed_again_takes_files_only_from_what_comes_after_it(tmp_path: Path) -> None:
    for name in ("gamma", "beta", UPSTREAM):
        install(tmp_path, name)
    assert lost(tmp_path) == ["gamma"]
    install(tmp_path, "gamma")
    assert lost(tmp_path) == [UPSTREAM]
    install(tmp_path, UPSTREAM)
    assert lost(tmp_path) == []


def test_the_upstream_is_the_last_one_of_several(tmp_path: Path) -> None:
    for name in (UPSTREAM, "gamma", "beta"):
        install(tmp_path, name)
    assert lost(tmp_path) == ["gamma", UPSTREAM]
