"""Evidence files: what was written is read back, and nothing else is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from patchwright import evidence_files
from patchwright.errors import InputError
from patchwright.evidence import EvidenceStore, Inputs, Record, difference, new_record
from patchwright.evidence_files import format_export, format_record, read_export
from patchwright.imported import ImportedEvidence

TREE, OTHER = "1" * 40, "2" * 40
INPUTS = Inputs(
    "tests/smoke/test_gate.py", "a" * 64, "gpu", {"tiny": TREE}, {"tiny": OTHER},
    harness="b" * 64, python="3.11.9",
    environment={"device": "sm_120", "driver": "580.65", "cuda": "13.0"},
)  # fmt: skip
RECORD = new_record(
    INPUTS, outcome="passed", reason="", seconds=1.25, log="one\n\x1b[31mtwo\ud800\n",
    tests=({"test": "test_gate", "outcome": "passed", "reason": "", "seconds": 1.0},),
    machine={"device": "NVIDIA RTX PRO 6000"}, stubs=("torch (stub)",),
)  # fmt: skip


def write(folder: Path, data: bytes, name: str = "evidence.json") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def edited(change: Callable[[dict[str, Any]], object], data: bytes | None = None) -> bytes:
    content = json.loads(data if data is not None else format_export([RECORD]))
    change(content)
    return json.dumps(content).encode()


def sealed(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Edit an export and make its digest right again: what a forger does."""
    content = json.loads(format_export([RECORD]))
    del content["sha256"]
    change(content)
    return evidence_files._sealed(content)


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_export(path)
    assert caught.value.where == str(path)
    assert caught.value.next_step
    return caught.value.what


def test_an_export_is_read_back_as_it_was(tmp_path: Path) -> None:
    export, data = read_export(write(tmp_path, format_export([RECORD, RECORD])))
    assert export.records == (RECORD,)
    assert export.tool == RECORD.tool
    assert json.loads(data)["records"][0]["key"] == INPUTS.key()


def test_the_same_records_give_the_same_bytes_in_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = replace(RECORD, inputs=replace(INPUTS, tier="static"))
    one, two = (json.loads(format_export(r)) for r in ([RECORD, other], [other, RECORD]))
    one["exported"] = two["exported"] = ""
    one["sha256"] = two["sha256"] = ""
    assert json.dumps(one) == json.dumps(two)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["records"][0]["record"].update(outcome="failed"),
        lambda c: c["records"][0]["record"].update(log=""),
        lambda c: c["records"].clear(),
        lambda c: c.update(host="elsewhere"),
        lambda c: c.update(sha256="0" * 64),
        lambda c: c.pop("sha256"),
    ],
)
def test_an_edited_file_is_refused_and_says_so(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    what = refused(write(tmp_path, edited(change)))
    assert what.startswith(("it was edited: it says sha256 ", "it was edited: no sha256, "))


def test_a_newer_format_is_named(tmp_path: Path) -> None:
    what = refused(write(tmp_path, edited(lambda c: c.update(format=2, anything=[]))))
    assert what == "its format is 2, newer than this version reads (1); update patchwright"


@pytest.mark.parametrize(
    "data",
    [
        b"", b"not json", b"[]", b"3", b"\xff\xfe", b'{"a": 1', b"[" * 100_000,
        b'{"format": 1, "format": 1}', b'{"format": NaN}', format_export([RECORD])[:-40],
    ],
)  # fmt: skip
def test_what_is_no_evidence_file_is_refused(tmp_path: Path, data: bytes) -> None:
    what = refused(write(tmp_path, data))
    assert "not JSON" in what or "not an evidence file" in what


def test_another_of_our_files_is_no_evidence_file(tmp_path: Path) -> None:
    assert "not an evidence file" in refused(write(tmp_path, format_record(RECORD)))


def test_a_file_that_is_too_large_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_files, "LIMIT", 1 << 20)
    assert "larger than 1 MiB" in refused(write(tmp_path, b" " * ((1 << 20) + 1)))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "missing.json")
    assert "not a regular file" in refused(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r["record"]["inputs"].update(python="3.14.0"), "its key is not that of its"),
        (lambda r: r["record"]["inputs"]["trees"].update(tiny=OTHER), "its key is not that of"),
        (lambda r: r.pop("key"), "'key' is missing"),
        (lambda r: r["record"].pop("outcome"), "'outcome' is missing"),
        (lambda r: r["record"].update(extra=1), "'extra' is not known"),
        (lambda r: r["record"].update(outcome="blocked"), "'outcome' is not one of passed"),
        (lambda r: r["record"].update(outcome=[]), "'outcome' is not one of passed"),
        (lambda r: r["record"].update(seconds="1"), "'seconds' is not a number"),
        (lambda r: r["record"].update(seconds=True), "'seconds' is not a number"),
        (lambda r: r["record"].update(seconds=-1), "'seconds' is not a number of seconds"),
        (lambda r: r["record"].update(seconds=10**400), "'seconds' is not a number of seconds"),
        (lambda r: r["record"].update(when="yesterday"), "'when' is not a time"),
        (lambda r: r["record"].update(host="\x1b[2J"), "'host' is not one line of printable"),
        (lambda r: r["record"].update(log=[]), "'log' is not a text"),
        (lambda r: r["record"].update(log="x" * (2 << 20)), "its log is longer than"),
        (lambda r: r["record"].update(tests={}), "'tests' is not a list of tests"),
        (lambda r: r["record"].update(tests=[{"a": {}}]), "'tests' is not a list of tests"),
        (lambda r: r["record"].update(stubs="torch"), "'stubs' is not a list of names"),
        (lambda r: r["record"].update(machine={"device": 3}), "'machine' is not texts by name"),
        (lambda r: r["record"]["inputs"].update(tier="moon"), "'tier' is not one of static"),
        (lambda r: r["record"]["inputs"].update(trees={"tiny": "x"}), "'trees' is not tree ids"),
        (lambda r: r["record"]["inputs"].update(test_sha256="x"), "'test_sha256' is not a sha256"),
        (lambda r: r["record"].update(inputs=None), "it holds something else than a record"),
        (lambda r: r.update(record=[]), "it holds something else than a record"),
    ],
)
def test_a_malformed_record_is_refused_whatever_the_digest_says(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    what = refused(write(tmp_path, sealed(lambda c: change(c["records"][0]))))
    assert what.startswith(f"record 1: {said}")


def test_an_import_is_taken_whole_once_and_with_its_origin(tmp_path: Path) -> None:
    path = write(tmp_path, format_export([RECORD]), "from-gpu.json")
    imported = ImportedEvidence(tmp_path / "imported")
    done = imported.take(path)
    assert (done.new, done.records) == (True, (RECORD,))
    assert done.origin.file == "from-gpu.json"
    again = ImportedEvidence(tmp_path / "imported")
    assert again.imports[0].origin == done.origin
    assert not again.take(path).new
    assert [p.name for p in (tmp_path / "imported").iterdir()] == [done.origin.folder]


def test_of_a_bad_file_nothing_is_taken(tmp_path: Path) -> None:
    imported = ImportedEvidence(tmp_path / "imported")
    good = replace(RECORD, inputs=replace(INPUTS, tier="static"))

    def spoil(content: dict[str, Any]) -> None:
        content["records"].append({"key": good.inputs.key(), "record": asdict(good)})
        content["records"][0]["key"] = "0" * 64

    with pytest.raises(InputError):
        imported.take(write(tmp_path, sealed(spoil)))
    assert not (tmp_path / "imported").exists()
    assert imported.imports == []


def test_an_import_that_was_edited_afterwards_is_named_and_can_be_repeated(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, format_export([RECORD]))
    folder = tmp_path / "imported"
    kept = folder / ImportedEvidence(folder).take(path).origin.folder / "evidence.json"
    kept.write_bytes(edited(lambda c: c["records"].clear(), kept.read_bytes()))
    imported = ImportedEvidence(folder)
    assert imported.imports == []
    assert "it was edited" in imported.damaged[kept]
    assert imported.take(path).new
    assert (ImportedEvidence(folder).damaged, len(imported.imports)) == ({}, 1)


def test_what_a_killed_import_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / "imported" / ".import" / "host-0"
    left.mkdir(parents=True)
    (left / "evidence.json").write_text("half", encoding="ascii")
    imported = ImportedEvidence(tmp_path / "imported")
    assert (imported.imports, imported.damaged) == ([], {})
    imported.take(write(tmp_path, format_export([RECORD])))
    assert not (tmp_path / "imported" / ".import").exists()


def test_a_name_of_a_host_stays_inside_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, sealed(lambda c: c.update(host="../../x/é.")))
    done = ImportedEvidence(tmp_path / "imported").take(path)
    assert done.origin.folder.startswith("x-")
    assert (tmp_path / "imported" / done.origin.folder / "evidence.json").is_file()
    assert done.origin.host == "../../x/é."


@pytest.mark.parametrize("change", [{"outcome": "failed"}, {"reason": "x"}, {"log": ""}])
def test_an_edited_record_of_our_own_never_counts(tmp_path: Path, change: dict[str, str]) -> None:
    store = EvidenceStore(tmp_path)
    store.keep(RECORD)
    assert store.find(INPUTS.key()) == RECORD
    path = tmp_path / f"{INPUTS.key()}.json"
    path.write_bytes(edited(lambda c: c["record"].update(change), path.read_bytes()))
    assert store.find(INPUTS.key()) is None
    assert list(store.all()) == []
    assert "it was edited" in store.damaged()[path]


def test_a_record_under_another_key_is_damaged(tmp_path: Path) -> None:
    path = write(tmp_path, format_record(RECORD), f"{'0' * 64}.json")
    store = EvidenceStore(tmp_path)
    assert store.find("0" * 64) is None
    assert store.damaged() == {path: "its name is not the key of what it holds"}


def test_a_record_of_a_newer_format_does_not_count_and_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, edited(lambda c: c.update(format=7), format_record(RECORD)), "a.json")
    assert "its format is 7, newer" in EvidenceStore(tmp_path).damaged()[path]


def test_a_blocked_run_is_never_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not evidence"):
        EvidenceStore(tmp_path).keep(replace(RECORD, outcome="blocked"))


def test_what_a_killed_writer_left_goes_with_the_next_record(tmp_path: Path) -> None:
    (tmp_path / ".x.json.abc.new").write_text("half", encoding="ascii")
    EvidenceStore(tmp_path).keep(RECORD)
    assert [p.name for p in tmp_path.iterdir()] == [f"{INPUTS.key()}.json"]


def test_every_fact_that_decides_is_part_of_the_key() -> None:
    changes: dict[str, Any] = {
        "test": "tests/smoke/test_x.py", "test_sha256": "c" * 64, "tier": "static",
        "trees": {}, "baseline": {}, "harness": "d" * 64, "python": "3.12.0",
        "environment": {**INPUTS.environment, "driver": "590.1"},
    }  # fmt: skip
    keys = {replace(INPUTS, **{name: value}).key() for name, value in changes.items()}
    assert len({INPUTS.key(), *keys}) == len(changes) + 1


def test_what_changed_is_told_with_both_values() -> None:
    new = replace(INPUTS, environment={**INPUTS.environment, "driver": "590.1"}, python="3.12.0")
    assert difference(INPUTS, new) == (
        "Python 3.11.9 then, 3.12.0 now, driver 580.65 then, 590.1 now"
    )


def test_a_record_names_when_and_where() -> None:
    record: Record = new_record(INPUTS, outcome="passed", reason="", seconds=0.0)
    assert record.when.endswith("+00:00")
    assert record.host
    assert record.machine["platform"]
    assert record.device == "sm_120"
    assert RECORD.device == "NVIDIA RTX PRO 6000"
