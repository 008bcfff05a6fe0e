"""What the audit finds on the real pins (fetched, or from the user's cache)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from audits import pins_auditor
from patchwright.audit.behind import compare_source
from patchwright.audit.contradictions import contradictions
from patchwright.audit.series import Auditor
from patchwright.series import Selection
from patchwright.smoke.decisions import CAPABILITIES, FunctionGate, decision_table

pytestmark = pytest.mark.slow
SRT = "python/sglang/srt/"
COMM = "flashinfer/jit/comm.py::gen_trtllm_comm_module"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def auditor(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Auditor:
    monkeypatch.setenv("PATCHWRIGHT_CACHE", str(cache))
    return pins_auditor()


def test_the_kinds_of_gates_of_flashinfer(auditor: Auditor) -> None:
    gates = auditor.gates(auditor.chain.base()).gates
    counts = Counter(g.kind for g in gates if g.upstream == "flashinfer")
    assert (counts["jit-list"], counts["decorator"], counts["arch-list"]) == (21, 24, 1)
    lists = [g for g in gates if g.kind == "jit-list" and g.path == "flashinfer/jit/comm.py"]
    assert [c for c, v in lists[0].values.items() if v] == ["9.0", "10.0", "10.3"]


@pytest.mark.parametrize(
    "name",
    ["is_blackwell", "is_sm90_supported", "is_sm100_supported", "is_sm120_supported"],
)
def test_predicates_are_what_the_slicer_says(auditor: Auditor, name: str) -> None:
    state = auditor.chain.base()
    path = SRT + "utils/common.py"
    table = decision_table(auditor.trees(state), FunctionGate("sglang", path, name), cuda="13.0")
    (gate,) = [
        g
        for g in auditor.gates(state).gates
        if g.kind == "definition" and g.path == path and g.condition.startswith(f"{name} =")
    ]
    assert {c: gate.values[c] for c in CAPABILITIES} == table


def test_the_founding_story_without_a_gpu(auditor: Auditor) -> None:
    (alone,) = auditor.series(Selection(only=frozenset({4}))).patches
    assert (alone.verdict, alone.why) == (
        "missing",
        "opens onto gen_trtllm_comm_module, which does not build for major version 12 "
        "(it lists [9, 10])",
    )
    both = auditor.series(Selection(only=frozenset({1, 4}))).patches
    assert [j.verdict for j in both] == ["whole", "whole"]
    (hollow,) = [f for f in both[1].findings if f.kind == "hollow"]
    assert "lamport_style_one_shot_all_reduce_norm_kernel" in hollow.sentence
    assert hollow.on_route is False


def test_what_upstream_itself_sends_to_a_refusal(auditor: Auditor) -> None:
    found = [c for c in contradictions(auditor, auditor.chain.base()) if c.capability == "12.0"]
    ends = {(c.gate.path, c.gate.function, c.why) for c in found}
    assert (
        SRT + "layers/quantization/fp8_utils.py", "_dispatch_auto_backend",
        "gemm_fp8_nt_groupwise(backend='trtllm') refuses compute capability 12.0",
    ) in ends  # fmt: skip
    adjust = [c for c in found if c.gate.path == SRT + "server_args.py"]
    assert any("gen_trtllm_gen_fused_moe_sm100_module" in "".join(c.lines) for c in adjust)


def test_a_module_that_compiles_cleanly_for_the_target_is_poisoned(auditor: Auditor) -> None:
    # Two minutes of processor time and 5 GB of memory.
    ((module, found),) = compare_source(
        auditor.project, Selection(to=0), "csrc/cutlass_mla.cu", "12.0a", "10.0a", True, 5 << 30,
        lambda _: None,
    )  # fmt: skip
    if isinstance(found, str) and found.startswith("needs "):
        pytest.skip(found)
    assert not isinstance(found, str), found
    assert module == "gen_mla_module"
    assert found.count == (4, 4)
    assert 0.9 < found.lowest < 1
    said = [f"{p.kind}: {p.sentence}" for p in found.problems]
    assert "lost: tcgen05: 240 to 0" in said
    assert any("without CUTE_ARCH_TCGEN05" in s for s in said)
    (traps,) = [s for s in said if s.endswith("traps, the reference has 0")]
    assert int(traps.split()[1]) > 100
