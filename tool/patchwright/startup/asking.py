"""Asking a server that says that it is ready: is it, and does it answer sanely?"""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Mapping
from typing import Any

_PAUSE = 0.2  # seconds between two questions whether it is ready
_TIMEOUT = 30.0  # seconds for one; upstream's own limit for the health check is 20
_ANSWER = 600.0  # seconds for the answer; the first request may compile
_SHOWN = 2000  # characters kept of an answer


class Server:
    """One server on this machine. ``done`` once ``wrong`` says what is wrong, or nothing."""

    def __init__(self, port: int, ready_path: str, answer: Mapping[str, Any] | None) -> None:
        self.begin = time.monotonic()
        self.port = port
        self.ready_path = ready_path
        self.expected = answer
        self.answer = ""
        self.wrong = ""
        self.done = False

    def ask(self) -> None:
        """Ask until it is ready, then for the answer; a server that dies ends it from outside."""
        while self.ready_path and self._request("GET", self.ready_path, None, _TIMEOUT)[0] != 200:
            time.sleep(_PAUSE)
        if self.expected is not None:
            path, body = self.expected["path"], self.expected["body"]
            status, self.answer = self._request("POST", path, body, _ANSWER)
            if status == 0:
                # No answer at all: it is dying, or hangs. Whoever watches it says which.
                return
            self.wrong = judged(status, self.answer, self.expected)
            self.answer = self.answer[:_SHOWN]
        self.done = True

    def _request(self, method: str, path: str, body: str | None, timeout: float) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read(1 << 20).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()


def judged(status: int, text: str, expected: Mapping[str, Any]) -> str:
    """Return what is wrong with an answer, or nothing."""
    if status != 200:
        return f"it answers with status {status}: {text[:300]}"
    if expected.get("match") and not re.search(expected["match"], text):
        return f"the answer does not hold {expected['match']!r}: {text[:300]}"
    produced = _produced(text)
    wanted = expected.get("distinct", 1)
    if produced is not None and len(produced) >= wanted > len(set(produced)):
        return f"the answer repeats one token: {text[:300]}"
    if produced is not None and not produced:
        return "the answer is empty"
    return ""


def _produced(text: str) -> list[Any] | None:
    """Return the tokens (or the characters) of an answer; None where it lists none."""
    try:
        answer = json.loads(text)
    except ValueError:
        return None
    if isinstance(answer, list) and answer:
        answer = answer[0]
    if not isinstance(answer, dict):
        return None
    tokens = answer.get("output_ids")
    if isinstance(tokens, list):
        return tokens
    words = answer.get("text")
    return list(words) if isinstance(words, str) else None
