"""What the compiled object holds on the target, beside the reference: hollow, poisoned, lost.

The thresholds are measured: the lowest honest ratio of code sizes seen between sm_100a
and sm_120a is 0.81, an empty body's is 0.01.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from patchwright.smoke import device_code
from patchwright.smoke.device_code import Cubin, Kernel
from patchwright.smoke.jit import JitSpec

HOLLOW = 0.25
# Static shared memory of one block, in bytes, by the architecture's major version.
SHARED_LIMIT = {"12": 101_376}
CLASSES = {
    "griddepcontrol": re.compile(r"griddepcontrol\."),
    "cluster barrier": re.compile(r"barrier\.cluster\."),
    "tcgen05": re.compile(r"tcgen05\."),
    "wgmma": re.compile(r"wgmma\."),
    "multimem": re.compile(r"multimem\."),
    "TMA multicast": re.compile(r"cp\.async\.bulk\..*multicast"),
    "TMA": re.compile(r"cp\.async\.bulk\."),
    "mbarrier": re.compile(r"mbarrier\."),
    "mma": re.compile(r"mma\.sync|wmma\."),
    "ldmatrix": re.compile(r"ldmatrix\.|stmatrix\."),
    "setmaxnreg": re.compile(r"setmaxnreg\."),
}  # fmt: skip
_POISON = re.compile(
    r"Attempting to use|without CUTE_ARCH|[Uu]nsupported arch|not supported on this"
)
_INSTRUCTION = re.compile(
    r"(?:^|[;{}]|@!?%?\w+)\s*([a-z]\w*(?:\.[\w:]+)*)(?=[\s;\[{])", re.MULTILINE
)
_TRAPS = ("brkpt", "trap")
_DYNAMIC = re.compile(r"\b(?:232448|227\s*\*\s*1024|228\s*\*\s*1024)\b")


@dataclass(frozen=True)
class Problem:
    """One thing wrong with the target's object; ``kernels`` are demangled names."""

    kind: str  # hollow, suspicious, poisoned, lost, shared, missing, dynamic
    sentence: str
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Object:
    """A source compiled for two architectures; ``ratio`` is that of all code."""

    source: str
    count: tuple[int, int]
    ratio: float
    lowest: float
    problems: tuple[Problem, ...]


def compare_objects(
    first: tuple[JitSpec, str], second: tuple[JitSpec, str], source: str, *,
    rewrites: Mapping[str, str], memory: int = 5 << 30,
) -> Object:  # fmt: skip
    """Compile a source for (spec, arch) of reference and target and compare what comes out.

    ``memory`` is what one compile may need, in bytes. Raises what ``device_code`` raises:
    UpstreamRefused with the compiler's sentence, Blocked, SmokeError.
    """
    # The target first: where it cannot be compiled, the reference need not be.
    (own, own_ptx), (reference, ptx) = (
        device_code.cubin_and_ptx(spec, source, arch, memory=memory)
        for spec, arch in (second, first)
    )
    made = compared(source, reference, own, major=second[1].partition(".")[0])
    counts = instruction_counts(ptx), instruction_counts(own_ptx)
    return replace(made, problems=(*made.problems, *compare_counts(*counts, rewrites=rewrites)))


def compared(source: str, reference: Cubin, own: Cubin, *, major: str) -> Object:
    """Return what the objects of a source show, without their instructions."""
    ratios = _ratios(reference, own)
    sizes = [sum(k.code_size for k in c.kernels.values()) for c in (reference, own)]
    return Object(
        source, (len(reference.kernels), len(own.kernels)),
        sizes[1] / sizes[0] if sizes[0] else 1.0, min(ratios.values(), default=1.0),
        tuple(compare_cubins(reference, own, major=major)),
    )  # fmt: skip


def compare_cubins(reference: Cubin, own: Cubin, *, major: str) -> list[Problem]:
    """Return what the two objects show: sizes, messages, symbols, shared memory."""
    ratios = _ratios(reference, own)
    found: list[Problem] = []
    hollow = [own.kernels[n] for n, r in ratios.items() if r < HOLLOW]
    if hollow:
        sizes = sorted({k.code_size for k in hollow})
        found.append(Problem(
            "hollow", f"{len(hollow)} of {len(own.kernels)} kernels are hollow "
            f"({sizes[0]} to {sizes[-1]} bytes)", _names(hollow),
        ))  # fmt: skip
    odd = [own.kernels[n] for n, r in ratios.items() if HOLLOW <= r < 0.6]
    if odd:
        found.append(Problem("suspicious", f"{len(odd)} kernels have less than 0.6 of the "
                             "reference's code", _names(odd)))  # fmt: skip
    gone = [k for n, k in reference.kernels.items() if n not in own.kernels]
    if gone:
        found.append(Problem("missing", f"{len(gone)} kernels are not there", _names(gone)))
    said = sorted({s for s in own.strings if _POISON.search(s)} - set(reference.strings))
    if said:
        found.append(Problem("poisoned", f"{len(said)} messages of unsupported paths: {said[0]}"))
    if "vprintf" in own.undefined and "vprintf" not in reference.undefined:
        found.append(Problem("poisoned", "the target's code prints, the reference's does not"))
    limit = SHARED_LIMIT.get(major)
    large = [k for k in own.kernels.values() if limit is not None and k.shared_size > limit]
    if large:
        found.append(Problem("shared", f"{len(large)} kernels have more static shared memory than "
                             f"the {limit} bytes of {major}.x", _names(large)))  # fmt: skip
    return found


def compare_counts(
    reference: Counter[str], own: Counter[str], *, rewrites: Mapping[str, str]
) -> list[Problem]:
    """Return what the instructions show: traps beyond the reference's, classes that are gone."""
    found: list[Problem] = []
    traps = [sum(counts[t] for t in _TRAPS) for counts in (reference, own)]
    if traps[1] > traps[0]:
        found.append(Problem("poisoned", f"{traps[1]} traps, the reference has {traps[0]}"))
    for name, pattern in CLASSES.items():
        before, after = (sum(n for m, n in c.items() if pattern.match(m)) for c in (reference, own))
        if before and not after:
            other = rewrites.get(name)
            taken = other is not None and any(
                CLASSES[other].match(m) for m in own if other in CLASSES
            )
            if not taken:
                found.append(Problem("lost", f"{name}: {before} to 0"))
    return found


def instruction_counts(ptx: str) -> Counter[str]:
    """Return how often each instruction stands in PTX, those in inline assembly included.

    There a statement may stand behind another one, a brace or a predicate of any name.
    """
    code = re.sub(r"//[^\n]*", "", ptx)
    return Counter(_INSTRUCTION.findall(code))


def dynamic_requests(texts: Mapping[str, str], *, major: str) -> list[Problem]:
    """Return where sources (path to text) state more dynamic shared memory than there is.

    Seen are the sizes of other GPUs, 227 and 228 KiB, not what is computed.
    """
    limit = SHARED_LIMIT.get(major)
    places = [
        f"{path}:{number}"
        for path, text in texts.items()
        for number, line in enumerate(text.split("\n"), 1)
        if limit is not None and _DYNAMIC.search(line)
    ]
    if not places:
        return []
    more = f" and {len(places) - 4} more" if len(places) > 4 else ""
    return [Problem("dynamic", f"over the {limit} bytes of shared memory of {major}.x: "
                    f"{', '.join(places[:4])}{more}")]  # fmt: skip


def _ratios(reference: Cubin, own: Cubin) -> dict[str, float]:
    return {
        name: own.kernels[name].code_size / kernel.code_size
        for name, kernel in reference.kernels.items()
        if name in own.kernels and kernel.code_size
    }


def _names(kernels: list[Kernel]) -> tuple[str, ...]:
    """Return the templates' names, each once: thousands of instances share a few."""
    return tuple(
        dict.fromkeys(re.split(r"[<(]", k.demangled.removeprefix("void "))[0] for k in kernels)
    )
