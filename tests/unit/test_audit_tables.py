"""Tables of records that name architectures: one gate each, with what it decides in sum."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from audits import UTILS, stored
from patchwright.audit.gates import CAPABILITIES, Gate
from patchwright.audit.inventory import inventory
from patchwright.audit.mentions import marked
from patchwright.audit.tables import MANY, without_tables

# What a generator writes: one record for each kernel, two of three for sm_100a alone.
RECORDS = "".join(
    f'    "kernel_{n}": {{\n        "arches": [\n            "sm_100a",\n'
    + ('            "sm_103a",\n' if n % 3 else "")
    + f'        ],\n        "threads": {n},  # (per block\n    }},\n'
    for n in range(12)
)
TABLE = f"MODULES: dict[str, dict] = {{\n{RECORDS}}}\n"
AFTER = """\
from serve.utils import is_blackwell

def f(name, arch):
    if is_blackwell():
        return arch in MODULES[name]["arches"]
"""


def _gates(tmp_path: Path, text: str) -> list[Gate]:
    trees = stored(tmp_path, {"serve": {"python/serve/utils.py": UTILS,
                                        "python/serve/a.py": text}})  # fmt: skip
    found = inventory(trees, ["serve"])
    assert found.unread == []
    return [gate for gate in found.gates if gate.path == "python/serve/a.py"]


def _row(gate: Gate) -> str:
    return "".join({True: "T", False: "F", None: "?"}[gate.values[c]] for c in CAPABILITIES)


def test_a_table_of_records_is_one_gate_that_tells_the_sum(tmp_path: Path) -> None:
    gates = _gates(tmp_path, TABLE + AFTER)
    (table,) = [g for g in gates if g.kind == "arch-table"]
    assert (table.line, table.end_line) == (1, TABLE.count("\n"))
    assert (table.condition, table.function) == ("MODULES", "")
    # All lists name sm_100, some sm_103, none another one.
    assert _row(table) == "FFFT?FFF"
    assert table.effect == "of 12 lists: sm_100 in 12, sm_103 in 8"
    assert [g for g in gates if g.kind == "arch-list"] == []
    (predicate,) = [g for g in gates if g.kind == "predicate"]
    assert predicate.line == (TABLE + AFTER)[: (TABLE + AFTER).index("if is_")].count("\n") + 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"MODULES = freeze({{\n{RECORDS}}})\n", id="in a call"),
        pytest.param(
            "MODULES = [\n" + "".join(f'    Record("k{n}", ("sm_100a",)),\n' for n in range(9))
            + "]\n",
            id="of objects",
        ),
        pytest.param(f"def f():\n    return {{\n{textwrap.indent(RECORDS, '    ')}    }}\n",
                     id="in a function"),
        pytest.param(f"MODULES = {{\n{RECORDS}    'flag': '-gencode=arch=compute_90'\n}}\n",
                     id="with a gate of its own in it"),
    ],
)  # fmt: skip
def test_a_table_in_another_shape_is_one_gate_as_well(tmp_path: Path, text: str) -> None:
    assert without_tables(text.encode(), marked(text.encode())) == (text.encode(), [])
    gates = _gates(tmp_path, text)
    (table,) = [g for g in gates if g.kind == "arch-table"]
    assert table.values["10.0"] is True
    assert table.values["12.0"] is False
    assert table.end_line - table.line >= MANY
    assert [g for g in gates if g.kind == "arch-list"] == []
    assert len([g for g in gates if g.kind == "gencode"]) == text.count("gencode")


def test_a_few_lists_stay_what_they_are(tmp_path: Path) -> None:
    text = "ARCHS = {\n" + "".join(f'    "k{n}": ["sm_120a"],\n' for n in range(MANY - 1)) + "}\n"
    gates = _gates(tmp_path, text)
    assert [(g.kind, _row(g)) for g in gates] == [("arch-list", "FFFFFFTF")] * (MANY - 1)


def test_a_table_is_left_out_only_where_it_is_a_literal() -> None:
    # A name in it, a text that never ends, a bracket too few: parsed as it stands.
    for text in (
        TABLE.replace('"threads": 3', '"threads": THREADS'),
        TABLE.replace('"threads": 3', '"threads": "'),
        TABLE.replace('"threads": 3,', '"threads": (3,'),
    ):
        assert text != TABLE
        assert without_tables(text.encode(), marked(text.encode())) == (text.encode(), [])
