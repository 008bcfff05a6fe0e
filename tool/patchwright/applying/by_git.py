"""What git itself does for the applier: merging, binary patches, short object ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchwright.errors import PatchwrightError
from patchwright.files import temporary_folder
from patchwright.git import Git
from patchwright.store import ObjectStore

_OID = re.compile(r"[0-9a-f]{4,40}")
_FULL = 40
# merge-file's status is the number of conflicts; from here on it is an error.
_FIRST_ERROR = 128


def find_blob(store: ObjectStore, oid: str) -> bytes | None:
    """Return the blob that a full or short id names; None where none or several are meant."""
    if not _OID.fullmatch(oid) or set(oid) == {"0"}:
        return None
    if len(oid) < _FULL:
        store.flush()
        found = store.git.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{oid}^{{blob}}",
            ok=(0, 1, 128),
        )  # fmt: skip
        if found.returncode:
            return None
        oid = found.stdout.decode().strip()
    if not store.has(oid):
        return None
    kind, data = store.read(oid)
    return data if kind == "blob" else None


def merge(store: ObjectStore, ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
    """Return the three-way merge of three texts, or None where they conflict."""
    with _temporary_folder(store) as (folder, lock):
        names = ("ours", "base", "theirs")
        for name, data in zip(names, (ours, base, theirs), strict=True):
            (folder / name).write_bytes(data)
        done = Git().run(
            "merge-file", "-p", "--quiet", "--", *names, cwd=folder, ok=range(256),
            env={"GIT_DIR": str(folder / "none")}, holds=(lock,),
        )  # fmt: skip
    if done.returncode >= _FIRST_ERROR:
        # git refuses to merge what it takes for binary.
        return None
    return done.stdout if done.returncode == 0 else None


def apply(store: ObjectStore, tree: str, diff: bytes) -> tuple[str | None, str]:
    """Apply ``diff`` by ``git apply --cached``; return the tree, or None and git's reason.

    Only an index is touched, and the working directory is an empty folder: with
    ``--index`` git would write the patched file there, and inside another repository
    it would skip the patch and still return 0.
    """
    store.flush()
    with _temporary_folder(store) as (folder, lock):
        empty = folder / "empty"
        empty.mkdir()
        env = {"GIT_INDEX_FILE": str(folder / "index")}
        store.git.run("read-tree", tree, cwd=empty, env=env, holds=(lock,))
        done = store.write(
            "apply", "--cached", "--whitespace=nowarn", "-p1", "-", data=diff, cwd=empty,
            env=env, ok=range(256), holds=(lock,),
        )  # fmt: skip
        if done.returncode:
            return None, done.stderr.decode("utf-8", "replace").strip().removeprefix("error: ")
        made = store.write("write-tree", cwd=empty, env=env, holds=(lock,))
        return made.stdout.decode().strip(), ""


@contextmanager
def _temporary_folder(store: ObjectStore) -> Iterator[tuple[Path, int]]:
    parent = store.path.parent / "tmp"
    try:
        with temporary_folder(parent) as made:
            yield made
    except OSError as error:
        raise PatchwrightError(
            f"the cache cannot be written: {error.strerror}", where=str(error.filename or parent),
            next_step="make room, make the folder writable, or set PATCHWRIGHT_CACHE to another "
            "one",
        ) from error  # fmt: skip
