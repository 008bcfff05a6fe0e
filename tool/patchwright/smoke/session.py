"""What the forked child does: the rest of a pytest session, on one smoke file, in isolation."""

from __future__ import annotations

import faulthandler
import gc
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from patchwright.smoke import isolation, plugin, proof
from patchwright.smoke.generator_server import Server
from patchwright.smoke.held import finish
from patchwright.smoke.protocol import Place, Request
from patchwright.smoke.recorder import Recorder
from patchwright.smoke.trees import Listing, SyntaxCache, Trees, parse_listing

RESULT = "result.json"
REPORT = "violations"
READS = "reads"


@dataclass
class Prepared:
    """What the worker keeps between runs: listings by file, syntax trees by blob id.

    ``asked`` are the files, as installed paths, whose syntax a test asked for the last time.
    """

    syntax: SyntaxCache = field(default_factory=SyntaxCache)
    server: Server | None = None
    listings: dict[Path, Listing] = field(default_factory=dict)
    asked: dict[Path, set[bytes]] = field(default_factory=dict)

    def listing(self, path: Path) -> Listing:
        """Return a listing, read once."""
        if path not in self.listings:
            self.listings[path] = parse_listing(path.read_bytes())
            _ = self.listings[path].folders  # known before the fork
        return self.listings[path]

    def trees(self, place: Place, request: Request) -> Trees:
        """Return the trees of a site folder."""
        listing = self.listing(place.listing)
        generators = self.server.of(place, claim(request)) if self.server is not None else None
        return Trees(
            place.site, place.state, request.sources, listing, self.syntax, generators
        )  # fmt: skip


def claim(request: Request) -> proof.Claim:
    """Return what a run has to prove."""
    packages = {package for source in request.sources for package in source.packages}
    places = [place for place in (request.tree, request.baseline) if place is not None]
    return proof.Claim(
        packages=tuple(sorted(packages)),
        sites={str(place.site): str(place.listing) for place in places},
        report=str(request.folder / REPORT),
        reads=str(request.folder / READS),
    )


def run(request: Request, prepared: Prepared, held: pytest.Session) -> None:
    """Go on with the session and leave its result in the run's folder."""
    os.environ.clear()
    os.environ.update(request.environment)
    os.umask(0o022)
    # Short-lived: a collection would copy the pages that are shared with the parent.
    gc.enable()
    gc.set_threshold(200_000)
    os.chdir(request.folder / isolation.WORK)
    tempfile.tempdir = None
    sys.argv = ["pytest"]
    sys.dont_write_bytecode = True
    sys.pycache_prefix = str(request.folder / isolation.BYTECODE)
    listings: dict[str, Any] = {}
    plugins: list[object] = []
    sites = []
    shown: list[Trees] = []
    if request.tree is not None and request.baseline is not None:
        sys.path.insert(0, str(request.tree.site))
        # In a control both are one, and what is asked of both is answered once.
        for place in dict.fromkeys((request.tree, request.baseline)):
            listings[str(place.site)] = prepared.listing(place.listing)
            sites.append(place.site)
            shown.append(prepared.trees(place, request))
        plugins.append(plugin.TreePair(shown[0], shown[-1]))
    duty = claim(request)
    proof.save(duty, request.folder / isolation.PROOF)
    proof.install(duty, listings)
    recorder = Recorder(request.test, request.tier or None, sites)
    data = request.test.read_bytes()
    for one in (*plugins, recorder):
        held.config.pluginmanager.register(one)
    faulthandler.enable(2)
    recorder.close(finish(held, request.test, collect_only=request.tree is None))
    _write(request.folder / RESULT, {
        "sha256": hashlib.sha256(data).hexdigest(),
        "others": [vars(finding) for finding in recorder.others],
        "tests": [
            {"test": node, "tier": record.tier, "seconds": record.seconds,
             "findings": [vars(finding) for finding in record.findings]}
            for node, record in recorder.tests.items()
        ],
        "stubs": sorted({stub for trees in shown for stub in trees.stubs}),
        "parsed": sorted(prepared.syntax.asked),
    })  # fmt: skip


def _write(path: Path, result: Mapping[str, Any]) -> None:
    # A child that is killed while it writes must not leave half a result.
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(result), encoding="utf-8")
    temporary.replace(path)
