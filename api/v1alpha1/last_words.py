"""Termination messages and exit codes as sentences: any program may write any text there. Pure."""

from __future__ import annotations

import signal
from typing import Final

import msgspec

from elasticjob.kube.json import JsonReader

RUN_AGAIN: Final = 75
"""The exit code by which an agent asks to be run again."""
FRAME = " \t│╭╮╰╯─"
"""Characters around the lines of programs that draw boxes."""


def last_error(words: str) -> str:
    """Return the error in a termination message: `message` of our programs' JSON, else a text's last line."""
    if message := message_of(words):
        return message
    lines = [line.strip(FRAME) for line in words.splitlines() if any(map(str.isalnum, line))]
    return lines[-1][:512] if lines and not words.lstrip().startswith("{") else ""


def message_of(words: str) -> str:
    """Return the `message` in the JSON of our programs' termination message, "" if there is none."""
    message = words_of(words).get("message")
    return message.strip()[:512] if isinstance(message, str) else ""


_WORDS = JsonReader(dict[str, object])


def words_of(words: str) -> dict[str, object]:
    """Return the JSON of our programs' termination message; {} for any other text."""
    try:
        return _WORDS.decode(words)
    except msgspec.DecodeError:  # any program may write any text there
        return {}


def code_in_words(code: int | None) -> str:
    """Return an exit code for people: `killed by SIGKILL (exit code 137)`."""
    if code is None:
        return "failed before it ran"
    if code == RUN_AGAIN:
        return "asked to be run again (exit code 75)"
    if code > 128 and code - 128 in set(signal.Signals):
        return f"killed by {signal.Signals(code - 128).name} (exit code {code})"
    return f"exit code {code}"
