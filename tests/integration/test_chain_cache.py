"""What applying remembers: it is not computed again, and made again where it is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from chains import FILES, opened, verdicts, with_line
from patchwright.applying.verdicts import ApplyVerdict
from patchwright.errors import PatchwrightError
from projects import TinyProject, make_project


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    return make_project(tmp_path, FILES)


def test_what_is_known_is_not_computed_again(
    tiny: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.add_patch(1, {"tiny/a.py": with_line(5, "five\n")})
    first = verdicts(tiny)
    monkeypatch.setattr("patchwright.applying.files.PatchOnTree.apply", None)
    assert verdicts(tiny) == first


def test_a_run_that_knows_all_loads_no_object_database(tiny: TinyProject) -> None:
    tiny.add_patch(1, {"tiny/a.py": with_line(5, "five\n")})
    verdicts(tiny)
    code = (
        "import sys; from pathlib import Path; from patchwright.project import Project; "
        "from patchwright.applying.chain import Chain; p = Project.open(Path.cwd()); "
        "print(Chain(p).apply(p.series.patches)[0].tree('tiny'), 'git' in sys.modules)"
    )
    assert tiny.run("lock").code == 0
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tiny.root, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [verdicts(tiny)[0].tree, "False"]


def test_a_lost_store_and_a_broken_cache_are_made_again(tiny: TinyProject) -> None:
    tiny.add_patch(1, {"tiny/a.py": with_line(5, "five\n")})
    first = verdicts(tiny)
    cache = opened(tiny).cache_dir
    shutil.rmtree(cache / "objects.git")
    assert verdicts(tiny) == first
    assert opened(tiny).store.has(first[0].tree or "")
    (cache / "applied.sqlite").write_bytes(b"not a database" * 1000)
    assert verdicts(tiny) == first
    assert verdicts(tiny) == first


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_read_only_cache_is_read_and_then_refused(tiny: TinyProject) -> None:
    tiny.add_patch(1, {"tiny/a.py": with_line(5, "five\n")})
    first = verdicts(tiny)
    cache = opened(tiny).cache_dir
    for path in [cache, *cache.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        assert verdicts(tiny) == first
        tiny.add_patch(2, {"tiny/b.py": "b = 2\n"})
        with pytest.raises(PatchwrightError):
            verdicts(tiny)
    finally:
        for path in [cache, *cache.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o700)


def test_two_at_once(tiny: TinyProject) -> None:
    for number in range(1, 6):
        tiny.add_patch(number, {"tiny/a.py": with_line(number, f"{number}\n")})
    found: list[tuple[ApplyVerdict, ...]] = []
    threads = [threading.Thread(target=lambda: found.append(verdicts(tiny))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
