"""Evidence as files: one record of our own, and the file that records travel in.

Both are JSON with a sha256 over their canonical content, so that a file that was cut
off or edited is told from one that was not. That is no signature: who wants to forge
evidence can. Whatever is read here is taken for damaged until all of it was checked.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from patchwright import __version__
from patchwright.errors import InputError
from patchwright.evidence import COLLECTION, FORMAT, Inputs, Record
from patchwright.tiers import TIERS

LIMIT = 128 << 20  # bytes of an evidence file
KIND = "evidence"
_LOG = 1 << 20  # characters of one log; ours are cut far below that
_WORD = 1000  # characters
_CENTURY = 3.2e9  # seconds
_OUTCOMES = ("passed", "failed", "error", "none")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OID = re.compile(r"[0-9a-f]{40}")


class Malformed(ValueError):
    """Not what we write; the message says what is wrong, without the file's name."""


@dataclass(frozen=True)
class Export:
    """An evidence file: who wrote it and what it holds.

    ``exported`` is the time it was written, in UTC (ISO 8601); ``sha256`` that of its
    canonical content.
    """

    host: str
    tool: str
    exported: str
    sha256: str
    records: tuple[Record, ...]


def format_record(record: Record) -> bytes:
    """Return the bytes of a record's own file."""
    return _sealed({"format": FORMAT, "record": asdict(record)})


def read_record(path: Path) -> Record:
    """Read a record's own file; raises OSError and Malformed."""
    content = _unsealed(path.read_bytes())
    if content.get("format") != FORMAT:
        raise Malformed(f"its format is {content.get('format')!r}, this version reads {FORMAT}")
    return _record(content.get("record"))


def format_export(records: Iterable[Record]) -> bytes:
    """Return an evidence file with ``records``, written by this machine now."""
    entries = {record.inputs.key(): asdict(record) for record in records}
    return _sealed({
        "patchwright": KIND,
        "format": FORMAT,
        "tool": __version__,
        "host": platform.node(),
        "exported": datetime.now(UTC).isoformat(timespec="seconds"),
        "records": [{"key": key, "record": entry} for key, entry in sorted(entries.items())],
    })  # fmt: skip


def read_export(path: Path) -> tuple[Export, bytes]:
    """Read an evidence file and return what it holds, and its bytes.

    Raises InputError, naming the first thing that is wrong: nothing of such a file
    counts.
    """
    try:
        data = _limited(path)
        return _export(_unsealed(data)), data
    except OSError as error:
        what = f"the file cannot be read: {error.strerror}"
    except Malformed as error:
        what = str(error)
    raise InputError(
        what, where=str(path), next_step="export it again where it was verified; nothing was taken"
    )


def _limited(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise Malformed("it is not a regular file")
    with path.open("rb") as stream:
        data = stream.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise Malformed(f"it is larger than {LIMIT >> 20} MiB, so it is no evidence file")
    return data


def _export(content: Mapping[str, Any]) -> Export:
    if content.get("patchwright") != KIND:
        raise Malformed("it is not an evidence file of patchwright")
    _keys(content, ("patchwright", "format", "tool", "host", "exported", "records", "sha256"))
    _time(content, "exported")
    if not isinstance(content["records"], list):
        _wrong("records", "a list")
    records = []
    for number, entry in enumerate(content["records"], 1):
        try:
            _keys(entry, ("key", "record"))
            record = _record(entry["record"])
            if record.inputs.key() != entry["key"]:
                raise Malformed("its key is not that of its inputs")
        except Malformed as error:
            raise Malformed(f"record {number}: {error}") from None
        records.append(record)
    return Export(
        _word(content, "host"), _word(content, "tool"), content["exported"],
        content["sha256"], tuple(records),
    )  # fmt: skip


# The seal


def _sealed(content: Mapping[str, Any]) -> bytes:
    whole = {**content, "sha256": _digest(content)}
    return json.dumps(whole, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"


def _digest(content: Mapping[str, Any]) -> str:
    """Return the sha256 of the canonical form: sorted, no spaces, ASCII."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _unsealed(data: bytes) -> dict[str, Any]:
    """Return the content of a file whose digest is right, or one of another format."""
    try:
        content = json.loads(data, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Malformed("it is not JSON, or was cut off") from error
    if not isinstance(content, dict):
        raise Malformed("it is not an evidence file of patchwright")
    version = content.get("format")
    # Told before the digest: another format may seal in another way.
    if isinstance(version, int) and version > FORMAT:
        raise Malformed(
            f"its format is {version}, newer than this version reads ({FORMAT}); update patchwright"
        )
    try:
        actual = _digest({name: value for name, value in content.items() if name != "sha256"})
    except (ValueError, RecursionError) as error:
        raise Malformed("it was edited: it holds what we never write") from error
    if content.get("sha256") != actual:
        said = (
            f"it says sha256 {str(content['sha256'])[:12]}" if "sha256" in content else "no sha256"
        )
        raise Malformed(f"it was edited: {said}, its content has {actual[:12]}")
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# One record


def _record(data: Any) -> Record:
    _keys(data, [f.name for f in fields(Record)])
    inputs = _inputs(data["inputs"])
    outcomes = _OUTCOMES if inputs.tier != COLLECTION else ("passed",)
    if data["outcome"] not in outcomes:
        _wrong("outcome", f"one of {', '.join(outcomes)}")
    _time(data, "when")
    if len(_text(data, "log")) > _LOG:
        raise Malformed(f"its log is longer than {_LOG} characters")
    if not isinstance(data["tests"], list) or not all(_is_test(test) for test in data["tests"]):
        _wrong("tests", "a list of tests")
    stubs = data["stubs"]
    if not isinstance(stubs, list) or not all(map(_is_word, stubs)):
        _wrong("stubs", "a list of names")
    return Record(
        inputs, data["outcome"], _text(data, "reason"), _seconds(data), tuple(data["tests"]),
        data["log"], data["when"], _word(data, "host"), _word(data, "tool"),
        _texts(data, "machine"), tuple(stubs),
    )  # fmt: skip


def _inputs(data: Any) -> Inputs:
    _keys(data, [f.name for f in fields(Inputs)])
    if data["tier"] not in (*TIERS, COLLECTION):
        _wrong("tier", f"one of {', '.join(TIERS)}")
    for name in ("test_sha256", "harness"):
        if not _SHA256.fullmatch(_text(data, name)):
            _wrong(name, "a sha256")
    for name in ("trees", "baseline"):
        if not all(_OID.fullmatch(tree) for tree in _texts(data, name).values()):
            _wrong(name, "tree ids")
    return Inputs(
        _word(data, "test"), data["test_sha256"], data["tier"], data["trees"], data["baseline"],
        data["harness"], _word(data, "python"), _texts(data, "environment"),
    )  # fmt: skip


def _is_test(test: Any) -> bool:
    return isinstance(test, dict) and all(isinstance(v, (str, int, float)) for v in test.values())


def _keys(data: Any, names: Collection[str]) -> None:
    if not isinstance(data, dict):
        raise Malformed("it holds something else than a record")
    for name in sorted({*data, *names}):
        if name not in data or name not in names:
            raise Malformed(f"{name!r} is {'missing' if name not in data else 'not known'}")


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data[name]
    return value if isinstance(value, str) else _wrong(name, "a text")


def _word(data: Mapping[str, Any], name: str) -> str:
    """Return a text that is shown in one line, so that it must be one."""
    value = _text(data, name)
    return value if _is_word(value) else _wrong(name, "one line of printable text")


def _is_word(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and len(value) <= _WORD


def _texts(data: Mapping[str, Any], name: str) -> dict[str, str]:
    value = data[name]
    if not isinstance(value, dict) or not all(map(_is_word, (*value, *value.values()))):
        _wrong(name, "texts by name")
    return value


def _seconds(data: Mapping[str, Any]) -> float:
    value = data["seconds"]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        _wrong("seconds", "a number")
    if not 0 <= value < _CENTURY:
        _wrong("seconds", "a number of seconds")
    return float(value)


def _time(data: Mapping[str, Any], name: str) -> None:
    try:
        datetime.fromisoformat(_word(data, name))
    except Malformed:
        raise
    except ValueError:
        _wrong(name, "a time")


def _wrong(name: str, wanted: str) -> NoReturn:
    raise Malformed(f"{name!r} is not {wanted}")
