"""Small real projects for tests: a wheel as upstream, patches made by git itself.

    from projects import make_project, make_wheel

    project = make_project(tmp_path, {"tiny/gate.py": "OPEN = False\n", "csrc/a.cu": "..."})
    project.add_patch(1, {"tiny/gate.py": "OPEN = True\n"}, title="gate: open",
                      fields={"Smoke": "tests/smoke/test_0001.py"})
    ran = project.run("lock", "--check")      # in this process; Ran(code, out, err)
    ran = project.run_apart("lock")           # in an interpreter of its own
    ran.json()                                # standard output, parsed

make_wheel(folder, files, distribution=, version=, requires=, tag=, extra=) -> Path
    A wheel, pure Python unless ``tag`` says otherwise; ``files`` maps INSTALLED paths to
    text or bytes, ``requires`` are its requirements, ``extra`` more files of its
    .dist-info by name. Same input, same bytes.
make_project(folder, files, upstream="tiny", version="1.0", layout=, outside=, built=, …)
    A project in ``folder/project`` with one upstream taken from a local wheel.
    ``files`` maps REPOSITORY paths to content; LAYOUT maps them to installed paths
    (``tiny/`` stays, ``csrc/`` is ``tiny/data/csrc/``). ``built`` maps INSTALLED paths
    of generated files that stand outside the pristine tree (globs in ``outside``). More
    arguments go to make_wheel.
TinyProject
    root, wheels[name], git[name] (a real work tree: pristine, then one commit per patch)
    add_upstream(name, files, ...)     a second upstream
    add_patch(number, changes, upstream=, title=, message=, fields=) -> Path
        On top of the patches added before. ``changes`` maps repository paths to content,
        or to None to remove the file; or it is a function that edits the work tree. Any
        field may be left out or added; Upstream is there unless fields={"Upstream": None}.
    add_smoke(name, text) -> Path      a file in tests/smoke/
    tree(upstream) -> str              git's id of the tree after the last patch added
    trees[upstream] -> list[str]       the pristine tree's id, then one after each patch
    write_config(extra="")             writes pyproject.toml again (extra: TOML text)
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

LAYOUT = {"tiny/": "tiny/", "csrc/": "tiny/data/csrc/"}
Content = str | bytes
Changes = Mapping[str, Content | None] | Callable[[Path], None]


def _bytes(content: Content) -> bytes:
    return content.encode() if isinstance(content, str) else content


@dataclass(frozen=True)
class Ran:
    """What one patchwright command left behind."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def make_wheel(
    folder: Path, files: Mapping[str, Content], *, distribution: str = "tiny", version: str = "1.0",
    requires: Sequence[str] = (), tag: str = "py3-none-any",
    extra: Mapping[str, Content] | None = None,
) -> Path:  # fmt: skip
    """Write a wheel that holds ``files`` (installed paths) and return its path."""
    stem = f"{distribution.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    members = {name: _bytes(content) for name, content in sorted(files.items())}
    needs = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    members[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n{needs}".encode()
    )
    pure = "true" if tag.endswith("-none-any") else "false"
    members[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode()
    )
    for name, content in (extra or {}).items():
        members[f"{info}/{name}"] = _bytes(content)
    record = []
    for name, data in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        quoted = f'"{name}"' if "," in name else name
        record.append(f"{quoted},sha256={digest},{len(data)}\n")
    members[f"{info}/RECORD"] = ("".join(record) + f"{info}/RECORD,,\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    return path


def falsify(wheel: Path, name: str, data: bytes) -> None:
    """Give a file of a wheel other content than its RECORD says."""
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w") as archive:
        for member, content in (members | {name: data}).items():
            archive.writestr(member, content)


@dataclass
class TinyProject:
    """A project on disk, with real git work trees beside it (see the top of this file)."""

    root: Path
    wheels: dict[str, Path] = field(default_factory=dict)
    git: dict[str, Path] = field(default_factory=dict)
    trees: dict[str, list[str]] = field(default_factory=dict)
    upstreams: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add_upstream(
        self,
        name: str,
        files: Mapping[str, Content],
        *,
        version: str = "1.0",
        layout: Mapping[str, str] | None = None,
        outside: tuple[str, ...] = (),
        built: Mapping[str, Content] | None = None,
        **wheel: Any,
    ) -> None:
        """Make the wheel and the git work tree of an upstream, and configure it."""
        rules = dict(layout or (LAYOUT if name == "tiny" else {f"{name}/": f"{name}/"}))
        installed: dict[str, Content] = dict(built or {})
        for path, content in files.items():
            prefix = max((p for p in rules if path.startswith(p)), key=len, default=None)
            if prefix is not None:
                installed[rules[prefix] + path[len(prefix) :]] = content
        folder = self.root / "wheels"
        self.wheels[name] = make_wheel(
            folder, installed, distribution=name, version=version, **wheel
        )
        work = self.root.parent / "git" / name
        work.mkdir(parents=True)
        self.git[name] = work
        self._git(name, "init", "--quiet", "--initial-branch=main")
        _write(work, files)
        self.trees[name] = [self._commit(name, "pristine")]
        self.upstreams[name] = {
            "source": "wheel", "distribution": name, "version": version,
            "path": f"wheels/{self.wheels[name].name}", "packages": [name],
            "layout": rules, "outside": list(outside),
        }  # fmt: skip
        self.write_config()

    def write_config(self, extra: str = "") -> None:
        """Write pyproject.toml from ``upstreams``; ``extra`` is TOML text put behind it."""
        table = {"tool": {"patchwright": {"arch": ["sm_120"], "upstreams": self.upstreams}}}
        text = tomli_w.dumps(table) + extra
        (self.root / "pyproject.toml").write_text(text, encoding="utf-8")

    def add_patch(
        self,
        number: int,
        changes: Changes,
        *,
        upstream: str = "tiny",
        title: str = "",
        message: str = "Why, in prose.",
        fields: Mapping[str, str | None] | None = None,
    ) -> Path:
        """Write patch ``number``, made by git on top of the patches added before it."""
        work = self.git[upstream]
        if callable(changes):
            changes(work)
        else:
            _write(work, changes)
        title = title or f"change {number}"
        self.trees[upstream].append(self._commit(upstream, f"{title}\n\n{message}"))
        mail = self._git(
            upstream, "format-patch", "-1", "--stdout", "--full-index", "--binary", "-M",
            "--no-signature",
        )  # fmt: skip
        version = self.upstreams[upstream]["version"]
        ours = {"Upstream": f"{upstream} {version}"} | dict(fields or {})
        block = "".join(f"{name}: {value}\n" for name, value in ours.items() if value is not None)
        head, _, tail = mail.partition(b"\n---\n")
        slug = "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())
        path = self.root / "patches" / f"{number:04d}-{upstream}-{slug}.patch"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(head + b"\n---\n" + block.encode() + b"\n" + tail)
        return path

    def add_smoke(self, name: str, text: str) -> Path:
        """Write ``tests/smoke/<name>`` and return its path."""
        path = self.root / "tests" / "smoke" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def tree(self, upstream: str = "tiny") -> str:
        """Return git's id of the tree after the last patch added."""
        return self.trees[upstream][-1]

    def run(self, *args: str, cwd: Path | None = None) -> Ran:
        """Run ``patchwright ARGS`` in this process."""
        from patchwright.main import run

        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(cwd or self.root),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = run(list(args))
        return Ran(code, out.getvalue(), err.getvalue())

    def run_apart(self, *args: str, cwd: Path | None = None, **env: str) -> Ran:
        """Run ``python -m patchwright ARGS`` in an interpreter of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "patchwright", *args],
            cwd=cwd or self.root, env=os.environ | env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr)

    def _git(self, upstream: str, *args: str) -> bytes:
        return subprocess.run(
            ["git", *args], cwd=self.git[upstream], capture_output=True, check=True
        ).stdout

    def _commit(self, upstream: str, message: str) -> str:
        self._git(upstream, "add", "--all", "--force")
        self._git(upstream, "commit", "--quiet", "--allow-empty", "-m", message)
        return self._git(upstream, "rev-parse", "HEAD^{tree}").decode().strip()


def _write(folder: Path, files: Mapping[str, Content | None]) -> None:
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_bytes(content))


def make_project(
    folder: Path, files: Mapping[str, Content], *, upstream: str = "tiny", **how: Any
) -> TinyProject:
    """Return a project in ``folder/project`` with one upstream; ``how`` as add_upstream."""
    project = TinyProject(folder / "project")
    (project.root / "patches").mkdir(parents=True)
    project.add_upstream(upstream, files, **how)
    return project
