"""A small real project with an environment, and the package index that it is locked from.

    small = small_environment(tmp_path, monkeypatch)
    small.project.run("lock")
    small.project.run("rebuild")
    small.add("dep", "1.1", {"dep.py": "V = 2\n"})       # another version in the index

The index is a folder of wheels, the only one that uv sees (UV_FIND_LINKS, UV_NO_INDEX);
uv's cache is the test's own. The upstream is ``tiny`` 1.0: it needs ``dep`` and, at exactly
its own version, ``tiny-cubin``, which is a companion of it. Patch 1 opens a gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from projects import Content, TinyProject, make_project, make_wheel

FILES: Mapping[str, Content] = {
    "tiny/__init__.py": "from tiny._meta import __version__\n",
    "tiny/cli.py": "import tiny\n\n\ndef main():\n    print(tiny.__version__)\n",
    "tiny/gate.py": "OPEN = False\n",
    "csrc/a.cu": "__global__ void a() {}\n",
}
META = '__version__ = "1.0"\n'
MACHINES = ("x86_64", "aarch64")


@dataclass
class SmallEnvironment:
    """The project, the folder that is its index, and the two tables of its configuration."""

    project: TinyProject
    index: Path
    environment: dict[str, Any]

    def add(self, name: str, version: str, files: Mapping[str, Content], **how: Any) -> Path:
        """Put a wheel into the index."""
        return make_wheel(self.index, files, distribution=name, version=version, **how)

    def configure(self, **environment: object) -> None:
        """Change keys of ``[tool.patchwright.environment]`` (None removes one)."""
        import tomli_w

        self.environment |= environment
        kept = {key: value for key, value in self.environment.items() if value is not None}
        self.project.write_config(
            "\n" + tomli_w.dumps({"tool": {"patchwright": {"environment": kept}}})
        )


def small_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SmallEnvironment:
    """Make project and index below ``folder``; uv sees no other index from now on."""
    index = folder / "index"
    project = make_project(
        folder, FILES, built={"tiny/_meta.py": META}, outside=("tiny/_meta.py",),
        requires=("dep>=1", "tiny-cubin==1.0"),
        extra={"entry_points.txt": "[console_scripts]\ntiny = tiny.cli:main\n"},
    )  # fmt: skip
    project.upstreams["tiny"] |= {
        "version-files": ["tiny/_meta.py"],
        "companions": {"tiny-cubin": ["tiny_cubin/_meta.py"]},
        "prebuilt": ["tiny-jit-cache"],
    }
    small = SmallEnvironment(project, index, {})
    small.add("dep", "1.0", {"dep.py": "V = 1\n", "dep_data/a b, c.txt": "x\n"})
    small.add("tiny-cubin", "1.0", {"tiny_cubin/__init__.py": "", "tiny_cubin/_meta.py": META})
    for machine in MACHINES:
        small.add("native", "2.0", {"native.py": f"M = {machine!r}\n"},
                  tag=f"py3-none-manylinux_2_17_{machine}")  # fmt: skip
    small.configure(python="3.11", requirements=["native"], settings={"TINY_ARCH_LIST": "12.0a"})
    project.add_patch(1, {"tiny/gate.py": "OPEN = True\n"}, title="gate: open")
    monkeypatch.setenv("UV_FIND_LINKS", str(index))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(folder / "uv-cache"))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    return small
