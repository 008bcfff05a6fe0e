"""Reads cubins: which kernels an object has, how large they are, what else it holds.

The layout is nvcc's: one section ``.text.NAME`` for each function, ``.nv.shared.NAME``
for its static shared memory; a kernel's symbol carries the entry bit in ``st_other``.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from patchwright.smoke.outcomes import SmokeError

_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
_FUNCTION = 2
_ENTRY = 0x10
_DATA = (".nv.global.init", ".nv.constant", ".rodata")
_TEXT = re.compile(rb"[\t\n\r\x20-\x7e]{6,}")

Demangler = Callable[[Sequence[str]], Mapping[str, str]]

# nvcc puts a hash of the source's path into the names of internal symbols.
_INTERNAL = re.compile(
    r"(?<=_GLOBAL__N__)[0-9a-f]{8}(?=_\d+_)|(?<=_INTERNAL_)[0-9a-f]{8}(?=_\d+_)"
    r"|(?<=_cu_)[0-9a-f]{8}(?=_\d)"
)


@dataclass(frozen=True)
class Kernel:
    """A kernel of a compiled object; sizes in bytes.

    ``name`` is the mangled name, ``shared_size`` the static shared memory.
    """

    name: str
    demangled: str
    code_size: int
    shared_size: int


@dataclass(frozen=True)
class Cubin:
    """What one object for one architecture holds.

    ``undefined`` are the symbols that it needs from elsewhere (``vprintf``); ``strings``
    the texts in its data, as in a trap's message.
    """

    kernels: Mapping[str, Kernel]
    undefined: tuple[str, ...]
    strings: tuple[str, ...]


def read_cubin(data: bytes, demangle: Demangler | None = None) -> Cubin:
    """Return what the cubin ``data`` holds; raises SmokeError when it is none.

    ``demangle`` returns readable names for mangled ones; a name that it leaves out
    stays as it is.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        sections = {s.name: s for s in ELFFile(io.BytesIO(data)).iter_sections()}
        symbols = _symbols(sections[".symtab"].data(), sections[".strtab"].data())
        texts = [section.data() for name, section in sections.items() if name.startswith(_DATA)]
    except (ELFError, KeyError, struct.error, ValueError) as error:
        raise SmokeError(f"the compiled object cannot be read: {error!r}") from error
    entries = [
        name
        for name, info, other, _section in symbols
        if info & 0xF == _FUNCTION and other & _ENTRY and f".text.{name}" in sections
    ]
    readable = demangle(entries) if demangle is not None else {}
    kernels = {}
    for name in sorted(entries):
        shared = sections.get(f".nv.shared.{name}")
        kernels[stable_name(name)] = Kernel(
            name=stable_name(name),
            demangled=stable_name(readable.get(name, name)),
            code_size=int(sections[f".text.{name}"].data_size),
            shared_size=int(shared.data_size) if shared is not None else 0,
        )
    undefined = {name for name, _, _, section in symbols if not section}
    return Cubin(
        kernels=kernels,
        undefined=tuple(sorted(n for n in undefined if n and not n.startswith("."))),
        strings=tuple(m.decode("ascii") for text in texts for m in _TEXT.findall(text)),
    )


def stable_name(name: str) -> str:
    """Return a symbol's name without what nvcc derives from the source's path."""
    return _INTERNAL.sub("0" * 8, name)


def _symbols(table: bytes, names: bytes) -> list[tuple[str, int, int, int]]:
    """Return (name, info, other, section index) of each symbol."""
    found = []
    for name, info, other, section, _value, _size in _SYMBOL.iter_unpack(table):
        end = names.index(b"\0", name)
        found.append((names[name:end].decode("ascii", "replace"), info, other, section))
    return found
