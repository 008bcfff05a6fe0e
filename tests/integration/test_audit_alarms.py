"""False alarms of the audit on the real pins, counted: what is whole is not called anything else.

The kernels' part compiles for minutes; it runs where PATCHWRIGHT_KERNELS is set, and what
it gave is in docs/audit.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from audits import pins_auditor
from patchwright.audit.behind import compare_source, modules_of
from patchwright.audit.census import run_census
from patchwright.audit.chains import Chain, Step
from patchwright.audit.series import Auditor
from patchwright.audit.sources import Sources
from patchwright.audit.standing import behind_module
from patchwright.audit.values import Function
from patchwright.audit.verdicts import BAD
from patchwright.series import Selection

pytestmark = pytest.mark.slow
PINS = Selection(to=0)
# Sources of modules that build for sm_120 at the pin and are compiled in seconds. The other
# modules' are not compiled: their sources are templates that a call's types fill in, need
# cublas, or take minutes (GEMM, MoE, attention).
COMPILED = ("csrc/vllm_custom_all_reduce.cu",)


@dataclass(frozen=True)
class Whole:
    """A module that builds for sm_120: what stands behind it, and where calling it leads."""

    entry: str
    findings: tuple[str, ...]
    refused: tuple[str, ...]


@pytest.fixture(scope="module")
def auditor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Auditor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATCHWRIGHT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield pins_auditor()


def test_no_opened_gate_of_the_series_is_called_anything_but_whole(auditor: Auditor) -> None:
    report = auditor.series(Selection())
    target = set(auditor.capabilities)
    opened = [c for j in report.patches for c in j.changes if target & set(c.opened)]
    assert len(opened) >= 15
    alarms = [
        (judged.number, finding.sentence)
        for judged in report.patches
        for finding in judged.findings
        if finding.kind in ("missing", "unknown")
        or (finding.kind in ("hollow", "barrier") and finding.on_route is not False)
    ]
    assert alarms == []
    assert [j.number for j in report.patches if j.verdict in (*BAD, "cannot-tell")] == []


def test_no_module_that_builds_is_called_hollow_or_unreachable(auditor: Auditor) -> None:
    state = auditor.chain.base()
    router = auditor.router(state, "12.0")
    with modules_of(auditor.project, PINS) as found:
        cells = run_census(found.trees, found.upstream, found.all, "12.0a")
        builds = [g for g, c in zip(found.all, cells, strict=True) if c.word == "builds"]
        sources = Sources(found.stored, found.upstream)
        modules = []
        for generator in builds:
            behind = behind_module(sources, generator.entry, ["12.0"], None)
            loss = tuple(f.sentence for f in behind if f.kind in ("hollow", "barrier", "unknown"))
            chains = _called(auditor, generator.path, generator.name)
            refused = tuple(c.refusal.why for c in chains if c.refusal is not None)
            modules.append(Whole(generator.entry, loss, refused))
    assert len(modules) > 20
    assert router.capability == "12.0"
    assert [m for m in modules if m.findings] == []
    # Traps behind a list that says it builds: over-open upstream, declared with its source.
    assert {m.entry for m in modules if m.refused} == {
        "flashinfer/jit/attention/modules.py::gen_fmha_cutlass_sm100a_module"
    }


def _called(auditor: Auditor, path: str, name: str) -> list[Chain]:
    """Return where a call of a function leads, whatever it is handed."""
    router = auditor.router(auditor.chain.base(), "12.0")
    module = router.modules.at("flashinfer", path)
    (node, *_) = module.statements[name]
    follower = router.follower
    follower.prepare(follower.knowledge)
    first = Step("flashinfer", path, 1, "<call>")
    follower._enter(Function(module, node), None, {}, 1, (first,), ())  # type: ignore[arg-type]
    return follower.chains


@pytest.mark.skipif(
    not os.environ.get("PATCHWRIGHT_KERNELS"), reason="compiles for minutes: PATCHWRIGHT_KERNELS=1"
)
@pytest.mark.parametrize("source", COMPILED)
def test_no_kernel_that_is_whole_is_called_hollow_or_poisoned(
    auditor: Auditor, source: str
) -> None:
    rows = compare_source(
        auditor.project, PINS, source, "12.0a", "10.0a", False, 6 << 30, lambda _: None
    )
    (made,) = [row for _, row in rows if not isinstance(row, str)]
    assert made.count[0] == made.count[1] > 0
    assert [p.sentence for p in made.problems if p.kind in ("hollow", "poisoned", "lost")] == []
