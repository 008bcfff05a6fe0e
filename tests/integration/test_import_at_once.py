"""Imports at once, killed in the middle, into a cache that cannot be written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from importing import (
    INSTALLED,
    REPOSITORY,
    Place,
    wanted,
)
from patchwright.errors import PatchwrightError
from patchwright.upstreams import import_upstream
from projects import make_wheel

pytest_plugins = ("importing_fixtures",)


CHILD = """
import json, sys, time
from pathlib import Path
import importing as t
from patchwright.store import ObjectStore
from patchwright import upstreams
root, cache, pause = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
said = []
if pause:
    whole = ObjectStore.flush
    def flush(store):
        print("here", flush=True)
        time.sleep(pause)
        whole(store)
    ObjectStore.flush = flush
config = t.wanted(path="tiny-1.0-py3-none-any.whl")
p = upstreams.import_upstream(
    config, upstreams.resolve(config, root, cache), ObjectStore(cache / "objects.git"), cache,
    root=root, progress=said.append)
print(json.dumps([p.tree, p.outside, said]))
"""


def start(place: Place, pause: float = 0) -> subprocess.Popen[str]:
    path = [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(place.root), str(place.cache), str(pause)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_two_processes_at_once(place: Place) -> None:
    make_wheel(place.root, INSTALLED)
    first, second = start(place, 0.5), start(place, 0.5)
    results = []
    for child in (first, second):
        out = child.communicate(timeout=60)[0]
        assert child.returncode == 0
        results.append(json.loads(out.splitlines()[-1]))
    assert results[0][:2] == results[1][:2]
    said = [line for result in results for line in result[2]]
    assert said.count("importing tiny 1.0") == 1
    assert place.files(results[0][0]) == REPOSITORY
    assert len(list((place.cache / "objects.git/objects/pack").glob("*.pack"))) == 1


def test_killed_in_the_middle(place: Place) -> None:
    make_wheel(place.root, INSTALLED)
    child = start(place, 60)
    assert child.stdout is not None
    assert child.stdout.readline() == "here\n"
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=60)
    child.stdout.close()
    assert not list((place.cache / "pristine").glob("*.json"))
    before = time.monotonic()
    pristine = place.run(wanted(path="tiny-1.0-py3-none-any.whl"))
    assert place.files(pristine.tree) == REPOSITORY
    assert time.monotonic() - before < 30  # the lock went with its holder
    assert "waiting" not in " ".join(place.said)


def test_a_cache_that_cannot_be_written(place: Place) -> None:
    make_wheel(place.root, INSTALLED)
    store = place.store
    (place.cache / "pristine").write_text("a file in the way")
    config = wanted(path="tiny-1.0-py3-none-any.whl")
    with pytest.raises(PatchwrightError, match="cache cannot be written") as caught:
        import_upstream(config, place.resolve(config), store, place.cache, root=place.root)
    assert caught.value.exit_code == 3
    assert "PATCHWRIGHT_CACHE" in caught.value.next_step
    assert str(place.cache / "pristine") in caught.value.where
