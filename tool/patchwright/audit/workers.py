"""Processes that each evaluate their own files: syntax trees stay where they were made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from patchwright.errors import PatchwrightError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess

# Under so many bytes of source a process costs more than it saves.
_WORTH = 400_000
_MOST = 8
# So many runs of neighbours for each process: enough to have all of them end together.
_PIECES = 8


class Workers:
    """Processes forked from this one; ``answer(method, argument)`` runs in each of them."""

    def __init__(self, answer: Callable[[str, Any], Any], cores: int | None = None) -> None:
        self.count = min(cores or len(os.sched_getaffinity(0)), _MOST)
        self._answer = answer
        self._lines: list[tuple[ForkProcess, Connection]] = []
        self._share: dict[Any, int] = {}
        self._load = [0] * self.count

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process, line in self._lines:
            line.close()
            process.join(1)
            if process.is_alive():
                process.terminate()
                process.join()
        self._lines = []

    def run(self, method: str, items: Mapping[Any, int], more: Any = None) -> list[Any]:
        """Return the answers of all processes to ``method``, each for its share of ``items``.

        ``items`` are weighed by their bytes, and neighbours stay together: files of a folder
        ask each other. What a process once had comes to it again. Few are answered here, as
        are all where there is one core. Raises PatchwrightError where a process dies.
        """
        if not self._lines and (self.count == 1 or sum(items.values()) < _WORTH):
            return [self._answer(method, (sorted(items), more))] if items else []
        if not self._lines:
            self._start()
        shares: list[list[Any]] = [[] for _ in self._lines]
        piece, room = 0, 0.0
        for item in sorted(items):
            if item not in self._share:
                if room <= 0:
                    piece = self._load.index(min(self._load))
                    room = sum(items.values()) / (_PIECES * self.count)
                self._share[item] = piece
                self._load[piece] += items[item]
                room -= items[item]
            shares[self._share[item]].append(item)
        return self._asked(method, shares, more)

    def _asked(self, method: str, shares: Sequence[list[Any]], more: Any) -> list[Any]:
        try:
            for (_, line), share in zip(self._lines, shares, strict=True):
                line.send((method, (share, more)))
            answers = [line.recv() for _, line in self._lines]
        except (EOFError, OSError) as error:
            raise PatchwrightError(
                f"a process that evaluates gates ended: {error or 'without a word'}",
                next_step="is there enough memory? It is tried again with the next run",
            ) from error  # fmt: skip
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers

    def _start(self) -> None:
        from multiprocessing import get_context

        context = get_context("fork")
        for _ in range(self.count):
            ours, theirs = context.Pipe()
            process = context.Process(target=self._serve, args=(theirs, ours), daemon=True)
            process.start()
            theirs.close()
            self._lines.append((process, ours))

    def _serve(self, line: Connection, other: Connection) -> None:
        other.close()
        for _, inherited in self._lines:
            inherited.close()
        try:
            while True:
                method, argument = line.recv()
                try:
                    answer = self._answer(method, argument)
                except Exception as error:
                    answer = error
                line.send(answer)
        except (EOFError, OSError, KeyboardInterrupt):
            pass
        finally:
            # Nothing of the parent's is this process's to finish.
            os._exit(0)
