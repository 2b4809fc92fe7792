"""Semantic versions, as expressions read and compare them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_VERSION: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][\da-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][\da-zA-Z-]*))*))?"
    r"(?:\+([\da-zA-Z-]+(?:\.[\da-zA-Z-]+)*))?",
    re.ASCII,
)


@dataclass(frozen=True)
class Semver:
    """A version; `before` are the words of one before the release, which comes after all of them."""

    major: int
    minor: int
    patch: int
    before: tuple[str, ...] = ()
    build: str = field(default="", compare=False)

    def compared(self, other: Semver) -> int:
        """Return -1, 0 or 1; builds do not count."""
        mine, theirs = self._order(), other._order()
        return (mine > theirs) - (mine < theirs)

    def _order(self) -> tuple[object, ...]:
        words = tuple((0, int(word), "") if word.isdigit() else (1, 0, word) for word in self.before)
        return (self.major, self.minor, self.patch, not self.before, words)


def semver(text: str, lenient: bool = False) -> Semver:
    """Read a version; leniently, also one like `v1.2` or `01.2.3`. Raises ValueError."""
    match = _VERSION.fullmatch(_whole(text) if lenient else text)
    if match is None:
        few = text.count(".") < 2
        why = "No Major.Minor.Patch elements found" if few else f"Invalid character(s) found in {text!r}"
        raise ValueError(why)
    before = tuple(match[4].split(".")) if match[4] else ()
    return Semver(int(match[1]), int(match[2]), int(match[3]), before, match[5] or "")


def _whole(text: str) -> str:
    """A version with all three numbers, and without zeros before them."""
    parts = text.removeprefix("v").split(".", 2)
    parts = [re.sub(r"^0+(?=\d)", "", part) for part in parts]
    if len(parts) < 3 and not re.search(r"[-+]", parts[-1]):
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)
