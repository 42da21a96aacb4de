"""One call of a verb: keyword arguments to words, and the answer to values."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Union

from writepath import _native
from writepath.errors import Interrupted, error_of

PathLike = Union[str, "os.PathLike[str]"]


class Bar(Protocol):
    """What is used of a progress bar such as ``tqdm.tqdm()``."""

    total: Any
    n: Any

    def refresh(self) -> object: ...
    def set_description_str(self, desc: str, refresh: bool = ...) -> object: ...


Progress = Union[Callable[[int, int, str], object], Bar, None]
"""A function ``(done, total, text)``; ``total`` is 0 while it is unknown. Or a tqdm bar."""


@dataclass(frozen=True)
class Answer:
    """What came of a call."""

    words: list[str]
    exit_code: int
    document: dict[str, Any]
    text: str
    notes: str
    lines: list[dict[str, Any]]


def _text(value: object) -> str:
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def words_of(options: Mapping[str, object]) -> list[str]:
    """Options as words: ``max_events=5`` is ``--max-events=5``, True a switch, a list repeats."""
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, (list, tuple)):
            words.extend(f"{option}={_text(item)}" for item in value)
        else:
            words.append(f"{option}={_text(value)}")
    return words


def _tick(progress: Progress) -> Callable[[str, int, int, str], object] | None:
    if progress is None:
        return None
    if not hasattr(progress, "refresh"):
        function: Any = progress
        return lambda what, done, total, text: function(done, total, text)
    bar: Any = progress

    def tick(what: str, done: int, total: int, text: str) -> None:
        bar.set_description_str(f"{what}: {text}" if text else what, refresh=False)
        bar.total, bar.n = total or None, done
        bar.refresh()

    return tick


def call(
    verb: Iterable[str],
    positional: Iterable[object] = (),
    options: Mapping[str, object] | None = None,
    progress: Progress = None,
) -> Answer:
    """Runs a verb in this process.

    Raises `writepath.Error` as the command ends with an error. An answer that is no (exit code 1:
    a claim that does not hold, a broken rule) is an answer, not an error.
    """
    # A file whose name looks like an option is still a file.
    rest = [f"./{word}" if word.startswith("-") else word for word in map(_text, positional)]
    words = [*verb, *rest, *words_of(options or {})]
    called = _native.call(words, _tick(progress))
    document = json.loads(called["document"]) or {}
    if called["interrupted"]:
        raise _interrupted(called, words, document)
    if called["error"] is not None:
        code, message, hint = called["error"]
        error = error_of(called["exit"], code, message, hint)
        if called["notes"] and code == "experiment":
            # What is wrong with the file, line by line.
            error.message = f"{called['notes'].rstrip()}\n\n{message}"
        raise error
    for note in called["notes"].splitlines():
        if note.startswith("note: "):
            warnings.warn(note.removeprefix("note: "), stacklevel=3)
    lines = [json.loads(line) for line in called["lines"]]
    return Answer(words, called["exit"], document, called["text"], called["notes"], lines)


def _interrupted(
    called: _native.Called, words: list[str], document: dict[str, Any]
) -> Interrupted:
    from writepath.results import Result

    code, message, hint = called["error"] or ("interrupted", "interrupted", "")
    if code != "interrupted":
        # What a machine says that was stopped in the middle.
        code, message, hint = "interrupted", "interrupted: unfinished work is discarded", ""
    error = Interrupted(130, code, message, hint)
    if called["error"] is None and document:
        lines = [json.loads(line) for line in called["lines"]]
        answer = Answer(words, 130, document, called["text"], called["notes"], lines)
        error.result = Result(answer)
    return error
