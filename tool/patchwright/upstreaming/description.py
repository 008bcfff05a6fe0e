"""The text of a pull request: the repository's own template, filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchwright.store import DIRECTORY, EXECUTABLE, FILE

if TYPE_CHECKING:
    from patchwright.store import ObjectStore
    from patchwright.upstreaming.proving import Row

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
_FENCE = re.compile(r"\s*(```|~~~)")
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
# What a section is about, by the words of its heading; the first that fits has it.
_SECTIONS = (
    ("issues", r"issue|fixes|closes"),
    ("speed", r"benchmark|speed|profil|performance"),
    ("checklist", r"check ?list|checks?\b|review process"),
    ("tests", r"test|accuracy|verif"),
    ("changes", r"modif|change"),
    ("purpose", r"descri|motiv|summary|purpose|why|what"),
    ("notes", r"note|additional|comment"),
)
_OWN = {
    "purpose": "Motivation", "changes": "Modifications", "issues": "Related Issues",
    "tests": "Tests", "speed": "Benchmarking", "notes": "What was verified, and where",
}  # fmt: skip


@dataclass(frozen=True)
class Template:
    """A template as the repository has it; ``path`` is empty where it has none."""

    path: str
    text: str


def find_template(store: ObjectStore, tree: str, places: Sequence[str]) -> Template:
    """Return the first template that is there; letter case does not decide."""
    for place in places:
        at, found = tree, b""
        for name in place.encode().lower().split(b"/"):
            entry = next((e for e in store.tree(at) if e.name.lower() == name), None)
            if entry is None:
                break
            at, found = entry.oid, found + b"/" + entry.name
            if entry.mode in (FILE, EXECUTABLE):
                text = store.blob(at).decode("utf-8", "replace").replace("\r\n", "\n")
                return Template(found[1:].decode("utf-8", "replace"), text)
            if entry.mode != DIRECTORY:
                break
    return Template("", "")


def fill(template: Template, sections: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the text, and the headings of our own that the template has no place for.

    ``sections`` maps ``purpose``, ``changes``, ``issues``, ``tests``, ``speed`` and
    ``notes`` to text. Each goes below the first heading that asks for it, in place of the
    comment there; a box to be ticked is left to the author. What was changed joins the
    purpose where only that is asked for, and nobody who does not ask is told of speed.
    """
    left = {name: text for name, text in sections.items() if text}
    parts = _parts(template.text)
    asked = {
        _about(match[2]) for heading, _ in parts if heading and (match := _HEADING.match(heading))
    }
    if "speed" not in asked:
        left.pop("speed", None)
    if "purpose" in asked and "changes" not in asked and {"purpose", "changes"} <= left.keys():
        left["purpose"] += f"\n\n{left.pop('changes')}"
    out: list[str] = []
    for heading, body in parts:
        if heading is None:
            out.append(_COMMENT.sub("", body) + "\n")
            continue
        title = _HEADING.match(heading)
        about = _about(title[2] if title else "")
        text = left.pop(about, None) if about is not None else None
        out.append(heading + "\n")
        if text is None:
            out.append(f"{body}\n")
            continue
        rest = _COMMENT.sub("", body).strip("\n")
        out.append(f"\n{text.strip()}\n\n" + (f"{rest}\n\n" if rest else ""))
    added = [_OWN[name] for name in _OWN if name in left]
    for name, title_text in _OWN.items():
        if name in left:
            out.append(f"\n## {title_text}\n\n{left[name].strip()}\n")
    text = re.sub(r"\n{3,}", "\n\n", "".join(out)).strip("\n") + "\n"
    return text, tuple(added)


def _parts(text: str) -> list[tuple[str | None, str]]:
    """Return the text as (heading line, what follows it); the first heading is None."""
    parts: list[tuple[str | None, list[str]]] = [(None, [])]
    fenced = comment = False
    for line in text.split("\n"):
        if not comment and _FENCE.match(line):
            fenced = not fenced
        if not fenced and not comment and _HEADING.match(line):
            parts.append((line, []))
            continue
        if not fenced:
            at = line.rfind("<!--")
            comment = (line.find("-->", at) < 0) if at >= 0 else comment and "-->" not in line
        parts[-1][1].append(line)
    return [(heading, "\n".join(lines)) for heading, lines in parts]


def _about(title: str) -> str | None:
    words = title.lower()
    return next((name for name, pattern in _SECTIONS if re.search(pattern, words)), None)


def evidence_table(rows: Sequence[Row]) -> str:
    """Return the evidence as a Markdown table, then what was not verified and why."""
    shown = [row for row in rows if row.verdict not in ("blocked", "none", "unproven")]
    several = len({row.number for row in rows}) > 1
    head = (["patch"] if several else []) + ["tree", "needs", "with the change", "without it"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for row in shown:
        cells = [str(row.number)] if several else []
        verdict = f"{row.verdict} ({row.reason})" if row.reason else row.verdict
        cells += [row.place, row.tier, verdict, row.control or "-"]
        lines.append(
            "| " + " | ".join(" ".join(c.split()).replace("|", "\\|") for c in cells) + " |"
        )
    missing = dict.fromkeys(
        f"- {row.tier} on {row.place}: {row.reason or 'no test needs it'}"
        for row in rows if row.verdict == "blocked"
    )  # fmt: skip
    silent = dict.fromkeys(r.tier for r in rows if r.verdict == "none")
    text = "\n".join(lines)
    if missing:
        text += "\n\nNot verified:\n\n" + "\n".join(missing)
    if silent:
        text += f"\n\nNo test of this change speaks at: {', '.join(silent)}."
    return text
