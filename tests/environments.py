"""A small real project with an environment, and the package index that it is locked from.

    small = small_environment(tmp_path, monkeypatch)
    small.project.run("lock")
    small.project.run("rebuild")
    small.add("dep", "1.1", {"dep.py": "V = 2\n"})       # another version in the index

The index is a folder of wheels, the only one that uv sees (UV_FIND_LINKS, UV_NO_INDEX);
uv's cache is the test's own. The upstream is ``tiny`` 1.0: it needs ``dep`` and, at exactly
its own version, ``tiny-cubin``, which is a companion of it. Patch 1 opens a gate.
locked_environment gives the same, locked already.
"""

from __future__ import annotations

import hashlib
import http.server
import os
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
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
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"  # the one that is surely here
META = '__version__ = "1.0"\n'
MACHINES = ("x86_64", "aarch64")


@dataclass
class Served:
    """What an index was asked for; ``cut``: files end half-way, as on a network that goes."""

    asked: list[str] = field(default_factory=list)
    cut: bool = False


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


def locked_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SmallEnvironment:
    """Return a copy of a small environment that is locked; the original is made once a session.

    Its caches are copied as well, so the first rebuild is a warm one.
    """
    template = folder.parent / "locked-environment"
    if not (template / "project" / "upstream.lock").exists():
        shutil.rmtree(template, ignore_errors=True)
        with pytest.MonkeyPatch.context() as inner:
            inner.setenv("PATCHWRIGHT_CACHE", str(template / "cache"))
            ran = small_environment(template, inner).project.run("lock")
            assert ran.code == 0, ran.err
    shutil.copytree(template, folder, dirs_exist_ok=True, symlinks=True)
    project = TinyProject(folder / "project")
    project.wheels["tiny"] = next((project.root / "wheels").iterdir())
    project.git["tiny"] = folder / "git" / "tiny"
    trees = subprocess.run(
        ["git", "log", "--reverse", "--format=%T"], cwd=project.git["tiny"], check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    project.trees["tiny"] = trees.stdout.split()
    tables = tomllib.loads((project.root / "pyproject.toml").read_text("utf-8"))
    tables = tables["tool"]["patchwright"]
    project.upstreams |= tables["upstreams"]
    monkeypatch.setenv("PATCHWRIGHT_CACHE", str(folder / "cache"))
    _see_only(folder, monkeypatch)
    return SmallEnvironment(project, folder / "index", tables["environment"])


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
    small.configure(python=PYTHON, requirements=["native"], settings={"TINY_ARCH_LIST": "12.0a"})
    project.add_patch(1, {"tiny/gate.py": "OPEN = True\n"}, title="gate: open")
    _see_only(folder, monkeypatch)
    return small


def _see_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_FIND_LINKS", str(folder / "index"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(folder / "uv-cache"))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    # The tests' own interpreter need not be on the path.
    path = f"{Path(sys.base_prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)


@contextmanager
def served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Serve the folder of wheels as a package index (PEP 503) on this machine, to uv alone."""
    state = Served()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.strip("/")
            state.asked.append(path)
            if path.startswith("simple/"):
                name = path.removeprefix("simple/").replace("-", "_")
                self._answer(_links(folder, name), "text/html")
            else:
                self._answer((folder / path.rpartition("/")[2]).read_bytes(), "application/zip")

        def _answer(self, data: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            cut = state.cut and kind == "application/zip"
            self.wfile.write(data[: len(data) // 2] if cut else data)

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        monkeypatch.delenv("UV_NO_INDEX", raising=False)
        monkeypatch.delenv("UV_FIND_LINKS", raising=False)
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{server.server_port}/simple")
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


def _links(folder: Path, name: str) -> bytes:
    rows = []
    for path in sorted(folder.glob(f"{name}-*.whl")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        rows.append(f'<a href="/files/{path.name}#sha256={digest}">{path.name}</a><br>')
    return ("<!DOCTYPE html><html><body>" + "".join(rows) + "</body></html>").encode()
