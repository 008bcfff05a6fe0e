"""Python's own functions that only compute, on values of the audit's evaluation."""

from __future__ import annotations

from typing import Any

from patchwright.audit.values import (
    UNKNOWN,
    Bound,
    ClassOf,
    External,
    Function,
    Instance,
    Package,
    V,
)

BUILTINS: dict[str, Any] = {
    "int": int, "str": str, "len": len, "tuple": tuple, "list": list, "set": set, "float": float,
    "frozenset": frozenset, "any": any, "all": all, "min": min, "max": max, "bool": bool,
    "sorted": sorted, "range": range, "abs": abs, "sum": sum, "dict": dict,
}  # fmt: skip


def pure(function: Any, args: list[V], kwargs: dict[str, V], *, arch: bool = False) -> V:
    """Return the result of a call, unknown where it fails or is handed something unknown."""
    arch = arch or any(v.arch for v in (*args, *kwargs.values()))
    known = [v.known for v in args]
    named = {name: v.known for name, v in kwargs.items()}
    for value in (*known, *named.values()):
        if value is UNKNOWN or (isinstance(value, list | tuple | set) and UNKNOWN in value):
            return V(UNKNOWN, arch)
        if isinstance(value, External | Function | Bound | Instance | ClassOf | Package):
            return V(UNKNOWN, arch)
    try:
        result = function(*known, **named)
        if isinstance(result, range):
            return V(UNKNOWN, arch)
        if type(result).__name__ in ("dict_keys", "dict_values", "dict_items"):
            result = list(result)
        return V(result, arch)
    except Exception:
        return V(UNKNOWN, arch)
