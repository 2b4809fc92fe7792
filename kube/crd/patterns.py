"""Regular expressions as API servers read them: RE2's, in linear time. The only module that imports `re2`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


def pattern_problem(pattern: str) -> str:
    """Return why RE2 refuses a pattern, or ""."""
    if r"\C" in pattern.replace(r"\\", ""):  # a single byte, which C++ reads and Go does not
        return r"invalid escape sequence: \C"
    try:
        _compile(pattern)
    except re2.error as error:
        return str(error.args[0].decode())
    return ""


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern matches somewhere in a text. Raises ValueError for one that RE2 refuses."""
    return bool(_regexp(pattern).search(text.encode()))


def find_all(pattern: str, text: str) -> list[str]:
    """Return the non-overlapping matches. Raises ValueError for a pattern that RE2 refuses."""
    found: list[str] = []
    end = -1
    for match in _regexp(pattern).finditer(text.encode()):
        if match.end() > end:  # Go skips an empty match right after a match
            found.append(match.group().decode())
        end = match.end()
    return found


def _regexp(pattern: str) -> Any:
    try:
        return _compile(pattern)
    except re2.error as error:
        raise ValueError(f"the pattern {pattern!r} is invalid: {error.args[0].decode()}") from None


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> Any:
    return re2.compile(pattern.encode(), _OPTIONS)
