"""A project that sends: its upstream's git server, whose main has moved on, and a fork.

The fixtures are in sending_fixtures.py, a pytest plugin: ``pytest_plugins =
("sending_fixtures",)``. Three patches: 1 opens a gate, 2 routes onto it (and needs it), 3
has no smoke test. What ``verify`` says of them is on record. The servers are bare
repositories behind file addresses; the fork is of an older main.
"""

from __future__ import annotations

import os
import smtplib
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from projects import TinyProject

GATE = "# What is\n# built.\n\n\nMAJORS = [9, 10]\n\n\nLEVELS = {}\n\n\n# The end.\n"
OPENED = GATE.replace("10]", "10, 12]")
TEMPLATE = """<!-- the template -->

## 📌 Description

<!-- What does this PR do? Briefly describe
the changes. -->

## 🔍 Related Issues

<!-- Link any related issues here -->

## 🚀 Pull Request Checklist

Thank you!

## 🧪 Tests

- [ ] All tests are passing.

## Reviewer Notes

<!-- Optional -->
"""
HOOKS = """repos:
- repo: local
  hooks:
  - id: no-such-word
    name: no such word
    language: pygrep
    entry: MINORS
    types: [python]
"""
# What upstream has and a distribution has not.
MORE = {
    ".github/pull_request_template.md": TEMPLATE, ".pre-commit-config.yaml": HOOKS,
    "tests/test_gate.py": "def test(): pass\n",
}  # fmt: skip
SMOKE = """import pytest

@pytest.mark.tier("static")
def test_it(tree):
    scope = {{}}
    exec(tree.text("tiny", "tiny/gate.py"), scope)
    exec(tree.text("tiny", "tiny/route.py"), scope)
    MAJORS, ROUTES = scope["MAJORS"], scope["ROUTES"]
    assert {wanted}, "No supported CUDA architectures"
"""


class Servers:
    """The two git servers, and what a test does to them."""

    def __init__(self, project: TinyProject, folder: Path, files: Mapping[str, str]) -> None:
        self.project = project
        self.folder = folder
        self.files = dict(files)
        self.work = folder / "work"
        self.upstream_path, self.fork_path = folder / "upstream.git", folder / "fork.git"
        self.upstream_url = f"file://{self.upstream_path}"
        self.fork_url = f"file://{self.fork_path}"
        self.old_main = self.fork("rev-parse", "main")

    def git(self, *args: str, cwd: Path | None = None) -> str:
        done = subprocess.run(["git", *args], cwd=cwd, capture_output=True, check=True)
        return done.stdout.decode().strip()

    def upstream(self, *args: str) -> str:
        return self.git(*args, cwd=self.upstream_path)

    def fork(self, *args: str) -> str:
        return self.git(*args, cwd=self.fork_path)

    def main(self) -> str:
        return self.upstream("rev-parse", "main")

    def change(self, files: Mapping[str, str | None]) -> None:
        """Move upstream's main on by one commit."""
        for name, text in files.items():
            path = self.work / name
            if text is None:
                path.unlink()
                self.files.pop(name)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            self.files[name] = text
        self.git("add", "--all", cwd=self.work)
        self.git("commit", "--quiet", "-m", "more", cwd=self.work)
        self.git("push", "--quiet", self.upstream_url, "HEAD:main", cwd=self.work)

    def bare(self, name: str, files: Mapping[str, str]) -> Path:
        """Make another bare repository, with a history of its own."""
        work = self.folder / f"{name}-work"
        self.git("init", "--quiet", "--initial-branch=main", str(work))
        for path, text in files.items():
            (work / path).write_text(text, encoding="utf-8")
        self.git("add", "--all", cwd=work)
        self.git("commit", "--quiet", "-m", "first", cwd=work)
        self.git("clone", "--quiet", "--bare", str(work), str(self.folder / name))
        return self.folder / name

    def configure(self, **contribute: Any) -> None:
        """Say in pyproject.toml how upstream takes changes."""
        self.project.upstreams["tiny"]["git"] = self.upstream_url
        table = {"repository": "owner/tiny", "title": "conventional"} | contribute
        self.project.upstreams["tiny"]["contribute"] = table
        self.project.write_config()

    def refused(self, *args: str) -> list[str]:
        """Return why the patches are refused."""
        ran = self.project.run("send", "--json", *args)
        assert ran.code == 1, ran.out + ran.err
        found: list[str] = ran.json()["refused"]
        return found


class Smtp:
    """A real SMTP server on loopback; ``received`` are the mails, as they arrived."""

    def __init__(self, path: str) -> None:
        controller = pytest.importorskip("aiosmtpd.controller")
        self.received: list[bytes] = []
        self._path = path
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._controller = controller.Controller(self, hostname="127.0.0.1", port=self.port)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.received.append(envelope.content.replace(b"\r\n", b"\n"))
        return "250 OK"

    def __enter__(self) -> Smtp:
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()

    def send(self, files: Sequence[str]) -> None:
        """Send mails as a user would; without git send-email, by Python's own client."""
        environment = os.environ | {"PATH": self._path}
        if not subprocess.run(["git", "send-email", "-h"], env=environment, capture_output=True,
                              check=False).returncode:  # fmt: skip
            subprocess.run(
                ["git", "send-email", "--quiet", "--confirm=never", "--to=list@example.org",
                 "--suppress-cc=all", "--smtp-server=127.0.0.1", f"--smtp-server-port={self.port}",
                 "--from=A Tester <tester@example.org>", *files],
                env=environment, check=True, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            return
        with smtplib.SMTP("127.0.0.1", self.port) as client:
            for file in files:
                data = Path(file).read_bytes().partition(b"\n")[2]  # mbox's own From line
                data = data.replace(b"\n", b"\r\n")
                client.sendmail("tester@example.org", ["list@example.org"], data)
