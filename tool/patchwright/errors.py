"""The errors that a user can see: what happened, where, and the next step."""

from __future__ import annotations


class PatchwrightError(Exception):
    """The environment or the tool broke (exit code 3).

    ``what`` is one sentence without a full stop, ``where`` names the file, line or
    object, ``next_step`` tells the user what to do about it.
    """

    exit_code = 3

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.next_step = next_step

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\nNext: {self.next_step}" if self.next_step else text


class InputError(PatchwrightError):
    """Arguments or project files that cannot be used as they are (exit code 2)."""

    exit_code = 2


class AnswerNo(PatchwrightError):
    """The question was understood and the answer is no (exit code 1)."""

    exit_code = 1
