"""Reads the build.ninja files that flashinfer writes: variables, rules, build lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\w+)|(.))")


@dataclass(frozen=True)
class NinjaFile:
    """``commands`` maps each source of a compile line to its command, unexpanded.

    ``variables`` are the top-level ones, unexpanded.
    """

    variables: Mapping[str, str]
    commands: Mapping[str, tuple[str, str]]

    def expand(self, text: str, *, keep: frozenset[str], **local: str) -> str:
        """Return ``text`` with its references replaced; names in ``keep`` stay as they are.

        Raises KeyError for an unknown name.
        """

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            if name is None:
                return match[3] if match[3] in "$ :" else match[0]
            if name in keep:
                return f"${name}"
            if name in local:
                return local[name]
            return self.expand(self.variables[name], keep=keep)

        return _REFERENCE.sub(value, text)


def parse_ninja(text: str) -> NinjaFile:
    """Return the variables and compile commands of a build file.

    Only what flashinfer's generator writes is understood: no includes, no build-level
    variables, one input per compile line. Raises ValueError for a line outside that.
    """
    variables: dict[str, str] = {}
    rules: dict[str, str] = {}
    commands: dict[str, tuple[str, str]] = {}
    rule = None
    for line in re.sub(r"\$\n\s*", "", text).splitlines():
        if line.startswith("  "):
            name, _, value = line.strip().partition(" = ")
            if rule is not None and name == "command":
                rules[rule] = value
        elif line.startswith("rule "):
            rule = line.removeprefix("rule ").strip()
        elif line.startswith("build "):
            output, _, rest = line.removeprefix("build ").partition(": ")
            word, *inputs = rest.split()
            if word not in rules:
                raise ValueError(f"unknown rule in {line!r}")
            if "-c $in" in rules[word]:
                if len(inputs) != 1:
                    raise ValueError(f"more than one input in {line!r}")
                commands[inputs[0]] = (rules[word], output)
        elif line.startswith("default ") or not line.strip():
            continue
        else:
            name, equals, value = line.partition(" =")
            if not equals or not name.isidentifier():
                raise ValueError(f"cannot read {line!r}")
            variables[name] = value.strip()
    return NinjaFile(variables, commands)
