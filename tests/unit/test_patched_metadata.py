"""Version files, METADATA and RECORD of a patched distribution."""

from __future__ import annotations

import pytest

from patchwright.environment.metadata import (
    local_version,
    patched_info_name,
    patched_metadata,
    read_record,
    recorded_hash,
    refreshed_record,
    with_version,
)
from patchwright.errors import InputError

TREE = "1a2b3c4d" + "0" * 32
NEW = "0.6.3+pw.1a2b3c4d"


def test_the_local_version_names_the_tree_and_joins_one_that_is_there() -> None:
    assert local_version("0.6.3", TREE) == NEW
    assert local_version("0.6.3+cu129", TREE) == "0.6.3+cu129.pw.1a2b3c4d"


@pytest.mark.parametrize(
    ("content", "changed"),
    [
        (b'__version__ = "0.6.3"\nx = "0.6.30"\n', b'__version__ = "%s"\nx = "0.6.30"\n'),
        (b"__version__ = version = '0.6.3'\r\n", b"__version__ = version = '%s'\r\n"),
        (b"0.6.3\n", b"%s\n"),
    ],
)
def test_a_version_file_gets_the_new_version_where_it_held_the_old(
    content: bytes, changed: bytes
) -> None:
    assert with_version(b"v", content, "0.6.3", NEW) == changed % NEW.encode()


def test_a_version_file_without_the_version_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"tiny/v\.py: the version file does not hold '0\.6\.3'"):
        with_version(b"tiny/v.py", b'__version__ = "0.6.30"', "0.6.3", NEW)


def test_the_folder_of_metadata_keeps_its_spelling() -> None:
    assert patched_info_name(b"Tiny_X-0.6.3.dist-info", "0.6.3", NEW) == (
        b"Tiny_X-0.6.3+pw.1a2b3c4d.dist-info"
    )


def test_the_folder_of_another_version_is_refused() -> None:
    with pytest.raises(InputError, match=r"tiny-0\.6\.4\.dist-info: .*not the metadata of version"):
        patched_info_name(b"tiny-0.6.4.dist-info", "0.6.3", NEW)


def test_only_the_version_field_of_metadata_changes() -> None:
    metadata = b"Name: tiny\r\nVersion: 0.6.3\r\nRequires-Dist: a==1\r\n\r\nVersion: 0.6.3\r\n"
    assert patched_metadata(metadata, "0.6.3", NEW) == (
        b"Name: tiny\r\nVersion: 0.6.3+pw.1a2b3c4d\r\nRequires-Dist: a==1\r\n\r\nVersion: 0.6.3\r\n"
    )


def test_record_follows_the_changes_and_the_new_folder() -> None:
    record = (
        b"tiny/gate.py,sha256=old,3\n"
        b"tiny/__pycache__/gate.cpython-311.pyc,,\n"
        b"tiny/__pycache__/kept.cpython-311.pyc,,\n"
        b'"tiny/E=1,N=2.json",sha256=kept,4\n'
        b"tiny/gone.py,sha256=gone,5\n"
        b"../../../bin/tiny,sha256=script,6\n"
        b"tiny-1.0.dist-info/METADATA,sha256=meta,7\n"
        b"tiny-1.0.dist-info/RECORD,,\n"
    )
    changes = {b"tiny/gate.py": b"new", b"tiny/gone.py": None, b"tiny/added, too.py": b""}
    fresh = refreshed_record(record, changes, b"tiny-1.0.dist-info", b"tiny-1.0+pw.1.dist-info")
    assert read_record(fresh) == [
        (b"../../../bin/tiny", "sha256=script", "6"),
        (b"tiny-1.0+pw.1.dist-info/METADATA", "sha256=meta", "7"),
        (b"tiny-1.0+pw.1.dist-info/RECORD", "", ""),
        (b"tiny/E=1,N=2.json", "sha256=kept", "4"),
        (b"tiny/__pycache__/kept.cpython-311.pyc", "", ""),
        (b"tiny/added, too.py", recorded_hash(b""), "0"),
        (b"tiny/gate.py", recorded_hash(b"new"), "3"),
    ]
    assert refreshed_record(fresh, {}, b"tiny-1.0+pw.1.dist-info", b"tiny-1.0+pw.1.dist-info") == (
        fresh
    )
