"""An environment that takes the place of another one at once.

It is built beside its place and exchanged with what stands there by one system call
(renameat2 with RENAME_EXCHANGE). Where the file system does not know that, the old one
is moved aside first; whoever comes next puts it back if the new one did not arrive.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchwright.errors import PatchwrightError
from patchwright.files import lock_folder

_EXCHANGE = 2  # RENAME_EXCHANGE of linux/fs.h
_AT_FDCWD = -100  # fcntl.h
_OLD = "old"
_PATIENCE = 0.2  # seconds: a small environment is gone by then


@contextmanager
def built_beside(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield a new folder beside ``folder`` and the descriptor that locks it.

    What is there in the end is removed: the old environment if the new one was put in
    place. What killed runs left is cleaned up first. Raises PatchwrightError where nothing
    can be written there.
    """
    prefix = f".{folder.name}.patchwright-"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        parent = lock_folder(folder.parent)
        try:
            _recover(folder, prefix)
            new = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
            lock = lock_folder(new)
        finally:
            os.close(parent)
    except OSError as error:
        raise _unwritable(error, folder) from error
    try:
        yield new, lock
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    else:
        _remove(new)
    finally:
        os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a folder that nobody uses; one that takes longer outlives this process.

    Who removes it has it locked, so that no other takes it for a leftover meanwhile. If
    that one is killed, the next rebuild finds a leftover.
    """
    program = shutil.which("rm", path=os.defpath)
    try:
        lock = lock_folder(folder, wait=False)
    except OSError:
        return  # it is gone, or another one removes it
    try:
        if program is None:
            shutil.rmtree(folder, ignore_errors=True)
            return
        removing = subprocess.Popen(
            [program, "-rf", "--", str(folder)], cwd="/", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(lock,),
        )  # fmt: skip
    finally:
        os.close(lock)
    with contextlib.suppress(subprocess.TimeoutExpired):
        removing.wait(_PATIENCE)


def put_in_place(new: Path, folder: Path) -> None:
    """Let ``new`` be at ``folder``, and what was there at ``new``; PatchwrightError if not."""
    try:
        mask = os.umask(0)
        os.umask(mask)
        new.chmod(0o777 & ~mask)
        parent = lock_folder(folder.parent)
    except OSError as error:
        raise _unwritable(error, folder) from error
    try:
        if not folder.exists():
            new.rename(folder)
        elif not _exchanged(new, folder):
            aside = Path(f"{new}.{_OLD}")
            folder.rename(aside)
            new.rename(folder)
            aside.rename(new)
    except OSError as error:
        raise _unwritable(error, folder) from error
    finally:
        os.close(parent)


def _exchanged(one: Path, other: Path) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    done = libc.renameat2(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_EXCHANGE)
    )
    if done == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))


def _recover(folder: Path, prefix: str) -> None:
    """Put back an environment that was moved aside; remove what nobody builds any more."""
    for path in sorted(folder.parent.glob(f"{glob.escape(prefix)}*")):
        with contextlib.suppress(OSError):
            if path.name.endswith(f".{_OLD}") and not folder.exists():
                path.rename(folder)
            else:
                _remove(path)


def _unwritable(error: OSError, folder: Path) -> PatchwrightError:
    return PatchwrightError(
        f"the environment cannot be written: {error.strerror}",
        where=str(error.filename or folder),
        next_step="make room or the folder writable, or name another one with --env; the old "
        "environment is untouched",
    )
