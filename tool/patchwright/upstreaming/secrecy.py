"""Keeps tokens out of what is printed, stored or sent. The tool itself holds none."""

from __future__ import annotations

import os
import re

from patchwright.upstreams.revision import without_login

_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE_?KEY", re.IGNORECASE)
_SHORTEST = 6  # characters; shorter values are words like "true"


def _secrets() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if _SECRET.search(name) is not None and len(value) >= _SHORTEST
    }


def held_in(data: bytes) -> list[str]:
    """Return the environment variables whose secrets stand in ``data``."""
    return [name for name, value in _secrets().items() if os.fsencode(value) in data]


def redacted(text: str) -> str:
    """Return text without the secrets of this environment and without logins in addresses."""
    for name, value in _secrets().items():
        text = text.replace(value, f"[{name}]")
    return without_login(text)
