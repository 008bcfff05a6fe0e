"""STUB: what torch's own version file looks like."""

from __future__ import annotations

cuda: str | None = "12.8"
