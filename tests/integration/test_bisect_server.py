"""sglang's real server on the CPU: one real patch of the series made to break its start.

The patch is 0004, which changes the fusion gate. Broken in its import list it fails when
it is imported, in the gate itself at the first request, and once it waits for ever. The
starts of the base and of all but 0004 are on record after the first of the three.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from projects import TinyProject
from sglang_cpu import environment, section, write_model
from stub_server import processes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
NUMBER = 4
BROKEN = {
    "import": ("+    is_sm120_supported,\n", "+    is_sm120_suported,\n"),
    "request": ("or _is_sm120_supported)", "or _is_sm120_suported)"),
    "hang": (
        "+_is_sm120_supported = _is_cuda and is_sm120_supported()\n",
        '+_is_sm120_supported = __import__("threading").Event().wait()\n',
    ),
}
FILE = "sglang/srt/layers/communicator.py"


@dataclass
class Series:
    """The first five patches of this repository, with a startup probe."""

    project: TinyProject
    cache: Path
    environment: Path

    def bisect(self, how: str) -> Any:
        """Break the patch and bisect; return what the JSON says."""
        patch = next((ROOT / "patches").glob(f"{NUMBER:04d}-*.patch"))
        text = patch.read_text(encoding="utf-8")
        old, new = BROKEN[how]
        assert text.count(old) == 1
        (self.project.root / "patches" / patch.name).write_text(text.replace(old, new), "utf-8")
        ran = self.project.run("bisect", "--start", "--json")
        assert ran.code == 1, ran.err
        return ran.json()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Series:
    folder = tmp_path_factory.mktemp("sglang")
    root = folder / "project"
    (root / "patches").mkdir(parents=True)
    for number in range(1, 6):
        patch = next((ROOT / "patches").glob(f"{number:04d}-*.patch"))
        shutil.copy(patch, root / "patches")
    for name in ("pyproject.toml", "upstream.lock"):
        shutil.copy(ROOT / name, root)
    with (root / "pyproject.toml").open("a", encoding="utf-8") as stream:
        stream.write(section())
    write_model(root / "model")
    ready = environment(tmp_path_factory.getbasetemp() / "sglang-cpu")
    return Series(TinyProject(root), folder / "cache", ready)


@pytest.fixture
def series(kept: Series, monkeypatch: pytest.MonkeyPatch) -> Series:
    monkeypatch.setenv("PATCHWRIGHT_CACHE", str(kept.cache))
    monkeypatch.setenv("PATCHWRIGHT_ENVIRONMENT", str(kept.environment))
    return kept


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("import", "import-error", "cannot import name 'is_sm120_suported'"),
        ("request", "error", "name '_is_sm120_suported' is not defined"),
        ("hang", "hang", "it stood in "),
    ],
)
def test_the_patch_is_found_with_its_error(series: Series, how: str, kind: str, words: str) -> None:
    found = series.bisect(how)
    assert [culprit["patches"] for culprit in found["culprits"]] == [[NUMBER]]
    assert found["signature"].startswith(f"{kind} | ")
    first = found["runs"][0]
    assert words in first["detail"]
    assert FILE in first["detail"]
    ends: tuple[list[int], ...] = ([], first["patches"])
    beyond = [r for r in found["runs"] if r["patches"] not in ends and r["source"] == "probe"]
    assert len(beyond) <= 3
    end = time.monotonic() + 10
    while processes(os.environ["PATCHWRIGHT_CACHE"]) and time.monotonic() < end:
        time.sleep(0.1)
    assert processes(os.environ["PATCHWRIGHT_CACHE"]) == []
