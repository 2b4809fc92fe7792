"""Other people's words on a terminal and in a log: nothing in them is a command to the terminal, and what is
one line stays one. Pure.

Escaped, as Python writes it, is what moves, hides or reorders text: control characters (ANSI, OSC and C1
sequences begin with one), marks of direction, separators of lines, tags, and halves of surrogates.
"""

from __future__ import annotations

import re
from typing import Final

_BUT_BREAKS: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_TEXT: Final = re.compile(f"[{_BUT_BREAKS}]")
_LINE: Final = re.compile(f"[\t\n{_BUT_BREAKS}]")
_PROGRAMS: Final = re.compile(rf"\x1b\[[0-9;]{{0,32}}m|(?!\r)[{_BUT_BREAKS}]")
_COLOURED: Final = re.compile(r"\x1b\[[0-9;]*m")


def as_text(words: str) -> str:
    """Return a text that may have several lines."""
    return _TEXT.sub(_escape, words)


def as_line(words: str) -> str:
    """Return one line."""
    return _LINE.sub(_escape, words)


def as_log(words: str) -> str:
    """Return a line of a program's log, in its own colours and with its bars of progress."""
    found = _PROGRAMS.sub(lambda each: each[0] if _COLOURED.fullmatch(each[0]) else _escape(each), words)
    return f"{found}\x1b[0m" if "\x1b" in found else found


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode()
