"""What days.py compares a series with: which patch owns which lines, and what is needed."""

from __future__ import annotations

from dataclasses import dataclass, field

FILES = ("tiny/a.py", "tiny/b.py", "csrc/c.cu")
SLOTS = 12

# A place that a patch may own: a line (file, number of the slot), or a new file (name, -1).
Place = tuple[str, int]


def upstream_lines(name: str) -> list[str]:
    return [f"{name} {n}\n" for n in range(3 * SLOTS)]


@dataclass
class Owner:
    """One patch of the model."""

    title: str
    owns: dict[Place, str]
    needs: set[str] = field(default_factory=set)


@dataclass
class Model:
    """The series in order, and which patches are off. Titles name patches."""

    patches: list[Owner] = field(default_factory=list)
    off: set[str] = field(default_factory=set)

    def sound(self) -> bool:
        """Return whether every need is met by an earlier patch."""
        met: set[str] = set()
        for patch in self.patches:
            if not patch.needs <= met:
                return False
            met.add(patch.title)
        return True

    def become(self, old: str, new: list[str]) -> None:
        """Let needs on ``old``, and its being off, be those of ``new``."""
        for patch in self.patches:
            if old in patch.needs:
                patch.needs = (patch.needs - {old}) | set(new)
        if old in self.off:
            self.off = (self.off - {old}) | set(new)

    def content(self, count: int, changed: dict[Place, str] | None = None) -> dict[str, bytes]:
        """Return the files after the first ``count`` patches."""
        owned: dict[Place, str] = {}
        for patch in self.patches[:count]:
            owned |= patch.owns
        owned |= changed or {}
        files: dict[str, bytes] = {}
        for name in FILES:
            lines = upstream_lines(name)
            for slot in range(SLOTS):
                if (name, slot) in owned:
                    lines[3 * slot] = owned[name, slot]
            files[name] = "".join(lines).encode()
        return files | {name: text.encode() for (name, n), text in owned.items() if n < 0}

    def free(self) -> list[Place]:
        taken = {place for patch in self.patches for place in patch.owns}
        places = [(name, slot) for name in FILES for slot in range(SLOTS)]
        places += [(f"tiny/new{n}.py", -1) for n in range(4)]
        return [place for place in places if place not in taken]
