"""What a state of the series changes in the installed distributions."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchwright.applying.chain import Chain
from patchwright.environment.metadata import read_record, recorded_hash
from patchwright.environment.patched import PatchedDistribution, patched_distributions
from patchwright.errors import InputError
from patchwright.project import Project
from projects import TinyProject, make_project

FILES = {"tiny/gate.py": "OPEN = False\n", "tiny/old.py": "", "csrc/a.cu": "one\n"}
BUILT = {"tiny/_meta.py": '__version__ = "1.0"\n'}


def tiny(tmp_path: Path) -> TinyProject:
    project = make_project(tmp_path, FILES, built=BUILT, outside=("tiny/_meta.py",))
    project.upstreams["tiny"]["version-files"] = ["tiny/_meta.py"]
    project.upstreams["tiny"]["companions"] = {"tiny-cubin": ["tiny_cubin/meta.py"]}
    project.write_config()
    return project


def distributions(project: TinyProject) -> tuple[PatchedDistribution, ...]:
    opened = Project.open(project.root)
    state, _ = Chain(opened).apply(opened.series.patches)
    return patched_distributions(opened, state)


def test_the_files_that_differ_in_installed_layout(tmp_path: Path) -> None:
    project = tiny(tmp_path)
    project.add_patch(
        1, {"tiny/gate.py": "OPEN = True\n", "tiny/old.py": None, "csrc/a.cu": "two\n"}
    )
    found = distributions(project)
    new = f"1.0+pw.{project.tree()[:8]}"
    assert [(d.distribution, d.version, d.new_version) for d in found] == [
        ("tiny", "1.0", new),
        ("tiny-cubin", "1.0", new),
    ]
    assert found[0].changes == {
        b"tiny/gate.py": b"OPEN = True\n",
        b"tiny/old.py": None,
        b"tiny/data/csrc/a.cu": b"two\n",
        b"tiny/_meta.py": f'__version__ = "{new}"\n'.encode(),
    }
    assert (found[1].changes, found[1].version_files) == ({}, (b"tiny_cubin/meta.py",))


def test_every_change_of_a_companion(tmp_path: Path) -> None:
    project = tiny(tmp_path)
    project.add_patch(1, {"tiny/gate.py": "OPEN = True\n"})
    companion = distributions(project)[1]
    installed = {
        b"tiny_cubin-1.0.dist-info/METADATA": b"Name: tiny-cubin\nVersion: 1.0\n\n",
        b"tiny_cubin-1.0.dist-info/RECORD": b"tiny_cubin/meta.py,sha256=x,1\n",
        b"tiny_cubin-1.0.dist-info/INSTALLER": b"uv",
    }
    meta = b"__version__ = '1.0'\n"
    changes = companion.complete(
        b"tiny_cubin-1.0.dist-info", installed, {b"tiny_cubin/meta.py": meta}.__getitem__
    )
    new = companion.new_version
    info = f"tiny_cubin-{new}.dist-info/".encode()
    version_file = f"__version__ = '{new}'\n".encode()
    metadata = f"Name: tiny-cubin\nVersion: {new}\n\n".encode()
    record = changes.pop(info + b"RECORD")
    assert changes == {
        b"tiny_cubin/meta.py": version_file,
        **dict.fromkeys(installed),
        info + b"METADATA": metadata,
        info + b"INSTALLER": b"uv",
    }
    assert record is not None
    assert read_record(record) == [
        (info + b"METADATA", recorded_hash(metadata), str(len(metadata))),
        (info + b"RECORD", "", ""),
        (b"tiny_cubin/meta.py", recorded_hash(version_file), str(len(version_file))),
    ]  # fmt: skip


def test_an_unpatched_upstream_is_left_alone(tmp_path: Path) -> None:
    assert distributions(tiny(tmp_path)) == ()


def test_two_upstreams_that_change_one_file_are_refused(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"tiny/gate.py": "OPEN = False\n"})
    project.add_upstream("other", {"other/gate.py": "OPEN = False\n"}, layout={"other/": "tiny/"})
    project.add_patch(1, {"tiny/gate.py": "OPEN = True\n"})
    project.add_patch(2, {"other/gate.py": "OPEN = 1\n"}, upstream="other")
    with pytest.raises(InputError, match=r"tiny/gate\.py: both other and tiny change it"):
        distributions(project)


def test_a_version_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    project = tiny(tmp_path)
    project.upstreams["tiny"]["version-files"] = ["tiny/nowhere.py"]
    project.write_config()
    project.add_patch(1, {"tiny/gate.py": "OPEN = True\n"})
    with pytest.raises(InputError, match=r"tiny/nowhere\.py: upstream tiny has no such version"):
        distributions(project)
