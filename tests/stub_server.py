"""A small server as upstream: stands in for software that no decision depends on.

``stub_project`` makes a project whose upstream ``tiny`` holds it. It prints stages,
imports ``tiny.part1`` to ``tiny.partN``, calls what they define (``start`` before it
listens, ``answer`` for each request), and answers /health and /generate. A patch changes
one part; what a part does wrong is code in it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from projects import TinyProject, make_project

PARTS = 4
SERVER = """\
import http.server, importlib, json, os, signal, sys, traceback

PARTS = [importlib.import_module(f"tiny.part{n}") for n in range(1, PARTS + 1)]

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply({})

    def do_POST(self):
        try:
            tokens = [1, 2, 3]
            for part in PARTS:
                tokens = part.answer(tokens)
        except Exception:
            print("Scheduler hit an exception: " + traceback.format_exc(), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        self.reply({"output_ids": tokens})

    def reply(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass

def main():
    print("Load weight begin", flush=True)
    for part in PARTS:
        part.start()
    print("Load weight end", flush=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print("the stub is ready", flush=True)
    server.serve_forever()

if __name__ == "__main__":
    main()
""".replace("PARTS + 1", str(PARTS + 1))
PART = """\
import os, signal, subprocess, sys, time
NUMBER = {number}
def start():
    {start}
def answer(tokens):
    {answer}
    return tokens
{end}
"""
SECTION = """
[tool.patchwright.startup]
command = [{python!r}, "-m", "tiny.stub_server", "{{port}}"]
deadline = {deadline}
cold-deadline = {deadline}
stall = {stall}
disk-limit = 0.01
{more}
[tool.patchwright.startup.ready]
log = "the stub is ready"
path = "/health"
[tool.patchwright.startup.answer]
path = "/generate"
body = {{ input_ids = [1, 2, 3] }}
distinct = 2
"""
# A lock that is left behind: whoever finds it waits for ever.
STALE_LOCK = (
    "lock = os.environ['FLASHINFER_WORKSPACE_BASE'] + '/lock'\n"
    "    while os.path.exists(lock): time.sleep(0.1)\n"
    "    open(lock, 'w').close()"
)
# Hangs, with a grandchild in a session of its own that ignores SIGTERM.
HANG = (
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "    code = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); '"
    " 'time.sleep(600)'\n"
    "    subprocess.Popen([sys.executable, '-c', code], start_new_session=True)\n"
    "    time.sleep(600)"
)


def part(number: int, *, start: str = "pass", answer: str = "pass", end: str = "") -> str:
    """Return the source of a part."""
    return PART.format(number=number, start=start, answer=answer, end=end)


def stub_project(
    folder: Path, changed: Mapping[int, str], *, deadline: float = 20.0, stall: float = 10.0,
    more: str = "", base: Mapping[int, str] | None = None,
) -> TinyProject:  # fmt: skip
    """Return a project with one patch per part.

    ``changed`` gives the source of a part after its patch; the others get a comment.
    ``base`` gives parts of the pristine tree that are not plain.
    """
    parts = {n: part(n) for n in range(1, PARTS + 1)} | dict(base or {})
    files = {f"tiny/part{n}.py": text for n, text in parts.items()}
    project = make_project(folder, {"tiny/__init__.py": "", "tiny/stub_server.py": SERVER, **files})
    project.write_config(SECTION.format(
        python=sys.executable, deadline=deadline, stall=stall, more=more
    ))  # fmt: skip
    for n in range(1, PARTS + 1):
        text = changed.get(n, parts[n] + f"# patch {n}\n")
        project.add_patch(n, {f"tiny/part{n}.py": text}, title=f"part {n}")
    return project


def processes(word: str) -> list[int]:
    """Return the ids of the processes whose environment or command line holds ``word``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            seen = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if word.encode() in seen:
            found.append(int(entry.name))
    return found
