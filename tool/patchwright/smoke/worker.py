"""The prepared process: imports once, forks once per run, never imports an upstream.

It reads one request per line and answers with one line. It leaves when its input ends,
and takes a run that is under way with it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
from collections.abc import Iterable, Mapping, Set
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from patchwright.smoke import bindings, isolation, proof, session
from patchwright.smoke.generator_server import Server
from patchwright.smoke.held import hold
from patchwright.smoke.outcomes import Outcome
from patchwright.smoke.processes import Abandoned, Ended, become_subreaper, run_forked
from patchwright.smoke.protocol import Place, Request
from patchwright.smoke.recorder import Finding, outcome_of
from patchwright.store import object_id

READY = b"{}\n"  # says that all imports went well
_LISTINGS = 8  # kept at most; one is some megabytes
_SYNTAX_TREES = 128  # the same


def main(server: Server) -> None:
    """Serve requests until standard input ends."""
    become_subreaper()
    gc.disable()  # what is kept is syntax trees, which have no cycles
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # a stray print must not look like an answer
    requests = os.fdopen(os.dup(0), "rb")
    answers.write(READY)
    desk = _Desk(requests, answers, session.Prepared(server=server))
    with contextlib.suppress(BrokenPipeError):
        while desk.line:
            first = Request.from_line(desk.line)
            hold(first.test.parent, first.folder, desk.serve)


class _Desk:
    """Takes requests and hands out answers, as long as they fit the session that is held."""

    def __init__(self, requests: BinaryIO, answers: RawIOBase, prepared: session.Prepared) -> None:
        self._requests = requests
        self._answers = answers
        self._prepared = prepared
        self.line = requests.readline()

    def serve(self, held: pytest.Session) -> None:
        """Answer until a request is for other folders, or there is none any more."""
        folders = None
        while self.line:
            request = Request.from_line(self.line)
            if folders not in (None, (request.test.parent, request.folder)):
                return
            folders = request.test.parent, request.folder
            try:
                answer = serve(request, self._prepared, held, self._requests.fileno())
                self._answers.write(json.dumps(answer).encode() + b"\n")
            except (Abandoned, BrokenPipeError):
                self.line = b""
                return
            _learn(request, self._prepared, answer["parsed"])
            self.line = self._requests.readline()


def serve(
    request: Request, prepared: session.Prepared, held: pytest.Session, watched: int | None
) -> dict[str, Any]:
    """Make one run and return the answer."""
    shutil.rmtree(request.folder, ignore_errors=True)
    isolation.make_folders(request.folder)
    if len(prepared.listings) > _LISTINGS:
        prepared.listings.clear()
    _anticipate(request, prepared)
    prepared.syntax.asked.clear()
    gc.freeze()  # or the child's collector would copy every page of what we prepared
    server = prepared.server
    try:
        kept = server.fileno() if server is not None else None
        ended = run_forked(
            lambda: session.run(request, prepared, held), request.deadline, watched, kept
        )
        return _answer(request, ended)
    finally:
        if server is not None:
            server.remover.remove(request.folder)
        else:
            shutil.rmtree(request.folder, ignore_errors=True)


def _answer(request: Request, ended: Ended) -> dict[str, Any]:
    result = _result(request.folder / session.RESULT)
    # In the order in which one explains the other: what ended the process or pytest
    # also kept tests from running to their end.
    findings = [Finding("error", v) for v in proof.violations(request.folder / session.REPORT)]
    if death := _death(request, ended, bool(result)):
        findings.insert(0, Finding("error", death))
    findings += _findings(result.get("others", ()))
    tests = []
    tiers: dict[str, list[str]] = {}
    for test in result.get("tests", ()):
        own = _findings(test.pop("findings"))
        findings += own
        decided = outcome_of(own)
        tiers.setdefault(test.pop("tier"), []).append(test["test"])
        tests.append({**test, "outcome": decided.outcome, "reason": decided.reason})
    outcome = outcome_of(findings).outcome
    return {
        "outcome": outcome,
        "reason": _reason(outcome, findings),
        "needs": list(dict.fromkeys(f.need for f in findings if f.outcome == "blocked")),
        "seconds": ended.seconds,
        "log": ended.log,
        "tests": tests,
        "tiers": tiers,
        "sha256": result.get("sha256", ""),
        "stubs": result.get("stubs", []),
        "parsed": result.get("parsed", []),
        "read": _read(request),
    }


def _read(request: Request) -> list[list[str]] | None:
    """Return the files that were read of the tree, and of the baseline."""
    if request.tree is None or request.baseline is None:
        return None
    sites = [request.tree.site, request.baseline.site]
    found = proof.files_read(request.folder / session.READS, sites)
    return [sorted(paths) for paths in found] if found is not None else None


def _findings(data: Iterable[Mapping[str, str]]) -> list[Finding]:
    return [Finding(cast(Outcome, f["outcome"]), f["reason"], f["need"]) for f in data]


def _reason(outcome: Outcome, findings: list[Finding]) -> str:
    reasons = list(dict.fromkeys(f.reason for f in findings if f.outcome == outcome and f.reason))
    if outcome == "blocked":
        return "; ".join(reasons)
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return reasons[0] + more if reasons else ""


def _death(request: Request, ended: Ended, has_result: bool) -> str:
    if ended.timed_out:
        return f"ran longer than {request.deadline:g} s and was killed"
    if ended.status < 0:
        name = signal.Signals(-ended.status).name
        return f"the test's process was killed by {name}"
    if not has_result:
        last = ended.log.strip().splitlines()[-1:]
        inner = f": {last[0][:300]}" if last and ended.status else ""
        return f"the test's process ended with status {ended.status} before its tests did{inner}"
    return "" if ended.status == 0 else f"the test's process ended with status {ended.status}"


def _result(path: Path) -> dict[str, Any]:
    """Return what the session left behind; empty where it did not come that far."""
    try:
        result: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return result


def _anticipate(request: Request, prepared: session.Prepared) -> None:
    """Parse what the test asked for the last time, as it is in the trees of this run."""
    wanted: set[str] = set()
    for place in _places(request):
        listing = prepared.listing(place.listing)
        paths = prepared.asked.get(request.test, ())
        wanted.update(listing[path][1] for path in paths if path in listing)
    _parse(request, prepared, wanted)


def _learn(request: Request, prepared: session.Prepared, oids: list[str]) -> None:
    """Parse what the last run parsed: the next runs on the same blobs have it at once."""
    parsed = set(oids)
    prepared.asked[request.test] = {
        path
        for place in _places(request)
        for path, (_, oid) in prepared.listing(place.listing).items()
        if oid in parsed
    }
    _parse(request, prepared, parsed)


def _parse(request: Request, prepared: session.Prepared, oids: Set[str]) -> None:
    known = prepared.syntax.known
    wanted = oids - known.keys()
    for oid in known.keys() & oids:
        known[oid] = known.pop(oid)  # to the end: what nobody asked for longest goes first
    while known and len(known) + len(wanted) > _SYNTAX_TREES:
        del known[next(iter(known))]
    for place in _places(request) if wanted else ():
        for path, (_, oid) in prepared.listing(place.listing).items():
            if oid not in wanted:
                continue
            file = place.site / os.fsdecode(path)
            # The folder may be on its way to the next state by now.
            with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
                data = file.read_bytes()
                if object_id("blob", data) == oid:
                    bindings.prepare(prepared.syntax.parse(oid, data, str(file)))
                    wanted.discard(oid)


def _places(request: Request) -> list[Place]:
    return [place for place in (request.tree, request.baseline) if place is not None]
