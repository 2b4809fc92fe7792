"""An incumbent: its stories, how one is played with it and with ours, and the differences that are meant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

INCUMBENT: Final = "incumbent"
OURS: Final = "ours"

Facts = dict[str, object]
"""All that was observed of one side, by key; values that JSON has."""
Seen = dict[str, Facts]
"""The facts of each side: OURS, and mostly INCUMBENT."""
Play = Callable[[str], Awaitable[Seen]]
"""Plays the story of a name on a stage that is set, in namespaces of its own."""


@dataclass(frozen=True)
class Explained:
    """Differences that a row of the docs explains: `row` is a text of that row, the rest are patterns."""

    stories: str
    keys: str
    row: str
    ours: str = "*"


@dataclass(frozen=True, eq=False)
class Oracle:
    """An incumbent to be compared with."""

    name: str
    page: Path
    """Its tables have a row for each difference that is meant."""
    stories: Sequence[str]
    """Their names, in the order of the table."""
    stage: Callable[[Path, Sequence[str]], AbstractAsyncContextManager[Play]]
    """Sets the stage for some stories in a folder that is empty; it is cleared when the block ends."""
    explained: Sequence[Explained] = ()
    masks: Sequence[tuple[str, str]] = ()
    """Patterns of keys that are not compared, and why."""
    masked: Callable[[str, object], object] = lambda _, value: value
    """Returns a value of a story without what differs each time."""
    gaps: Callable[[], Sequence[str]] = lambda: ()
    """Says which of the incumbent's fields neither a story nor a reason names; it needs no stage."""
    at_once: int = 8
    """How many stories are played side by side."""
    quick: Sequence[str] = ()
    """Stories that `make stories` plays, too."""

    def rows_of_page(self) -> list[str]:
        """Return the rows of all tables of the page."""
        text = self.page.read_text() if self.page.exists() else ""
        return [line for line in text.splitlines() if line.startswith("|")]
