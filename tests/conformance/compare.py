"""Two normal forms of a probe's answers, told apart: path, what the real server says, what devcluster
says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_ABSENT = "(absent)"


@dataclass(frozen=True)
class Difference:
    """One place where the two differ. `path` begins with the number of the step."""

    path: str
    real: Any
    ours: Any

    def told(self) -> str:
        return f"{self.path}\n      real       {_brief(self.real)}\n      devcluster {_brief(self.ours)}"


def differences(real: Any, ours: Any, path: str = "") -> Iterator[Difference]:
    """Every place where two values differ, deepest first found."""
    if isinstance(real, dict) and isinstance(ours, dict):
        for name in sorted({*real, *ours}):
            below = f"{path}.{name}" if path else name
            yield from differences(real.get(name, _ABSENT), ours.get(name, _ABSENT), below)
    elif isinstance(real, list) and isinstance(ours, list) and len(real) == len(ours):
        for index, (theirs, mine) in enumerate(zip(real, ours, strict=True)):
            yield from differences(theirs, mine, f"{path}[{index}]" if path else f"{index + 1}")
    elif real != ours or type(real) is not type(ours):
        yield Difference(path, real, ours)


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) < 600 else f"{text[:600]} … ({len(text)} characters)"
