"""Errors: the exit code, message and hint of the command, as exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from writepath.results import Result


class Error(Exception):
    """An error of the command.

    ``str(error)`` is what the command prints: the message, and the hint on a line of its own.
    """

    exit_code: int
    """Exit code of the command (docs/exit-codes.md)."""
    code: str
    """Short name of the error, as in ``--json``: ``config``, ``usage``, ``exists``, …"""
    message: str
    """What is wrong, with the name of the file, option or key."""
    hint: str
    """How to fix it; may be empty."""

    def __init__(self, exit_code: int, code: str, message: str, hint: str) -> None:
        super().__init__(exit_code, code, message, hint)
        self.exit_code, self.code, self.message, self.hint = exit_code, code, message, hint

    def __str__(self) -> str:
        return f"{self.message}\nhelp: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[type[Error], tuple[int, str, str, str]]:
        # OSError has another form; exceptions of workers come back pickled.
        return type(self), (self.exit_code, self.code, self.message, self.hint)


class NegativeAnswer(Error):
    """Exit code 1 with an error: a damaged image, an answer that is no."""


class UsageError(Error, ValueError):
    """Exit code 2: an argument, or a file that it names, is wrong; or there is nothing to do."""


class UnsupportedError(Error):
    """Exit code 3: a feature that is not supported."""


class SimulatedError(Error):
    """Exit code 4: the simulated file system or drive failed."""


class BugError(Error):
    """Exit code 5: a bug of Writepath; the hint says what to report."""


class NotSameError(Error):
    """Exit code 6: a repeated run gave another result."""


class HostIOError(Error, OSError):
    """Exit code 74: the host's I/O failed."""

    def __init__(self, exit_code: int, code: str, message: str, hint: str) -> None:
        Error.__init__(self, exit_code, code, message, hint)

    def __str__(self) -> str:
        return Error.__str__(self)


class Interrupted(Error, KeyboardInterrupt):
    """Exit code 130: interrupted. What was done is kept: the same call continues.

    ``except KeyboardInterrupt`` catches it.
    """

    result: Result | None = None
    """What was found by then, if the verb has said so."""

    def __str__(self) -> str:
        return Error.__str__(self)


_BY_EXIT: dict[int, type[Error]] = {
    1: NegativeAnswer,
    2: UsageError,
    3: UnsupportedError,
    4: SimulatedError,
    5: BugError,
    6: NotSameError,
    74: HostIOError,
    130: Interrupted,
}


def error_of(exit_code: int, code: str, message: str, hint: str) -> Error:
    """The exception of an exit code."""
    return _BY_EXIT.get(exit_code, Error)(exit_code, code, message, hint)
