"""Lines of generated sources, which lie in another folder for each architecture."""

from __future__ import annotations

from pathlib import Path

from patchwright.audit.cuda_guards import placed
from patchwright.smoke.preprocessed import Line, lines_of_one

SITE = Path("/here/site")


def made(run: str, arch: str) -> str:
    """What the preprocessor makes of a generated source that includes a header of the tree."""
    own = f"/tmp/{run}/.cache/0.6.3/{arch}/generated/act/act.cu"
    return (
        f'# 1 "{own}"\n# 1 "{SITE}/flashinfer/data/include/x.cuh" 1\nint x;\n'
        f'# 23 "{own}" 2\ncheck("/workspace/{arch}/generated/act/act.cu", x < 100);\n'
    )


def test_a_generated_line_is_the_same_for_both_architectures() -> None:
    first, second = (placed(made(*run), SITE) for run in (("one", "100a"), ("two", "120a")))
    assert first == second
    assert '# 23 "generated/act/act.cu"' in first
    assert '# 1 "flashinfer/data/include/x.cuh"' in first


def test_a_folder_of_the_tree_that_is_called_generated_keeps_its_path() -> None:
    marked = f'# 1 "{SITE}/flashinfer/data/csrc/generated/x.cu"\nint x;\n'
    assert placed(marked, SITE) == '# 1 "flashinfer/data/csrc/generated/x.cu"\nint x;\n'


def test_lines_of_only_one_text_are_told_with_their_places() -> None:
    first = '# 1 "a.cu"\none\ntwo\n\nthree\n# 9 "b.cuh" 1\nsame\n'
    second = '# 1 "a.cu"\none\n# 4 "a.cu"\nthree\nfour\n# 9 "b.cuh" 1\nsame\n'
    assert lines_of_one(first, second) == ([Line("a.cu", 2, "two")], [Line("a.cu", 5, "four")])
    assert lines_of_one(first, first) == ([], [])


def test_a_line_that_stands_elsewhere_in_the_other_text_is_not_lost() -> None:
    # A file that is included twice: the second time the other text stops early.
    first = '# 1 "x.inc"\none\ntwo\n# 5 "a.cu"\n;\n# 1 "x.inc"\none\ntwo\n;\n'
    second = '# 1 "x.inc"\none\ntwo\n# 5 "a.cu"\n;\n# 1 "x.inc"\none\n'
    assert lines_of_one(first, second) == ([Line("x.inc", 3, ";")], [])
