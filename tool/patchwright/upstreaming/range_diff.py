"""The range-diff of a series before and after, as git makes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from patchwright.store import ObjectStore

_WHO = "patchwright <patchwright@localhost> 0 +0000"


def range_diff(
    store: ObjectStore, old: Sequence[tuple[str, str]], new: Sequence[tuple[str, str]],
    *, brief: bool = False,
) -> str:  # fmt: skip
    """Return ``git range-diff`` of two series, each a list of (title, tree).

    The first entry is the tree that the series stands on. ``brief`` is one line a patch.
    """
    if min(len(old), len(new)) < 2:
        # git takes no range without a commit in it.
        pairs = [("<", title) for title, _ in old[1:]] + [(">", title) for title, _ in new[1:]]
        return "".join(f"{at}: {mark} {title}\n" for at, (mark, title) in enumerate(pairs, 1))
    ranges = [_commits(store, states) for states in (old, new)]
    store.flush()
    options = ["--no-patch"] if brief else []
    done = store.git.run(
        "range-diff", "--no-color", *options, "--creation-factor=90",
        *(f"{first}..{last}" for first, last in ranges),
    )  # fmt: skip
    return done.stdout.decode("utf-8", "replace")


def _commits(store: ObjectStore, states: Iterable[tuple[str, str]]) -> tuple[str, str]:
    first = last = ""
    for title, tree in states:
        parent = f"parent {last}\n" if last else ""
        text = f"tree {tree}\n{parent}author {_WHO}\ncommitter {_WHO}\n\n{title}\n"
        last = store.add("commit", text.encode("utf-8", "surrogateescape"))
        first = first or last
    return first, last
