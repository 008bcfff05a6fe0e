"""Lines of generated sources, which lie in another folder for each architecture."""

from __future__ import annotations

from patchwright.audit.cuda_guards import placed
from patchwright.smoke.preprocessed import Line


def test_a_generated_line_is_the_same_for_both_architectures() -> None:
    made = [
        Line(f"/tmp/{run}/.cache/0.6.3/{arch}/generated/act/act.cu", 23,
             f'check("/tmp/{run}/.cache/0.6.3/{arch}/generated/act/act.cu", x < 100);')
        for run, arch in (("jit-one", "100a"), ("jit-two", "120a"))
    ]  # fmt: skip
    first, second = map(placed, made)
    assert first == second
    assert first.path == "generated/act/act.cu"
    plain = Line("flashinfer/data/csrc/x.cu", 3, "int x;")
    assert placed(plain) == plain
