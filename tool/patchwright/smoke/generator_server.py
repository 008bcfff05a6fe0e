"""The process that generators are forked from: small, and no test has ever run in it.

``start`` forks: the child goes on as the prepared worker, the parent stays behind and
answers what the runs ask it over a socket. It remembers what a generator answered. Where
the same call would read the same bytes, in a tree with the same paths, the answer is given
again: a control asks for the tree without the patch what the run before it has asked. Which
files a call reads is watched by the hook of proof.py, in the generator's own process; what
is given again counts as read by the run that asks.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from patchwright.smoke import proof
from patchwright.smoke.generator import Abandoned, Call, Forked, preload
from patchwright.smoke.generator import run as run_here
from patchwright.smoke.outcomes import SmokeError
from patchwright.smoke.processes import become_subreaper, die_with_parent, kill_strays
from patchwright.smoke.protocol import Place
from patchwright.smoke.removing import Remover
from patchwright.smoke.trees import Listing, parse_listing
from patchwright.store import object_id

_LISTINGS = 8  # kept at most; one is some megabytes
_KEPT = 64 << 20  # bytes of answers that are kept
_GRACE = 5.0  # seconds that an answer gets beyond its deadline


class Server:
    """The worker's end, and after a fork that of its runs.

    ``remover`` removes the folders of the worker's runs.
    """

    def __init__(self, end: socket.socket, remover: Remover) -> None:
        self._end = end
        self.remover = remover

    def fileno(self) -> int:
        """Return the descriptor that a run needs to ask."""
        return self._end.fileno()

    def of(self, place: Place, claim: proof.Claim) -> Asker:
        """Return who asks generators of one tree for the run that has to prove ``claim``."""
        return Asker(self._end, place, claim)


@dataclass(frozen=True)
class Asker:
    """Asks the server about one tree."""

    _end: socket.socket
    _place: Place
    _claim: proof.Claim
    keeps_workspaces: bool = True  # they go with the run's folder

    def ask(self, call: Call, deadline: float) -> dict[str, object]:
        """Return what ``generator.run`` does, and raise what it raises."""
        given = repr((tuple(call.args), dict(call.kwargs)))
        if not _is_plain(given, call):
            return run_here(call, deadline)
        request = {
            "call": [
                str(call.site), call.packages, call.module, call.function, given, call.arch,
                call.cuda, str(call.workspace),
            ],
            "listing": str(self._place.listing), "claim": vars(self._claim),
            "environment": dict(os.environ), "deadline": deadline,
        }  # fmt: skip
        reader, writer = os.pipe()
        try:
            try:
                socket.send_fds(self._end, [json.dumps(request).encode()], [writer])
            finally:
                os.close(writer)
            answer = _read_all(reader, deadline + _GRACE)
        except OSError as error:
            raise SmokeError(f"the process that generators are forked from: {error}") from error
        finally:
            os.close(reader)
        if "error" in answer:
            raise SmokeError(str(answer["error"]))
        return answer


def start() -> Server:
    """Fork; only the child returns, with its end.

    The parent answers until the child has ended and ends with the child's status.
    """
    _preload()
    remover = Remover()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        die_with_parent(parent)
        return Server(theirs, remover)
    theirs.close()
    remover.close()
    # The requests of the one that started us, and the answers to it, are the child's.
    empty = os.open(os.devnull, os.O_RDWR)
    os.dup2(empty, 0)
    os.dup2(empty, 1)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    become_subreaper()
    os._exit(_Answers(ours, pid, remover.pid).serve())


def _preload() -> None:
    """Import what generators need; upstreams and torch stay out."""
    present = "torch" in sys.modules
    # tvm_ffi imports torch where it is installed: seconds, and a copy of everything.
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
    with contextlib.suppress(SmokeError):
        preload()
    if not present:
        del sys.modules["torch"]


@dataclass(frozen=True)
class _Kept:
    """An answer and what it rests on, with names in the place of the folders."""

    read: Mapping[bytes, tuple[bytes, str] | None]
    paths: str
    answer: bytes
    files: Mapping[str, bytes]

    def holds(self, listing: Listing) -> bool:
        """Return whether the same call on that tree would have read the same."""
        if self.paths != listing.paths:
            return False
        return all(listing.get(path) == entry for path, entry in self.read.items())


class _Answers:
    def __init__(self, end: socket.socket, worker: int, remover: int) -> None:
        self._end = end
        self._worker = worker
        self._remover = remover
        self._forked = Forked()
        self._listings: dict[str, Listing] = {}
        self._kept: dict[str, list[_Kept]] = {}
        self._size = 0

    def serve(self) -> int:
        """Answer until the worker has ended; return its exit status."""
        process = os.pidfd_open(self._worker)
        poll = select.poll()
        poll.register(process, select.POLLIN)
        poll.register(self._end, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if process in ready:
                status = os.waitstatus_to_exitcode(os.waitpid(self._worker, 0)[1])
                os.waitpid(self._remover, 0)  # the worker was the last to hold its end
                return status & 0xFF
            # All that a message can hold: arguments and an environment are some kilobytes.
            data, descriptors, _, _ = socket.recv_fds(self._end, 1 << 20, 1)
            if not data:
                poll.unregister(self._end)
                continue
            for reply in descriptors:
                with contextlib.suppress(Abandoned, OSError), os.fdopen(reply, "wb") as stream:
                    stream.write(json.dumps(self._answered(json.loads(data), reply)).encode())

    def _answered(self, request: Mapping[str, Any], reply: int) -> dict[str, object]:
        site, packages, module, function, given, arch, cuda, workspace = request["call"]
        args, kwargs = ast.literal_eval(given)
        call = Call(
            Path(site), tuple(packages), module, function, args, kwargs, tuple(arch), cuda,
            Path(workspace),
        )  # fmt: skip
        claim = proof.Claim(**request["claim"])
        listing = self._listing(request["listing"])
        question = [packages, module, function, given, arch, cuda, request["environment"]]
        text = json.dumps(question, ensure_ascii=False)
        # The same trees lie in another folder when it is the next run's turn.
        for number, place in enumerate(claim.sites):
            text = text.replace(place, f"\0{number}\0")
        key = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        for kept in self._kept.get(key, ()):
            if kept.holds(listing):
                _note(claim, call.site, kept.read)
                return _given_again(kept, call)
        own = replace(claim, reads=f"{workspace}.reads")
        before = _size(claim.report)

        def first() -> None:
            os.close(reply)
            self._end.close()
            os.environ.clear()
            os.environ.update(request["environment"])
            sys.path.insert(0, site)
            proof.install(own, {site: listing})

        try:
            answer = self._forked.ask(call, request["deadline"], first=first, reply=reply)
        except SmokeError as error:
            return {"error": str(error)}
        finally:
            kill_strays({self._worker, self._remover})
            _pass_on(own, claim)
        if _size(claim.report) == before:
            self._keep(key, call, own, listing, answer)
        return answer

    def _listing(self, file: str) -> Listing:
        if file not in self._listings:
            if len(self._listings) >= _LISTINGS:
                self._listings.clear()
            self._listings[file] = parse_listing(Path(file).read_bytes())
        return self._listings[file]

    def _keep(
        self, key: str, call: Call, claim: proof.Claim, listing: Listing, answer: dict[str, object]
    ) -> None:
        folders = _folders(call)
        found = proof.files_read(Path(claim.reads), [call.site])
        Path(claim.reads).unlink(missing_ok=True)
        if folders is None or found is None:
            return
        read = {path: listing.get(path) for path in map(os.fsencode, found[0])}
        if not all(_is_there(call.site, path, entry) for path, entry in read.items()):
            return  # somebody changed the tree, which is that run's error alone
        files = {}
        for file in call.workspace.rglob("*"):
            if file.is_symlink():
                return
            if file.is_file():
                data = file.read_bytes()
                files[str(file.relative_to(call.workspace))] = _named(data, folders)
        text = _named(json.dumps(answer, ensure_ascii=False).encode(), folders)
        if any(place.encode() in data for place in claim.sites for data in (text, *files.values())):
            return  # it names a folder that is not its own tree's
        self._size += len(text) + sum(map(len, files.values()))
        if self._size > _KEPT:
            self._kept.clear()
            self._size = 0
        self._kept.setdefault(key, []).append(_Kept(read, listing.paths, text, files))


def _is_there(site: Path, path: bytes, entry: tuple[bytes, str] | None) -> bool:
    """Return whether a file that was read is the tree's, or as missing as there."""
    try:
        data = (site / os.fsdecode(path)).read_bytes()
    except OSError:
        return entry is None
    return entry is not None and object_id("blob", data) == entry[1]


def _is_plain(given: str, call: Call) -> bool:
    """Return whether the arguments are told whole by their text."""
    with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        return bool(ast.literal_eval(given) == (tuple(call.args), dict(call.kwargs)))
    return False


def _folders(call: Call) -> list[tuple[bytes, bytes]] | None:
    """Return the folders that change from call to call, and a name for each.

    None where upstream could spell one in two ways: a path with links in it.
    """
    found = []
    for folder, name in ((call.workspace, b"\0workspace\0"), (call.site, b"\0site\0")):
        text = str(folder)
        if os.path.realpath(text) != text or json.dumps(text, ensure_ascii=True) != f'"{text}"':
            return None
        found.append((text.encode(), name))
    return found


def _named(data: bytes, folders: list[tuple[bytes, bytes]]) -> bytes:
    for folder, name in folders:
        data = data.replace(folder, name)
    return data


def _given_again(kept: _Kept, call: Call) -> dict[str, object]:
    def real(data: bytes) -> bytes:
        for folder, name in _folders(call) or ():
            data = data.replace(name, folder)
        return data

    for path, data in kept.files.items():
        file = call.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(real(data))
    answer: dict[str, object] = json.loads(real(kept.answer))
    return answer


def _note(claim: proof.Claim, site: Path, read: Mapping[bytes, object]) -> None:
    """Have the run have read what the answer rests on."""
    names = (os.fsencode(site) + b"/" + path + b"\0" for path in read)
    _append(claim.reads, b"".join(names))


def _pass_on(own: proof.Claim, claim: proof.Claim) -> None:
    with contextlib.suppress(FileNotFoundError):
        _append(claim.reads, Path(own.reads).read_bytes())


def _append(file: str, data: bytes) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "ab") as stream:
        stream.write(data)


def _size(file: str) -> int:
    try:
        return Path(file).stat().st_size
    except FileNotFoundError:
        return 0


def _read_all(reader: int, deadline: float) -> dict[str, Any]:
    """Return the server's answer; OSError where there is none in time."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    chunks = []
    while poll.poll(deadline * 1000):
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            break
        chunks.append(chunk)
    try:
        answer: dict[str, Any] = json.loads(b"".join(chunks))
    except ValueError:
        raise OSError("it gave no answer") from None
    return answer
