"""Imports by path, by name (offline, from a folder) and from git, alone and at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from patchwright.config import Layout, LayoutRule, UpstreamConfig
from patchwright.errors import InputError, PatchwrightError
from patchwright.lock import LockedUpstream
from patchwright.store import EMPTY_TREE, ObjectStore
from patchwright.upstreams import Pristine, import_upstream, resolve
from patchwright.upstreams.archive import BadArchive
from projects import make_wheel

LAYOUT = Layout(
    (LayoutRule(b"python/tiny/", b"tiny/"), LayoutRule(b"csrc/", b"tiny/data/csrc/")),
    ("tiny/_version.py",),
)
REPOSITORY = {"python/tiny/a.py": b"A = 1\n", "python/tiny/b.py": b"", "csrc/k.cu": b"\xff\r\n"}
INSTALLED: dict[str, str | bytes] = {
    "tiny/a.py": b"A = 1\n", "tiny/b.py": b"", "tiny/data/csrc/k.cu": b"\xff\r\n",
    "tiny/_version.py": "V = 1\n", "tiny/ops.so": b"\x7fELF",
}  # fmt: skip


class Place:
    """A project folder, a cache, and the import into it."""

    def __init__(self, folder: Path, cache: str = "cache") -> None:
        self.root = folder / "project"
        self.cache = folder / cache
        self.root.mkdir(exist_ok=True)
        self.said: list[str] = []

    @property
    def store(self) -> ObjectStore:
        return ObjectStore(self.cache / "objects.git")

    def resolve(self, config: UpstreamConfig) -> LockedUpstream:
        return resolve(config, self.root, self.cache, progress=self.said.append)

    def run(self, config: UpstreamConfig, locked: LockedUpstream | None = None) -> Pristine:
        return import_upstream(
            config, locked or self.resolve(config), self.store, self.cache,
            root=self.root, progress=self.said.append,
        )  # fmt: skip

    def files(self, tree: str) -> dict[str, bytes]:
        store = self.store
        return {path.decode(): store.blob(entry.oid) for path, entry in store.files(tree)}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that uv takes distributions from; the network is off."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("UV_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return folder


def wanted(**how: Any) -> UpstreamConfig:
    values: dict[str, Any] = {
        "name": "tiny", "source": "wheel", "distribution": "tiny", "version": "1.0", "path": None,
        "git": None, "revision": None, "packages": ("tiny",), "layout": LAYOUT,
    }  # fmt: skip
    return UpstreamConfig(**values | how)


def make_sdist(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "tiny-1.0.tar.gz"
    info = b"Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in {"PKG-INFO": info, **files}.items():
            member = tarfile.TarInfo(f"tiny-1.0/{name}")
            member.size = len(data)
            archive.addfile(member, BytesIO(data))
    return path


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make_repository(folder: Path, files: dict[str, bytes] | None = None) -> Path:
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, files or REPOSITORY)
    return folder


def commit(folder: Path, files: dict[str, bytes]) -> str:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "a commit")
    return git(folder, "rev-parse", "HEAD")


def test_a_wheel_by_path(place: Place) -> None:
    made = make_wheel(place.root, INSTALLED)
    config = wanted(path=made.name)
    locked = place.resolve(config)
    assert (locked.file, locked.tree, locked.source) == (made.name, "", "wheel")
    pristine = place.run(config, locked)
    assert place.files(pristine.tree) == REPOSITORY
    assert sorted(place.files(pristine.outside)) == [
        "tiny-1.0.dist-info/METADATA", "tiny-1.0.dist-info/WHEEL", "tiny/_version.py",
        "tiny/ops.so",
    ]  # fmt: skip


def test_every_source_gives_the_same_tree(place: Place, index: Path) -> None:
    made = make_wheel(index, INSTALLED)
    make_sdist(index, REPOSITORY)
    make_repository(place.root / "clone")
    by_name = place.run(wanted())
    by_path = Place(place.root.parent, "other").run(wanted(path=str(made)))
    sdist = place.run(wanted(source="sdist"))
    revision = place.run(wanted(source="git", path="clone", revision="main"))
    assert by_name == by_path
    assert {by_name.tree, sdist.tree, revision.tree} == {by_path.tree}
    assert revision.outside == EMPTY_TREE


def test_the_second_import_reads_nothing(place: Place) -> None:
    made = make_wheel(place.root, INSTALLED)
    config = wanted(path=made.name)
    locked = place.resolve(config)
    first = place.run(config, locked)
    made.unlink()
    place.said.clear()
    assert place.run(config, locked) == first
    assert place.said == []


def test_another_layout_is_another_import(place: Place) -> None:
    make_wheel(place.root, INSTALLED)
    config = wanted(path="tiny-1.0-py3-none-any.whl")
    other = replace(config, layout=Layout((LayoutRule(b"tiny/", b"tiny/"),), ()))
    assert place.run(config).tree != place.run(other).tree


def test_a_record_without_its_trees_is_not_believed(place: Place) -> None:
    make_wheel(place.root, INSTALLED)
    config = wanted(path="tiny-1.0-py3-none-any.whl")
    first = place.run(config)
    shutil.rmtree(place.cache / "objects.git")
    assert place.run(config) == first
    assert place.files(first.tree) == REPOSITORY
    for record in (place.cache / "pristine").glob("*.json"):
        record.write_bytes(b'{"tree": "')
    assert place.run(config) == first


def test_a_local_file_with_another_hash(place: Place) -> None:
    made = make_wheel(place.root, INSTALLED)
    config = wanted(path=made.name)
    locked = place.resolve(config)
    make_wheel(place.root, {"tiny/a.py": "other"})
    actual = place.resolve(config).sha256
    with pytest.raises(InputError) as caught:
        place.run(config, locked)
    assert str(locked.sha256) in caught.value.what
    assert str(actual) in caught.value.what
    assert caught.value.where == str(made)


def test_a_hostile_local_file_leaves_nothing(place: Place) -> None:
    made = make_wheel(place.root, {"tiny/a.py": "", "../evil.py": ""})
    with pytest.raises(InputError, match="leaves the archive") as caught:
        place.run(wanted(path=made.name))
    assert caught.value.where == f"{made.name}: ../evil.py"
    assert not list((place.cache / "pristine").glob("*.json"))
    assert not list((place.cache / "objects.git/objects/pack").glob("*"))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"path": "missing.whl"}, "cannot be read"),
        ({"path": "x.tar.gz"}, "a wheel is expected"),
        ({"path": "missing", "source": "git", "revision": "v1"}, "no such repository"),
        ({"git": "ext::sh -c true", "source": "git", "revision": "v1"}, "not an address"),
        ({"git": "git://host/x", "source": "git", "revision": "v1"}, "not an address"),
        ({"git": "-u:x", "source": "git", "revision": "v1"}, "not an address"),
    ],
)
def test_what_cannot_be_resolved(place: Place, how: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        place.resolve(wanted(**how))


def test_a_layout_that_fits_nothing(place: Place) -> None:
    make_wheel(place.root, {"other/a.py": ""})
    with pytest.raises(InputError, match="no layout rule"):
        place.run(wanted(path="tiny-1.0-py3-none-any.whl"))


# By name, through uv


def test_a_wheel_by_name_whose_file_changed(place: Place, index: Path) -> None:
    made = make_wheel(index, INSTALLED)
    locked = place.resolve(wanted())
    assert locked.file == made.name
    make_wheel(index, {"tiny/a.py": "other"})
    with pytest.raises(PatchwrightError, match=f"{locked.sha256} is locked") as caught:
        place.run(wanted(), locked)
    assert caught.value.exit_code == 3
    assert str(place.resolve(wanted()).sha256) in caught.value.what


def test_a_file_edited_in_uvs_cache(place: Place, index: Path, tmp_path: Path) -> None:
    make_wheel(index, INSTALLED)
    locked = place.resolve(wanted())
    first = place.run(wanted(), locked)
    cached = [p for p in (tmp_path / "uv-cache").rglob("a.py") if p.parent.name == "tiny"]
    assert cached
    for path in cached:
        with path.open("r+b") as stream:
            stream.write(b"B")
    fresh = Place(tmp_path, "fresh")
    assert fresh.run(wanted(), locked) == first
    assert any("cache holds a changed file" in line for line in fresh.said)


def test_a_wheel_by_name_whose_record_is_wrong(place: Place, index: Path) -> None:
    made = make_wheel(index, {"tiny/a.py": "AAAA"})
    with zipfile.ZipFile(made) as old:
        members = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(made, "w") as new:
        for name, data in members.items():
            new.writestr(name, b"BBBB" if name == "tiny/a.py" else data)
    with pytest.raises(BadArchive, match="RECORD says") as caught:
        place.run(wanted())
    assert caught.value.where == "tiny: tiny/a.py"
    assert not list((place.cache / "tmp").iterdir())


def test_what_the_index_does_not_have(place: Place, index: Path) -> None:
    make_wheel(index, INSTALLED)
    for config in (wanted(version="9.9"), wanted(source="sdist")):
        with pytest.raises(PatchwrightError) as caught:
            place.resolve(config)
        assert caught.value.exit_code == 3
        assert caught.value.where == f"tiny=={config.version}"
        assert caught.value.next_step


def test_an_index_out_of_reach(place: Place, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_FIND_LINKS")
    monkeypatch.delenv("UV_OFFLINE")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(PatchwrightError, match="cannot be reached") as caught:
        place.resolve(wanted())
    assert "path" in caught.value.next_step


def test_an_sdist_is_kept_by_its_hash(place: Place, index: Path) -> None:
    made = make_sdist(index, REPOSITORY)
    config = wanted(source="sdist")
    locked = place.resolve(config)
    place.run(config, locked)
    kept = place.cache / "archives" / str(locked.sha256) / made.name
    assert kept.read_bytes() == made.read_bytes()
    made.unlink()
    shutil.rmtree(place.cache / "pristine")
    place.run(config, locked)
    # A kept file that was damaged is not used, and there is nothing to replace it.
    shutil.rmtree(place.cache / "pristine")
    kept.write_bytes(b"damaged")
    with pytest.raises(PatchwrightError):
        place.run(config, locked)


# git


def test_a_revision_as_git_has_it(place: Place) -> None:
    clone = make_repository(place.root / "clone")
    (clone / "run.sh").write_text("#!/bin/sh\n")
    (clone / "run.sh").chmod(0o755)
    (clone / "link").symlink_to("run.sh")
    sub = "1" * 40
    git(clone, "update-index", "--add", "--cacheinfo", f"160000,{sub},3rdparty/x")
    git(clone, "add", "run.sh", "link")
    git(clone, "commit", "--quiet", "-m", "modes")
    git(clone, "tag", "-a", "v1", "-m", "annotated")
    head = git(clone, "rev-parse", "HEAD")
    commit(clone, {"later": b""})
    tree = git(clone, "rev-parse", "v1^{tree}")
    for revision in ("v1", head, head[:10]):
        config = wanted(source="git", path="clone", revision=revision)
        locked = place.resolve(config)
        assert locked.commit == head
        assert locked.submodules == {"3rdparty/x": sub}
        assert place.run(config, locked).tree == tree
    modes = {path: entry.mode for path, entry in place.store.files(tree)}
    assert (modes[b"run.sh"], modes[b"link"]) == (b"100755", b"120000")


def test_hooks_and_the_users_configuration_do_not_run(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = make_repository(place.root / "clone")
    mark = tmp_path / "ran"
    script = tmp_path / "hook"
    script.write_text(f'#!/bin/sh\ntouch {mark}\nexec "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    user = Path(os.environ["HOME"]) / ".gitconfig"
    user.write_text(
        f'[uploadpack]\n\tpackObjectsHook = {script}\n[url "/nowhere/"]\n\tinsteadOf = /\n'
        f"[core]\n\thooksPath = {tmp_path}\n\tfsmonitor = {script}\n"
    )
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    pristine = place.run(wanted(source="git", path="clone", revision="main"))
    assert place.files(pristine.tree) == REPOSITORY
    assert not mark.exists()
    assert clone.is_dir()


def test_a_moved_tag_names_both_commits(place: Place, tmp_path: Path) -> None:
    clone = make_repository(place.root / "clone")
    git(clone, "tag", "v1")
    config = wanted(source="git", path="clone", revision="v1")
    locked = place.resolve(config)
    moved = commit(clone, {"python/tiny/a.py": b"A = 2\n"})
    git(clone, "tag", "--force", "v1")
    assert place.run(config, locked).tree  # what was fetched stays good
    fresh = Place(tmp_path, "fresh")
    with pytest.raises(PatchwrightError, match="tag v1") as caught:
        fresh.run(config, locked)
    assert moved in caught.value.what
    assert str(locked.commit) in caught.value.what


def test_a_branch_may_move_on(place: Place, tmp_path: Path) -> None:
    clone = make_repository(place.root / "clone")
    config = wanted(source="git", path="clone", revision="main")
    locked = place.resolve(config)
    commit(clone, {"python/tiny/a.py": b"A = 2\n"})
    fresh = Place(tmp_path, "fresh")
    assert place.files(place.run(config, locked).tree) == REPOSITORY
    assert fresh.files(fresh.run(config, locked).tree) == REPOSITORY


@pytest.mark.parametrize("revision", ["v9", "f" * 40, "fffffff"])
def test_a_revision_that_is_not_there(place: Place, revision: str) -> None:
    make_repository(place.root / "clone")
    with pytest.raises(PatchwrightError, match=f"no (tag|commit).*{revision}"):
        place.resolve(wanted(source="git", path="clone", revision=revision))


def test_a_link_out_of_a_git_tree(place: Place) -> None:
    clone = make_repository(place.root / "clone")
    # Within the repository, but out of the installed distribution.
    (clone / "python/tiny/link").symlink_to("../../csrc/k.cu")
    commit(clone, {})
    with pytest.raises(BadArchive, match="out of the tree") as caught:
        place.run(wanted(source="git", path="clone", revision="main"))
    assert caught.value.where == "upstream tiny: python/tiny/link"


# At once, killed, read-only

CHILD = """
import json, sys, time
from pathlib import Path
import test_import as t
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
    here = Path(__file__).resolve().parent
    path = [str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]
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
